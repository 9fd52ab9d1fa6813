"""Which request comes next: follow-ups before new trajectories, each prefix asked for once however many wait for it.

A trajectory's plan says what its places still want (all draws, those that decide labels, or the next of a search);
when draws come back, the plans of all trajectories through that prefix are asked again. What has just been drawn
from is asked for again first, while the door still has its beginning in the cache, and only when nothing is ready
is a new trajectory begun: memory holds the trajectories that are under way. No store, no door.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from db.rows import StageTrajectory
from engine.thrift import Draws, Place

Wanted = Callable[[Sequence[Place]], dict[int, int]]
"""A trajectory's places 0..H → {place: draws to make next}; none: it is finished."""


@dataclass(eq=False, slots=True)
class OpenPrefix:
    """A stored prefix that trajectories under way pass through. ``asked``: draws on their way, none: 0."""

    id: int
    key: str
    token_ids: tuple[int, ...]
    base_seed: int
    draws: Draws
    asked: int = 0
    began: bool = False
    plans: dict[Plan, None] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Plan:
    """A trajectory under way: its places, and the prefixes behind those that are rolled out."""

    trajectory: StageTrajectory
    places: list[Place]
    prefixes: dict[int, OpenPrefix]
    done: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """``count`` draws of ``prefix``, for the place ``at`` of ``plan``."""

    prefix: OpenPrefix
    count: int
    plan: Plan
    at: int


def everything(places: Sequence[Place]) -> dict[int, int]:
    """Without thrift: all that is missing everywhere, at once."""
    return {at: place.left for at, place in enumerate(places) if isinstance(place, Draws) and place.left}


class Schedule:
    """``add`` trajectories, take requests with ``next``, give back what was drawn with ``drawn``.

    ``finished`` and ``idle`` collect plans that want nothing more and prefixes that nobody waits for; who reads them
    empties them.
    """

    def __init__(self, wanted: Wanted):
        self.wanted = wanted
        self.finished: list[Plan] = []
        self.idle: dict[int, OpenPrefix] = {}
        self.flying = 0
        self._new: deque[Plan] = deque()
        self._ready: deque[Ask] = deque()

    def add(self, plan: Plan) -> None:
        """A trajectory; it is begun when nothing else is ready."""
        for prefix in plan.prefixes.values():
            prefix.plans[plan] = None
        self._new.append(plan)

    def next(self) -> Ask | None:
        """The next request to make; None: nothing is ready, though answers on their way may change that."""
        while True:
            while self._ready:
                ask = self._ready.popleft()
                if ask.prefix.plans:
                    self.flying += 1
                    return ask
                ask.prefix.asked = 0  # others' draws have decided what this one was wanted for
                self.idle[ask.prefix.id] = ask.prefix
            if not self._new:
                return None
            if not (plan := self._new.popleft()).done:
                self._advance(plan)

    def drawn(self, prefix: OpenPrefix, outcomes: Iterable[str]) -> None:
        """What came back of a request; none at all where the prefix cannot be served."""
        self.flying -= 1
        prefix.asked = 0
        prefix.draws.add(outcomes)
        for plan in list(prefix.plans):
            self._advance(plan)
        if not prefix.plans:
            self.idle[prefix.id] = prefix

    def _advance(self, plan: Plan) -> None:
        asked = self.wanted(plan.places)
        for at, count in asked.items():
            prefix = plan.prefixes[at]
            if not prefix.asked:
                prefix.asked = count
                self._ready.append(Ask(prefix, count, plan, at))
        if asked:
            return
        plan.done = True
        self.finished.append(plan)
        for prefix in plan.prefixes.values():
            del prefix.plans[plan]
            if not prefix.plans and not prefix.asked:
                self.idle[prefix.id] = prefix
