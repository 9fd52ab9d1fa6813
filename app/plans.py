"""A plan: named runs that are parts of one run, in the order of their needs, one or several at a time, resumable.

Each part is a run like any other, with its own row, process and log. A part is done when a run of its name is done
under the very recipe that the plan gives it now, made after the runs that it needs; so a plan that goes on after a stop, a kill or a change leaves what
still holds alone, waits for parts that still run, resumes the unfinished and makes the rest. Not: what the parts are
(loop, laboratory).
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from app.kinds import resolve_recipe
from app.processes import Child, log_path, pass_stop_on, reap, start_process
from app.settings import Settings, get_settings
from db.errors import RunStateError, StoreError
from db.rows import RunRow
from db.store import Store
from engine.errors import RecipeError, RunError, StepWiserError
from engine.recipes import Recipe
from engine.runs import RunContext

POLL_S = 0.2
LOOK_S = 3.0
"""Between two looks at the store, while no part ends."""
STOP_GRACE_S = 60.0
"""Less than the worker gives the whole plan, so that the plan itself can end in order."""
Results = Mapping[str, RunRow]
"""Parts that are done, by name."""


@dataclass(frozen=True)
class Part:
    """One run of a plan. ``recipe`` is made when the parts that it ``needs`` are done, and may read their results."""

    name: str
    kind: str
    recipe: Callable[[Results], dict[str, Any]]
    needs: tuple[str, ...] = ()


def execute(
    ctx: RunContext[Any],
    parts: Sequence[Part],
    *,
    jobs: int = 1,
    former: Sequence[int] = (),
    total: int | None = None,
    settings: Settings | None = None,
) -> dict[str, RunRow]:
    """Work through ``parts``, ``jobs`` at a time; returns those that are done, all of them unless stopped.

    A part that fails does not end the others, only those that need it. ``former``: ids of earlier runs of the same
    plan, whose parts count. ``total``: how many parts the whole has, of which these are the beginning. Raises RunError, once nothing more can be done, naming every part that failed and why.
    """
    plan = Plan(parts)
    parents = (*former, ctx.run_id)
    return _Execution(ctx, plan, jobs, parents, total or len(parts), settings or get_settings()).work()


@dataclass
class State:
    """Where a plan stands: parts that are done, those with an unfinished run, and what could start now."""

    done: dict[str, RunRow] = field(default_factory=dict)
    open: dict[str, RunRow] = field(default_factory=dict)
    ready: dict[str, Recipe] = field(default_factory=dict)
    """Parts whose needs are done and that are not; those with an unfinished run are in ``open`` too."""
    refused: dict[str, str] = field(default_factory=dict)
    """Parts whose recipe cannot work, and why."""


class Plan:
    """Parts in order. Raises RunError for a name that is used twice or a need that no earlier part is called."""

    def __init__(self, parts: Sequence[Part]):
        self.parts: dict[str, Part] = {}
        self._recipes: dict[tuple[Any, ...], Recipe | str] = {}
        self._same: dict[tuple[Any, ...], bool] = {}
        for part in parts:
            if part.name in self.parts:
                raise RunError(f"two parts of the plan are called {part.name!r}")
            if missing := [name for name in part.needs if name not in self.parts]:
                raise RunError(f"part {part.name!r} needs {missing}, which no earlier part is called")
            self.parts[part.name] = part

    def look(self, store: Store, parents: Sequence[int]) -> State:
        """The state of the plan in the store, from the runs whose parents these are."""
        rows: dict[str | None, list[RunRow]] = defaultdict(list)
        for parent in parents:
            for row in store.children(parent):
                rows[row.name].append(row)
        state = State()
        for name, part in self.parts.items():
            if any(need not in state.done for need in part.needs):
                continue
            key: tuple[Any, ...] = (name, *(state.done[need].id for need in part.needs))
            recipe = self._recipe(part, key, state.done)
            if isinstance(recipe, str):
                state.refused[name] = recipe
                continue
            after = max(key[1:], default=0)  # a run made before what it needs was made of something older
            own = [row for row in rows[name] if row.id > after and self._is_of(row, key, recipe)]
            if own and own[-1].status == "done":
                state.done[name] = own[-1]
                continue
            state.ready[name] = recipe
            if own:
                state.open[name] = own[-1]
        return state

    def _recipe(self, part: Part, key: tuple[Any, ...], done: Results) -> Recipe | str:
        if key not in self._recipes:
            try:
                self._recipes[key] = resolve_recipe(part.kind, part.recipe(done))
            except StepWiserError as error:  # the other parts can work all the same
                self._recipes[key] = str(error)
        return self._recipes[key]

    def _is_of(self, row: RunRow, key: tuple[Any, ...], recipe: Recipe) -> bool:
        """Whether the stored recipe means the same; one that today's code cannot read does not."""
        if (row.id, key) not in self._same:
            try:
                self._same[row.id, key] = resolve_recipe(row.kind, row.recipe) == recipe
            except RecipeError:
                self._same[row.id, key] = False
        return self._same[row.id, key]


@dataclass
class _Execution:
    ctx: RunContext[Any]
    plan: Plan
    jobs: int
    parents: Sequence[int]
    total: int
    settings: Settings
    children: dict[str, Child] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    """What became of parts in this attempt that did not end as done; not tried again before the next attempt."""
    stop_since: float | None = None

    def work(self) -> dict[str, RunRow]:
        while True:
            self._reap()
            state = self.plan.look(self.ctx.store, self.parents)
            running = {name: row for name, row in state.open.items() if self._runs(name, row)}
            self._note_failures(state, running)
            if self.ctx.stopping:
                self._pass_stop_on(running)
            else:
                running |= self._start(state, self.jobs - len(running))
            self._report(state, running)
            if not running or self._waited_enough():
                break
            self._wait()
        if self.failed and not self.ctx.stopping:
            raise RunError(
                f"{len(self.failed)} of {len(self.plan.parts)} parts did not end well; resume to try them again:\n"
                + "\n".join(f"  {name}: {why}" for name, why in self.failed.items())
            )
        return state.done

    def _wait(self) -> None:
        """Until a process ends, a stop is asked for, or it is time to look again."""
        until, stopping = time.monotonic() + LOOK_S, self.ctx.stopping
        while time.monotonic() < until and self.ctx.stopping == stopping:
            if any(child.process.poll() is not None for child in self.children.values()):
                return
            time.sleep(POLL_S)

    def _runs(self, name: str, row: RunRow) -> bool:
        """An own process that has not been reaped, or a run that an earlier attempt left and that still beats."""
        return name in self.children or row.status == "running"

    def _reap(self) -> None:
        for name, child in list(self.children.items()):
            if reap(self.ctx.store, self.settings, child):
                del self.children[name]
        # a run that an earlier attempt left has only its heartbeat to go by
        self.ctx.store.mark_stalled(self.settings.stalled_after_s)

    def _note_failures(self, state: State, running: Mapping[str, RunRow]) -> None:
        ended = {
            name: row for name, row in state.open.items() if name in self.started and name not in running
        }
        for name, row in ended.items():
            why = f"{row.error or 'it was asked to stop'} (log: {log_path(self.settings, row.id)})"
            self._fail(name, f"run {row.id} {row.status}: {why}")
        for name, why in state.refused.items():
            self._fail(name, why)

    def _fail(self, name: str, why: str) -> None:
        if name not in self.failed:
            self.failed[name] = why
            self.ctx.log(f"{name}: {why}")

    def _start(self, state: State, places: int) -> dict[str, RunRow]:
        """Start up to ``places`` parts; returns their runs."""
        begun: dict[str, RunRow] = {}
        for name, recipe in state.ready.items():
            row = state.open.get(name)
            if name in self.failed or (row is not None and self._runs(name, row)):
                continue
            if len(begun) >= places:
                break
            try:
                run = self._claim(self.plan.parts[name], recipe, row)
            except (StepWiserError, StoreError) as error:
                self._fail(name, str(error))
                continue
            self.children[name] = start_process(self.settings, run, self._threads())
            self.started.add(name)
            begun[name] = run
            self.ctx.log(f"{name}: run {run.id} ({run.kind}), attempt {run.attempt}")
        return begun

    def _threads(self) -> dict[str, str]:
        """Parts that run side by side share the cores; a library left alone would take all of them for each."""
        return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.jobs))} if self.jobs > 1 else {}

    def _claim(self, part: Part, recipe: Recipe, row: RunRow | None) -> RunRow:
        """The part's unfinished run, or a new one, marked as running. Raises StepWiserError, StoreError."""
        if row is None:
            recipe.check(self.settings.home)
            data = recipe.model_dump(mode="json")
            run_id = self.ctx.store.create_run(
                part.kind, data, self.ctx.actor, parent_id=self.ctx.run_id, name=part.name
            )
        else:
            run_id = row.id
        return self.ctx.store.claim_child(run_id, os.getpid())

    def _pass_stop_on(self, running: Mapping[str, RunRow]) -> None:
        """Ask every part to stop; own processes are ended after the grace, others see it at their next heartbeat."""
        if self.stop_since is None:
            self.stop_since = time.monotonic()
            for row in running.values():
                with suppress(RunStateError):  # it ended meanwhile
                    self.ctx.store.request_stop(row.id)
        for child in self.children.values():
            pass_stop_on(child, STOP_GRACE_S)

    def _waited_enough(self) -> bool:
        """After a stop, runs that are not this process's children are not waited for longer than the grace."""
        waited = self.stop_since is not None and time.monotonic() - self.stop_since > STOP_GRACE_S
        return waited and not self.children

    def _report(self, state: State, running: Mapping[str, RunRow]) -> None:
        at_work = [
            f"{name} ({row.done:,} of {row.total:,} {row.unit})" if row.total else name
            for name, row in running.items()
        ]
        self.ctx.progress(len(state.done), self.total, "runs", "; ".join(at_work))
