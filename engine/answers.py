"""Grades solutions: the only grader. What an answer is and how two compare is a verifier's (``engine.verifiers``).

What takes microseconds is compared here and now; everything else goes to worker processes (grader_process.py), where
an answer that never finishes (9**9**9**9) is stopped without holding up the others.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Literal, Protocol, Self

from engine.errors import GraderError, InputError
from engine.grader_process import Worker
from engine.verifiers import DEFAULT, verifier
from engine.verifiers.math import extract

__all__ = ["Grade", "GradeCache", "Grader", "Reference", "check_reference", "extract", "words"]

Outcome = Literal["correct", "wrong", "unparsed", "truncated", "error"]

SLOW_S = 0.3
"""A comparison that takes longer no longer counts as one of the workers: another may start in its place."""
SPARE_WORKERS = 2
MOST_KNOWN = 100_000
"""Comparisons that a grader remembers; the oldest go first."""
SAVED_AT_ONCE = 256


@dataclass(frozen=True)
class Reference:
    """What a solution is checked against: a text (``Problem.answer``) and the verifier that reads it.

    ``before``: what of the solution stands before the text that is graded (a rollout's prefix). Only verifiers whose
    answer may begin there read it.
    """

    answer: str
    verifier: str = DEFAULT
    before: str = ""

    @classmethod
    def of(cls, answer: str, meta: Mapping[str, Any], before: str = "") -> Reference:
        """The reference of a stored problem, from its ``answer`` and ``meta``."""
        return cls(answer, meta.get("verifier", DEFAULT), before)


def words(reference: Reference) -> str:
    """What a solution is checked against, in one line for a reader."""
    return verifier(reference.verifier).words(reference.answer)


@dataclass(frozen=True)
class Grade:
    """Outcome of a solution and the answer found in it. ``error``: the grader timed out or failed, or the LLM did."""

    outcome: Outcome
    answer: str | None


class GradeCache(Protocol):
    """Where comparisons are kept between runs; keys are 64 hex digits, values ``correct`` or ``wrong``."""

    def get_many(self, keys: Sequence[str]) -> Mapping[str, str]: ...

    def put_many(self, outcomes: Mapping[str, str]) -> None: ...


COMPARED = 2
"""Raised when a verifier comes to compare otherwise: comparisons kept before that are made again."""


def cache_key(answer: str, reference: Reference) -> str:
    """Hash under which a comparison is kept."""
    what = [COMPARED, answer, reference.answer, reference.verifier]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


@dataclass(frozen=True)
class _Hard:
    """A grading that needs a worker or a cache. ``kept``: what is stored as the answer."""

    answer: str
    kept: str
    reference: Reference
    key: str


def _begin(text: str, reference: Reference, finish_reason: str | None) -> Grade | _Hard:
    """Grade without a worker where that is possible."""
    if finish_reason == "error":
        return Grade("error", None)
    way = verifier(reference.verifier)
    answer = way.extract(reference.before + text if way.WHOLE else text)
    kept = None if answer is None else way.kept(answer)
    if finish_reason == "length":
        return Grade("truncated", kept)
    if answer is None or kept is None:
        return Grade("unparsed", None)
    try:
        found = way.compare_here(answer, reference.answer)
    except InputError:  # the reference cannot be used: files are checked for it when they are read
        return Grade("error", kept)
    return Grade(found, kept) if found else _Hard(answer, kept, reference, cache_key(answer, reference))


class Grader:
    """Grades solutions, the hard ones in ``workers`` processes that start when the first hard one comes.

    An answer over ``limit_s`` seconds (or its verifier's own limit) is an ``error``; its worker is replaced and the
    others go on. Slow answers are replaced in the count of workers, by up to ``SPARE_WORKERS``, so that they delay no
    other. Not for several threads at once. Use as a context manager, or call ``close``.

    Raises GraderError, from whatever call sees it first, where no worker starts or this machine cannot verify so.
    """

    def __init__(self, workers: int = 2, limit_s: float = 4.5, cache: GradeCache | None = None) -> None:
        self.limit_s, self.cache = limit_s, cache
        self._done: list[tuple[Hashable, Grade]] = []
        self._waiting: dict[str, list[tuple[Hashable, str]]] = {}
        self._n_waiting = 0
        self._futures: dict[str, Future[str | None]] = {}
        self._finished: SimpleQueue[str] = SimpleQueue()
        self._known: dict[str, str] = {}
        self._unsaved: dict[str, str] = {}
        self._threads = ThreadPoolExecutor(workers + SPARE_WORKERS, thread_name_prefix="grader")
        self._slots = threading.Semaphore(workers)
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        self._alive: set[Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many solutions were handed in whose grade no call of ``results`` or ``drain`` has seen yet."""
        return self._n_waiting

    def grade_many(self, items: Sequence[tuple[str, Reference, str | None]]) -> list[Grade]:
        """Grades of (text, reference, finish reason), in their order."""
        marks = [object() for _ in items]  # keys that no caller of submit can have
        self.submit_many((mark, *item) for mark, item in zip(marks, items, strict=True))
        graded = dict(self.drain())
        grades = [graded.pop(mark) for mark in marks]
        self._done += graded.items()
        return grades

    def submit(self, key: Hashable, text: str, reference: Reference, finish_reason: str | None) -> None:
        """Hand in one solution; its grade comes out of ``results`` under this key."""
        self.submit_many([(key, text, reference, finish_reason)])

    def submit_many(self, items: Iterable[tuple[Hashable, str, Reference, str | None]]) -> None:
        """Hand in several, with one look into the cache."""
        new: dict[str, _Hard] = {}
        for key, text, reference, finish_reason in items:
            begun = _begin(text, reference, finish_reason)
            if isinstance(begun, Grade):
                self._done.append((key, begun))
            elif begun.key in self._known:
                self._done.append((key, Grade(self._known[begun.key], begun.kept)))  # type: ignore[arg-type]
            else:
                if begun.key not in self._waiting:
                    new[begun.key] = begun
                self._waiting.setdefault(begun.key, []).append((key, begun.kept))
                self._n_waiting += 1
        if new and self.cache:
            for digest, outcome in self.cache.get_many(list(new)).items():
                del new[digest]
                self._settle(digest, outcome)
        for digest, job in new.items():
            self._start(digest, job)

    def _start(self, digest: str, job: _Hard) -> None:
        way, name = verifier(job.reference.verifier), job.reference.verifier
        if reason := way.refusal():
            raise GraderError(f"problems of the verifier {name!r} cannot be graded here: {reason}")
        try:
            limit_s = way.limit_s(job.reference.answer, self.limit_s)
        except InputError:
            return self._settle(digest, "error")
        future = self._threads.submit(self._ask, "grade", job.answer, job.reference, limit_s)
        self._futures[digest] = future
        future.add_done_callback(lambda _: self._finished.put(digest))

    def _settle(self, digest: str, outcome: str) -> None:
        """Give an outcome to everybody who waits for it, and remember it."""
        waiting = self._waiting.pop(digest, [])
        self._n_waiting -= len(waiting)
        self._done += [(key, Grade(outcome, kept)) for key, kept in waiting]  # type: ignore[arg-type]
        self._known[digest] = outcome
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _take_in(self, digest: str) -> None:
        future = self._futures.pop(digest, None)
        if future is None:
            return
        outcome = future.result() or "error"
        self._settle(digest, outcome)
        if outcome != "error":  # errors stay with this grader: another time the answer may be given longer
            self._unsaved[digest] = outcome

    def results(self) -> list[tuple[Hashable, Grade]]:
        """What has been graded since the last call, without waiting; an answer that failed is an ``error``."""
        while True:
            try:
                self._take_in(self._finished.get_nowait())
            except Empty:
                break
        if len(self._unsaved) >= SAVED_AT_ONCE:
            self._save()
        done, self._done = self._done, []
        return done

    def drain(self) -> list[tuple[Hashable, Grade]]:
        """Wait for everything handed in; what ``results`` has not given out yet."""
        wait(self._futures.values())
        for digest in list(self._futures):
            self._take_in(digest)
        self._save()
        return self.results()

    def _save(self) -> None:
        if self.cache and self._unsaved:
            self.cache.put_many(self._unsaved)
        self._unsaved = {}

    def reference_problems(self, references: Sequence[Reference]) -> list[str | None]:
        """For each reference, why it cannot be used, or None if it can."""
        futures = [
            None
            if verifier(one.verifier) is verifier(DEFAULT)
            and verifier(DEFAULT).compare_here(one.answer, one.answer)
            else self._threads.submit(self._ask, "check", "", one, self.limit_s)
            for one in references
        ]
        return [future.result() if future else None for future in futures]

    def _ask(self, task: str, answer: str, reference: Reference, limit_s: float) -> str | None:
        """One job on one worker, in a thread of the pool; a worker that dies or hangs is not used again."""
        with self._slots_until_slow() as slow:
            worker = self._take()
            try:
                worker.send(task, reference.verifier, answer, reference.answer, limit_s)
                if not worker.answers_within(min(SLOW_S, limit_s)):
                    slow()
                reply = worker.receive(limit_s - SLOW_S)
            except (TimeoutError, EOFError, OSError):
                self._discard(worker)
                return (
                    "error"
                    if task == "grade"
                    else f"the answer {reference.answer[:80]!r} took over {limit_s:g} seconds"
                )
            self._idle.put(worker)
            return reply

    @contextmanager
    def _slots_until_slow(self) -> Iterator[Callable[[], None]]:
        """Hold the place of one worker until the end, or until the function that this gives is called."""
        self._slots.acquire()
        held = [True]

        def release() -> None:
            if held:
                held.pop()
                self._slots.release()

        try:
            yield release
        finally:
            release()

    def _take(self) -> Worker:
        """An idle worker that is alive, or a new one."""
        while not self._closed:
            try:
                worker = self._idle.get_nowait()
            except Empty:
                break
            if worker.process.poll() is None:
                return worker
            self._discard(worker)
        else:
            raise GraderError("the grader was closed")
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


def check_reference(reference: Reference, grader: Grader | None = None) -> None:
    """Raise InputError if this cannot serve as a reference. Without a grader one is opened for it."""
    if grader is None:
        with Grader(workers=1) as own:
            return check_reference(reference, own)
    (reason,) = grader.reference_problems([reference])
    if reason:
        raise InputError(reason)
