"""Several servers as one: who is asked next, what a failed request means, when a dead server is asked again.

Lives on an event loop in a thread of its own; ``engine.llm.server`` is the door in front of it. The door hands it
jobs with ``submit`` and takes answers with ``take``. Not: what a request looks like on the wire (``server_wire``),
and which server may serve a checkpoint (``server_check``).

A server that fails in whatever way gets no new work until it has been asked again: its health, its model, one token.
What it was working on goes to the others, first of all. Draws follow from their seeds, so nothing is drawn twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

from engine.errors import LLMError
from engine.llm.base import Request
from engine.llm.server_check import Facts, healthy, queue_depth
from engine.llm.server_member import Job, Member
from engine.llm.server_wire import Draw, Fault, Trouble, ask, body
from engine.llm.tokens import Tokens

T = TypeVar("T")
TRIES = 5
"""Times that a request is asked before it ends with an error."""
GIVEN_UP = 3
"""Requests given up one after the other, none served between, after which it is not the requests."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 15.0
"""Before a server that failed is asked again; doubled each time."""
LOOK_S = 2.0
"""Between two looks at a server that is well."""
SILENT_LOOKS = 3
"""Looks without an answer after which a server counts as stuck, and its work goes to the others."""

logger = logging.getLogger(__name__)


class _Woken:
    """Put among the answers to have the door look again: there is room, or a server has come back."""


WOKEN: Final = _Woken()


Answer = tuple[Job, list[Draw] | str]
"""A job and its draws by index, or why there are none."""


class Fleet:
    """``members`` with ``target`` draws each in flight, and ``ahead`` more for each waiting here for a free place.

    ``check`` asks a server whether it may serve (again), raising Trouble. After ``patience_s`` without a server
    that is well, ``take`` raises LLMError.
    """

    def __init__(
        self,
        name: str,
        members: list[Member],
        check: Callable[[Member], Awaitable[Facts]],
        *,
        vocabulary: int,
        tokens: Tokens,
        target: int,
        ahead: int,
        patience_s: float,
    ):
        self.name, self.members, self._check = name, members, check
        self.target, self.ahead, self._patience_s = target, ahead, patience_s
        self._vocabulary, self._tokens = vocabulary, tokens
        self.context = 0
        """Tokens; known once the servers have been asked."""
        self.source_waits = False
        self._waiting: deque[Job] = deque()
        self._answers: SimpleQueue[Answer | Exception | _Woken] = SimpleQueue()
        self._submitted = self._finished = self._given_up = 0
        self._streaming = self._woken = False
        self._last_good = self._counted = time.monotonic()
        self._probes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="llm-servers", daemon=True)
        self._thread.start()

    # The door's side: called from the thread that reads the stream

    def call(self, what: Coroutine[Any, Any, T]) -> T:
        """Run ``what`` on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    @property
    def room(self) -> bool:
        """Whether another request may be pulled: fewer draws are unfinished than the servers that are well take."""
        most = (self.target + self.ahead) * sum(member.up for member in self.members)
        return self._submitted - self._finished < most and self._answers.empty()

    def begin(self) -> None:
        self.source_waits = True
        self.call(self._begin())

    def submit(self, request: Request) -> None:
        job = Job(request)
        self._submitted += job.draws
        self._loop.call_soon_threadsafe(self._add, job)

    def take(self) -> Answer | None:
        """The next answer, or None when it is time to look whether there is room. Raises LLMError."""
        while self._thread.is_alive():
            try:
                item = self._answers.get(timeout=5)
            except Empty:
                continue
            if isinstance(item, Exception):
                raise item
            if isinstance(item, _Woken):
                self._woken = False
                return None
            return item
        raise LLMError(f"{self.name}: the door is closed; open it again")

    def end(self) -> None:
        """Drop what is in flight; the servers notice that nobody listens any more."""
        if self._loop.is_closed():  # the door was closed before its stream
            return
        self.call(self._end())
        self._answers, self._woken = SimpleQueue(), False
        self._submitted = self._finished = 0

    def close(self) -> None:
        """End the thread."""
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # The loop's side

    async def open(self) -> None:
        """Ask every server once; one that does not answer is asked again later, as if it had died.

        Raises LLMError where a server refuses us or serves another model, and where none answers.
        """
        found = await asyncio.gather(
            *(self._check(member) for member in self.members), return_exceptions=True
        )
        for member, facts in zip(self.members, found, strict=True):
            if isinstance(facts, Facts):
                member.facts, member.up = facts, True
            elif isinstance(facts, Trouble) and facts.fault not in (Fault.DENIED, Fault.REQUEST):
                member.why = str(facts)
            elif isinstance(facts, Trouble):
                raise LLMError(f"{self.name}: server {member.address}: {facts}")
            else:
                raise facts
        if not any(member.up for member in self.members):
            raise LLMError(self.nobody("no server answers"))
        for member in self.members:
            if not member.up:
                logger.warning("server %s: %s; the others work without it", member.address, member.why)
                self._spawn(self._probe(member, FIRST_WAIT_S))
        self._spawn(self._watch())

    async def _begin(self) -> None:
        self._counted = self._last_good = time.monotonic()
        self._streaming, self._given_up = True, 0

    async def _end(self) -> None:
        self._count()
        self._streaming = False
        self._waiting.clear()
        tasks = [task for member in self.members for task in member.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self) -> None:
        await self._end()
        for task in list(self._probes):
            task.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        await asyncio.gather(*(member.http.aclose() for member in self.members))

    def _spawn(self, what: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(what)
        self._probes.add(task)
        task.add_done_callback(partial(self._ended, self._probes))

    def _ended(self, tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        """A task that failed in a way that nobody thought of ends the stream instead of leaving it waiting."""
        tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._answers.put(error)

    def _add(self, job: Job) -> None:
        self._waiting.append(job)
        self._dispatch()

    def _dispatch(self) -> None:
        """Hand waiting work to the servers with a free place, the one with the shortest queue first."""
        self._count()
        while self._waiting:
            free = [member for member in self.members if member.up and member.flying < self.target]
            if not free:
                return
            member = min(free, key=lambda one: one.flying + one.others)
            job = self._waiting.popleft()
            member.flying += job.draws
            task = self._loop.create_task(self._serve(job, member))
            member.tasks.add(task)
            task.add_done_callback(partial(self._ended, member.tasks))

    async def _serve(self, job: Job, member: Member) -> None:
        """One request to one server. Its draws' places are free again as each ends."""
        assert member.facts is not None
        draws: list[Draw] = []
        trouble: Trouble | None = None
        data = body(job.request, member.facts.model, self.context, self._tokens)
        try:
            async for draw in ask(member.http, job.request, data, self._vocabulary):
                draws.append(draw)
                if len(draws) == job.draws:
                    # Before the place is free: who finds room finds the answer first.
                    self._answers.put((job, sorted(draws, key=lambda one: one.index)))
                self._count()
                member.flying -= 1
                self._finished += 1
                self._dispatch()
                self._wake()
        except Trouble as error:
            trouble = error
        except asyncio.CancelledError:
            if not self._streaming:
                raise
            trouble = Trouble(Fault.LOST, member.why)
        finally:
            self._count()
            member.flying -= job.draws - len(draws)
            if len(draws) < job.draws:
                self._finished -= len(draws)
        if trouble and len(draws) < job.draws:
            member.use.handed_on += 1
            self._failed(job, member, trouble)
            return
        member.strikes = self._given_up = 0
        self._last_good = time.monotonic()
        member.use.draws += len(draws)
        member.use.tokens += sum(len(draw.ids) for draw in draws)

    def _failed(self, job: Job, member: Member, trouble: Trouble) -> None:
        """Whose fault was it? The request's: it ends. Else the server rests, and the request goes to another."""
        said = f"server {member.address}: {trouble}"
        if trouble.fault is Fault.REQUEST:
            self._answers.put((job, said))
            self._finished += job.draws
        else:
            job.tries += trouble.fault in (Fault.LOST, Fault.FAILED)
            self._down(member, trouble)
            if job.tries < TRIES:
                self._waiting.appendleft(job)
            else:
                self._give_up(job, said)
        self._dispatch()
        self._wake()

    def _give_up(self, job: Job, said: str) -> None:
        self._given_up += 1
        if self._given_up < GIVEN_UP:
            self._answers.put((job, f"asked {TRIES} times in vain, last of {said}"))
            self._finished += job.draws
            return
        self._answers.put(
            LLMError(
                f"{self.name}: {GIVEN_UP} requests one after the other were asked {TRIES} times in vain, last of "
                f"{said}. What was drawn before is kept; see to the servers, then resume the run"
            )
        )

    def _down(self, member: Member, trouble: Trouble) -> None:
        """No new work for this server until it has shown that it is well."""
        if not member.up:
            return
        self._count()
        member.up, member.why, member.since = False, str(trouble), time.monotonic()
        member.use.downs += 1
        logger.warning("server %s: %s; its work goes to the others", member.address, member.why)
        # A lost connection says nothing yet of the server: ask at once.
        wait = 0.0 if trouble.fault is Fault.LOST and not member.strikes else self._pause(member, trouble)
        member.strikes += 1
        self._spawn(self._probe(member, wait))

    def _pause(self, member: Member, trouble: Trouble) -> float:
        own = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(member.strikes, 10))
        return max(own, min(trouble.wait or 0, 4 * LONGEST_WAIT_S))

    async def _probe(self, member: Member, wait: float) -> None:
        """Ask a server that failed until it is well; then it works again."""
        while True:
            await asyncio.sleep(wait)
            try:
                member.facts = await self._check(member)
                break
            except Trouble as trouble:
                member.why = str(trouble)
                wait = self._pause(member, trouble)
                member.strikes += 1
        self._count()
        member.up, member.silent, member.others = True, 0, 0
        self._last_good = time.monotonic()
        logger.warning("server %s: well again after %.1f s", member.address, self._last_good - member.since)
        self._dispatch()
        self._wake()

    async def _watch(self) -> None:
        """Look at the servers now and then, and lose patience when none is well for too long."""
        while True:
            await asyncio.sleep(LOOK_S)
            if any(member.up for member in self.members):
                self._last_good = time.monotonic()
            elif self._streaming and time.monotonic() - self._last_good > self._patience_s:
                self._answers.put(
                    LLMError(self.nobody(f"no server has been well for {self._patience_s:g} s"))
                )
                self._last_good = time.monotonic()
            await asyncio.gather(*(self._look(member) for member in self.members if member.up))

    def nobody(self, what: str) -> str:
        """A message that says what is wrong with every server."""
        each = "; ".join(f"{member.address}: {member.why}" for member in self.members if not member.up)
        return f"{self.name}: {what} ({each}). What was drawn before is kept; start the servers, then resume the run"

    async def _look(self, member: Member) -> None:
        """Notice a server that is stuck, and how long its queue is."""
        try:
            await healthy(member.http)
            depth = await queue_depth(member.http)
        except Trouble as trouble:
            member.silent += 1
            if member.silent >= SILENT_LOOKS and member.up:
                self._down(member, trouble)
                for task in list(member.tasks):
                    task.cancel()
            return
        member.silent = 0
        member.others = max(0, depth - member.flying) if depth is not None else 0

    def _wake(self) -> None:
        if not self._woken and (self._submitted - self._finished) < (self.target + self.ahead) * len(
            self.members
        ):
            self._woken = True
            self._answers.put(WOKEN)

    def _count(self) -> None:
        """Add the time since the last change to what each server's time went into."""
        now = time.monotonic()
        passed, self._counted = now - self._counted, now
        if not self._streaming:
            return
        for member in self.members:
            if member.up:
                member.use.up_s += passed
                if member.flying < self.target and (self._waiting or self.source_waits):
                    member.use.below_s += passed
