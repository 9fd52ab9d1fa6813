"""Means over seeds with intervals that know both sources of chance: which problems were asked, which seed trained.

The variance of a mean over S seeds is the problems' (linearised ratio, clustered by problem) plus s²/S of the seeds'
accuracies; the interval is Student's with Satterthwaite's degrees of freedom. The seeds' spread holds some of the
problems' chance too, so it is wide rather than narrow. Differences are taken problem by problem: what is hard for one
is hard for the other. No resampling: the same results give the same interval. Not: where the counts come from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, variance
from typing import Literal

LEVEL = 0.95

Counts = Mapping[str, tuple[float, float]]
"""{problem: (right, all)} of one evaluation."""
Verdict = Literal["holds", "does not hold", "inside the noise", "one seed: not decided"]


@dataclass(frozen=True)
class Arm:
    """What one compared thing did: one evaluation a seed. ``trained``: seeds matter (the base has none)."""

    runs: tuple[Counts, ...]
    trained: bool = True


@dataclass(frozen=True)
class Estimate:
    """A share or a difference of shares with its 95 % interval; ``seeds``: the fewest of its trained arms."""

    value: float
    low: float
    high: float
    seeds: int | None
    problems: int

    def direction(self, expected: int = 1) -> Verdict:
        """Whether the expected sign (+1, −1) is beyond the interval. Without two seeds nothing is decided."""
        if self.seeds is not None and self.seeds < 2:
            return "one seed: not decided"
        low, high = (self.low, self.high) if expected > 0 else (-self.high, -self.low)
        return "holds" if low > 0 else "does not hold" if high < 0 else "inside the noise"


def estimate(arm: Arm) -> Estimate:
    """The arm's mean share over its seeds. Raises ValueError without a run."""
    return _estimate(_mean(arm), _residuals(arm), [_spread(arm)], _seeds(arm))


def difference(first: Arm, second: Arm, *, same_runs: bool = False) -> Estimate:
    """First less second. ``same_runs``: both are figures of the same runs (votes against single judgments), so the
    seeds' chance is that of the differences within a run."""
    residuals: dict[str, float] = defaultdict(float)
    for arm, sign in ((first, 1), (second, -1)):
        for problem, residual in _residuals(arm).items():
            residuals[problem] += sign * residual
    if same_runs:
        gaps = [_share(a) - _share(b) for a, b in zip(first.runs, second.runs, strict=True)]
        spreads = [_variance_of_mean(gaps)]
    else:
        spreads = [_spread(first), _spread(second)]
    fewest = [n for n in (_seeds(first), _seeds(second)) if n is not None]
    return _estimate(_mean(first) - _mean(second), residuals, spreads, min(fewest) if fewest else None)


def _share(counts: Counts) -> float:
    return sum(right for right, _ in counts.values()) / sum(n for _, n in counts.values())


def _mean(arm: Arm) -> float:
    if not arm.runs:
        raise ValueError("an arm without a run has no mean")
    return mean(map(_share, arm.runs))


def _seeds(arm: Arm) -> int | None:
    return len(arm.runs) if arm.trained else None


def _residuals(arm: Arm) -> dict[str, float]:
    """{problem: how much it moves the mean share}: their squares add up to the problems' variance."""
    found: dict[str, float] = defaultdict(float)
    for counts in arm.runs:
        share, total = _share(counts), sum(n for _, n in counts.values())
        for problem, (right, n) in counts.items():
            found[problem] += (right - share * n) / total / len(arm.runs)
    return found


def _spread(arm: Arm) -> tuple[float, int]:
    """(variance of the mean, degrees of freedom) that the seeds add."""
    return _variance_of_mean([_share(counts) for counts in arm.runs]) if arm.trained else (0.0, 0)


def _variance_of_mean(values: Sequence[float]) -> tuple[float, int]:
    return (variance(values) / len(values), len(values) - 1) if len(values) > 1 else (0.0, 0)


def _estimate(
    value: float, residuals: Mapping[str, float], spreads: Sequence[tuple[float, int]], seeds: int | None
) -> Estimate:
    from scipy.stats import t

    problems = len(residuals)
    parts = [(v, df) for v, df in spreads if v > 0]
    if problems > 1:
        scale = problems / (problems - 1)
        parts.append((scale * sum(r * r for r in residuals.values()), problems - 1))
    total = sum(v for v, _ in parts)
    if not total:
        return Estimate(value, value, value, seeds, problems)
    freedom = total**2 / sum(v**2 / df for v, df in parts if v > 0)
    half = float(t.ppf((1 + LEVEL) / 2, freedom)) * total**0.5
    return Estimate(value, value - half, value + half, seeds, problems)
