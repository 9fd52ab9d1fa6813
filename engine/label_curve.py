"""How many labels a rule gives at every value of its parameter, from how often each pair of values occurs.

A label flips at one value of γ or α (``labels.flip_gamma``, ``labels.flip_alpha``), so a whole curve costs one pass over
the pairs. Not: where the pairs come from (the store keeps them), confidence or agreement (training.sets.sweep).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from engine.labels import flip_alpha, flip_gamma
from engine.values import Value

Pair = tuple[Value, Value, int]
"""Values before and after a chunk, and how many chunks have them."""


@dataclass(frozen=True)
class Balance:
    """Labels of a rule at one value of its parameter; chunks with an unknown value are in neither."""

    parameter: Fraction
    positive: int
    negative: int

    @property
    def negative_share(self) -> float | None:
        """Share of ``-`` among the labels; None where there is none."""
        both = self.positive + self.negative
        return self.negative / both if both else None


def parse_pair(text: str, count: int) -> Pair:
    """A pair as the store writes it: ``3/16 12/15``, where ``=1`` or ``=0`` after the blank is an exact value."""
    before, _, after = text.partition(" ")
    return _value(before), _value(after), count


def _value(text: str) -> Value:
    if text.startswith("="):
        return Value(exact=text == "=1")
    successes, _, n = text.partition("/")
    return Value(int(successes), int(n))


def gamma_curve(pairs: Iterable[Pair], gammas: Sequence[Fraction]) -> list[Balance]:
    """rel-ratio's labels at each γ."""
    return _curve(((flip_gamma(before, after), before, after, n) for before, after, n in pairs), gammas)


def alpha_curve(pairs: Iterable[Pair], alphas: Sequence[Fraction], n: int) -> list[Balance]:
    """rel-effective's labels at each α, for a best-of-``n`` policy."""
    return _curve(((flip_alpha(before, after, n), before, after, m) for before, after, m in pairs), alphas)


def _curve(
    flips: Iterable[tuple[Fraction | None, Value, Value, int]], parameters: Sequence[Fraction]
) -> list[Balance]:
    """A label is + exactly for parameters below its flip; without a flip it is + where the value after is above 0."""
    always, total, at = 0, 0, []
    for flip, before, after, n in flips:
        if before.q is None or after.q is None:
            continue
        total += n
        if flip is not None:
            at.append((flip, n))
        elif after.q > 0:
            always += n
    at.sort()
    places = [flip for flip, _ in at]
    below = [0, *accumulate(n for _, n in at)]
    return [
        Balance(p, positive := always + below[-1] - below[bisect_right(places, p)], total - positive)
        for p in parameters
    ]
