"""Labels and confidences of many chunks under many rules: what ``labels`` says of each, worked out for all at once.

Exact where ``labels`` is: the thresholds are the same fractions, and only the probabilities are floating-point sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.labels import ABS_Q, Rule, fresh_draws, label, plus_thresholds
from engine.values import Value


@dataclass(frozen=True)
class GridLabels:
    """One rule on all pairs: ``sign`` 1 for +, -1 for -, 0 for no label; ``confidence`` in 0..1, NaN without a label
    and beside a stopped value."""

    sign: NDArray[np.int8]
    confidence: NDArray[np.float64]


class LabelGrid:
    """Pairs of values, (before, after) a chunk, made ready once; ``under`` labels all of them by a rule.

    Work and memory follow the different values, not the chunks: 16 rollouts a prefix leave a few hundred pairs.
    """

    def __init__(self, pairs: Sequence[tuple[Value, Value]]):
        self.size = len(pairs)
        self._both: dict[tuple[int, int], _Block] = {}
        self._after: dict[tuple[int, int], _Block] = {}
        self._stopped = [(i, *pair) for i, pair in enumerate(pairs) if pair[0].left or pair[1].left]
        places: dict[tuple[int, int], list[int]] = {}
        for place, (before, after) in enumerate(pairs):
            if after.known and before.known:
                places.setdefault((_drawn(before), _drawn(after)), []).append(place)
        for sizes, chosen in places.items():
            self._both[sizes] = _Block([pairs[i] for i in chosen], chosen)
        # abs-q reads only the value after the chunk
        alone: dict[int, list[int]] = {}
        for place, (_, after) in enumerate(pairs):
            if after.known:
                alone.setdefault(_drawn(after), []).append(place)
        for n, chosen in alone.items():
            self._after[1, n] = _Block([(Value(exact=False), pairs[i][1]) for i in chosen], chosen)

    def under(self, rule: Rule) -> GridLabels:
        """Labels and confidences, in the pairs' order."""
        sign = np.zeros(self.size, np.int8)
        confidence = np.full(self.size, np.nan)
        for (n_before, n_after), block in (self._after if rule.name == ABS_Q.name else self._both).items():
            least = np.array(plus_thresholds(rule, n_before, n_after))
            positive = block.k_after >= least[block.k_before]
            # chance of +, for every value before (rows) with every value after (columns)
            chance = block.draws @ block.at_least[:, least].T
            of_plus = np.minimum(1.0, chance[block.before, block.after])
            sign[block.places] = np.where(positive, 1, -1)
            confidence[block.places] = np.where(positive, of_plus, 1 - of_plus)
        for place, before, after in self._stopped:
            given = label(rule, before, after)
            sign[place] = 0 if given is None else 1 if given == "+" else -1
        return GridLabels(sign, confidence)


class _Block:
    """The pairs of one (draws before, draws after): their distinct values, and where each pair stands among them."""

    def __init__(self, pairs: Sequence[tuple[Value, Value]], places: Sequence[int]):
        self.places = np.array(places)
        befores, self.before = _distinct([before for before, _ in pairs])
        afters, self.after = _distinct([after for _, after in pairs])
        self.k_before = np.array([_successes(value) for value in befores])[self.before]
        self.k_after = np.array([_successes(value) for value in afters])[self.after]
        self.draws = np.array([_fresh(value) for value in befores])
        # at_least[v, t]: probability of t or more fresh successes after the chunk; one more column for "never"
        tails = np.array([_fresh(value) for value in afters])[:, ::-1].cumsum(axis=1)[:, ::-1]
        self.at_least = np.hstack([tails, np.zeros((len(afters), 1))])


def _distinct(values: Sequence[Value]) -> tuple[list[Value], NDArray[Any]]:
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return list(places), np.array([places[value] for value in values])


def _drawn(value: Value) -> int:
    return value.n if value.exact is None else 1


def _successes(value: Value) -> int:
    return value.successes if value.exact is None else int(value.exact)


def _fresh(value: Value) -> tuple[float, ...]:
    return fresh_draws(_successes(value), _drawn(value), value.exact is not None)
