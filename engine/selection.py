"""Data selection: of a problem's correct solutions, the one to fine-tune on (StepWiser, 2508.19229, §4.3).

``stepwise``: the highest mean chunk score. ``outcome``: any correct one. Ties, and ``outcome``, are decided by a hash of
the seed and the solution, so the same candidates and seed choose the same solutions. Not: where scores come from.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

How = Literal["stepwise", "outcome"]


@dataclass(frozen=True)
class Candidate:
    """A correct solution. ``scores``: 0..1 a chunk (share of positive verdicts, or p(+)); None where nobody judged it."""

    trajectory_id: int
    problem_id: int
    scores: tuple[float | None, ...] = ()

    @property
    def mean_score(self) -> float | None:
        """Mean over the chunks; None without chunks, or while one of them has no score."""
        known = [score for score in self.scores if score is not None]
        return fsum(known) / len(known) if known and len(known) == len(self.scores) else None


def select_solutions(candidates: Iterable[Candidate], how: How, seed: int) -> list[Candidate]:
    """One candidate a problem, in the order of problems. ``stepwise`` passes over solutions that have no mean score, and
    over problems in which none has one."""
    by_problem: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        if how == "outcome" or candidate.mean_score is not None:
            by_problem[candidate.problem_id].append(candidate)
    return [_best(by_problem[problem], how, seed) for problem in sorted(by_problem)]


def _best(candidates: Sequence[Candidate], how: How, seed: int) -> Candidate:
    def place(candidate: Candidate) -> tuple[float, bytes]:
        lot = hashlib.sha256(f"{seed}/{candidate.trajectory_id}".encode()).digest()
        return (candidate.mean_score or 0.0) if how == "stepwise" else 0.0, lot

    return max(candidates, key=place)
