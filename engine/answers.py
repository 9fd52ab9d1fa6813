r"""Takes the answer out of a solution and grades it. The only grader.

An answer is what the last ``\boxed{…}`` holds. Plain numbers are compared here and now; everything else goes to
worker processes, where an answer that never finishes (9**9**9**9) is stopped without holding up the others. How two
answers compare is in compare.py, the worker processes are in grader_process.py.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Literal, Protocol, Self

from engine.boxes import find_boxes
from engine.compare import compare_plain, grade_answer
from engine.errors import GraderError, InputError
from engine.grader_process import Worker

__all__ = ["Grade", "GradeCache", "Grader", "check_reference", "extract", "grade_answer"]

Outcome = Literal["correct", "wrong", "unparsed", "truncated", "error"]


def extract(text: str) -> str | None:
    r"""What the last ``\boxed{…}`` holds, without white space around it; None without a box or with an empty one."""
    boxes = find_boxes(text)
    return boxes[-1].content.strip() or None if boxes else None


@dataclass(frozen=True)
class Grade:
    """Outcome of a solution and the answer found in it. ``error``: the grader timed out or failed, or the LLM did."""

    outcome: Outcome
    answer: str | None


class GradeCache(Protocol):
    """Where comparisons are kept between runs; keys are 64 hex digits, values ``correct`` or ``wrong``."""

    def get_many(self, keys: Sequence[str]) -> Mapping[str, str]: ...

    def put_many(self, outcomes: Mapping[str, str]) -> None: ...


def cache_key(answer: str, reference: str) -> str:
    """Hash under which a comparison is kept."""
    return hashlib.sha256(json.dumps([answer, reference]).encode()).hexdigest()


@dataclass(frozen=True)
class _Hard:
    """A grading that needs a worker or a cache."""

    answer: str
    reference: str
    key: str


def _begin(text: str, reference: str, finish_reason: str | None) -> Grade | _Hard:
    """Grade without a worker where that is possible."""
    if finish_reason == "error":
        return Grade("error", None)
    answer = extract(text)
    if finish_reason == "length":
        return Grade("truncated", answer)
    if answer is None:
        return Grade("unparsed", None)
    plain = compare_plain(answer, reference)
    return Grade(plain, answer) if plain else _Hard(answer, reference, cache_key(answer, reference))


class Grader:
    """Grades solutions, the hard ones in ``workers`` processes that start when the first hard one comes.

    An answer over ``limit_s`` seconds is an ``error``; its worker is replaced and the others go on. Not for several
    threads at once. Use as a context manager, or call ``close``.
    """

    def __init__(self, workers: int = 2, limit_s: float = 5.0, cache: GradeCache | None = None) -> None:
        self.limit_s, self.cache = limit_s, cache
        self._done: list[tuple[Hashable, Grade]] = []
        self._waiting: dict[str, list[tuple[Hashable, str]]] = {}
        self._futures: dict[str, Future[str | None]] = {}
        self._known: dict[str, str] = {}
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="grader")
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        self._alive: set[Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    def grade_many(self, items: Sequence[tuple[str, str, str | None]]) -> list[Grade]:
        """Grades of (text, reference, finish reason), in their order. Raises GraderError if no worker starts."""
        marks = [object() for _ in items]  # keys that no caller of submit can have
        self.submit_many((mark, *item) for mark, item in zip(marks, items, strict=True))
        graded = dict(self.drain())
        grades = [graded.pop(mark) for mark in marks]
        self._done += graded.items()
        return grades

    def submit(self, key: Hashable, text: str, reference: str, finish_reason: str | None) -> None:
        """Hand in one solution; its grade comes out of ``results`` under this key."""
        self.submit_many([(key, text, reference, finish_reason)])

    def submit_many(self, items: Iterable[tuple[Hashable, str, str, str | None]]) -> None:
        """Hand in several, with one look into the cache."""
        hard: dict[str, _Hard] = {}
        for key, text, reference, finish_reason in items:
            begun = _begin(text, reference, finish_reason)
            if isinstance(begun, Grade):
                self._done.append((key, begun))
            else:
                hard[begun.key] = begun
                self._waiting.setdefault(begun.key, []).append((key, begun.answer))
        new = [key for key in hard if key not in self._known and key not in self._futures]
        if new and self.cache:
            self._known.update(self.cache.get_many(new))
        for key in new:
            if key not in self._known:
                job = hard[key]
                self._futures[key] = self._threads.submit(self._ask, "grade", job.answer, job.reference)

    def results(self) -> list[tuple[Hashable, Grade]]:
        """What has been graded since the last call, without waiting; an answer that failed is an ``error``."""
        finished = {key: future for key, future in self._futures.items() if future.done()}
        for key in finished:
            del self._futures[key]
        outcomes = {key: future.result() or "error" for key, future in finished.items()}
        self._known.update(outcomes)
        # Errors stay with this grader: another time the answer may be given longer.
        if self.cache and (lasting := {key: found for key, found in outcomes.items() if found != "error"}):
            self.cache.put_many(lasting)
        for digest in [digest for digest in self._waiting if digest in self._known]:
            outcome: Outcome = self._known[digest]  # type: ignore[assignment]
            self._done += [(key, Grade(outcome, answer)) for key, answer in self._waiting.pop(digest)]
        done, self._done = self._done, []
        return done

    def drain(self) -> list[tuple[Hashable, Grade]]:
        """Wait for everything handed in; what ``results`` has not given out yet."""
        wait(self._futures.values())
        return self.results()

    def reference_problems(self, references: Sequence[str]) -> list[str | None]:
        """For each reference answer, why it cannot be used, or None if it can."""
        futures = [
            None if compare_plain(text, text) else self._threads.submit(self._ask, "check", "", text)
            for text in references
        ]
        return [future.result() if future else None for future in futures]

    def _ask(self, task: str, answer: str, reference: str) -> str | None:
        """One job on one worker, in a thread of the pool; a worker that dies or hangs is not used again."""
        worker = self._take()
        try:
            reply = worker.ask(task, answer, reference, self.limit_s)
        except (TimeoutError, EOFError, OSError):
            self._discard(worker)
            return (
                "error"
                if task == "grade"
                else f"the answer {reference[:80]!r} took over {self.limit_s:g} seconds"
            )
        self._idle.put(worker)
        return reply

    def _take(self) -> Worker:
        """An idle worker that is alive, or a new one."""
        while True:
            try:
                worker = self._idle.get_nowait()
            except Empty:
                break
            if worker.process.poll() is None:
                return worker
            self._discard(worker)
        worker = Worker()
        with self._lock:
            if not self._closed:
                self._alive.add(worker)
                return worker
        worker.stop()
        raise GraderError("the grader was closed")

    def _discard(self, worker: Worker) -> None:
        with self._lock:
            self._alive.discard(worker)
        worker.stop()

    def close(self) -> None:
        """End the workers; what has not been graded yet is dropped."""
        with self._lock:
            self._closed = True
            alive = list(self._alive)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in alive:
            worker.process.kill()
        self._threads.shutdown(wait=True)
        for worker in alive:
            worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_reference(answer: str, grader: Grader | None = None) -> None:
    """Raise InputError if this text cannot serve as a reference answer. Without a grader one is opened for it."""
    if grader is None:
        with Grader(workers=1) as own:
            return check_reference(answer, own)
    (reason,) = grader.reference_problems([answer])
    if reason:
        raise InputError(reason)
