"""Queueing, forecasting and following runs: what the buttons and the commands share. Not: working on them (worker)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.kinds import kind_of, resolve_recipe
from app.processes import log_path
from app.settings import Settings
from app.worker import Worker
from db.rows import RunRow
from db.store import Store
from engine.recipes import Recipe

ENDED = ("done", "failed", "stopped", "stalled")
FOLLOW_S = 0.5


@dataclass(frozen=True)
class Forecast:
    """``count`` units of work; seconds from the last measured rate, None where nothing was measured yet."""

    count: int
    unit: str
    rate: float | None
    seconds: float | None
    text: str


def queue_run(store: Store, kind: str, data: dict[str, Any], actor: str, settings: Settings) -> int:
    """Check the recipe, store it resolved as a queued run, and return the run's id."""
    recipe = resolve_recipe(kind, data)
    recipe.check(settings.home)
    return store.create_run(kind, recipe.model_dump(mode="json"), actor)


def forecast(store: Store, kind: str, recipe: Recipe) -> Forecast:
    """How much a recipe asks for, and how long that takes at the rate of the last such run."""
    unit = kind_of(kind).unit
    count = kind_of(kind).count(store, recipe)
    rate = _last_rate(store, kind, unit)
    seconds = count / rate if rate else None
    if seconds is None:
        text = f"{count:,} {unit}; no rate measured yet, so no time"
    else:
        text = f"{count:,} {unit}, about {duration(seconds)} at the last measured {rate:,.1f} {unit}/s"
    return Forecast(count, unit, rate, seconds, text)


def _last_rate(store: Store, kind: str, unit: str) -> float | None:
    """Units per second of the last such run that did anything, loading left out where the run measured it."""
    for run in store.runs(20, kinds=[kind], statuses=["done", "stopped"]):
        if rate := run.result.get(f"{unit}_per_s") or run.rate:
            return float(rate)
    return None


def duration(seconds: float) -> str:
    """Seconds as people say them: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def progress_text(run: RunRow) -> str:
    """done / total unit, rate and remaining time, as far as they are known."""
    parts = [f"{run.done:,}" + (f" / {run.total:,}" if run.total else "") + f" {run.unit}".rstrip()]
    if run.rate:
        parts.append(f"{run.rate:,.1f}/s")
    if run.remaining_s is not None:
        parts.append(f"{duration(run.remaining_s)} left")
    return ", ".join(parts)


def follow(store: Store, settings: Settings, run_id: int, console: Console) -> int:
    """Show a run's progress until it ends; without a worker, work on it here. Returns an exit code."""
    if not store.worker_alive():
        console.print("no worker is running: this command works on the queue until the run has ended")
        worker = Worker(store, settings)
        with _bar(console) as bar:
            task = bar.add_task("queued", total=None)
            worker.serve(until=lambda: _show(store.run(run_id), bar, task) and worker.child is None)
    else:
        with _bar(console) as bar:
            task = bar.add_task("queued", total=None)
            while not _show(store.run(run_id), bar, task):
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
