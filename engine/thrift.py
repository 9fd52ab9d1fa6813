"""Lossless thrift: which draws of a prefix can still change a label that was asked for, and which to make next.

A label depends on two values, each a count of successes. While draws are open their counts lie between two bounds,
and every rule is monotone (+ stays + when the value after rises or the one before falls), so that the two extremes
decide: where both give the same label, so does everything between them. An open draw that fails in the grader leaves
the denominator, which moves a value inside its bounds; so a decided label is the label of all draws wherever those
have one. Where an error was *seen*, the prefix is drawn out: it may leave the value unknown.

Pure: no language model, no store. What makes the requests is pipeline.rolling; thrift_replay does the same with draws
that were recorded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.errors import InputError
from engine.labels import ABS_Q, Rule, plus_thresholds
from engine.values import COUNTED, Value

GROWTH = 4
"""A request has at least this share of the draws made: the fewer it could do with, the more round trips."""


@dataclass
class Draws:
    """The draws of one prefix, those made of ``m``; trajectories that share the prefix share the object.

    ``closed``: no more can be made (it does not fit the context), and what there is stays.
    """

    m: int
    successes: int = 0
    failures: int = 0
    errors: int = 0
    closed: bool = False

    def add(self, outcomes: Iterable[str]) -> None:
        """Count the next draws. Raises InputError on an unknown outcome."""
        for outcome in outcomes:
            if outcome == "error":
                self.errors += 1
            elif outcome == "correct":
                self.successes += 1
            elif outcome in COUNTED:
                self.failures += 1
            else:
                raise InputError(f"unknown outcome {outcome!r}; there are {', '.join(COUNTED)} and error")

    @property
    def made(self) -> int:
        return self.successes + self.failures + self.errors

    @property
    def left(self) -> int:
        """Draws that can still be made."""
        return 0 if self.closed else max(0, self.m - self.made)

    @property
    def value(self) -> Value:
        return Value(self.successes, self.successes + self.failures, self.errors, left=self.left)


Place = Draws | Value
"""A prefix of a trajectory as a label sees it: rolled out, or fixed (sampled solutions, the final grade)."""

Span = tuple[int, int, int]
"""Least and most successes, of so many graded draws."""


def span(place: Place) -> Span | None:
    """Between which counts the place's value will lie; None where it is unknown and stays so."""
    if isinstance(place, Draws):
        if place.left:
            return place.successes, place.successes + place.left, place.m - place.errors
        place = place.value
    if place.exact is not None:
        return int(place.exact), int(place.exact), 1
    return (place.successes, place.successes, place.n) if place.known else None


def wanted(rules: Sequence[Rule], places: Sequence[Place]) -> dict[int, int]:
    """{place: how many draws of it to make next} of one trajectory's places 0..H; none: every label is decided.

    Front to back, so that a prefix is measured against one that is known as well as it needs to be: of the first
    chunk whose label is open. Ask again once these draws are made.
    """
    out = {
        at: place.left
        for at, place in enumerate(places)
        if isinstance(place, Draws) and place.errors and place.left
    }
    if out:
        return out
    for index in range(len(places) - 1):
        for rule in rules:
            if asked := ask(rule, places[index], places[index + 1]):
                side, count = asked
                place = places[index + side]
                assert isinstance(place, Draws)
                return {index + side: min(place.left, max(count, place.made // GROWTH))}
    return {}


def ask(rule: Rule, before: Place, after: Place) -> tuple[int, int] | None:
    """(0: before or 1: after, draws to make) towards the label of the chunk between; None where it is decided.

    No smaller number could decide it, so none of these draws is in vain: first what is needed however the other side
    turns out, then the side that could settle the label alone in the fewest draws.
    """
    low_b, high_b, n_b = 0, 0, 1
    if rule.name != ABS_Q.name:
        found = span(before)
        if found is None:
            return None  # no label, whatever is drawn
        low_b, high_b, n_b = found
    found = span(after)
    if found is None:
        return None
    low_a, high_a, n_a = found
    least = plus_thresholds(
        rule, n_b, n_a
    )  # successes after the chunk that make it +, by successes before it
    if low_a >= least[high_b] or high_a < least[low_b]:
        return None
    needed_after = min(least[low_b] - low_a, high_a - least[high_b] + 1)
    if needed_after > 0:
        return 1, needed_after
    # successes before the chunk up to which it would be + as the value after it stands, and from which it would be -
    plus_to, minus_from = bisect_right(least, low_a) - 1, bisect_right(least, high_a)
    alone_before = min(d for d in (high_b - plus_to, minus_from - low_b) if d <= high_b - low_b)
    needed_before = min(high_b - minus_from + 1, plus_to + 1 - low_b)
    if needed_before > 0:
        return 0, needed_before
    alone_after = min(d for d in (least[high_b] - low_a, high_a - least[low_b] + 1) if d <= high_a - low_a)
    return (1, alone_after) if alone_after <= alone_before else (0, alone_before)
