"""Whole curves of label counts are what labelling every pair at every parameter gives."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.label_curve import Balance, alpha_curve, gamma_curve, parse_pair
from engine.labels import Rule, label
from engine.values import UNKNOWN, Value


@st.composite
def values(draw: st.DrawFn, exact: bool = True) -> Value:
    if exact and draw(st.booleans()):
        return Value(exact=draw(st.booleans()))
    n = draw(st.sampled_from([1, 4, 15, 16]))
    return Value(draw(st.integers(0, n)), n)


pairs = st.lists(st.tuples(values(exact=False), values(), st.integers(1, 5)), max_size=12)
parameters = st.lists(st.fractions(0, 2, max_denominator=20), min_size=1, max_size=6)


def counted(rule: Rule, given_pairs: list[tuple[Value, Value, int]]) -> tuple[int, int]:
    labels = [(label(rule, before, after), n) for before, after, n in given_pairs]
    return sum(n for sign, n in labels if sign == "+"), sum(n for sign, n in labels if sign == "-")


@settings(deadline=None, max_examples=60)
@given(pairs, parameters)
def test_gamma(given_pairs: list[tuple[Value, Value, int]], gammas: list[Fraction]) -> None:
    for found in gamma_curve(given_pairs, gammas):
        rule = Rule("rel-ratio", gamma=found.parameter)
        assert (found.positive, found.negative) == counted(rule, given_pairs)


@settings(deadline=None, max_examples=60)
@given(pairs, parameters, st.sampled_from([1, 2, 4]))
def test_alpha(given_pairs: list[tuple[Value, Value, int]], alphas: list[Fraction], n: int) -> None:
    for found in alpha_curve(given_pairs, alphas, n):
        rule = Rule("rel-effective", alpha=found.parameter, n=n)
        assert (found.positive, found.negative) == counted(rule, given_pairs)


def test_a_flip_exactly_at_the_threshold_is_negative() -> None:
    pair = (Value(15, 20), Value(9, 20), 3)  # 9/20 against 0.6 · 15/20
    assert gamma_curve([pair], [Fraction("0.59"), Fraction("0.6")]) == [
        Balance(Fraction("0.59"), 3, 0),
        Balance(Fraction("0.6"), 0, 3),
    ]


def test_unknown_values_are_in_neither() -> None:
    [found] = gamma_curve([(UNKNOWN, Value(1, 2), 4), (Value(1, 2), UNKNOWN, 4)], [Fraction(1)])
    assert (found.positive, found.negative, found.negative_share) == (0, 0, None)


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [("3/16 12/15", Value(3, 16), Value(12, 15)), ("0/4 =0", Value(0, 4), Value(exact=False))],
)
def test_pairs_are_read_as_the_store_writes_them(text: str, before: Value, after: Value) -> None:
    assert parse_pair(text, 2) == (before, after, 2)
