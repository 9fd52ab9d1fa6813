"""``stepwiser run KIND --dry-run``: the dry run with the memory that the recipe asks for, printed. Starts nothing."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.kinds import resolve_recipe
from app.machine import this_machine
from app.memory_forecast import memory_forecast, size
from app.settings import Settings
from engine.errors import CheckpointError
from engine.recipes import Recipe
from training.dry_run import dry_run


def say_what_would_happen(settings: Settings, kind: str, data: dict[str, Any], console: Console) -> int:
    """Print what the recipe would do here. Returns 0, or 1 where this machine lacks something for it.

    Raises RecipeError for a field that does not exist, TrainingError for an argument that TRL does not know.
    """
    recipe = resolve_recipe(kind, data)
    found = dry_run(recipe, settings.home)
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    for what, how in (*found.rows, *_memory(recipe, settings)):
        table.add_row(Text(what), Text(how))
    console.print(table)
    for lack in found.missing:
        console.print(Text(f"missing here: {lack}"), style="yellow", soft_wrap=True)
    console.print("nothing was started")
    return 1 if found.missing else 0


def _memory(recipe: Recipe, settings: Settings) -> list[tuple[str, str]]:
    try:
        forecast = memory_forecast(recipe, settings.home, this_machine())
    except CheckpointError as error:
        return [("memory", f"not known: {error}")]
    if forecast is None:
        return []
    room = f"{size(forecast.free)} of {size(forecast.total)} are free in {forecast.where}"
    needs = "; ".join(f"{need.what}: {size(need.bytes)}" for need in forecast.needs)
    return [("memory", f"{size(forecast.bytes)} and activations; {room}"), ("of it", needs)]
