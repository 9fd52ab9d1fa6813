"""Shares with intervals that know that chunks, or solutions, of one problem hang together: bootstrapped by problem.

Problems are drawn with replacement; a share is the sum of its numerators over the sum of its denominators, so a
problem with more chunks weighs more. Not: how anything is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LEVEL = 0.95
BLOCK = 2_000_000
"""Most numbers drawn at a time."""

Counts = Mapping[int, tuple[float, float]]
"""{problem id: (numerator, denominator)}, for instance right and all."""


def share(counts: Counts) -> float | None:
    """Sum of numerators over sum of denominators; None where there is nothing to divide by."""
    below = sum(n for _, n in counts.values())
    return sum(k for k, _ in counts.values()) / below if below else None


def interval(counts: Counts, *, resamples: int, seed: int) -> list[float] | None:
    """Percentile interval (95 %) of ``share``; None with fewer than two problems, from which nothing can be drawn."""
    rows = [counts[problem] for problem in sorted(counts)]
    found = _resampled(rows, resamples, seed)
    return None if found is None else _between(found[:, 0] / found[:, 1])


def difference(first: Counts, second: Counts, *, resamples: int, seed: int) -> dict[str, Any]:
    """Share of ``first`` less share of ``second`` with its interval, over the problems that both have: paired, so a
    problem that is hard for one is hard for the other in the same draw."""
    both = sorted(first.keys() & second.keys())
    rows = [(*first[problem], *second[problem]) for problem in both]
    gap = _minus(share({p: first[p] for p in both}), share({p: second[p] for p in both}))
    found = _resampled(rows, resamples, seed)
    limits = None if found is None else _between(found[:, 0] / found[:, 1] - found[:, 2] / found[:, 3])
    return {"accuracy": gap, "interval": limits, "n": len(both)}


def measure(counts: Counts, *, resamples: int, seed: int) -> dict[str, Any]:
    """The share, its interval and how many it is of, as a run's result keeps it."""
    return {
        "accuracy": share(counts),
        "interval": interval(counts, resamples=resamples, seed=seed),
        "n": int(sum(n for _, n in counts.values())),
    }


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def _resampled(rows: Sequence[tuple[float, ...]], resamples: int, seed: int) -> Any:
    """Sums of the columns over problems drawn with replacement: (resamples, columns). Draws without anything to divide
    by (a problem may have none) are left out; None where nothing is left."""
    import numpy as np

    if len(rows) < 2:
        return None
    rng, table, n = np.random.default_rng(seed), np.array(rows, dtype=float), len(rows)
    block = max(1, BLOCK // n)  # the same draws as all at once, without room for all
    parts = [
        rng.multinomial(n, [1 / n] * n, size=min(block, resamples - start)) @ table
        for start in range(0, resamples, block)
    ]
    sums = np.concatenate(parts)
    sums = sums[(sums[:, 1::2] > 0).all(axis=1)]
    return sums if len(sums) else None


def _between(values: Any) -> list[float]:
    import numpy as np

    edge = (1 - LEVEL) / 2
    low, high = np.quantile(values, [edge, 1 - edge])
    return [float(low), float(high)]
