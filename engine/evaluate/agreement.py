"""How far raters of chunks agree: raw agreement, Cohen's and Fleiss' kappa, Krippendorff's alpha, by problem.

Nominal throughout. Equal to ``sklearn.metrics.cohen_kappa_score``, ``statsmodels.stats.inter_rater.fleiss_kappa`` and
``krippendorff.alpha``, which the tests compare them with; written as functions of sums here, because the intervals draw
whole problems. Not: who the raters are, nor which answers count (the caller leaves those out that do not).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.evaluate.bootstrap import RESAMPLES, Array, Figure, figures

Pair = tuple[int, str, str]
"""(problem id, what the first rater said, what the second said) of one chunk."""
Unit = tuple[int, Sequence[str]]
"""(problem id, what its raters said) of one chunk."""


@dataclass(frozen=True)
class PairAgreement:
    """Two raters on the ``n`` chunks that both answered. ``kappa`` (Cohen's) has no value where both only ever gave
    one and the same answer: agreement by chance is complete then."""

    n: int
    problems: int
    raw: Figure
    kappa: Figure


@dataclass(frozen=True)
class GroupAgreement:
    """Any number of raters on the ``n`` chunks with two answers or more.

    ``raw``: mean over chunks of the share of pairs of raters who agree. ``fleiss`` takes equally many answers a chunk:
    it is of the ``fleiss_n`` chunks with ``fleiss_raters`` answers, the commonest number.
    """

    n: int
    problems: int
    answers: int
    raw: Figure
    alpha: Figure
    fleiss: Figure
    fleiss_raters: int
    fleiss_n: int


def between_two(pairs: Iterable[Pair], *, resamples: int = RESAMPLES, seed: int = 0) -> PairAgreement:
    """Raw agreement and Cohen's kappa of two raters."""
    given = list(pairs)
    classes = {value: place for place, value in enumerate(sorted({v for _, *both in given for v in both}))}
    size = len(classes)
    tables: dict[int, Any] = defaultdict(lambda: np.zeros((size, size)))
    for problem, first, second in given:
        tables[problem][classes[first], classes[second]] += 1
    raw, kappa = figures(
        {problem: table.ravel() for problem, table in tables.items()},
        [_raw, _cohen],
        resamples=resamples,
        seed=seed,
    )
    return PairAgreement(len(given), len(tables), raw, kappa)


def among_many(units: Iterable[Unit], *, resamples: int = RESAMPLES, seed: int = 0) -> GroupAgreement:
    """Raw agreement, Krippendorff's alpha and Fleiss' kappa of several raters; chunks with one answer say nothing."""
    given = [(problem, list(values)) for problem, values in units if len(values) > 1]
    sizes = Counter(len(values) for _, values in given)
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    classes = {value: place for place, value in enumerate(sorted({v for _, some in given for v in some}))}
    all_sums: dict[int, Any] = defaultdict(lambda: np.zeros(2 + len(classes) ** 2))
    fleiss_sums: dict[int, Any] = defaultdict(lambda: np.zeros(2 + len(classes)))
    for problem, values in given:
        counts = np.bincount([classes[value] for value in values], minlength=len(classes))
        m = len(values)
        agreeing = (counts * (counts - 1)).sum() / (m * (m - 1))
        # Krippendorff's coincidences: every ordered pair of answers weighs 1 / (m - 1)
        together = (np.outer(counts, counts) - np.diag(counts)) / (m - 1)
        all_sums[problem] += np.concatenate([[1, agreeing], together.ravel()])
        if m == usual:
            fleiss_sums[problem] += np.concatenate([[1, agreeing], counts])
    raw, alpha = figures(all_sums, [_mean_agreeing, _alpha], resamples=resamples, seed=seed)
    (fleiss,) = figures(fleiss_sums, [_fleiss], resamples=resamples, seed=seed)
    answers = sum(len(values) for _, values in given)
    return GroupAgreement(len(given), len(all_sums), answers, raw, alpha, fleiss, usual, sizes[usual])


def _square(sums: Array) -> Array:
    size = round(sums.shape[-1] ** 0.5)
    return sums.reshape(*sums.shape[:-1], size, size)


def _raw(sums: Array) -> Array:
    return _square(sums).trace(axis1=-2, axis2=-1) / sums.sum(axis=-1)


def _cohen(sums: Array) -> Array:
    """(observed - expected) / (1 - expected), expected from the two raters' own shares."""
    table, n = _square(sums), sums.sum(axis=-1)
    expected = (table.sum(axis=-1) * table.sum(axis=-2)).sum(axis=-1) / n**2
    return (_raw(sums) - expected) / (1 - expected)


def _mean_agreeing(sums: Array) -> Array:
    return sums[..., 1] / sums[..., 0]


def _alpha(sums: Array) -> Array:
    """1 - observed / expected disagreement, both counted in pairs of answers; n is the number of answers."""
    table = _square(sums[..., 2:])
    given, n = table.sum(axis=-1), table.sum(axis=(-2, -1))
    observed = n - table.trace(axis1=-2, axis2=-1)
    expected = (n**2 - (given**2).sum(axis=-1)) / (n - 1)
    return 1 - observed / expected


def _fleiss(sums: Array) -> Array:
    given = sums[..., 2:]
    shares = given / given.sum(axis=-1, keepdims=True)
    expected = (shares**2).sum(axis=-1)
    return (_mean_agreeing(sums) - expected) / (1 - expected)
