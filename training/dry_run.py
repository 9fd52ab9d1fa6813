"""A dry run: what a recipe would do here, and whether the installed TRL knows every argument that it becomes.

Loads TRL's configuration classes, no model and no data. How long it takes and how much memory is app.forecast's.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from engine.checkpoints import resolve_checkpoint
from engine.errors import StepWiserError
from engine.recipes import Recipe
from training import core, hardware
from training.grpo_parts import Grpo
from training.parts import Saving, Sft

TRAINERS = {
    "train-judge": ("GRPOConfig", "training.grpo_judge"),
    "train-policy": ("GRPOConfig", "training.grpo_policy"),
    "train-judge-rsft": ("SFTConfig", "training.sft"),
    "train-judge-sft": ("SFTConfig", "training.sft"),
    "train-sft": ("SFTConfig", "training.sft"),
}
"""TRL's configuration class of each training kind, and the module whose ``arguments`` gives what goes into it."""


@dataclass(frozen=True)
class DryRun:
    """``rows``: what would happen, (what, how), in order; ``missing``: what this machine lacks for it, in words."""

    rows: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


def dry_run(recipe: Recipe, home: Path) -> DryRun:
    """What ``recipe`` would do from ``home``. Raises TrainingError for an argument that TRL does not know."""
    rows = [("kind", recipe.kind), ("seed", str(recipe.seed))]
    lacks = [*_refused(recipe, home)]
    base = getattr(recipe, "base", None)
    if isinstance(base, str):
        rows.append(("base", _base(base, home)))
    rows += _data(recipe)
    for part, words in ((getattr(recipe, name, None), words) for name, words in _PARTS.items()):
        if part is not None:
            rows += words(part, recipe)
    if recipe.kind in TRAINERS:
        rows.append(("TRL", checked_arguments(recipe, home)))
    machine = hardware.hardware_of(recipe)
    command = hardware.launch_command(machine, 0, 1)
    rows.append(("command", shlex.join(command).replace(" 0 1", " RUN ATTEMPT")))
    if machine is not None:
        lacks += hardware.missing(machine, generates=hasattr(recipe, "grpo"))
    return DryRun(tuple(rows), tuple(lacks))


def checked_arguments(recipe: Recipe, home: Path) -> str:
    """How many arguments go to which class of which TRL. Raises TrainingError for one that it does not know."""
    import trl

    name, module = TRAINERS[recipe.kind]
    arguments = import_module(module).arguments(recipe, home / "runs" / "RUN" / "trainer")
    core.check_arguments(getattr(trl, name), arguments)
    return f"TRL {trl.__version__} knows all {len(arguments)} arguments of {name}"


def _refused(recipe: Recipe, home: Path) -> list[str]:
    """What the recipe names and is not here; empty if it can be queued."""
    try:
        recipe.check(home)
    except StepWiserError as error:
        return [str(error)]
    return []


def _base(name: str, home: Path) -> str:
    try:
        return f"{name}: {resolve_checkpoint(name, home)}"
    except StepWiserError:
        return f"{name}: not here yet"


def _data(recipe: Recipe) -> list[tuple[str, str]]:
    if not hasattr(recipe, "set"):
        return []
    name = recipe.set
    return [("training set", name if name else "chosen from the store when the run starts")]


def _grpo(grpo: Grpo, recipe: Recipe) -> list[tuple[str, str]]:
    machine = hardware.hardware_of(recipe)
    processes = machine.processes if machine else 1
    size = grpo.per_device(processes)
    passes = grpo.step_completions // (size * processes)
    return [
        ("steps", f"{grpo.steps:,} optimizer steps, {grpo.steps_per_batch} to a generation batch"),
        (
            "completions",
            f"{grpo.prompts_per_batch:,} prompts × {grpo.generations} = {grpo.completions:,} a generation batch, "
            f"{grpo.step_completions:,} a step, of at most {grpo.max_prompt_tokens:,} + {grpo.max_tokens:,} tokens",
        ),
        ("through the model at once", f"{size:,} on each of {processes} devices, {passes} passes a step"),
        ("clip", f"{1 - grpo.epsilon:g} to {1 + grpo.epsilon_high:g}, learning rate {grpo.learning_rate:g}"),
    ]


def _sft(sft: Sft, recipe: Recipe) -> list[tuple[str, str]]:
    packed = (
        f", packed to {sft.max_tokens:,} tokens" if sft.packing else f" of at most {sft.max_tokens:,} tokens"
    )
    return [
        ("steps", f"{sft.steps:,} optimizer steps of {sft.batch:,} examples{packed}"),
        ("learning rate", f"{sft.learning_rate:g} after {sft.warmup:,} steps of warm-up"),
    ]


def _lora(lora: Any, recipe: Recipe) -> list[tuple[str, str]]:
    return [("LoRA", f"rank {lora.r}, alpha {lora.alpha}, on {lora.target}: merged into the base at the end")]


def _saving(saving: Saving, recipe: Recipe) -> list[tuple[str, str]]:
    best = " and the best on held-out chunks" if getattr(recipe, "eval_every", None) else ""
    name = getattr(recipe, "name", None) or "run-RUN"
    return [
        ("saves while training", f"every {saving.every:,} steps; the newest {saving.keep}{best} are kept"),
        ("becomes the checkpoint", name),
    ]


_PARTS: Mapping[str, Callable[[Any, Recipe], list[tuple[str, str]]]] = {
    "grpo": _grpo,
    "sft": _sft,
    "lora": _lora,
    "saving": _saving,
}
