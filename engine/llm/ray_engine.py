"""What one Ray actor of the pool is: a vLLM door, and the thread that keeps it at work. Ray is not imported here.

The thread opens the door and alone touches it; the methods are what the pool calls from outside, several at a time.
Not: where the actor is placed, and what happens when it dies (``ray_pool``).
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING

from engine.errors import StepWiserError
from engine.llm.base import Completion, LLMInfo, Request

if TYPE_CHECKING:
    from engine.llm import LLMSpec

Task = tuple[int, Request]
"""A request under a key that no other request of the pool has."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where an actor runs."""

    host: str
    pid: int


@dataclass(frozen=True)
class Report:
    """Answers since the last report; draws taken up since the start, dropped ones included; why it can serve no more."""

    answers: tuple[tuple[int, list[Completion]], ...]
    taken: int
    failure: str = ""


class _Dropped(Exception):
    """Raised by the source of a stream to end it."""


class Engine:
    """An engine with a queue in front of it, so that a place is filled at once while the pool is busy elsewhere.

    ``ahead``: draws that should wait in the queue; it reports when fewer than half of them do.
    """

    def __init__(self, spec: LLMSpec, ahead: int):
        self._ahead = ahead
        self._changed = Condition()
        self._queue: deque[Task] = deque()
        self._flying: dict[int, Request] = {}
        self._answers: list[tuple[int, list[Completion]]] = []
        self._added = self._taken = self._told = 0
        self._drop = False
        self._dropped = 0
        self._info: LLMInfo | None = None
        self._failure = ""
        Thread(target=self._work, args=(spec,), name="engine", daemon=True).start()

    # Called by the pool

    def place(self) -> Place:
        """Answers as soon as the actor has been placed."""
        return Place(socket.gethostname(), os.getpid())

    def info(self) -> LLMInfo | str:
        """What is served, once it is loaded; a text says why it cannot be."""
        with self._changed:
            self._changed.wait_for(lambda: self._info or self._failure)
            return self._info or self._failure

    def add(self, tasks: list[Task]) -> None:
        """Put requests into the queue."""
        with self._changed:
            for key, request in tasks:
                self._added += request.n
                if key > self._dropped:
                    self._queue.append((key, request))
                else:  # calls may overtake one another
                    self._taken += request.n
            self._changed.notify_all()

    def take(self) -> Report:
        """Waits until there are answers, or the queue is running out. One call at a time."""
        with self._changed:
            self._changed.wait_for(lambda: self._answers or self._failure or self._short)
            answers, self._answers = tuple(self._answers), []
            self._told = self._taken
            return Report(answers, self._taken, self._failure)

    def drop(self, last: int) -> None:
        """Forget every request up to this key: none of them is answered after this."""
        with self._changed:
            self._dropped = last
            self._drop = self._drop or bool(self._flying)
            self._taken = self._added
            self._queue.clear()
            self._flying.clear()
            self._answers.clear()
            self._changed.notify_all()

    @property
    def _short(self) -> bool:
        """Whether the queue is running out and the pool does not know."""
        return self._taken > self._told and 2 * (self._added - self._taken) <= self._ahead

    # The engine's own thread

    def _work(self, spec: LLMSpec) -> None:
        try:
            self._serve(spec)
        except StepWiserError as error:
            self._fail(str(error))
        except Exception as error:
            logger.exception("engine")
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, why: str) -> None:
        with self._changed:
            self._failure = why or "it ended"
            self._changed.notify_all()

    def _serve(self, spec: LLMSpec) -> None:
        from engine.llm.checkpoint import check_checkpoint
        from engine.llm.vllm import VLLMDoor

        with VLLMDoor(spec, check_checkpoint(Path(spec.checkpoint))) as llm:
            with self._changed:
                self._info = llm.info
                self._changed.notify_all()
            while True:
                try:
                    for completions in llm.stream(self._source()):
                        if completions:
                            self._answer(completions)
                        else:  # nothing in flight and nothing queued
                            with self._changed:
                                self._changed.wait_for(lambda: self._queue or self._drop)
                except _Dropped:
                    continue

    def _source(self) -> Iterator[Request | None]:
        """The queue as the door wants it; asked by the door's stream whenever a draw's place is free."""
        while True:
            with self._changed:
                if self._drop:
                    self._drop = False
                    raise _Dropped
                request = None
                if self._queue:
                    key, asked = self._queue.popleft()
                    self._flying[key] = asked
                    self._taken += asked.n
                    request = replace(asked, id=str(key))  # the caller's ids may repeat
                    if self._short:
                        self._changed.notify_all()
            yield request

    def _answer(self, completions: list[Completion]) -> None:
        key = int(completions[0].request_id)
        with self._changed:
            request = self._flying.pop(key, None)
            if request is None:  # dropped meanwhile
                return
            self._answers.append((key, [replace(one, request_id=request.id) for one in completions]))
            self._changed.notify_all()
