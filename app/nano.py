"""``stepwiser nano …``: train the nano checkpoint and report its facts. The work is in ``training.nano``."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from app.settings import Settings
from engine.checkpoints import resolve_checkpoint
from engine.llm import LLMSpec, open_llm
from engine.recipes import read_recipe, resolve, set_fields

RECIPE = Path(__file__).resolve().parents[1] / "training" / "nano" / "recipe.yaml"


def train(
    settings: Settings, out: Path | None, recipe: Path | None, assignments: list[str], console: Console
) -> None:
    """Train from scratch by the packaged recipe, or another, and print what came of it."""
    from training.nano.recipe import NanoRecipe
    from training.nano.train import train_nano

    data = set_fields(read_recipe(recipe or RECIPE), assignments)
    target = out or settings.checkpoints / "nano-new"

    def show(step: int, facts: dict[str, float]) -> None:
        console.print(
            f"step {step}: " + ", ".join(f"{name} {value:.3g}" for name, value in facts.items()), markup=False
        )

    result = train_nano(resolve(NanoRecipe, data), target, progress=show)
    for key, value in result.items():
        console.print(f"{key}: {value}", markup=False)
    console.print(f"checkpoint in {target}", markup=False)


def report(settings: Settings, checkpoint: str, console: Console) -> int:
    """Print the facts of a nano checkpoint, each with its bar. Returns 1 where one does not hold."""
    from training.nano.report import nano_report, show_report

    path = resolve_checkpoint(checkpoint, settings.home)
    with open_llm(LLMSpec(checkpoint=str(path), name=checkpoint)) as llm:
        found = nano_report(llm, progress=lambda text: console.print(text, markup=False))
    print(show_report(found), flush=True)
    return 0 if found["holds"] else 1
