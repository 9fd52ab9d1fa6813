"""Process rewards worked out by hand."""

from __future__ import annotations

import math

import pytest

from engine.errors import InputError
from training.process_rewards import (
    Rewards,
    Scored,
    aggregate,
    chunk_advantages,
    dense_and_sparse,
    trajectory_reward,
)

SCORES = (1.0, 0.25, 0.75)


def test_sum_mean_and_min_of_chunk_scores():
    assert aggregate(SCORES, "sum") == 2.0
    assert aggregate(SCORES, "mean") == pytest.approx(2 / 3)
    assert aggregate(SCORES, "min") == 0.25
    assert [aggregate((), how) for how in ("sum", "mean", "min")] == [0.0, 0.0, 0.0]


def test_a_trajectory_reward_mixes_process_and_outcome():
    assert trajectory_reward(SCORES, 1.0, how="min", outcome_weight=0.2) == pytest.approx(0.8 * 0.25 + 0.2)
    assert trajectory_reward(SCORES, 0.0, how="sum", outcome_weight=0.0) == 2.0
    assert trajectory_reward(SCORES, 0.0, how="sum", outcome_weight=1.0) == 0.0
    assert trajectory_reward((), 1.0, how="mean", outcome_weight=0.5, penalty=0.125) == 0.375
    with pytest.raises(InputError, match=r"outcome_weight is 1\.5"):
        trajectory_reward(SCORES, 1.0, outcome_weight=1.5)


def test_chunk_advantages_take_the_groups_mean_off_chunks_and_outcomes():
    group = [Scored((1.0, 0.5), 1.0), Scored((0.0,), 0.0)]
    right, wrong = chunk_advantages(group, outcome_weight=0.5, scale=False)
    # chunk rewards .5 .25 | 0, mean .25; outcomes .5 | 0, mean .25
    assert right.chunks == pytest.approx((0.25 + 0.25, 0.0 + 0.25)) and right.tail == pytest.approx(0.25)
    assert wrong.chunks == pytest.approx((-0.25 - 0.25,)) and wrong.tail == pytest.approx(-0.25)


def test_a_baseline_by_position_compares_first_chunks_with_first_chunks():
    group = [Scored((1.0, 0.5), 0.0), Scored((0.0,), 0.0)]
    first, second = chunk_advantages(group, outcome_weight=0.0, baseline="position", scale=False)
    assert first.chunks == pytest.approx((0.5, 0.0)) and second.chunks == pytest.approx((-0.5,))


def test_penalties_count_in_full_whatever_the_weight():
    group = [Scored((1.0, 1.0), 1.0, (0.0, 0.5)), Scored((1.0, 1.0), 1.0, (), penalty=0.5)]
    first, second = chunk_advantages(group, outcome_weight=1.0, scale=False)
    # chunks: 0 -.5 | 0 0, mean -.125; wholes: 1 | .5, mean .75
    assert first.chunks == pytest.approx((0.125 + 0.25, -0.375 + 0.25))
    assert second.chunks == pytest.approx((0.125 - 0.25, 0.125 - 0.25)) and second.tail == pytest.approx(
        -0.25
    )
    assert group[0].paid == group[1].paid == 0.5


def test_scaled_advantages_have_a_root_mean_square_of_one_and_equal_solutions_none():
    group = [Scored((1.0, 0.5), 1.0), Scored((0.0,), 0.0), Scored((), 0.0)]
    scaled = chunk_advantages(group, outcome_weight=0.3)
    flat = [a for row in scaled for a in row.chunks]
    assert math.sqrt(sum(a * a for a in flat) / 3) == pytest.approx(1, abs=1e-3)
    assert scaled[2].chunks == () and scaled[2].tail < 0
    for row in chunk_advantages([Scored((1.0, 1.0), 1.0)] * 4):
        assert row.chunks == (0.0, 0.0) and row.tail == 0.0


def test_outcomes_still_teach_where_no_solution_has_a_chunk():
    right, wrong = chunk_advantages([Scored((), 1.0), Scored((), 0.0)], outcome_weight=1.0)
    assert right.tail == pytest.approx(1, abs=1e-3) and wrong.tail == pytest.approx(-1, abs=1e-3)


def test_dense_rewards_say_where_and_add_up_to_the_trajectory_reward():
    assert dense_and_sparse(SCORES, 1.0, how="mean", outcome_weight=0.25) == Rewards(
        sparse=(0.0, 0.0, 1.0),
        dense=(0.25, 0.0625, 0.1875 + 0.25),
        sparse_total=1.0,
        dense_total=0.75,
    )
    assert dense_and_sparse(SCORES, 0.0, how="min", outcome_weight=0.0).dense == (0.0, 0.25, 0.0)
    for how in ("sum", "mean", "min"):
        both = dense_and_sparse(SCORES, 1.0, how=how, outcome_weight=0.3)
        assert sum(both.dense) == pytest.approx(both.dense_total)
        assert both.dense_total == pytest.approx(trajectory_reward(SCORES, 1.0, how=how, outcome_weight=0.3))
    assert dense_and_sparse((), 1.0).dense == () and dense_and_sparse((), 1.0).dense_total == 0.5
