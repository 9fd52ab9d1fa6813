"""Queueing and following runs: what the buttons and the commands share. Not: working on them (worker), forecasts."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.forecast import duration
from app.kinds import resolve_recipe
from app.processes import log_path
from app.settings import Settings
from app.worker import Worker
from db.errors import WorkerLockedError
from db.rows import RunRow
from db.store import Store

ENDED = ("done", "failed", "stopped", "stalled")
FOLLOW_S = 0.5


def queue_run(store: Store, kind: str, data: dict[str, Any], actor: str, settings: Settings) -> int:
    """Check the recipe, store it resolved as a queued run, and return the run's id."""
    recipe = resolve_recipe(kind, data)
    recipe.check(settings.home)
    return store.create_run(kind, recipe.model_dump(mode="json"), actor)


def without_worker(store: Store) -> str:
    """What a command that leaves a run in the queue adds where nobody would take it."""
    return "" if store.worker_alive() else "; no worker is running: start one with `stepwiser worker`"


def progress_text(run: RunRow) -> str:
    """done / total unit, rate and remaining time, as far as they are known."""
    parts = [f"{run.done:,}" + (f" / {run.total:,}" if run.total else "") + f" {run.unit}".rstrip()]
    if run.rate:
        parts.append(f"{run.rate:,.1f}/s")
    if run.remaining_s is not None:
        parts.append(f"{duration(run.remaining_s)} left")
    return ", ".join(parts)


def follow(store: Store, settings: Settings, run_id: int, console: Console) -> int:
    """Show a run's progress until it ends; without a worker, or once that is gone, work on it here. Returns an exit code."""
    with _bar(console) as bar:
        task = bar.add_task("queued", total=None)
        while not _show(store.run(run_id), bar, task):
            if not store.worker_alive():  # none from the start, or it ended before this run did
                with suppress(WorkerLockedError):  # another command was quicker
                    worker = Worker(store, settings)
                    console.print(
                        "no worker is running: this command works on the queue until the run has ended"
                    )
                    worker.serve(until=partial(_served, worker, run_id, bar, task))
                    break
            time.sleep(FOLLOW_S)
    run = store.run(run_id)
    console.print(f"run {run_id}: {run.status}, {progress_text(run)}")
    for key, value in run.result.items():
        console.print(f"  {key}: {value}", markup=False)
    if run.error:
        console.print(f"  {run.error}", markup=False)
    if run.status == "failed":
        console.print(f"  log: {log_path(settings, run_id)}", markup=False)
    return 0 if run.status == "done" else 1


def _served(worker: Worker, run_id: int, bar: Progress, task: Any) -> bool:
    return _show(worker.store.run(run_id), bar, task) and worker.child is None


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _show(run: RunRow, bar: Progress, task: Any) -> bool:
    about = run.waiting_for or run.message or run.status
    bar.update(task, completed=run.done, total=run.total, description=f"{run.kind} {about}"[:80])
    return run.status in ENDED
