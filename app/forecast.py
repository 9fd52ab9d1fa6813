"""How much work a recipe asks for and how long it takes, from what runs of its kind took here. Not memory.

Nothing is guessed: where no run of the kind was measured, no time is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from app.kinds import kind_of
from app.rollout_forecast import rollout_forecast
from db.rows import RunRow
from db.store import Store
from engine.recipes import Recipe, RolloutRecipe

RECENT = 20
"""Runs of the kind that are looked at."""


@dataclass(frozen=True)
class Measured:
    """Units per second of an earlier run, and what it differs in from the run that is asked for (in words)."""

    run_id: int
    rate: float
    but: str = ""


@dataclass(frozen=True)
class Forecast:
    """``count`` units of work; seconds from the last measured rate, None where nothing was measured yet."""

    count: int
    unit: str
    rate: float | None
    seconds: float | None
    text: str


def forecast(store: Store, kind: str, recipe: Recipe) -> Forecast:
    """How much a recipe asks for, and how long that takes at the rate of the last such run, best with the same base."""
    unit = kind_of(kind).unit
    count = kind_of(kind).count(store, recipe)
    if isinstance(recipe, RolloutRecipe):
        runs = store.runs(RECENT, kinds=[kind], statuses=["done", "stopped"])
        ahead = rollout_forecast(recipe, count, runs)
        rate = ahead.pace.rollouts_per_s if ahead.pace else None
        return Forecast(ahead.count, unit, rate, ahead.seconds, "\n".join(ahead.lines))
    found = measured(store, kind, recipe.model_dump(mode="json"))
    if found is None:
        return Forecast(
            count, unit, None, None, f"{count:,} {unit}; no such run has been measured yet, so no time"
        )
    seconds = count / found.rate
    text = f"{count:,} {unit}, about {duration(seconds)}: run {found.run_id} did {pace(found.rate, unit)}"
    return Forecast(count, unit, found.rate, seconds, f"{text}{found.but}")


def measured(store: Store, kind: str, recipe: Mapping[str, Any]) -> Measured | None:
    """The rate of the last such run that did anything: the one with the same checkpoint if there is one."""
    other = None
    for run in store.runs(RECENT, kinds=[kind], statuses=["done", "stopped"]):
        rate = _rate(store, run)
        if not rate:
            continue
        if main_checkpoint(run.recipe) == main_checkpoint(recipe):
            return _scaled(run, rate, recipe)
        if other is None:
            other = Measured(run.id, rate, f", but with {main_checkpoint(run.recipe)}")
    return other


def _rate(store: Store, run: RunRow) -> float | None:
    """Units per second, loading left out where the run measured it: its own figure, or its mean time a step."""
    if rate := run.result.get(f"{run.unit}_per_s"):
        return float(rate)
    steps = [row.value for row in store.metrics(run.id, ["step_time"]).get("step_time", []) if row.value]
    return 1 / mean(steps) if steps else run.rate


def main_checkpoint(recipe: Mapping[str, Any]) -> str | None:
    """The checkpoint that a run spends its time on: what it trains, or what its door serves."""
    if isinstance(recipe.get("base"), str):
        return str(recipe["base"])
    judge = recipe.get("judge")
    llm = recipe.get("llm") or (judge.get("llm") if isinstance(judge, Mapping) else None)
    return llm.get("checkpoint") if isinstance(llm, Mapping) else None


def _scaled(run: RunRow, rate: float, recipe: Mapping[str, Any]) -> Measured:
    """A trainer's rate brought to the batch that is asked for: twice the completions a step, half the steps a second."""
    before, now = examples_a_step(run.recipe), examples_a_step(recipe)
    if not before or not now or before == now:
        return Measured(run.id, rate)
    return Measured(run.id, rate * before / now, f" when {before:g} examples a step are scaled to {now:g}")


def examples_a_step(recipe: Mapping[str, Any]) -> float | None:
    """Completions (GRPO) or examples (SFT) that one optimizer step works through; None for other kinds."""
    grpo, sft = recipe.get("grpo"), recipe.get("sft")
    if isinstance(grpo, Mapping):
        per_batch = grpo.get("prompts_per_batch", 0) * grpo.get("generations", 0)
        return per_batch / (grpo.get("steps_per_batch") or 1) or None
    return float(sft["batch"]) if isinstance(sft, Mapping) and sft.get("batch") else None


def pace(rate: float, unit: str) -> str:
    """A rate as people say it: 12 solutions/s, or 1.6 s for each of slow units."""
    if rate >= 1:
        return f"{rate:,.1f} {unit}/s"
    return f"one of its {unit} in {1 / rate:,.1f} s"


def duration(seconds: float) -> str:
    """Seconds as people say them: 40 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
