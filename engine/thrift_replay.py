"""Thrift over draws that were recorded: how many it would have made, and what an oracle that knows them would need.

Pure, and exact: the same decisions as a run's, one trajectory after another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from engine.labels import Rule
from engine.thrift import Draws, Place, ask, wanted
from engine.values import Value

Chain = Sequence[Hashable | Value]
"""A trajectory's places 0..H: a key where rollouts were recorded, else a fixed value."""
Recorded = Mapping[Hashable, Sequence[str]]
"""{key: outcomes of its draws 0..M-1}."""


@dataclass
class Replayed:
    """``draws``: what was made of each prefix; ``requests``: in how many slices."""

    draws: dict[Hashable, Draws] = field(default_factory=dict)
    requests: int = 0

    @property
    def made(self) -> int:
        """Draws of all prefixes together."""
        return sum(one.made for one in self.draws.values())

    def value(self, place: Hashable | Value, rules: Sequence[Rule]) -> Value:
        """A place's value as a run leaves it: stopped under these rules, or drawn out."""
        if isinstance(place, Value):
            return place
        found = self.draws[place].value
        decided = tuple(str(rule) for rule in rules) if found.left else ()
        return Value(found.successes, found.n, found.errors, left=found.left, decided=decided)


def replay(rules: Sequence[Rule], chains: Sequence[Chain], recorded: Recorded) -> Replayed:
    """Draw from the record until every chain's labels under the rules are decided."""
    found = Replayed({key: Draws(len(outcomes)) for key, outcomes in recorded.items()})
    for chain in chains:
        places: list[Place] = [p if isinstance(p, Value) else found.draws[p] for p in chain]
        while asked := wanted(rules, places):
            found.requests += len(asked)
            for at, count in asked.items():
                draws = found.draws[chain[at]]
                draws.add(recorded[chain[at]][draws.made : draws.made + count])
    return found


def oracle(rules: Sequence[Rule], chains: Sequence[Chain], recorded: Recorded) -> int:
    """The fewest draws that decide every label, for somebody who knows how all of them turn out.

    Prefixes that trajectories share form a tree (a prefix and the next longer one), over which the best places to
    stop follow from the leaves up. Where cuts differ so that a prefix follows two others, one of these is left out of
    account: then this is a lower bound.
    """
    stops = {key: _after_each(outcomes) for key, outcomes in recorded.items()}
    children: dict[Hashable, list[Hashable]] = defaultdict(list)
    fixed: dict[Hashable, list[tuple[Value | None, Value | None]]] = defaultdict(list)
    has_parent: set[Hashable] = set()
    for before, after in _pairs(chains):
        if isinstance(before, Value):
            if not isinstance(after, Value):
                fixed[after].append((before, None))
        elif isinstance(after, Value):
            fixed[before].append((None, after))
        elif after not in has_parent:
            has_parent.add(after)
            children[before].append(after)
    costs: dict[Hashable, dict[int, int]] = {}
    for key in _leaves_first([key for key in recorded if key not in has_parent], children):
        costs[key] = _cost(rules, stops, costs, key, children[key], fixed[key])
    return sum(min(costs[key].values()) for key in costs if key not in has_parent)


def _pairs(chains: Sequence[Chain]) -> Iterator[tuple[Hashable | Value, Hashable | Value]]:
    """The different (before, after), in order."""
    return iter(dict.fromkeys(pair for chain in chains for pair in pairwise(chain)))


def _after_each(outcomes: Sequence[str]) -> dict[int, Draws]:
    """The prefix after so many of its draws; not where an error was seen and draws are left."""
    found = {}
    for made in range(len(outcomes) + 1):
        draws = Draws(len(outcomes))
        draws.add(outcomes[:made])
        if not (draws.errors and draws.left):
            found[made] = draws
    return found


def _leaves_first(roots: list[Hashable], children: Mapping[Hashable, list[Hashable]]) -> list[Hashable]:
    order, stack = [], list(roots)
    while stack:
        order.append(key := stack.pop())
        stack += children.get(key, ())
    return order[::-1]


def _cost(
    rules: Sequence[Rule],
    stops: Mapping[Hashable, dict[int, Draws]],
    costs: Mapping[Hashable, dict[int, int]],
    key: Hashable,
    children: Sequence[Hashable],
    fixed: Sequence[tuple[Value | None, Value | None]],
) -> dict[int, int]:
    """{draws of the prefix: fewest draws of it and all below it}, where every label between them is decided."""

    def decided(before: Place, after: Place) -> bool:
        return all(ask(rule, before, after) is None for rule in rules)

    found = {}
    for made, own in stops[key].items():
        if all(decided(before or own, after or own) for before, after in fixed):
            below = [
                min((cost for n, cost in costs[child].items() if decided(own, stops[child][n])), default=None)
                for child in children
            ]
            if None not in below:
                found[made] = made + sum(cost for cost in below if cost is not None)
    return found
