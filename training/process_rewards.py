"""Process rewards of a policy's solutions: from chunk scores and the outcome to rewards and advantages.

Plain numbers in and out, so that the trainer, its tests and the page that explains rewards use the same code. Not:
where scores come from (a judge), or how a trainer uses an advantage. After the survey 2510.08049 (trajectory and step
level) and Rewarding Progress (2410.08146: a step's own progress beside the outcome of the whole).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.errors import InputError

Aggregation = Literal["sum", "mean", "min"]
Baseline = Literal["group", "position"]
SMALLEST_SPREAD = 1e-4
"""Added to a spread before dividing by it, as TRL does: equal rewards give advantages of 0."""


def aggregate(scores: Sequence[float | None], aggregation: Aggregation) -> float:
    """One number for a solution's chunk scores; chunks without a score are passed over, and 0 if none has one.

    ``sum`` grows with the number of chunks and so invites more of them; ``min`` is the worst chunk.
    """
    known = [score for score in scores if score is not None]
    if not known:
        return 0.0
    if aggregation == "sum":
        return math.fsum(known)
    return _mean(known) if aggregation == "mean" else min(known)


@dataclass(frozen=True)
class Scored:
    """A solution: a score a chunk (0..1; None where the judge could not read it), its outcome (1 or 0), and what it
    pays: ``chunk_penalties`` one a chunk (or empty), ``penalty`` for the whole."""

    scores: tuple[float | None, ...]
    outcome: float
    chunk_penalties: tuple[float, ...] = ()
    penalty: float = 0.0


def trajectory_reward(solution: Scored, *, aggregation: Aggregation, outcome_weight: float) -> float:
    """(1 − w)·process + w·outcome − all penalties; w is ``outcome_weight``.

    Raises InputError for a weight outside 0..1.
    """
    _check(outcome_weight)
    process = aggregate(solution.scores, aggregation)
    paid = math.fsum(solution.chunk_penalties) + solution.penalty
    return (1 - outcome_weight) * process + outcome_weight * solution.outcome - paid


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """How much better than its group each solution is: (reward − mean) / spread (GRPO, 2402.03300; as TRL does it).

    The spread is the sample standard deviation (n − 1); equal rewards and a group of one give 0.
    """
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    mean = _mean(rewards)
    spread = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
    return [(reward - mean) / (spread + SMALLEST_SPREAD) for reward in rewards]


@dataclass(frozen=True)
class ChunkAdvantages:
    """An advantage a chunk, and that of what lies behind the last one (``tail``: the boxed answer)."""

    chunks: tuple[float, ...]
    tail: float


def chunk_advantages(
    group: Sequence[Scored], *, outcome_weight: float, baseline: Baseline = "group", scale: bool = True
) -> list[ChunkAdvantages]:
    """An advantage a chunk for solutions of one problem.

    A chunk's reward is (1 − w)·score − its penalty, less the baseline (``chunk_baselines``); a chunk without a score
    only pays its penalty. All tokens of a solution share w·outcome − penalty, less the group's mean, which is also what the
    tail gets. With ``scale`` everything is divided by the root mean square of the group's chunk advantages.
    Raises InputError for a weight outside 0..1.
    """
    _check(outcome_weight)
    wholes = [outcome_weight * solution.outcome - solution.penalty for solution in group]
    tails = [whole - _mean(wholes) for whole in wholes]
    rewards = [chunk_rewards(solution, outcome_weight) for solution in group]
    means = chunk_baselines(rewards, baseline)
    advantages = [
        [
            tail - paid if reward is None else reward - mean + tail
            for reward, paid, mean in zip(row, _paid(solution), means, strict=False)
        ]
        for solution, row, tail in zip(group, rewards, tails, strict=True)
    ]
    spread = 1.0
    if scale:
        squares = [a * a for row in advantages for a in row] or [tail * tail for tail in tails]
        spread = math.sqrt(_mean(squares)) + SMALLEST_SPREAD
    return [
        ChunkAdvantages(tuple(a / spread for a in row), tail / spread)
        for row, tail in zip(advantages, tails, strict=True)
    ]


def chunk_rewards(solution: Scored, outcome_weight: float) -> tuple[float | None, ...]:
    """What each chunk is paid by itself: (1 − w)·score − its penalty; None without a score."""
    return tuple(
        None if score is None else (1 - outcome_weight) * score - penalty
        for score, penalty in zip(solution.scores, _paid(solution), strict=True)
    )


def _paid(solution: Scored) -> tuple[float, ...]:
    """The penalty of each chunk."""
    return solution.chunk_penalties or (0.0,) * len(solution.scores)


def chunk_baselines(rewards: Sequence[Sequence[float | None]], baseline: Baseline) -> list[float]:
    """What is taken off a chunk's reward, for each position: the mean over all chunks of the ``group``, or over its
    chunks at that ``position``."""
    longest = max((len(row) for row in rewards), default=0)
    if baseline == "group":
        return [_mean([reward for row in rewards for reward in row if reward is not None])] * longest
    columns = ([row[place] for row in rewards if place < len(row)] for place in range(longest))
    return [_mean([reward for reward in column if reward is not None]) for column in columns]


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


def _check(outcome_weight: float) -> None:
    if not 0 <= outcome_weight <= 1:
        raise InputError(f"outcome_weight is {outcome_weight}; it lies between 0 and 1")


@dataclass(frozen=True)
class RewardComparison:
    """The same group of solutions under three rewards; one entry a solution, and where it says so one a chunk.

    Sparse: ``outcome_rewards`` and their ``outcome_advantages``. Dense at trajectory level: ``process_rewards``
    (the aggregate), ``mixed_rewards`` and their ``mixed_advantages``. Dense at step level: ``step_rewards`` a chunk,
    ``step_baselines`` a position, ``step_advantages`` a chunk and behind the last one.
    """

    outcome_rewards: tuple[float, ...]
    outcome_advantages: tuple[float, ...]
    process_rewards: tuple[float, ...]
    mixed_rewards: tuple[float, ...]
    mixed_advantages: tuple[float, ...]
    step_rewards: tuple[tuple[float | None, ...], ...]
    step_baselines: tuple[float, ...]
    step_advantages: tuple[ChunkAdvantages, ...]


def dense_and_sparse(
    group: Sequence[Scored],
    *,
    aggregation: Aggregation = "mean",
    outcome_weight: float = 0.5,
    baseline: Baseline = "group",
) -> RewardComparison:
    """What outcome rewards and process rewards say of the same solutions of one problem, as the trainer has them."""
    outcomes = [solution.outcome for solution in group]
    mixed = [
        trajectory_reward(solution, aggregation=aggregation, outcome_weight=outcome_weight)
        for solution in group
    ]
    steps = [chunk_rewards(solution, outcome_weight) for solution in group]
    return RewardComparison(
        outcome_rewards=tuple(outcomes),
        outcome_advantages=tuple(group_advantages(outcomes)),
        process_rewards=tuple(aggregate(solution.scores, aggregation) for solution in group),
        mixed_rewards=tuple(mixed),
        mixed_advantages=tuple(group_advantages(mixed)),
        step_rewards=tuple(steps),
        step_baselines=tuple(chunk_baselines(steps, baseline)),
        step_advantages=tuple(chunk_advantages(group, outcome_weight=outcome_weight, baseline=baseline)),
    )
