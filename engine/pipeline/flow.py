"""The one stream: requests to the door, completions to the grader, rows in small batches to the store.

Memory holds what is in flight, what waits for the grader (bounded: beyond that nothing more is asked of the door) and
one batch. Not: what the requests are about (the stages) or how either end works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from engine.answers import Grade, Grader, Reference
from engine.checkpoints import resolve_checkpoint
from engine.llm import LLMSpec, open_llm
from engine.llm.base import LLM, Completion, Request
from engine.pipeline.clock import GRADER, OWN, Clock
from engine.pipeline.clock import LLM as LLM_TIME
from engine.runs import RunContext

T = TypeVar("T")
BATCH_ROWS = 512
BATCH_S = 1.0
"""What a kill can cost: the rows of one batch, or of one second."""
MOST_UNGRADED = 4096
"""Draws that may wait for the grader before nothing more is asked of the door."""
GRADER_S = 0.005


def open_door(ctx: RunContext[Any], spec: LLMSpec) -> LLM:
    """The LLM that a recipe names, by its checkpoint's name. Raises CheckpointError."""
    path = resolve_checkpoint(spec.checkpoint, ctx.home)
    ctx.progress(0, None, "", f"loading {spec.checkpoint}")
    started = time.monotonic()
    named = spec.model_copy(update={"checkpoint": str(path), "name": spec.name or spec.checkpoint})
    llm = open_llm(named, ctx.llm_keys)
    ctx.log(f"loaded {llm.info.name} ({llm.info.content_hash[:12]}) in {time.monotonic() - started:.1f} s")
    return llm


@dataclass(frozen=True)
class Graded:
    """One request's completions in draw order, each with its grade."""

    request_id: str
    completions: tuple[Completion, ...]
    grades: tuple[Grade, ...]


@dataclass
class _Waiting:
    completions: list[Completion]
    grades: dict[int, Grade] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.grades) == len(self.completions)

    def graded(self, request_id: str) -> Graded:
        grades = tuple(self.grades[i] for i in range(len(self.completions)))
        return Graded(request_id, tuple(self.completions), grades)


def stream_graded(
    llm: LLM,
    requests: Iterable[tuple[Request, Reference] | None],
    grader: Grader,
    stopping: Callable[[], bool],
    clock: Clock | None = None,
) -> Iterator[Graded]:
    """Serve (request, reference) pairs; yield each request once all its draws are graded.

    The source may say None while its next request waits for answers that are not graded yet. The grader works while
    the door does. When ``stopping`` turns true what is in flight is dropped; what was graded has been yielded.
    """
    clock = clock or Clock()
    references: dict[str, Reference] = {}
    waiting: dict[str, _Waiting] = {}
    ungraded = 0

    def pull() -> Iterator[Request | None]:
        source = iter(requests)
        while True:
            if ungraded > MOST_UNGRADED:
                yield None
                continue
            with clock.at(OWN):
                try:
                    item = next(source)
                except StopIteration:
                    return
            if item is not None:
                references[item[0].id] = item[1]
            yield item and item[0]

    def collect(results: Iterable[tuple[Any, Grade]]) -> Iterator[Graded]:
        nonlocal ungraded
        for (request_id, index), grade in results:
            ungraded -= 1
            waiting[request_id].grades[index] = grade
            if waiting[request_id].complete:
                yield waiting.pop(request_id).graded(request_id)

    stream = llm.stream(pull())
    while True:
        with clock.at(LLM_TIME):
            completions = next(stream, None)
        if completions is None:
            break
        if completions:
            request_id = completions[0].request_id
            reference = references.pop(request_id)
            waiting[request_id] = _Waiting(list(completions))
            ungraded += len(completions)
            grader.submit_many(
                ((request_id, c.index), c.text, reference, c.finish_reason) for c in completions
            )
        results = grader.results()
        if not completions and not results:  # nothing in flight: what comes next waits for a grade
            with clock.at(GRADER):
                time.sleep(GRADER_S)
        yield from collect(results)
        if stopping():
            break
    close = getattr(stream, "close", None)
    if close is not None:
        close()
    with clock.at(GRADER):
        results = grader.drain()
    yield from collect(results)


class Batch(Generic[T]):
    """Rows on their way to the store: ``add`` writes them when there are enough or when they have waited."""

    def __init__(self, write: Callable[[list[T]], None], rows: int = BATCH_ROWS, seconds: float = BATCH_S):
        self._write, self._rows, self._seconds = write, rows, seconds
        self._held: list[T] = []
        self._since = time.monotonic()

    def add(self, rows: Iterable[T]) -> None:
        self._held.extend(rows)
        if len(self._held) >= self._rows or time.monotonic() - self._since >= self._seconds:
            self.flush()

    def flush(self) -> None:
        held, self._held = self._held, []
        self._since = time.monotonic()
        if held:
            self._write(held)


class Pace:
    """Counts what a run has done and measures its rate, loading left out."""

    def __init__(self, ctx: RunContext[Any], unit: str, done: int, total: int | None):
        self.ctx, self.unit, self.done, self.total = ctx, unit, done, total
        self.tokens, self._first, self._started = 0, done, time.monotonic()
        self.report()

    def add(self, count: int, tokens: int) -> None:
        self.done += count
        self.tokens += tokens
        self.report()

    def there(self, count: int) -> None:
        """Units that were done before: they count as done and not for the rate."""
        self.done += count
        self._first += count
        self.report()

    def report(self) -> None:
        seconds = time.monotonic() - self._started
        rate = f"{self.tokens / seconds:,.0f} tokens/s" if self.tokens and seconds > 1 else ""
        self.ctx.progress(self.done, self.total, self.unit, rate)

    def result(self) -> dict[str, Any]:
        """What the run reports of its speed: units and tokens of this attempt, per second."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        return {
            "done": self.done,
            "tokens": self.tokens,
            "seconds": round(seconds, 2),
            "tokens_per_s": round(self.tokens / seconds, 1),
            f"{self.unit}_per_s": round((self.done - self._first) / seconds, 2),
        }
