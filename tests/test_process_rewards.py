"""Process rewards worked out by hand."""

from __future__ import annotations

import math

import pytest

from engine.errors import InputError
from training.process_rewards import (
    Scored,
    aggregate,
    chunk_advantages,
    dense_and_sparse,
    group_advantages,
    trajectory_reward,
)

SCORES = (1.0, 0.25, None, 0.75)


def test_sum_mean_and_min_of_chunk_scores():
    assert aggregate(SCORES, "sum") == 2.0
    assert aggregate(SCORES, "mean") == pytest.approx(2 / 3)
    assert aggregate(SCORES, "min") == 0.25
    assert [aggregate(none, how) for none in ((), (None,)) for how in ("sum", "mean", "min")] == [0.0] * 6


def test_a_trajectory_reward_mixes_process_and_outcome_and_takes_every_penalty_off():
    right, wrong = Scored(SCORES, 1.0), Scored(SCORES, 0.0)
    assert trajectory_reward(right, aggregation="min", outcome_weight=0.2) == pytest.approx(0.8 * 0.25 + 0.2)
    assert trajectory_reward(wrong, aggregation="sum", outcome_weight=0.0) == 2.0
    assert trajectory_reward(wrong, aggregation="sum", outcome_weight=1.0) == 0.0
    paying = Scored((0.5, 0.5), 1.0, (0.25, 0.125), penalty=0.125)
    assert trajectory_reward(paying, aggregation="mean", outcome_weight=0.5) == 0.75 - 0.5
    with pytest.raises(InputError, match=r"outcome_weight is 1\.5"):
        trajectory_reward(right, aggregation="mean", outcome_weight=1.5)


def test_group_advantages_are_distances_from_the_mean_in_sample_deviations():
    assert group_advantages([1.0, 0.0, 0.0, 1.0]) == pytest.approx(
        [0.8659, -0.8659, -0.8659, 0.8659], abs=1e-3
    )
    assert group_advantages([0.7] * 4) == [0.0] * 4
    assert group_advantages([1.0]) == [0.0]


def test_chunk_advantages_take_the_groups_mean_off_chunks_and_outcomes():
    group = [Scored((1.0, 0.5), 1.0), Scored((0.0,), 0.0)]
    right, wrong = chunk_advantages(group, outcome_weight=0.5, scale=False)
    # chunk rewards .5 .25 | 0, mean .25; outcomes .5 | 0, mean .25
    assert right.chunks == pytest.approx((0.25 + 0.25, 0.0 + 0.25)) and right.tail == pytest.approx(0.25)
    assert wrong.chunks == pytest.approx((-0.25 - 0.25,)) and wrong.tail == pytest.approx(-0.25)


def test_a_chunk_without_a_score_shares_only_the_outcome():
    group = [Scored((1.0, None, 0.0), 1.0), Scored((0.5,), 0.0)]
    first, second = chunk_advantages(group, outcome_weight=0.5, scale=False)
    assert first.chunks == pytest.approx((0.25 + 0.25, 0.25, -0.25 + 0.25))
    assert second.chunks == pytest.approx((-0.25,))


def test_a_chunk_that_nobody_scored_pays_for_its_habits_all_the_same():
    """Without a judge (outcome alone), or where it could not read the chunk, a priced habit is not for nothing."""
    group = [Scored((None, None), 1.0, (0.5, 0.0)), Scored((None,), 1.0)]
    for weight in (1.0, 0.5):
        first, second = chunk_advantages(group, outcome_weight=weight, scale=False)
        assert first.chunks == pytest.approx((-0.5, 0.0)) and second.chunks == pytest.approx((0.0,))
        assert (first.tail, second.tail) == (0.0, 0.0)


def test_a_baseline_by_position_compares_first_chunks_with_first_chunks():
    group = [Scored((1.0, 0.5), 0.0), Scored((0.0,), 0.0)]
    first, second = chunk_advantages(group, outcome_weight=0.0, baseline="position", scale=False)
    assert first.chunks == pytest.approx((0.5, 0.0)) and second.chunks == pytest.approx((-0.5,))


def test_penalties_count_in_full_whatever_the_weight():
    group = [Scored((1.0, 1.0), 1.0, (0.0, 0.5)), Scored((1.0, 1.0), 1.0, (), penalty=0.5)]
    first, second = chunk_advantages(group, outcome_weight=1.0, scale=False)
    # chunks: 0 -.5 | 0 0, mean -.125; wholes: 1 | .5, mean .75
    assert first.chunks == pytest.approx((0.125 + 0.25, -0.375 + 0.25))
    assert second.chunks == pytest.approx((0.125 - 0.25, 0.125 - 0.25))
    assert second.tail == pytest.approx(-0.25)


def test_scaled_advantages_have_a_root_mean_square_of_one_and_equal_solutions_none():
    group = [Scored((1.0, 0.5), 1.0), Scored((0.0,), 0.0), Scored((), 0.0)]
    scaled = chunk_advantages(group, outcome_weight=0.3)
    flat = [a for row in scaled for a in row.chunks]
    assert math.sqrt(sum(a * a for a in flat) / 3) == pytest.approx(1, abs=1e-3)
    assert scaled[2].chunks == () and scaled[2].tail < 0
    for row in chunk_advantages([Scored((1.0, 1.0), 1.0)] * 4, outcome_weight=0.5):
        assert row.chunks == (0.0, 0.0) and row.tail == 0.0


def test_outcomes_still_teach_where_no_solution_has_a_chunk():
    right, wrong = chunk_advantages([Scored((), 1.0), Scored((), 0.0)], outcome_weight=1.0)
    assert right.tail == pytest.approx(1, abs=1e-3) and wrong.tail == pytest.approx(-1, abs=1e-3)


def test_the_comparison_shows_one_group_under_three_rewards():
    group = [Scored((1.0, 0.5), 1.0), Scored((0.0, None), 0.0)]
    both = dense_and_sparse(group, aggregation="min", outcome_weight=0.5, baseline="position")
    assert both.outcome_rewards == (1.0, 0.0)
    assert both.outcome_advantages == pytest.approx((0.7071, -0.7071), abs=1e-3)
    assert both.process_rewards == (0.5, 0.0) and both.mixed_rewards == (0.75, 0.0)
    assert both.mixed_advantages == pytest.approx((0.7071, -0.7071), abs=1e-3)
    assert both.step_rewards == ((0.5, 0.25), (0.0, None)) and both.step_baselines == (0.25, 0.25)
    assert both.step_advantages == tuple(chunk_advantages(group, outcome_weight=0.5, baseline="position"))
