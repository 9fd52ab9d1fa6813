"""Values: which outcomes count, when a value is unknown, and intervals that cover what they claim."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from engine.errors import InputError
from engine.values import UNKNOWN, Value, leave_one_out, terminal_value, value_of
from engine.worlds.number_game import State, exact_value, family, sample_rollouts, states

OUTCOMES = ("correct", "wrong", "unparsed", "truncated", "error")


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"correct": 3, "wrong": 5, "unparsed": 4, "truncated": 4}, Value(3, 16)),
        ({"correct": 9, "wrong": 6, "error": 1}, Value(9, 15, errors=1)),
        ({"wrong": 16}, Value(0, 16)),
        ({"error": 4}, Value(0, 0, errors=4)),
        ({}, UNKNOWN),
    ],
)
def test_only_correct_counts_and_error_leaves_the_denominator(
    counts: dict[str, int], expected: Value
) -> None:
    assert value_of(counts) == expected


@pytest.mark.parametrize(
    ("value", "q"),
    [
        (Value(3, 16), Fraction(3, 16)),
        (Value(0, 16), Fraction(0)),
        (Value(9, 18, errors=2), Fraction(1, 2)),  # exactly 10 % of the 20 draws
        (Value(9, 17, errors=2), None),  # 2 of 19 is over 10 %
        (Value(0, 0), None),
        (Value(0, 0, errors=3), None),
        (Value(exact=True), Fraction(1)),
        (Value(exact=False), Fraction(0)),
    ],
)
def test_when_a_value_is_known(value: Value, q: Fraction | None) -> None:
    assert value.q == q
    assert value.known == (q is not None)
    if q is None:
        assert value.interval() == (0.0, 1.0)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_terminal_value_is_the_grade(outcome: str) -> None:
    expected = {"correct": Value(exact=True), "wrong": Value(exact=False), "unparsed": Value(exact=False)}
    assert terminal_value(outcome) == expected.get(outcome, UNKNOWN)


@given(
    st.fixed_dictionaries({outcome: st.integers(0, 20) for outcome in OUTCOMES}), st.sampled_from(OUTCOMES)
)
def test_leaving_one_out_is_counting_without_it(counts: dict[str, int], outcome: str) -> None:
    more = counts | {outcome: counts[outcome] + 1}
    assert leave_one_out(value_of(more), outcome) == value_of(counts)


def test_impossible_counts_are_refused() -> None:
    for impossible in (
        lambda: Value(5, 4),
        lambda: Value(-1, 4),
        lambda: Value(0, 4, errors=-1),
        lambda: Value(1, 4, exact=True),
        lambda: leave_one_out(Value(0, 4), "correct"),
        lambda: leave_one_out(UNKNOWN, "wrong"),
        lambda: leave_one_out(Value(2, 4), "error"),
        lambda: leave_one_out(Value(exact=True), "correct"),
    ):
        with pytest.raises(InputError):
            impossible()
    with pytest.raises(InputError, match="unknown outcome 'right'"):
        value_of({"right": 2})
    for function in (terminal_value, lambda outcome: leave_one_out(Value(2, 4), outcome)):
        with pytest.raises(InputError, match="unknown outcome 'right'"):
            function("right")


@pytest.mark.parametrize("n", [1, 4, 15, 16, 32, 256])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_interval_is_jeffreys(n: int, level: float) -> None:
    for k in range(n + 1):
        low, high = Value(k, n).interval(level)
        expected = beta.interval(level, k + 0.5, n - k + 0.5)
        assert low == (0 if k == 0 else pytest.approx(expected[0], abs=1e-12))
        assert high == (1 if k == n else pytest.approx(expected[1], abs=1e-12))
        assert 0 <= low <= k / n <= high <= 1


def test_exact_value_is_its_own_interval() -> None:
    assert Value(exact=True).interval() == (1.0, 1.0)
    assert Value(exact=False).interval() == (0.0, 0.0)


def spread_states(count: int) -> list[State]:
    """A state of the number-game family for each of ``count`` distinct values, evenly from among those inside (0, 1)."""
    by_value = {exact_value(state): state for game in family() for state in states(game) if state.left}
    inside = [by_value[q] for q in sorted(by_value) if 0 < q < 1]
    assert len(inside) >= count
    return [inside[i * (len(inside) - 1) // (count - 1)] for i in range(count)]


@pytest.mark.parametrize("m", [16, 64])
def test_estimator_covers_exact_values(m: int) -> None:
    """2,000 estimates at 100 distinct q: the 95 % interval covers the true value 93 to 97 % of the time."""
    chosen = spread_states(100)
    assert len({exact_value(state) for state in chosen}) == 100
    covered = estimates = 0
    for index, state in enumerate(chosen):
        for repeat in range(20):
            drawn = sample_rollouts(state, m, seed=1_000_000 * index + 1_000 * repeat)
            low, high = value_of({outcome: drawn.count(outcome) for outcome in set(drawn)}).interval()
            covered += low <= exact_value(state) <= high
            estimates += 1
    assert estimates == 2_000
    assert 0.93 <= covered / estimates <= 0.97


@pytest.mark.parametrize("q", [0, 1])
def test_certain_states_are_always_covered(q: int) -> None:
    certain = [state for game in family() for state in states(game) if state.left and exact_value(state) == q]
    assert len(certain) >= 200
    for index, state in enumerate(certain[:200]):
        drawn = sample_rollouts(state, 16, seed=1_000 * index)
        low, high = value_of({outcome: drawn.count(outcome) for outcome in set(drawn)}).interval()
        assert low <= q <= high


def test_a_stopped_estimate_has_bounds_and_an_interval_and_no_point_value() -> None:
    stopped = Value(1, 5, left=11)
    assert not stopped.known and stopped.q is None
    assert stopped.bounds == (Fraction(1, 16), Fraction(12, 16))
    assert stopped.interval() == Value(1, 5).interval()
    with pytest.raises(InputError, match="-1 left"):
        Value(1, 5, left=-1)
    with pytest.raises(InputError, match="an exact value has no rollouts, and this one has 3"):
        Value(exact=True, left=3)


def test_bounds_say_what_failed_grades_leave_open() -> None:
    assert Value(8, 16, errors=4).bounds == (Fraction(8, 20), Fraction(12, 20))
    assert Value(8, 16).bounds == (Fraction(1, 2), Fraction(1, 2))
    assert Value(exact=True).bounds == (1, 1)
    assert Value().bounds is None
