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


def aggregate(scores: Sequence[float], how: Aggregation) -> float:
    """One number for a solution's chunk scores (each 0..1); 0 without chunks, whatever ``how`` is.

    ``sum`` grows with the number of chunks and so invites more of them; ``min`` is the worst chunk.
    """
    if not scores:
        return 0.0
    if how == "sum":
        return math.fsum(scores)
    return math.fsum(scores) / len(scores) if how == "mean" else min(scores)


def trajectory_reward(
    scores: Sequence[float],
    outcome: float,
    *,
    how: Aggregation = "mean",
    outcome_weight: float = 0.5,
    penalty: float = 0.0,
) -> float:
    """(1 − w)·process + w·outcome − penalty for one solution; w is ``outcome_weight``, the outcome 1 or 0.

    Raises InputError for a weight outside 0..1.
    """
    if not 0 <= outcome_weight <= 1:
        raise InputError(f"outcome_weight is {outcome_weight}; it lies between 0 and 1")
    return (1 - outcome_weight) * aggregate(scores, how) + outcome_weight * outcome - penalty


@dataclass(frozen=True)
class Scored:
    """A solution with its chunk scores, its outcome (1 or 0) and what it pays: a chunk each, and as a whole."""

    scores: tuple[float, ...]
    outcome: float
    chunk_penalties: tuple[float, ...] = ()
    penalty: float = 0.0

    @property
    def paid(self) -> float:
        """All of its penalties together."""
        return math.fsum(self.chunk_penalties) + self.penalty


@dataclass(frozen=True)
class Advantages:
    """How much better than its group each chunk is, and what lies behind the last chunk (``tail``: the answer)."""

    chunks: tuple[float, ...]
    tail: float


def chunk_advantages(
    group: Sequence[Scored],
    *,
    outcome_weight: float = 0.5,
    baseline: Baseline = "group",
    scale: bool = True,
) -> list[Advantages]:
    """An advantage a chunk for solutions of one problem.

    A chunk's reward is (1 − w)·score − its penalty, less a baseline: the mean over all chunks of the group, or over
    the group's chunks at the same ``position``. Every token of a solution shares w·outcome − penalty, less the
    group's mean; that is all the tail gets. With ``scale`` everything is divided by the root mean square of the
    group's chunk advantages. Raises InputError for a weight outside 0..1.
    """
    if not 0 <= outcome_weight <= 1:
        raise InputError(f"outcome_weight is {outcome_weight}; it lies between 0 and 1")
    wholes = [outcome_weight * solution.outcome - solution.penalty for solution in group]
    tails = [whole - _mean(wholes) for whole in wholes]
    chunks = [_chunk_rewards(solution, outcome_weight) for solution in group]
    means = _baselines(chunks, baseline)
    advantages = [
        [reward - means[place] + tail for place, reward in enumerate(rewards)]
        for rewards, tail in zip(chunks, tails, strict=True)
    ]
    spread = 1.0
    if scale:
        everything = [a for row in advantages for a in row] or tails
        spread = math.sqrt(_mean([a * a for a in everything])) + SMALLEST_SPREAD
    return [
        Advantages(tuple(a / spread for a in row), tail / spread)
        for row, tail in zip(advantages, tails, strict=True)
    ]


def _chunk_rewards(solution: Scored, outcome_weight: float) -> list[float]:
    penalties = solution.chunk_penalties or (0.0,) * len(solution.scores)
    return [
        (1 - outcome_weight) * score - penalty
        for score, penalty in zip(solution.scores, penalties, strict=True)
    ]


def _baselines(chunks: Sequence[Sequence[float]], baseline: Baseline) -> list[float]:
    """The number that is taken off at each position."""
    longest = max((len(rewards) for rewards in chunks), default=0)
    if baseline == "group":
        return [_mean([reward for rewards in chunks for reward in rewards])] * longest
    return [_mean([rewards[place] for rewards in chunks if place < len(rewards)]) for place in range(longest)]


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


@dataclass(frozen=True)
class Rewards:
    """One solution's rewards where they fall, one number a chunk; the sums are what the solution gets in all."""

    sparse: tuple[float, ...]
    dense: tuple[float, ...]
    sparse_total: float
    dense_total: float


def dense_and_sparse(
    chunk_scores: Sequence[float],
    outcome: float,
    *,
    how: Aggregation = "mean",
    outcome_weight: float = 0.5,
) -> Rewards:
    """The same solution under an outcome reward and under a process reward: which chunk is paid what.

    Sparse: the outcome, all of it at the last chunk. Dense: each chunk its share of (1 − w)·process (``sum``: its score,
    ``mean``: its score over the number of chunks, ``min``: all of it at the first worst chunk), and w·outcome at
    the last. Sums are those of ``trajectory_reward``; a solution without chunks has only sums.
    """
    n = len(chunk_scores)
    total = trajectory_reward(chunk_scores, outcome, how=how, outcome_weight=outcome_weight)
    if not n:
        return Rewards((), (), float(outcome), total)
    if how == "min":
        worst = min(range(n), key=lambda i: chunk_scores[i])
        shares = [chunk_scores[i] if i == worst else 0.0 for i in range(n)]
    else:
        shares = [score / (n if how == "mean" else 1) for score in chunk_scores]
    dense = [(1 - outcome_weight) * share for share in shares]
    dense[-1] += outcome_weight * outcome
    return Rewards((*(0.0,) * (n - 1), float(outcome)), tuple(dense), float(outcome), total)
