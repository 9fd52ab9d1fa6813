"""The laboratory's life: a run of kind ``lab`` in a store of its own, started detached, followed, stopped, resumed.

Its home is ``home/lab`` (quick: ``home/lab-quick``): pages opened on that home show every run and judge. Not: which
runs there are (``cells``) or what came out (``report``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.kinds import resolve_recipe
from app.lab.cells import Lab, lab_plan, todays_recipes
from app.lab.recipe import LabRecipe
from app.plans import Plan, State, execute
from app.runs import ENDED, queue_run
from app.settings import Settings
from app.shipped import shipped_for
from app.store import open_or_make_store, open_store
from db.rows import RunRow
from db.store import Store
from engine.errors import RecipeError, RunError
from engine.recipes import resolve, set_fields
from engine.runs import RunContext

KIND = "lab"
SHIPPED = "shipped.json"
"""In the run's folder: the shipped recipes that it started from, so that a later release changes no report."""
NEWEST = 500
"""Runs of the kind that are looked through for former ones."""


def run(ctx: RunContext[LabRecipe]) -> dict[str, Any]:
    """The lab kind of run: work through its plan. Parts that earlier laboratories of the store finished count."""
    started_from = todays_recipes()
    folder = ctx.home / "runs" / str(ctx.run_id)
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"{SHIPPED}.writing"
    aside.write_text(json.dumps(started_from, indent=1), encoding="utf-8")
    os.replace(aside, folder / SHIPPED)
    lab = lab_plan(ctx.recipe, started_from)
    done = execute(ctx, lab.parts, jobs=ctx.recipe.jobs, former=former(ctx.store, ctx.run_id))
    return {"parts": len(lab.parts), "done": len(done)}


def former(store: Store, run_id: int) -> list[int]:
    """Earlier laboratories of the store, oldest first."""
    return sorted(row.id for row in store.runs(NEWEST, kinds=[KIND]) if row.id < run_id)


def lab_settings(settings: Settings, quick: bool) -> Settings:
    """The laboratory's own home and store, whatever store the environment names."""
    home = settings.home / ("lab-quick" if quick else "lab")
    home.mkdir(parents=True, exist_ok=True)
    return settings.model_copy(update={"home": home, "database_url": ""})


def start(settings: Settings, quick: bool, assignments: Sequence[str] = ()) -> tuple[RunRow, bool]:
    """Queue the laboratory, or resume it, and see that a worker takes it. Returns its run and whether it went on
    already. ``assignments``: ``field=value`` over the shipped recipe; another recipe makes a new run, to which what
    holds under both counts as done."""
    own = lab_settings(settings, quick)
    store = open_or_make_store(own)
    store.mark_stalled(own.stalled_after_s)
    data = set_fields(shipped_for(KIND)["lab-quick" if quick else "lab-nano"].data, list(assignments))
    recipe = resolve(LabRecipe, data)
    newest = newest_lab(store)
    if newest is not None and newest.status in ("queued", "running"):
        if newest.status == "queued":
            _see_to_a_worker(store, own, newest.id)
        return newest, True
    if newest is not None and newest.status != "done" and _same(newest, recipe):
        run_id = store.resume_run(newest.id, actor=own.actor).id
    else:
        run_id = queue_run(store, KIND, recipe.model_dump(mode="json"), own.actor, own)
    _see_to_a_worker(store, own, run_id)
    return store.run(run_id), False


def _same(row: RunRow, recipe: LabRecipe) -> bool:
    """Whether the stored recipe means the same; one that today's code cannot read does not."""
    try:
        return resolve_recipe(KIND, row.recipe) == recipe
    except RecipeError:
        return False


def newest_lab(store: Store) -> RunRow | None:
    """The laboratory that counts: the newest of the store."""
    return next(iter(store.runs(1, kinds=[KIND])), None)


def _see_to_a_worker(store: Store, own: Settings, run_id: int) -> None:
    """Start a worker that outlives this terminal and ends with the run, unless one serves the store already."""
    if store.worker_alive():
        return
    own.logs.mkdir(parents=True, exist_ok=True)
    place = {"STEPWISER_HOME": str(own.home), "STEPWISER_DATABASE_URL": ""}
    with (own.logs / "lab-worker.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "app.worker", "until", str(run_id)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | place,
        )


def stop(settings: Settings, quick: bool) -> RunRow:
    """Ask the laboratory to stop; what is in hand ends after its batch. Raises RunError if there is none."""
    store, row = open_lab(settings, quick)
    return row if row.status in ENDED else store.request_stop(row.id, actor=settings.actor)


def open_lab(settings: Settings, quick: bool) -> tuple[Store, RunRow]:
    """The laboratory's store and run. Raises RunError if none was ever started."""
    own = lab_settings(settings, quick)
    store = open_store(own) if (own.home / "stepwiser.db").is_file() else None
    newest = newest_lab(store) if store else None
    if store is None or newest is None:
        raise RunError(f"no laboratory was started in {own.home}; `stepwiser lab start` starts one")
    store.mark_stalled(own.stalled_after_s)
    return store, store.run(newest.id)


@dataclass(frozen=True)
class Standing:
    """Where the laboratory stands: its run, its plan, and the state of the plan's parts."""

    run: RunRow
    recipe: LabRecipe
    lab: Lab
    state: State

    @property
    def missing(self) -> list[str]:
        """Names of parts that are not done, in order."""
        return [part.name for part in self.lab.parts if part.name not in self.state.done]


def standing(store: Store, row: RunRow, home: Path) -> Standing:
    """The state of the newest laboratory. Raises RecipeError where its stored recipe cannot be read any more."""
    recipe = resolve_recipe(KIND, row.recipe)
    assert isinstance(recipe, LabRecipe)
    kept = home / "runs" / str(row.id) / SHIPPED
    lab = lab_plan(recipe, json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else None)
    state = Plan(lab.parts).look(store, (*former(store, row.id), row.id))
    return Standing(row, recipe, lab, state)


@dataclass(frozen=True)
class Group:
    """Parts that cost about the same: how many there are and are done, and seconds of one, None: not measured."""

    name: str
    total: int
    done: int
    seconds: float | None

    @property
    def left_s(self) -> float | None:
        """Seconds of work that are left, one at a time."""
        left = self.total - self.done
        return 0.0 if not left else None if self.seconds is None else left * self.seconds


def groups(found: Standing) -> list[Group]:
    """The plan's parts by kind, with the mean time of those that are done.

    Only runs that went through in one attempt tell how long one takes.
    """
    by_kind: dict[str, list[str]] = defaultdict(list)
    for part in found.lab.parts:
        by_kind[part.kind].append(part.name)
    return [_group(kind, names, found.state.done) for kind, names in by_kind.items()]


def _group(kind: str, names: Sequence[str], done: dict[str, RunRow]) -> Group:
    rows = [done[name] for name in names if name in done]
    measured = [s for row in rows if row.attempt == 1 and (s := seconds_of(row)) is not None]
    mean = sum(measured) / len(measured) if measured else None
    return Group(kind, len(names), len(rows), mean)


def seconds_of(row: RunRow) -> float | None:
    """Wall time of the run's last attempt."""
    if row.started_at is None or row.ended_at is None:
        return None
    return (row.ended_at - row.started_at).total_seconds()


def time_left(found: Iterable[Group], jobs: int) -> tuple[float, list[str]]:
    """(seconds to go, kinds whose parts were not measured yet and are not counted)."""
    some = list(found)
    left = sum(group.left_s or 0.0 for group in some) / jobs
    return left, [group.name for group in some if group.left_s is None]
