"""What a rollout run did and what it spared: counts for its result and its progress.

Spared rollouts are those that M draws of every prefix of every trajectory, each by itself, would have taken more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.pipeline.schedule import OpenPrefix


@dataclass
class Savings:
    """Numbers of one run; ``m`` draws a prefix."""

    m: int
    trajectories: int = 0
    prefixes: int = 0
    shared_prefixes: int = 0
    sampled_starts: int = 0
    graded_ends: int = 0
    too_long: int = 0
    labelled_chunks: int = 0
    wanted: int = 0
    """Rollouts that all prefixes seen so far have when they are drawn out; those that cannot be drawn left out."""
    spared: int = 0
    """Rollouts left out because nothing that was asked for depends on them."""
    _left: dict[int, int] = field(default_factory=dict)
    _untouched: set[int] = field(default_factory=set)

    def closed(self, prefix: OpenPrefix) -> None:
        """Nobody waits for the prefix any more: what it has left is spared, unless a later trajectory wants it."""
        if prefix.draws.left:
            self._left[prefix.id] = prefix.draws.left
            self.spared += prefix.draws.left
            if not prefix.draws.made:
                self._untouched.add(prefix.id)

    def opened(self, prefix: OpenPrefix) -> None:
        """A later trajectory passes through a prefix that was closed."""
        self.spared -= self._left.pop(prefix.id, 0)
        self._untouched.discard(prefix.id)

    def result(self, *, rules: bool, search: bool) -> dict[str, Any]:
        """What a run reports."""
        counts = {
            "trajectories": self.trajectories,
            "prefixes": self.prefixes,
            "shared_prefixes": self.shared_prefixes,
            "too_long": self.too_long,
            "labelled_chunks": self.labelled_chunks,
            "spared_by_sharing": self.shared_prefixes * self.m,
            "spared_by_samples": self.sampled_starts * self.m,
            "spared_by_grades": self.graded_ends * self.m,
        }
        never = sum(self._left[id_] for id_ in self._untouched)
        if rules:
            stopped = len(self._left) - (len(self._untouched) if search else 0)
            counts |= {
                "stopped_prefixes": stopped,
                "spared_by_thrift": self.spared - (never if search else 0),
            }
        if search:
            counts |= {"never_rolled_out": len(self._untouched), "spared_by_search": never}
        return counts
