"""Where a run's time goes, and the numbers it leaves every few seconds so that pages can draw them.

Metrics: ``tokens_per_s``, ``prefixes_per_s`` (prefixes finished), and the shares of time ``waiting_llm``,
``waiting_grader`` and ``waiting_store``. A metric's step is the run's second, counted on when it is resumed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.runs import RunContext

OWN, LLM, GRADER, STORE = "own", "llm", "grader", "store"
METRICS_S = 5.0
SHARE = 500
"""A run that has gone on for long writes its metrics less often: every ``SHARE``-th part of its time."""


class Clock:
    """Seconds by what they were spent on. Parts may lie within parts: each second counts once, for the innermost."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._stack = [OWN]
        self._since = time.perf_counter()

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """What is done inside is spent on ``what``. Never hold one open across a ``yield`` of the caller's."""
        self.turn()
        self._stack.append(what)
        try:
            yield
        finally:
            self.turn()
            self._stack.pop()

    def turn(self) -> None:
        """Count the time up to now."""
        now = time.perf_counter()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now


class Meter:
    """Writes a run's metrics when ``METRICS_S`` have passed since the last ones, or a ``SHARE``-th of its time where
    that is more; ``tick`` is cheap."""

    def __init__(self, ctx: RunContext[Any], clock: Clock):
        self.ctx, self.clock = ctx, clock
        self.tokens = self.prefixes = 0
        self._last = self._started = time.monotonic()
        self._seen: dict[str, float] = {}
        self._base = 0
        if ctx.resumed:
            steps = ctx.store.metrics(ctx.run_id, ["tokens_per_s"]).get("tokens_per_s", [])
            self._base = 1 + max((row.step for row in steps), default=-1)

    def tick(self, *, last: bool = False) -> None:
        """Write what happened since the last metrics, if that is long enough ago (``last``: a second)."""
        now = time.monotonic()
        seconds = now - self._last
        spacing = max(METRICS_S, (self._base + now - self._started) / SHARE)
        if seconds < (1.0 if last else spacing):
            return
        self.clock.turn()
        values = {"tokens_per_s": self.tokens / seconds, "prefixes_per_s": self.prefixes / seconds}
        for what in (LLM, GRADER, STORE):
            values[f"waiting_{what}"] = min(
                1.0, (self.clock.seconds[what] - self._seen.get(what, 0.0)) / seconds
            )
        self._seen = dict(self.clock.seconds)
        self._last, self.tokens, self.prefixes = now, 0, 0
        self.ctx.metrics(self._base + round(now - self._started), values)
