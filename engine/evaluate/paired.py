"""Two judges on the same chunks: who is right where the other is wrong, and by how much, paired by problem.

A judge that gives no verdict on a chunk is not right about it: abstaining never helps. F1 is that of finding errors
(label ``-``): precision and recall of the verdict "negative". Not: where truth and verdicts come from.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from engine.evaluate.bootstrap import RESAMPLES, Array, Figure, Statistic, figures

Change = Literal["fixed", "regressed", "both right", "both wrong"]
CHANGES: tuple[Change, ...] = ("fixed", "regressed", "both right", "both wrong")


@dataclass(frozen=True)
class Case:
    """A chunk's label (``+`` or ``-``) and what two judges said of it: ``+``, ``-`` or anything else for no verdict."""

    problem_id: int
    label: str
    first: str
    second: str

    @property
    def change(self) -> Change:
        """What the second judge made of it: ``fixed`` where the first was wrong and the second is right, …"""
        right = (self.first == self.label, self.second == self.label)
        return {
            (False, True): "fixed",
            (True, False): "regressed",
            (True, True): "both right",
            (False, False): "both wrong",
        }[right]  # type: ignore[return-value]


@dataclass(frozen=True)
class Scores:
    """One judge: share of chunks that it is right about; F1, precision and recall of finding errors."""

    accuracy: Figure
    f1: Figure
    precision: Figure
    recall: Figure


@dataclass(frozen=True)
class Comparison:
    """``accuracy_gap`` and ``f1_gap``: second less first, over the same draws of problems."""

    n: int
    problems: int
    errors: int
    changes: dict[Change, int]
    first: Scores
    second: Scores
    accuracy_gap: Figure
    f1_gap: Figure


def compare(cases: Iterable[Case], *, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Both judges' scores and their differences, with 95 % intervals by problem."""
    given = list(cases)
    # for each problem: chunks; then of each judge: right, errors found, errors called, errors there are
    sums: dict[int, Any] = defaultdict(lambda: np.zeros(9))
    for case in given:
        row = [1.0]
        for said in (case.first, case.second):
            bad, called = case.label == "-", said == "-"
            row += [said == case.label, bad and called, called, bad]
        sums[case.problem_id] += row
    of_each: list[Statistic] = [
        statistic(offset) for offset in (1, 5) for statistic in (_accuracy, _f1, _precision, _recall)
    ]
    found = figures(sums, [*of_each, _gap(_accuracy), _gap(_f1)], resamples=resamples, seed=seed)
    counted = Counter(case.change for case in given)
    return Comparison(
        n=len(given),
        problems=len(sums),
        errors=sum(case.label == "-" for case in given),
        changes={change: counted[change] for change in CHANGES},
        first=Scores(*found[0:4]),
        second=Scores(*found[4:8]),
        accuracy_gap=found[8],
        f1_gap=found[9],
    )


def _accuracy(at: int) -> Statistic:
    return lambda sums: sums[..., at] / sums[..., 0]


def _precision(at: int) -> Statistic:
    return lambda sums: sums[..., at + 1] / sums[..., at + 2]


def _recall(at: int) -> Statistic:
    return lambda sums: sums[..., at + 1] / sums[..., at + 3]


def _f1(at: int) -> Statistic:
    """2 · found / (called + there are): the harmonic mean of precision and recall, 0 where nothing was found."""
    return lambda sums: 2 * sums[..., at + 1] / (sums[..., at + 2] + sums[..., at + 3])


def _gap(statistic: Any) -> Statistic:
    def second_less_first(sums: Array) -> Array:
        return statistic(5)(sums) - statistic(1)(sums)

    return second_less_first
