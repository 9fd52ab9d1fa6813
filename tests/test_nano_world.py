"""The nano problems: deterministic, different, within bounds, and split for good."""

import random
import re

import pytest

from engine.errors import InputError
from engine.worlds.nano import FACTORS, NAMES, OPERANDS, STORIES, apply, draw, generate, split_of


def test_the_same_seed_gives_the_same_problems_and_another_seed_others():
    first, again, other = generate(200, 3), generate(200, 3), generate(200, 4)
    assert first == again
    assert len({p.key for p in first} & {p.key for p in other}) < 20


def test_problems_of_one_call_differ_in_text_and_key():
    problems = generate(3000, 5)
    assert len({p.text for p in problems}) == len({p.key for p in problems}) == 3000


def test_chains_stay_in_bounds_and_hold_what_they_claim():
    for p in generate(2000, 6):
        value = p.start
        assert p.start in OPERANDS and 2 <= len(p.ops) <= 5 and len(p.values) == len(p.ops)
        for (op, b), after in zip(p.ops, p.values, strict=True):
            assert b in (FACTORS if op == "×" else OPERANDS)
            value = apply(op, value, b)
            assert value == after and 0 <= value <= 99
        assert p.answer == str(value)


def test_no_chain_is_on_both_sides_whatever_its_words():
    rng = random.Random(0)
    held = {(p.start, p.ops) for p in generate(3000, 1, split="heldout", lengths=(2,))}
    trained = {
        (p.start, p.ops) for p in (draw(rng, ("arithmetic", "word"), "train", (2,)) for _ in range(3000))
    }
    assert not held & trained
    shares = [split_of(s, (("+", b), ("-", c))) for s in OPERANDS for b in OPERANDS for c in OPERANDS]
    assert 0.08 < shares.count("heldout") / len(shares) < 0.12


def test_bracketed_problems_have_one_reading():
    found = [p for p in generate(500, 2, kinds=("arithmetic",)) if p.text.startswith("Compute ")]
    assert len(found) > 100
    for p in found:
        expression = p.text.removeprefix("Compute ").rstrip(".").replace("×", "*")
        assert re.fullmatch(r"[\d+*()-]+", expression)
        assert eval(expression) == int(p.answer)  # digits, signs and brackets only


def test_stories_state_every_number_in_order():
    problems = generate(400, 2, kinds=("word",))
    for p in problems:
        assert [int(x) for x in re.findall(r"\d+", p.text)] == [p.start, *(b for _, b in p.ops)]
        assert p.text.endswith("?") and "{" not in p.text
    starts = {re.sub(rf"{'|'.join(NAMES)}|\d+", "", p.text).split(".")[0] for p in problems}
    assert len(starts) == len(STORIES) >= 12


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"n": -1}, "n=-1"),
        ({"n": 3, "kinds": ("poem",)}, "poem"),
        ({"n": 3, "kinds": ()}, r"kinds=\[\]"),
        ({"n": 3, "lengths": (0,)}, r"lengths=\[0\]"),
        ({"n": 100_000, "kinds": ("arithmetic",), "lengths": (1,)}, "found only"),
    ],
)
def test_impossible_wishes_are_refused_by_name(kwargs, says):
    with pytest.raises(InputError, match=says):
        generate(seed=0, **kwargs)
