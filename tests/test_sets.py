"""Training sets: which label counts, what is left out and counted, the split by problem, the balance, and the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.errors import RecipeError, TrainingError
from engine.recipes import resolve
from engine.values import UNKNOWN, Value
from tests.labelled_store import store_with
from training.jobs import TrainJudgeRecipe
from training.parts import LabelChoice
from training.sets import (
    Example,
    Labelled,
    TrainingSet,
    balanced,
    choose,
    label_examples,
    read_set,
    split_by_problem,
    write_set,
)

SURE_PLUS = (Value(12, 16), Value(15, 16))
SURE_MINUS = (Value(15, 16), Value(1, 16))
UNSURE_MINUS = (Value(9, 16), Value(7, 16))  # 7/9 < 0.8, and fresh draws would often say otherwise


def characters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


def labelled(chunk_id: int, values: tuple[Value, Value], problem: int | None = None, **said: Any) -> Labelled:
    return Labelled(chunk_id, problem or chunk_id, f"prompt {chunk_id}", *values, **said)


def mixture(plus: int, minus: int, first: int = 1) -> list[Labelled]:
    """Chunks of as many problems, certain ones."""
    values = [SURE_PLUS] * plus + [SURE_MINUS] * minus
    return [labelled(first + i, pair) for i, pair in enumerate(values)]


def chosen(chunks: Sequence[Labelled], *, seed: int = 0, longest: int = 100, **choice: Any) -> TrainingSet:
    return choose(
        chunks,
        LabelChoice(**{"held_out": 0.0, "min_confidence": 0.0, **choice}),
        seed=seed,
        max_prompt_tokens=longest,
        count_tokens=characters,
    )


def signs(examples: Sequence[Example]) -> dict[str, int]:
    return {sign: sum(e.label == sign for e in examples) for sign in "+-"}


def test_the_larger_class_is_sampled_down_to_one_to_one() -> None:
    data = chosen(mixture(plus=30, minus=7))
    assert signs(data.train) == {"+": 7, "-": 7}
    assert [e.label for e in data.train] == ["+", "-"] * 7
    assert data.counts["positive"] == 30 and data.counts["negative"] == 7 and data.counts["train"] == 14
    assert chosen(mixture(30, 7)).train == data.train, "the same seed gives the same set"
    assert {e.chunk_id for e in chosen(mixture(30, 7), seed=1).train} != {e.chunk_id for e in data.train}
    assert signs(chosen(mixture(30, 7), balance=False).train) == {"+": 30, "-": 7}


def test_problems_are_held_out_whole_and_measured_on_a_balanced_set() -> None:
    chunks = [
        labelled(problem * 10 + i, pair, problem)
        for problem in range(1, 21)
        for i, pair in enumerate((SURE_PLUS, SURE_PLUS, SURE_MINUS))
    ]
    data = chosen(chunks, held_out=0.25)
    held_out, train = {e.problem_id for e in data.held_out}, {e.problem_id for e in data.train}
    assert len(held_out) == 5 and len(train) == 15 and not held_out & train
    assert signs(data.held_out) == {"+": 5, "-": 5} and signs(data.train) == {"+": 15, "-": 15}
    assert signs(chosen(chunks, held_out=0.25, balance=False).held_out) == {"+": 5, "-": 5}
    few = chosen(chunks, held_out=0.25, held_out_chunks=6).held_out
    assert signs(few) == {"+": 3, "-": 3}
    other = {e.problem_id for e in chosen(chunks, held_out=0.25, seed=3).held_out}
    assert other != held_out, "which problems are held out follows the seed"


def test_at_least_one_problem_is_on_either_side_of_a_split() -> None:
    rows = [Example(i, i % 2, "p", "+") for i in range(6)]
    for share in (0.01, 0.99):
        train, held_out = split_by_problem(rows, share, seed=0)
        assert train and held_out
    assert split_by_problem(rows, 0.0, seed=0) == (rows, [])
    alone = [Example(1, 1, "p", "+")]
    assert split_by_problem(alone, 0.5, seed=0) == (alone, [])


@pytest.mark.parametrize(
    ("values", "said", "expected", "count"),
    [
        (SURE_PLUS, {}, "+", "by_rule"),
        (SURE_MINUS, {}, "-", "by_rule"),
        (SURE_PLUS, {"reviews": (-1,)}, "-", "reviewed"),
        ((UNKNOWN, UNKNOWN), {"reviews": (1, 1)}, "+", "reviewed"),
        (SURE_PLUS, {"reviews": (1, -1)}, None, "unlabelled"),
        (SURE_PLUS, {"reviews": (0,)}, None, "unlabelled"),
        (SURE_PLUS, {"reviews": (None,)}, None, "unlabelled"),
        (SURE_PLUS, {"reviews": (1, -1), "adjudication": -1}, "-", "reviewed"),
        (SURE_PLUS, {"adjudication": 0}, None, "unlabelled"),
        ((SURE_PLUS[0], UNKNOWN), {}, None, "unlabelled"),
    ],
)
def test_a_persons_label_overrides_the_rule(
    values: tuple[Value, Value], said: dict[str, Any], expected: str | None, count: str
) -> None:
    data = chosen([*mixture(3, 3), labelled(99, values, **said)], balance=False)
    label = {e.chunk_id: e.label for e in data.train}.get(99)
    assert label == expected
    assert data.counts[count] == (7 if count == "by_rule" else 1)


def test_reviews_can_be_left_aside() -> None:
    chunks = [*mixture(3, 3), labelled(99, SURE_PLUS, reviews=(-1,))]
    data = chosen(chunks, balance=False, reviews=False)
    assert {e.chunk_id: e.label for e in data.train}[99] == "+"


def test_uncertain_labels_are_left_out_on_request_but_a_persons_are_not() -> None:
    chunks = [*mixture(3, 3), labelled(50, UNSURE_MINUS), labelled(51, UNSURE_MINUS, reviews=(-1,))]
    assert {e.chunk_id for e in chosen(chunks, balance=False).train} >= {50, 51}
    data = chosen(chunks, balance=False, min_confidence=0.8)
    assert 50 not in {e.chunk_id for e in data.train} and 51 in {e.chunk_id for e in data.train}
    assert data.counts["unsure"] == 1


def test_labels_follow_the_recipes_own_rule_exactly() -> None:
    exact_tie = labelled(99, (Value(15, 20), Value(9, 20)))  # 9/20 = 0.6 · 15/20
    for rule, sign in (("rel-ratio:gamma=0.6", "-"), ("rel-ratio:gamma=0.59", "+"), ("abs-q", "+")):
        chunks = [*mixture(2, 2), labelled(5, (Value(4, 16), Value(0, 16))), exact_tie]
        data = chosen(chunks, balance=False, rule=rule)
        assert {e.chunk_id: e.label for e in data.train}[99] == sign, rule
    with pytest.raises(RecipeError, match="rel-magic"):
        chosen(mixture(2, 2), rule="rel-magic")


def test_prompts_that_are_too_long_are_left_out_and_counted() -> None:
    chunks = [*mixture(3, 3), Labelled(99, 99, "x" * 41, *SURE_PLUS), Labelled(98, 98, "x" * 40, *SURE_PLUS)]
    data = chosen(chunks, balance=False, longest=40)
    assert 98 in {e.chunk_id for e in data.train} and 99 not in {e.chunk_id for e in data.train}
    assert data.counts["too_long"] == 1 and data.counts["chunks"] == 8


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], "no chunk can be trained on .*0 selected chunks"),
        ([labelled(1, (UNKNOWN, UNKNOWN))], "no chunk can be trained on .*1 without a label under rel-ratio"),
        (mixture(5, 0), "no chunk labelled '-' is left .*5 \\+ and 0 -"),
        (mixture(0, 5), "no chunk labelled '\\+' is left .*0 \\+ and 5 -"),
    ],
)
def test_nothing_to_learn_from_is_an_error_that_says_why(chunks: list[Labelled], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        chosen(chunks)
    with pytest.raises(TrainingError, match=message):
        chosen(chunks, balance=False)


def test_balancing_keeps_every_example_of_the_smaller_class() -> None:
    rows = [Example(i, i, "p", "+" if i % 3 else "-") for i in range(30)]
    kept = balanced(rows, seed=2)
    assert {e.chunk_id for e in kept if e.label == "-"} == set(range(0, 30, 3))
    assert signs(kept) == {"+": 10, "-": 10}
    assert balanced([e for e in rows if e.label == "+"], seed=2) == []


def test_a_kept_set_reads_back_as_it_was(tmp_path: Path) -> None:
    rows = (Example(1, 2, "line\nbreak \u2028 “quoted” 鸡兔", "+"), Example(3, 4, "", "-"))
    data = TrainingSet(rows, rows[:1], {"train": 2, "too_long": 1})
    write_set(data, tmp_path / "set.jsonl")
    assert read_set(tmp_path / "set.jsonl") == data
    (tmp_path / "set.jsonl").write_text('{"counts": {}}\n{"part": "trai', encoding="utf-8")
    with pytest.raises(TrainingError, match="not a kept training set"):
        read_set(tmp_path / "set.jsonl")


# ---- from a store


def recipe(**labels: Any) -> TrainJudgeRecipe:
    choice = {"held_out": 0.0, "min_confidence": 0.0, "balance": False, **labels}
    return resolve(TrainJudgeRecipe, {"select": {"policy": "human"}, "labels": choice})


def test_prompts_and_labels_come_from_the_stored_counts(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, [(16, 2), (1, 12)])
    data = label_examples(store, recipe(), characters)
    by_chunk = {e.chunk_id: e for e in data.train}
    # 8/16 before, then (16, 2) or (1, 12) of 16, and the solutions' grade, correct, at their end
    assert [by_chunk[i].label for i in chunks] == ["+", "-", "+", "-", "+", "+"]
    second = by_chunk[chunks[4]]
    assert "Problem 1?" in second.prompt and "step 0 of 1" in second.prompt and "step 1 of 1" in second.prompt
    assert "step 2 of 1" not in second.prompt and "of 0" not in second.prompt
    # the cached labels at default parameters are of no influence: there are none
    assert store.labels(chunks) == {}
    strict = label_examples(store, recipe(rule="rel-ratio:gamma=2.1"), characters)
    assert {e.chunk_id: e.label for e in strict.train}[chunks[0]] == "-", "16/16 < 2.1 · 8/16"


def test_a_stored_review_overrides_the_rule_until_it_is_undone(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, [(16, 2), (1, 12)])
    store.add_review(chunks[0], action_id="a1", actor="ada", verdict=-1, comment="a slip")
    reviewed = label_examples(store, recipe(), characters)
    assert {e.chunk_id: e.label for e in reviewed.train}[chunks[0]] == "-"
    assert reviewed.counts["reviewed"] == 1
    by_rule = label_examples(store, recipe(reviews=False), characters)
    assert {e.chunk_id: e.label for e in by_rule.train}[chunks[0]] == "+"
    store.undo(action_id="a2", actor="ada", chunk_id=chunks[0])
    undone = label_examples(store, recipe(), characters)
    assert {e.chunk_id: e.label for e in undone.train}[chunks[0]] == "+"


def test_only_selected_trajectories_are_used(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, [(16, 2), (1, 12)])
    other = recipe().model_copy(update={"select": recipe().select.model_copy(update={"dataset": "none"})})
    with pytest.raises(
        TrainingError, match=r"no trajectory that fits select .*dataset .none., policy .human."
    ):
        label_examples(store, other, characters)
    first = recipe().model_copy(update={"select": recipe().select.model_copy(update={"limit": 1})})
    assert {e.chunk_id for e in label_examples(store, first, characters).train} == set(chunks[:3])


def test_what_follows_the_first_negative_label_is_left_out_where_asked():
    def solution(first: int, trajectory: int) -> list[Labelled]:
        values = [SURE_PLUS, SURE_MINUS, SURE_PLUS, SURE_MINUS]
        return [labelled(first + i, pair, 1, trajectory_id=trajectory) for i, pair in enumerate(values)]

    chunks = solution(1, 1) + solution(11, 2)
    kept = chosen(chunks, until_first_negative=True)
    assert sorted(e.chunk_id for e in kept.train) == [1, 2, 11, 12]
    assert (kept.counts["after_negative"], kept.counts["by_rule"]) == (4, 4)
    assert chosen(chunks).counts["after_negative"] == 0


def test_an_unsure_negative_does_not_end_a_solution():
    chunks = [
        labelled(i, pair, 1, trajectory_id=1)
        for i, pair in enumerate([UNSURE_MINUS, SURE_PLUS, SURE_MINUS], 1)
    ]
    kept = chosen(chunks, until_first_negative=True, min_confidence=0.8)
    assert sorted(e.chunk_id for e in kept.train) == [2, 3]
