"""Which labels turn as γ and α move, in words and exactly; where words of a search stand."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest

from app.views.trajectory_rules import flipped, nearest, turns
from app.widgets.hits import hits
from engine.labels import ABS_Q, REL_EFFECTIVE, REL_RATIO, Rule, label
from engine.values import UNKNOWN, Value

VALUES = [Value(12, 16), Value(9, 16), UNKNOWN, Value(8, 16), Value(2, 16), Value(4, 16)]


def test_turns_are_exact_and_ascending_and_leave_unknown_values_out() -> None:
    assert [(turn.chunk, turn.at) for turn in turns(REL_RATIO, VALUES)] == [
        (3, Fraction(1, 4)),
        (0, Fraction(3, 4)),
        (4, Fraction(2)),
    ]
    assert turns(ABS_Q, VALUES) == []


@pytest.mark.parametrize("rule", [REL_RATIO, REL_EFFECTIVE], ids=str)
def test_a_label_is_plus_exactly_below_its_turn(rule: Rule) -> None:
    for turn in turns(rule, VALUES):
        before, after = VALUES[turn.chunk], VALUES[turn.chunk + 1]
        for at, sign in ((turn.at - Fraction(1, 100), "+"), (turn.at, "-")):
            moved = Rule(rule.name, gamma=at) if rule.gamma is not None else Rule(rule.name, None, at, rule.n)
            assert label(moved, before, after) == sign


def test_the_nearest_turns_in_words() -> None:
    assert nearest(REL_RATIO, VALUES) == "chunk 0 turns + below γ = 0.75; chunk 4 turns − from γ = 2.00 on"
    assert nearest(Rule("rel-ratio", gamma=Fraction(3)), VALUES) == "chunk 4 turns + below γ = 2.00"
    assert nearest(ABS_Q, VALUES) == "" and nearest(REL_RATIO, [UNKNOWN, UNKNOWN]) == ""


def test_what_flips_between_two_parameters() -> None:
    usual = [label(REL_RATIO, a, b) for a, b in pairwise(VALUES)]
    lower = [label(Rule("rel-ratio", gamma=Fraction(1, 2)), a, b) for a, b in pairwise(VALUES)]
    assert flipped(lower, usual) == [0] and flipped(usual, usual) == []


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("The sum x^2 - 4 is.", "X^2", [(8, 11)]),
        ("求三角形的面积", "三角形", [(1, 4)]),
        ("aXa", "a", [(0, 1), (2, 3)]),
        ("(a|b)*", "(a|b)*", [(0, 6)]),
        ("abc", "", []),
        ("abcd", "ab abc", [(0, 3)]),
    ],
)
def test_words_of_a_search_are_found_literally_in_any_case(
    text: str, words: str, found: list[tuple[int, int]]
) -> None:
    assert hits(text, words) == found
    assert len(hits("a " * 1000, "a")) == 200
