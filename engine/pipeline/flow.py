"""The one stream: requests to the door, completions to the grader, rows in small batches to the store.

Memory holds what is in flight and one batch. Not: what the requests are about (the stages) or how either end works.
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
from engine.runs import RunContext

T = TypeVar("T")
BATCH_ROWS = 512
BATCH_S = 1.0
"""What a kill can cost: the rows of one batch, or of one second."""


def open_door(ctx: RunContext[Any], spec: LLMSpec) -> LLM:
    """The LLM that a recipe names, by its checkpoint's name. Raises CheckpointError."""
    path = resolve_checkpoint(spec.checkpoint, ctx.home)
    ctx.progress(0, None, "", f"loading {spec.checkpoint}")
    started = time.monotonic()
    llm = open_llm(spec.model_copy(update={"checkpoint": str(path), "name": spec.name or spec.checkpoint}))
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
    llm: LLM, requests: Iterable[tuple[Request, Reference]], grader: Grader, stopping: Callable[[], bool]
) -> Iterator[Graded]:
    """Serve (request, reference) pairs; yield each request once all its draws are graded.

    The grader works while the door does. When ``stopping`` turns true what is in flight is dropped; what was
    graded has been yielded.
    """
    references: dict[str, Reference] = {}
    waiting: dict[str, _Waiting] = {}

    def pull() -> Iterator[Request]:
        for request, reference in requests:
            references[request.id] = reference
            yield request

    def collect(results: Iterable[tuple[Any, Grade]]) -> Iterator[Graded]:
        for (request_id, index), grade in results:
            waiting[request_id].grades[index] = grade
            if waiting[request_id].complete:
                yield waiting.pop(request_id).graded(request_id)

    stream = llm.stream(pull())
    for completions in stream:
        request_id = completions[0].request_id
        reference = references.pop(request_id)
        waiting[request_id] = _Waiting(list(completions))
        for completion in completions:
            grader.submit(
                (request_id, completion.index), completion.text, reference, completion.finish_reason
            )
        yield from collect(grader.results())
        if stopping():
            break
    close = getattr(stream, "close", None)
    if close is not None:
        close()
    yield from collect(grader.drain())


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
