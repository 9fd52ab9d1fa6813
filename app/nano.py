"""``stepwiser nano …``: train the nano checkpoint and report its facts. The work is in ``training.nano``."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from app.settings import Settings
from engine.checkpoints import resolve_checkpoint
from engine.llm import LLMSpec, open_llm


def train(settings: Settings, out: Path | None, recipe: Path | None, assignments: list[str], console: Console) -> None:
    """Train from scratch by the packaged recipe, or another, and print what came of it."""
    from training.nano.recipe import load_recipe
    from training.nano.train import train_nano

    target = out or settings.checkpoints / "nano-new"
    result = train_nano(load_recipe(recipe, assignments), target, progress=lambda text: console.print(text, markup=False))
    for key, value in result.items():
        console.print(f"{key}: {value}", markup=False)
    console.print(f"checkpoint in {target}", markup=False)


def report(settings: Settings, checkpoint: str, console: Console) -> int:
    """Print the facts of a nano checkpoint, each with its bar. Returns 1 where one does not hold."""
    from training.nano.report import nano_report

    path = resolve_checkpoint(checkpoint, settings.home)
    with open_llm(LLMSpec(checkpoint=str(path), name=checkpoint)) as llm:
        return nano_report(llm, print_line=lambda text: console.print(text, markup=False, soft_wrap=True))
