"""Ray actors, each with an engine, as one pool: who gets which request, and what happens when an actor dies.

Ray decides where an actor runs: each asks for GPUs (``tensor_parallel``; none in a cluster without) and CPUs, spread
over the nodes. An actor that died, or cannot load, is replaced after a pause, wherever there is room then; what it was
working on goes to the others first of all. Draws follow from their seeds, so nothing is drawn twice.
Not: what an actor does (``ray_engine``), and the door in front (``ray_door``).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.errors import LLMError
from engine.llm.base import Completion, LLMInfo, Request
from engine.llm.ray_engine import Engine, Place, Report, Task

if TYPE_CHECKING:
    from engine.llm import LLMSpec

TRIES = 5
"""Actors that may die over a request before it ends with an error."""
GIVEN_UP = 3
"""Requests given up one after the other, none served between, after which it is not the requests."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 15.0
"""Before an actor is replaced; doubled each time that it fails again without an answer between."""
LOOK_S = 1.0
"""Longest wait for news before the clock is looked at."""
DROP_S = 30.0
CALLS = 4
"""Methods of an actor that may run at a time: one waits for answers while requests are added."""

logger = logging.getLogger(__name__)


@dataclass
class EngineUse:
    """What became of one engine: where it runs now, actors started, draws made, requests handed on to others."""

    host: str = ""
    pid: int = 0
    starts: int = 0
    draws: int = 0
    handed_on: int = 0


@dataclass(eq=False)
class Job:
    """A request on its way, and how many actors died over it."""

    key: int
    request: Request
    tries: int = 0


@dataclass(eq=False)
class Member:
    """One engine of the pool. ``call``: the one question to its actor that is open; ``again``: when to start anew."""

    number: int
    actor: Any = None
    call: Any = None
    state: str = "resting"
    """resting → placing → loading → up"""
    again: float = 0.0
    why: str = "not started yet"
    strikes: int = 0
    jobs: dict[int, Job] = field(default_factory=dict)
    load: int = 0
    """Draws of the requests that it has not answered."""
    outbox: list[Task] = field(default_factory=list)
    sent: int = 0
    taken: int = 0
    """Draws handed over, and of these those that no longer wait in its queue, as last heard."""
    use: EngineUse = field(default_factory=EngineUse)

    @property
    def up(self) -> bool:
        return self.state == "up"

    def clear(self) -> None:
        """Forget what it works on."""
        self.sent -= sum(request.n for _, request in self.outbox)
        self.jobs.clear()
        self.outbox.clear()
        self.load = 0


class Pool:
    """``spec.engines`` engines of ``spec``, which names the checkpoint's folder as every node sees it.

    ``content_hash``: of the weights that all must load. ``ahead``: draws that wait in each engine's queue.
    """

    def __init__(self, spec: LLMSpec, name: str, content_hash: str, ahead: int):
        import ray

        self._ray, self.name, self._hash, self._ahead = ray, name, content_hash, ahead
        self._target, self._patience_s = spec.max_num_seqs, spec.patience_s
        self._gpus = spec.tensor_parallel if ray.cluster_resources().get("GPU") else 0
        self._cpus = spec.threads or 1
        own = {"door": "vllm", "engines": 1, "threads": None if self._gpus else self._cpus}
        self._spec = spec.model_copy(update=own)
        self.members = [Member(number) for number in range(1, spec.engines + 1)]
        self.info: LLMInfo | None = None
        self._waiting: deque[Job] = deque()
        self._given_up = self._keys = self.flying = 0
        self._actor_class = ray.remote(Engine)
        self._last_good = self._looked = time.monotonic()

    def open(self) -> None:
        """Until one engine is up; the others may follow later.

        Raises LLMError where none can be started, or none has a place after ``patience_s``.
        """
        while not any(member.up for member in self.members):
            self._look(LOOK_S)
            if all(member.strikes for member in self.members):
                raise LLMError(self._nobody("no engine could be started"))

    # The door's side

    @property
    def room(self) -> bool:
        """Whether another request may be pulled."""
        return not self._waiting and self._free() is not None

    def submit(self, request: Request) -> None:
        self._keys += 1
        self.flying += 1
        self._waiting.append(Job(self._keys, request))
        self._dispatch()

    def begin(self) -> None:
        self._last_good = self._looked = time.monotonic()
        self._given_up = 0

    def wait(self) -> list[tuple[Request, list[Completion] | str]]:
        """The answers that have come, or none when it is time to look whether there is room. Raises LLMError."""
        self._send()
        answers = self._look(LOOK_S)
        self.flying -= len(answers)
        return answers

    def end(self) -> None:
        """Drop what is in flight."""
        self._waiting.clear()
        self.flying = 0
        drops = {}
        for member in self.members:
            if member.jobs:
                drops[member.actor.drop.remote(self._keys)] = member
            member.clear()
        done, late = (
            self._ray.wait(list(drops), num_returns=len(drops), timeout=DROP_S) if drops else ([], [])
        )
        for call in [*done, *late]:
            try:
                self._ray.get(call, timeout=0)
            except self._ray.exceptions.RayError as error:
                self._down(drops[call], f"it does not let go of its work ({_said(error)})", [])

    def close(self) -> None:
        """End the actors."""
        for member in self.members:
            self._kill(member)

    # Engines

    def _look(self, seconds: float) -> list[tuple[Request, list[Completion] | str]]:
        """Start what is to be started, wait for news for so long, and act on it."""
        now = time.monotonic()
        for member in self.members:
            if member.state == "resting" and now >= member.again:
                self._start(member)
        again = min((m.again for m in self.members if m.state == "resting"), default=now + seconds)
        calls = {member.call: member for member in self.members if member.call is not None}
        wait_s = max(0.0, min(seconds, again - now))
        if not calls:
            time.sleep(wait_s)
        ready, _ = self._ray.wait(list(calls), timeout=wait_s) if calls else ([], [])
        if ready and len(calls) > 1:
            ready, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
        answers: list[tuple[Request, list[Completion] | str]] = []
        for call in ready:
            self._heard(calls[call], answers)
        self._lose_patience()
        self._dispatch()
        self._send()
        return answers

    def _start(self, member: Member) -> None:
        actor = self._actor_class.options(
            num_cpus=self._cpus, num_gpus=self._gpus, max_concurrency=CALLS, scheduling_strategy="SPREAD"
        )
        member.actor = actor.remote(self._spec, self._ahead)
        member.call = member.actor.place.remote()
        member.state, member.sent, member.taken = "placing", 0, 0
        member.use.starts += 1

    def _heard(self, member: Member, answers: list[tuple[Request, list[Completion] | str]]) -> None:
        try:
            said = self._ray.get(member.call)
        except self._ray.exceptions.RayError as error:
            self._down(member, _said(error), answers)
            return
        if isinstance(said, Place):
            member.use.host, member.use.pid = said.host, said.pid
            member.state, member.call = "loading", member.actor.info.remote()
        elif isinstance(said, LLMInfo):
            self._loaded(member, said, answers)
        elif isinstance(said, Report):
            self._reported(member, said, answers)
        else:
            self._down(member, str(said), answers)

    def _loaded(self, member: Member, info: LLMInfo, answers: list[Any]) -> None:
        if info.content_hash != self._hash:
            other = f"the checkpoint on {member.use.host} has other contents than the one here"
            self._down(member, other, answers)
            return
        if self.info and info.context < self.info.context:
            shorter = f"its context is {info.context} tokens, and this run's is {self.info.context}"
            self._down(member, shorter, answers)
            return
        self.info = self.info or info
        member.state, member.why, member.call = "up", "", member.actor.take.remote()
        self._last_good = time.monotonic()
        if member.use.starts > 1:
            logger.warning("engine %d: at work again on %s", member.number, member.use.host)

    def _reported(self, member: Member, report: Report, answers: list[Any]) -> None:
        member.taken = report.taken
        for key, completions in report.answers:
            job = member.jobs.pop(key, None)
            if job is None:  # of a stream that was closed
                continue
            answers.append((job.request, completions))
            member.load -= job.request.n
            member.use.draws += len(completions)
            member.strikes = self._given_up = 0
        self._last_good = time.monotonic()
        if report.failure:
            self._down(member, report.failure, answers)
        else:
            member.call = member.actor.take.remote()

    def _down(self, member: Member, why: str, answers: list[tuple[Request, list[Completion] | str]]) -> None:
        """The actor is gone, or of no use: its work goes to the others, and another takes its place."""
        jobs = list(member.jobs.values())
        self._kill(member)
        member.state, member.why = "resting", why
        member.again = time.monotonic() + min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(member.strikes, 10))
        member.strikes += 1
        member.use.handed_on += len(jobs)
        logger.warning("engine %d on %s: %s", member.number, member.use.host or "no node yet", why)
        kept = []
        for job in jobs:
            job.tries += 1
            if job.tries < TRIES:
                kept.append(job)
                continue
            self._given_up += 1
            if self._given_up >= GIVEN_UP:
                raise LLMError(
                    f"{self.name}: {GIVEN_UP} requests one after the other were asked {TRIES} times in vain, last of "
                    f"engine {member.number}: {why}. What was drawn before is kept; see to the cluster, then resume"
                )
            answers.append((job.request, f"{TRIES} engines failed over it, the last: {why}"))
        self._waiting.extendleft(reversed(kept))

    def _kill(self, member: Member) -> None:
        if member.actor is not None:
            self._ray.kill(member.actor, no_restart=True)
        member.actor = member.call = None
        member.state = "resting"
        member.clear()

    def _lose_patience(self) -> None:
        """An engine that is being loaded takes the time that it takes, which is not counted; all else is."""
        now = time.monotonic()
        states = {member.state for member in self.members}
        if "up" in states:
            self._last_good = now
        elif "loading" in states:
            self._last_good += now - self._looked
        self._looked = now
        if now - self._last_good > self._patience_s:
            raise LLMError(self._nobody(f"no engine has been well for {self._patience_s:g} s"))

    def _nobody(self, what: str) -> str:
        wants = f"{self._gpus} GPUs and {self._cpus} CPUs" if self._gpus else f"{self._cpus} CPUs"
        free = self._ray.available_resources()
        room = ", ".join(f"{free.get(one, 0):g} {one}s" for one in ("GPU", "CPU"))
        each = "; ".join(
            f"engine {one.number}: " + (one.why if one.state == "resting" else "waits for a place")
            for one in self.members
        )
        return f"{self.name}: {what} ({each}). An engine asks for {wants}; free in the cluster: {room}"

    # Work

    def _free(self) -> Member | None:
        """The engine with the least work, of those that have a free place, or too little waiting in their queue.

        A request's draws end one by one, which only the engine sees: its queue tells that there are places.
        """
        free = [
            one
            for one in self.members
            if one.up and (one.load < self._target + self._ahead or one.sent - one.taken < self._ahead)
        ]
        return min(free, key=lambda one: one.load, default=None)

    def _dispatch(self) -> None:
        while self._waiting and (member := self._free()):
            job = self._waiting.popleft()
            member.jobs[job.key] = job
            member.load += job.request.n
            member.outbox.append((job.key, job.request))
            member.sent += job.request.n

    def _send(self) -> None:
        for member in self.members:
            if member.outbox:
                member.actor.add.remote(member.outbox)
                member.outbox = []


def _said(error: Exception) -> str:
    """An error of Ray on one line, cut: its messages are pages long."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
