"""Statistics of sums over problems, with intervals that know that chunks of one problem hang together.

A statistic is a function of sums (how often the two said what, for instance); problems are drawn with replacement, and
their sums added up, so one pass gives the intervals of many statistics over the same draws. Not: which statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
RESAMPLES = 1000
_BLOCK = 2_000_000
"""Most numbers drawn at a time."""

Array = NDArray[Any]
Statistic = Callable[[Array], Array]
"""(…, columns) sums → (…) values; NaN where the sums leave it undefined."""


@dataclass(frozen=True)
class Figure:
    """A statistic with its 95 % percentile interval. ``value`` None: undefined; ``low``, ``high`` None: no interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


def figures(
    by_problem: Mapping[int, Sequence[float]],
    statistics: Sequence[Statistic],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Figure]:
    """Each statistic of the summed columns, with its interval by problem.

    No interval from fewer than two problems, nor where fewer than half of the draws define the statistic.
    """
    rows = np.array([by_problem[problem] for problem in sorted(by_problem)], dtype=float)
    if not len(rows):
        return [Figure(None) for _ in statistics]
    with np.errstate(divide="ignore", invalid="ignore"):
        values = [_number(statistic(rows.sum(axis=0))) for statistic in statistics]
        if len(rows) < 2:
            return [Figure(value) for value in values]
        sums = _drawn_sums(rows, resamples, seed)
        drawn = [statistic(sums) for statistic in statistics]
    return [_figure(value, some) for value, some in zip(values, drawn, strict=True)]


def _drawn_sums(rows: Array, resamples: int, seed: int) -> Array:
    """(resamples, columns): the rows' sums over as many problems as there are, drawn with replacement."""
    n, rng = len(rows), np.random.default_rng(seed)
    block = max(1, _BLOCK // n)
    parts = []
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        chosen = rng.integers(0, n, size=(size, n)) + n * np.arange(size)[:, None]
        times = np.bincount(chosen.ravel(), minlength=size * n).reshape(size, n)
        parts.append(times @ rows)
    return np.concatenate(parts)


def _number(value: Array) -> float | None:
    return float(value) if np.isfinite(value) else None


def _figure(value: float | None, drawn: Array) -> Figure:
    defined = drawn[np.isfinite(drawn)]
    if value is None or 2 * len(defined) < len(drawn):
        return Figure(value)
    edge = (1 - LEVEL) / 2
    low, high = np.quantile(defined, [edge, 1 - edge])
    return Figure(value, float(low), float(high))
