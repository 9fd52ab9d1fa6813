"""A plan: named runs that are parts of one run, in the order of their needs, one or several at a time, resumable.

Each part is a run like any other, with its own row, process and log. A plan that goes on after a stop or a kill leaves
what is done alone, waits for parts that still run, and resumes the others. Not: what the parts are (loop, laboratory).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from app.kinds import resolve_recipe
from app.processes import Child, log_path, pass_stop_on, reap, start_process
from app.settings import Settings, get_settings
from db.errors import RunStateError
from db.rows import RunRow
from engine.errors import RecipeError, RunError, StepWiserError
from engine.recipes import Recipe
from engine.runs import RunContext

POLL_S = 0.5
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
    settings: Settings | None = None,
) -> dict[str, RunRow]:
    """Work through ``parts``, ``jobs`` at a time; returns those that are done, all of them unless stopped.

    A part that fails does not end the others, only those that need it. ``former``: ids of earlier runs whose parts
    count as this run's. Raises RunError, once nothing more can be done, naming every part that failed and why.
    """
    return _Execution(ctx, check_plan(parts), jobs, former, settings or get_settings()).work()


def check_plan(parts: Sequence[Part]) -> dict[str, Part]:
    """Parts by name. Raises RunError for a name that is used twice or a need that comes later or nowhere."""
    plan: dict[str, Part] = {}
    for part in parts:
        if part.name in plan:
            raise RunError(f"two parts of the plan are called {part.name!r}")
        if missing := [name for name in part.needs if name not in plan]:
            raise RunError(f"part {part.name!r} needs {missing}, which no earlier part is called")
        plan[part.name] = part
    return plan


@dataclass
class _Execution:
    ctx: RunContext[Any]
    plan: dict[str, Part]
    jobs: int
    former: Sequence[int]
    settings: Settings
    children: dict[str, Child] = field(default_factory=dict)
    adopted: set[str] = field(default_factory=set)
    """Parts that an earlier attempt started and that still run: their processes are not ours to reap."""
    failed: dict[str, str] = field(default_factory=dict)
    """What became of parts in this attempt that did not end as done; not tried again before the next attempt."""
    started: set[str] = field(default_factory=set)
    stop_since: float | None = None

    def work(self) -> dict[str, RunRow]:
        rows = self._rows()
        self.adopted = {name for name, row in rows.items() if row.status == "running"}
        while True:
            self._reap()
            rows = self._rows()
            self._settle(rows)
            if self.ctx.stopping:
                self._pass_stop_on(rows)
            else:
                self._start(rows)
            self._report(rows)
            if not (self.children or self.adopted):
                break
            time.sleep(POLL_S)
        done = {name: row for name, row in self._rows().items() if row.status == "done"}
        if self.failed and not self.ctx.stopping:
            raise RunError(
                f"{len(self.failed)} of {len(self.plan)} parts did not end well; resume to try them again:\n"
                + "\n".join(f"  {name}: {why}" for name, why in self.failed.items())
            )
        return done

    def _rows(self) -> dict[str, RunRow]:
        """The newest run of each part that has one."""
        rows: dict[str, RunRow] = {}
        for parent in (*self.former, self.ctx.run_id):
            rows |= {row.name: row for row in self.ctx.store.children(parent) if row.name in self.plan}
        return rows

    def _reap(self) -> None:
        for name, child in list(self.children.items()):
            if reap(self.ctx.store, self.settings, child):
                del self.children[name]
        if (
            self.adopted
        ):  # a part whose process was killed falls silent; its heartbeat is all there is to go by
            self.ctx.store.mark_stalled(self.settings.stalled_after_s)

    def _settle(self, rows: dict[str, RunRow]) -> None:
        """Notice what ended: a part that was adopted and fell silent may be started again, others have failed."""
        for name in [name for name in self.adopted if rows[name].status != "running"]:
            self.adopted.remove(name)
            self.ctx.log(f"{name}: run {rows[name].id}, left by an earlier attempt, is {rows[name].status}")
        for name, row in rows.items():
            if name in self.started and name not in self.children and row.status != "done":
                self.failed.setdefault(name, self._why(row))

    def _why(self, row: RunRow) -> str:
        return f"run {row.id} {row.status}: {row.error or 'it was asked to stop'} (log: {log_path(self.settings, row.id)})"

    def _start(self, rows: dict[str, RunRow]) -> None:
        done = {name: row for name, row in rows.items() if row.status == "done"}
        for name, part in self.plan.items():
            if len(self.children) + len(self.adopted) >= self.jobs:
                return
            busy = name in done or name in self.failed or name in self.children or name in self.adopted
            if busy or any(need not in done for need in part.needs):
                continue
            try:
                run = self._claim(part, done, rows.get(name))
            except StepWiserError as error:  # its recipe cannot work: the other parts can
                self.failed[name] = str(error)
                self.ctx.log(f"{name}: {error}")
                continue
            self.children[name] = start_process(self.settings, run, self._threads())
            self.started.add(name)
            self.ctx.log(f"{name}: run {run.id} ({part.kind}), attempt {run.attempt}")

    def _threads(self) -> dict[str, str]:
        """Parts that run side by side share the cores; a library left alone would take all of them for each."""
        return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.jobs))} if self.jobs > 1 else {}

    def _claim(self, part: Part, done: Results, row: RunRow | None) -> RunRow:
        """The part's run, marked as running: the one it has, unless its recipe changed since, else a new one."""
        recipe = resolve_recipe(part.kind, part.recipe(done))
        if row is not None and not _same_recipe(row, recipe):
            self.ctx.log(f"{part.name}: its recipe changed; run {row.id} stays as it is, a new one is made")
            row = None
        if row is None:
            recipe.check(self.settings.home)
            run_id = self.ctx.store.create_run(
                part.kind,
                recipe.model_dump(mode="json"),
                self.ctx.actor,
                parent_id=self.ctx.run_id,
                name=part.name,
            )
        else:
            run_id = row.id
        return self.ctx.store.claim_child(run_id, os.getpid())

    def _pass_stop_on(self, rows: dict[str, RunRow]) -> None:
        """Ask every part to stop; own processes are ended after the grace, adopted ones are then left to their stop."""
        if self.stop_since is None:
            self.stop_since = time.monotonic()
            for name in (*self.children, *self.adopted):
                with suppress(RunStateError):  # it ended meanwhile
                    self.ctx.store.request_stop(rows[name].id)
        for child in self.children.values():
            pass_stop_on(child, STOP_GRACE_S)
        if time.monotonic() - self.stop_since > STOP_GRACE_S:
            self.adopted.clear()

    def _report(self, rows: dict[str, RunRow]) -> None:
        done = sum(row.status == "done" for row in rows.values())
        at_work = [
            f"{name} {row.done:,}/{row.total:,} {row.unit}" if row.total else name
            for name, row in rows.items()
            if name in self.children or name in self.adopted
        ]
        self.ctx.progress(done, len(self.plan), "runs", "; ".join(at_work))


def _same_recipe(row: RunRow, recipe: Recipe) -> bool:
    """Whether the stored recipe means the same; one that today's code cannot read does not."""
    try:
        return resolve_recipe(row.kind, row.recipe) == recipe
    except RecipeError:
        return False
