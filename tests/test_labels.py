"""Label rules against hand-computed cases, confidence against listing and simulation, effective labels."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom

from engine.errors import RecipeError
from engine.labels import (
    DEFAULT_RULES,
    Label,
    Rule,
    confidence,
    drop,
    effective_label,
    flip_alpha,
    flip_gamma,
    label,
    label_all,
    label_row,
    parse_rule,
)
from engine.values import UNKNOWN, Value

RIGHT, WRONG = Value(exact=True), Value(exact=False)
TOO_MANY_ERRORS = Value(8, 14, errors=2)


def of(k: int, n: int = 16) -> Value:
    return Value(k, n)


HAND_COMPUTED: list[tuple[str, Value, Value, Label | None]] = [
    # abs-q: q_i > 0; the value before is not read
    ("abs-q", of(16), of(0), "-"),
    ("abs-q", of(0), of(0), "-"),
    ("abs-q", of(0), of(1), "+"),
    ("abs-q", of(16), of(1), "+"),
    ("abs-q", of(16), RIGHT, "+"),
    ("abs-q", of(16), WRONG, "-"),
    ("abs-q", UNKNOWN, of(3), "+"),
    ("abs-q", of(3), UNKNOWN, None),
    ("abs-q", of(3), TOO_MANY_ERRORS, None),
    # rel-ratio: q_i > γ q_{i-1}
    ("rel-ratio", of(0), of(0), "-"),
    ("rel-ratio", of(0), of(1), "+"),
    ("rel-ratio", of(0), WRONG, "-"),
    ("rel-ratio", of(0), RIGHT, "+"),
    ("rel-ratio", of(10), of(8), "-"),  # 8/16 = 0.8 · 10/16, a tie
    ("rel-ratio", of(10), of(9), "+"),
    ("rel-ratio", of(10), of(7), "-"),
    ("rel-ratio", of(16), RIGHT, "+"),
    ("rel-ratio", of(16), of(16), "+"),
    ("rel-ratio:gamma=0.6", of(15, 20), of(9, 20), "-"),  # a tie, and + in floating point
    ("rel-ratio:gamma=0.6", of(15, 20), of(10, 20), "+"),
    ("rel-ratio:gamma=0.7", of(10), of(7), "-"),  # a tie
    ("rel-ratio:gamma=0.7", of(3, 30), of(7, 100), "-"),  # 7/100 = 0.7 · 1/10
    ("rel-ratio:gamma=1", of(16), of(16), "-"),  # γ >= 1: 1 → 1 is -
    ("rel-ratio:gamma=1", of(5), of(5), "-"),
    ("rel-ratio:gamma=1", of(5), of(6), "+"),
    ("rel-ratio:gamma=1.2", of(10, 20), of(12, 20), "-"),  # 12/20 = 1.2 · 10/20
    ("rel-ratio:gamma=1.2", of(10, 20), of(13, 20), "+"),
    ("rel-ratio:gamma=1.2", of(16), RIGHT, "-"),
    ("rel-ratio:gamma=0", of(16), of(0), "-"),
    ("rel-ratio:gamma=0", of(16), of(1), "+"),
    ("rel-ratio:gamma=2/3", of(12), of(8), "-"),  # 8/16 = 2/3 · 12/16
    ("rel-ratio", UNKNOWN, of(3), None),
    ("rel-ratio", of(3), UNKNOWN, None),
    ("rel-ratio", TOO_MANY_ERRORS, of(16), None),
    # rel-effective: q_i + α (u_i - u_{i-1}) > 0 with u = 1 - (1 - q)^n; α = 0.4 and n = 4 unless named
    ("rel-effective", of(0), of(0), "-"),  # 0 + 0.4 · 0
    ("rel-effective", of(0), of(1), "+"),
    ("rel-effective", of(0), WRONG, "-"),
    ("rel-effective", of(16), of(16), "+"),  # 1 + 0.4 · 0
    ("rel-effective", of(16), of(0), "-"),  # 0 + 0.4 · (0 - 1)
    ("rel-effective", of(8), of(1), "-"),  # 0.0625 + 0.4 · (0.2275 - 0.9375) = -0.2215
    ("rel-effective", of(16), of(4), "+"),  # 0.25 + 0.4 · (0.6836 - 1) = 0.1234
    ("rel-effective", of(16), of(2), "-"),  # 0.125 + 0.4 · (0.4138 - 1) = -0.1095
    ("rel-effective:alpha=0.8", of(16), of(4), "-"),  # 0.25 - 0.8 · 0.3164 = -0.0031
    ("rel-effective:alpha=0.8", of(8), RIGHT, "+"),
    ("rel-effective:alpha=0.8", of(1), WRONG, "-"),
    ("rel-effective:alpha=1,n=1", of(8), of(4), "-"),  # 1/4 + (1/4 - 1/2) = 0, the case printed "= 0"
    ("rel-effective:alpha=1,n=1", of(8), of(5), "+"),
    ("rel-effective:alpha=0.4,n=1", of(14), of(4), "-"),  # 1/4 + 2/5 · (1/4 - 7/8) = 0
    ("rel-effective:alpha=0.2,n=1", of(12), of(2), "-"),  # 1/8 + 1/5 · (1/8 - 3/4) = 0
    ("rel-effective:alpha=4/9,n=2", of(16), of(4), "-"),  # 1/4 + 4/9 · (7/16 - 1) = 0
    ("rel-effective:alpha=0", of(16), of(1), "+"),
    ("rel-effective", UNKNOWN, of(3), None),
    ("rel-effective", of(3), TOO_MANY_ERRORS, None),
]


@pytest.mark.parametrize(("rule", "before", "after", "expected"), HAND_COMPUTED)
def test_hand_computed_labels(rule: str, before: Value, after: Value, expected: Label | None) -> None:
    assert label(parse_rule(rule), before, after) == expected
    if expected is None:
        assert confidence(parse_rule(rule), before, after) is None


def test_the_tie_of_the_table_would_be_plus_in_floating_point() -> None:
    assert 9 / 20 > 0.6 * (15 / 20)
    assert Fraction(9, 20) == Fraction("0.6") * Fraction(15, 20)


# Rules and values at random


def values(largest: int = 32) -> st.SearchStrategy[Value]:
    counted = st.integers(1, largest).flatmap(lambda n: st.integers(0, n).map(lambda k: Value(k, n)))
    return st.one_of(counted, st.sampled_from([RIGHT, WRONG]))


parameters = st.fractions(min_value=0, max_value=2, max_denominator=40)
rules = st.one_of(
    st.just(Rule("abs-q")),
    parameters.map(lambda gamma: Rule("rel-ratio", gamma=gamma)),
    st.builds(lambda alpha, n: Rule("rel-effective", alpha=alpha, n=n), parameters, st.integers(1, 8)),
)


@given(rules)
def test_rule_text_round_trips(rule: Rule) -> None:
    assert parse_rule(str(rule)) == rule


def test_rule_texts() -> None:
    assert [str(rule) for rule in DEFAULT_RULES] == [
        "abs-q",
        "rel-effective:alpha=0.4,n=4",
        "rel-ratio:gamma=0.8",
    ]
    assert [parse_rule(rule.name) for rule in DEFAULT_RULES] == list(DEFAULT_RULES)
    assert str(parse_rule("rel-ratio: gamma = 1/3")) == "rel-ratio:gamma=1/3"
    assert str(parse_rule("rel-ratio:gamma=0.0625")) == "rel-ratio:gamma=0.0625"
    assert parse_rule("rel-effective:n=8") == Rule("rel-effective", alpha=Fraction(2, 5), n=8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ratio", "unknown rule 'ratio'; there are abs-q"),
        ("abs-q:gamma=0.8", "abs-q takes no 'gamma'"),
        ("rel-ratio:alpha=0.8", "rel-ratio takes no 'alpha'"),
        ("rel-ratio:gamma=0.8,gamma=0.7", "takes no 'gamma' here"),
        ("rel-ratio:gamma=high", "gamma is 'high', which is not a number"),
        ("rel-ratio:gamma=nan", "not a number"),
        ("rel-ratio:gamma=1/0", "not a number"),
        ("rel-ratio:gamma=-1", "out of range"),
        ("rel-ratio:gamma=1e999999999", "not a number written out"),
        ("rel-ratio:gamma=9999", "out of range"),
        ("rel-effective:n=1000000000", "out of range"),
        ("rel-effective:n=0", "out of range"),
        ("rel-effective:n=2.5", "out of range"),
    ],
)
def test_bad_rules_are_named(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_rule(text)


def test_gamma_of_one_and_more_warns() -> None:
    assert parse_rule("rel-ratio:gamma=0.99").warning is None
    assert parse_rule("abs-q").warning is None
    assert "1 → 1" in (parse_rule("rel-ratio:gamma=1").warning or "")


@given(values(), values())
def test_flip_gamma_is_where_the_label_flips(before: Value, after: Value) -> None:
    flip = flip_gamma(before, after)
    for gamma in (
        Fraction(0),
        Fraction(1, 2),
        Fraction(1),
        Fraction(3),
        *([flip, flip + 1, flip / 2] if flip else []),
    ):
        given_label = label(Rule("rel-ratio", gamma=gamma), before, after)
        if flip is None:  # the value before is 0: no γ matters
            assert given_label == label(Rule("abs-q"), before, after)
        else:
            assert (given_label == "+") == (gamma < flip)


@given(values(), values(), st.integers(1, 8))
def test_flip_alpha_is_where_the_label_flips(before: Value, after: Value, n: int) -> None:
    flip = flip_alpha(before, after, n)
    for alpha in (Fraction(0), Fraction(2, 5), Fraction(1), *([flip, flip + 1, flip / 2] if flip else [])):
        given_label = label(Rule("rel-effective", alpha=alpha, n=n), before, after)
        if flip is None:  # u did not fall: no α matters
            assert given_label == label(Rule("abs-q"), before, after)
        else:
            assert (given_label == "+") == (alpha < flip)


def test_drop_and_flips_by_hand() -> None:
    assert drop(of(13), of(2)) == Fraction(11, 16)
    assert drop(of(2), RIGHT) == Fraction(-7, 8)
    assert flip_gamma(of(10), of(9)) == Fraction(9, 10)
    assert flip_gamma(of(10), WRONG) == 0
    assert flip_gamma(of(0), of(9)) is None
    assert flip_alpha(of(16), of(4), 2) == Fraction(4, 9)
    assert flip_alpha(of(4), of(4), 4) is None
    for function in (drop, flip_gamma, lambda before, after: flip_alpha(before, after, 4)):
        assert function(UNKNOWN, of(3)) is None
        assert function(of(3), TOO_MANY_ERRORS) is None


# Confidence


def masses(value: Value) -> list[tuple[Value, float]]:
    """Every fresh value of the same size with its probability, from scipy's own beta-binomial."""
    if value.exact is not None:
        return [(value, 1.0)]
    k, n = value.successes, value.n
    return [(Value(j, n), float(betabinom.pmf(j, n, k + 0.5, n - k + 0.5))) for j in range(n + 1)]


@settings(max_examples=60, deadline=None)
@given(rules, values(16), values(16))
def test_confidence_is_the_sum_over_all_fresh_draws(rule: Rule, before: Value, after: Value) -> None:
    same = sum(
        p_before * p_after
        for fresh_before, p_before in masses(before)
        for fresh_after, p_after in masses(after)
        if label(rule, fresh_before, fresh_after) == label(rule, before, after)
    )
    assert confidence(rule, before, after) == pytest.approx(same, abs=1e-9)


@pytest.mark.parametrize("rule", DEFAULT_RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (of(10), of(9)),
        (of(13), of(2)),
        (of(0), of(1)),
        (of(12), RIGHT),
        (of(3), WRONG),
        (of(200, 256), of(150, 256)),
    ],
)
def test_confidence_agrees_with_simulation(rule: Rule, before: Value, after: Value) -> None:
    random = np.random.default_rng(12345)
    draws = 40_000

    def fresh(value: Value) -> Any:
        if value.exact is not None:
            return np.full(draws, int(value.exact)), 1
        chance = random.beta(value.successes + 0.5, value.n - value.successes + 0.5, draws)
        return random.binomial(value.n, chance), value.n

    (k_before, n_before), (k_after, n_after) = fresh(before), fresh(after)
    pairs, counts = np.unique(np.stack([k_before, k_after]), axis=1, return_counts=True)
    original = label(rule, before, after)
    same = sum(
        count
        for (kb, ka), count in zip(pairs.T.tolist(), counts.tolist(), strict=True)
        if label(rule, Value(kb, n_before), Value(ka, n_after)) == original
    )
    assert confidence(rule, before, after) == pytest.approx(same / draws, abs=0.01)


def test_confidence_of_exact_values_is_certain() -> None:
    for rule in DEFAULT_RULES:
        assert confidence(rule, WRONG, RIGHT) == 1.0
        assert confidence(rule, RIGHT, WRONG) == 1.0
    assert confidence(parse_rule("abs-q"), UNKNOWN, RIGHT) == 1.0


def test_confidence_grows_with_the_number_of_draws() -> None:
    few, many = (confidence(parse_rule("rel-ratio"), of(n // 2, n), of(n // 8, n)) for n in (16, 256))
    assert few is not None and many is not None and few < many


def test_label_all_and_the_cached_row() -> None:
    rules_labels = label_all(of(13), of(2))
    assert list(rules_labels) == list(DEFAULT_RULES)
    row = label_row(of(13), of(2))
    assert {key: row[key] for key in list(row)[:9]} == {
        "before_k": 13,
        "before_n": 16,
        "after_k": 2,
        "after_n": 16,
        "after_exact": None,
        "q_before": 0.8125,
        "q_after": 0.125,
        "drop": 0.6875,
        "gamma_flip": pytest.approx(2 / 13),
    }
    assert (row["abs_q"], row["rel_effective"], row["rel_ratio"]) == ("+", "-", "-")
    for rule, given_label in rules_labels.items():
        assert row[f"{rule.name.replace('-', '_')}_conf"] == given_label.confidence
    from db.tables import ChunkLabel

    assert set(row) | {"chunk_id"} == set(ChunkLabel.__table__.columns.keys())


def test_the_cached_row_of_unknown_and_exact_values() -> None:
    row = label_row(UNKNOWN, RIGHT)
    assert (row["before_k"], row["q_before"], row["drop"]) == (None, None, None)
    assert (row["after_k"], row["after_n"], row["after_exact"], row["q_after"]) == (0, 0, 1, 1.0)
    assert (row["abs_q"], row["rel_effective"], row["rel_ratio"]) == ("+", None, None)
    assert row["rel_ratio_conf"] is None


@pytest.mark.parametrize(
    ("adjudication", "reviews", "rule_label", "expected"),
    [
        (None, [], "+", ("+", "rule")),
        (None, [], None, (None, "none")),
        (None, [1], "-", ("+", "review")),
        (None, [-1, -1], "+", ("-", "review")),
        (None, [1, 0, None], "-", ("+", "review")),  # 0 and "cannot tell" abstain
        (None, [1, -1], "+", (None, "disagreement")),
        (None, [0], "+", (None, "abstained")),  # somebody reviewed: the rule is not asked
        (None, [None], "-", (None, "abstained")),
        (1, [-1, -1], "-", ("+", "adjudication")),
        (-1, [1, -1], None, ("-", "adjudication")),
        (0, [1], "+", (None, "adjudication")),
    ],
)
def test_effective_label(
    adjudication: int | None,
    reviews: list[int | None],
    rule_label: Label | None,
    expected: tuple[Label | None, str],
) -> None:
    assert effective_label(adjudication, reviews, rule_label) == expected
