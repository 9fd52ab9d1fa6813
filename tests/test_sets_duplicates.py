"""Near-duplicate problems: what counts as one, what does not, and that finding them is not quadratic."""

from __future__ import annotations

import random

import pytest

from engine.worlds.nano import generate
from tests.test_sets import SURE_MINUS, SURE_PLUS, chosen, labelled
from training.sets import duplicates, split_by_problem
from training.sets.choosing import choose
from training.sets.duplicates import near_duplicates, words_of
from training.sets.examples import Example

STORY = "Mia has 7 apples. She picks 5 more and gives away 4. How many apples are left?"


def same(one: str, other: str, threshold: float = 0.8) -> bool:
    return near_duplicates({1: one, 2: other}, threshold)[2] == 1


@pytest.mark.parametrize(
    "other",
    [
        STORY.upper(),
        "Mia has 7 apples;  she picks 5 more, and gives away 4!\n\nHow many apples are left",
        "“Mia” has 7 apples.  She picks 5 more — and gives away 4. How many apples are left?",
        "Ｍia has ７ apples. She picks 5 more and gives away 4. How many apples are left?",
    ],
)
def test_case_spaces_and_stops_make_no_other_problem(other: str) -> None:
    assert same(STORY, other, threshold=1.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (STORY, STORY.replace("7", "8")),
        (STORY, STORY.replace("5", "4").replace("away 4", "away 5")),
        ("Compute ((7+5)-4).", "Compute ((7-5)+4)."),
        ("Compute 12 - 3.", "Compute 12 + 3."),
        ("Compute (2+3)*4.", "Compute 2+(3*4)."),
        ("Take 1.5, then add 2.", "Take 15, then add 2."),
        ("小明有 7 本书，又买了 3 本。", "小明有 7 本书，又买了 5 本。"),
    ],
)
def test_another_number_or_operator_is_another_problem(one: str, other: str) -> None:
    assert not same(one, other, threshold=0.01)


def test_a_number_with_thousands_separators_is_the_same_number() -> None:
    assert same("A city has 1,200,000 people.", "A city has 1200000 people.", threshold=1.0)


def test_wording_is_compared_by_shared_word_triples() -> None:
    one = "the old man walks to the river with 7 apples in his bag"  # 11 triples of 13 words
    other = one.replace("bag", "hat")  # the last one differs: 10 shared of 12
    assert same(one, other, threshold=10 / 12)
    assert not same(one, other, threshold=10 / 12 + 0.001)
    assert not same(one, other, threshold=1.0)
    assert near_duplicates({1: one, 2: one}, 0) == {1: 1, 2: 2}, "0 is off"


def test_no_like_pair_is_missed_against_all_pairs_compared() -> None:
    rng = random.Random(3)
    words = [chr(97 + i) * 2 for i in range(12)]
    texts = {i: " ".join(rng.choices(words, k=rng.randint(1, 12))) for i in range(150)}
    texts |= {200 + i: texts[i] + " extra" for i in range(40)}
    for threshold in (0.3, 0.5, 0.8, 0.9):
        triples = {i: duplicates._shingles(words_of(text)[0]) for i, text in texts.items()}
        group = {i: i for i in texts}
        for i in texts:
            for j in texts:
                if i < j and len(triples[i] & triples[j]) >= threshold * len(triples[i] | triples[j]):
                    old, new = max(group[i], group[j]), min(group[i], group[j])
                    group = {k: new if g == old else g for k, g in group.items()}
        assert near_duplicates(texts, threshold) == group, threshold
        assert len(set(group.values())) < len(texts)


def test_nano_problems_are_all_different() -> None:
    problems = generate(1500, seed=4)
    found = near_duplicates({i: p.text for i, p in enumerate(problems)}, 0.8)
    assert all(problem == leader for problem, leader in found.items())
    twice = {i: p.text for i, p in enumerate(problems + problems)}
    assert len(set(near_duplicates(twice, 0.8).values())) == 1500


def test_the_work_grows_with_the_problems_and_not_with_their_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons are counted: 1,000 nano problems, and 1,000 copies of one template with a word exchanged."""

    class Counted(frozenset):  # type: ignore[type-arg]
        compared = 0

        def __and__(self, other: object) -> frozenset[object]:
            Counted.compared += 1
            return super().__and__(other)  # type: ignore[operator]

    plain = duplicates._shingles
    monkeypatch.setattr(duplicates, "_shingles", lambda words: Counted(plain(words)))
    near_duplicates({i: p.text for i, p in enumerate(generate(1000, seed=5))}, 0.8)
    assert Counted.compared < 1000
    Counted.compared = 0
    words = [chr(97 + i // 26) + chr(97 + i % 26) for i in range(60)]
    name = [chr(97 + i // 100) + chr(97 + i // 10 % 10) + chr(97 + i % 10) for i in range(1000)]
    groups = near_duplicates({i: " ".join([*words, name[i], *words]) for i in range(1000)}, 0.8)
    assert set(groups.values()) == {0}
    assert 0 < Counted.compared < 20 * 1000


def test_near_duplicate_problems_stay_on_one_side_of_the_split() -> None:
    alike = {problem: problem // 10 * 10 for problem in range(100)}  # ten groups of ten
    rows = [Example(problem, problem, "p", "+") for problem in range(100)]
    for seed in range(5):
        train, held_out = split_by_problem(rows, 0.25, seed, alike)
        sides = [{alike[e.problem_id] for e in part} for part in (train, held_out)]
        assert not sides[0] & sides[1]
        assert len(held_out) == 30, "whole groups until the share is reached"
        apart, _ = split_by_problem(rows, 0.25, seed)
        assert {e.problem_id for e in apart} != {e.problem_id for e in train}
    one_group = split_by_problem(rows, 0.5, 0, dict.fromkeys(range(100), 0))
    assert one_group == (rows, []), "one group cannot be on two sides"
    most = {problem: 0 for problem in range(90)}
    for seed in range(5):
        _, held_out = split_by_problem(rows, 0.1, seed, most)
        assert len(held_out) >= 9 and min(e.problem_id for e in held_out) >= 90, "not the ninety alike"
    for seed in range(5):
        train, _ = split_by_problem(rows, 0.1, seed, most | dict.fromkeys(range(90, 100), 99))
        assert len(train) == 90


def test_a_choice_splits_by_the_groups_that_it_is_given() -> None:
    chunks = [labelled(i, SURE_PLUS if i % 2 else SURE_MINUS, problem=i) for i in range(1, 41)]
    alike = {problem: (problem - 1) // 8 * 8 + 1 for problem in range(1, 41)}
    plain = chosen(chunks, held_out=0.2, balance=False)
    data = choose(
        chunks,
        plain_choice(),
        seed=0,
        max_prompt_tokens=100,
        count_tokens=lambda texts: [1] * len(texts),
        alike=alike,
    )
    for part in (data.train, data.held_out):
        assert len({alike[e.problem_id] for e in part}) * 8 == len(part)
    assert {e.problem_id for e in data.held_out} != {e.problem_id for e in plain.held_out}


def plain_choice():  # type: ignore[no-untyped-def]
    from training.parts import LabelFilter

    return LabelFilter(held_out=0.2, min_confidence=0.0, balance=False)
