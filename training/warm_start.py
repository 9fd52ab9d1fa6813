"""Warm start of a judge that boxes a verdict alone: a few steps on prompt → box before reinforcement begins.

A base that has only ever written analyses never writes the box alone, so every completion would be penalised alike
and no gradient would arise. What stands in the box is the recipe's choice: a coin (the form only) or the label.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training import core
from training.callbacks import run_callback, step_of
from training.rewards import VERDICT_OF

if TYPE_CHECKING:
    from engine.runs import RunContext
    from training.jobs import TrainJudgeRecipe, WarmStart
    from training.sets import Example


def warm_start(
    ctx: RunContext[TrainJudgeRecipe],
    warm: WarmStart,
    base: Path,
    examples: Sequence[Example],
    folder: Path,
) -> Path | None:
    """The warmed-up checkpoint in ``folder`` (made once, found again on a resume); None if stopped before its end."""
    done = folder / "warm"
    if done.is_dir():
        return done
    output = folder / "warm-trainer"
    last = core.train_to_end(
        ctx,
        lambda: build_trainer(ctx, warm, base, examples, output),
        output,
        warm.steps,
        lower="a smaller warm_start.batch, or lora",
    )
    if last is None or step_of(last) < warm.steps:
        return None
    with core.first_process_first():
        return core.save_aside(last, base, done)


def answers(examples: Sequence[Example], verdicts: str, n: int, seed: int) -> list[dict[str, str]]:
    """``n`` rows of prompt and boxed verdict, one seeded order of the examples after the other; a coin is thrown anew
    for each row."""
    rng = random.Random(f"warm start {seed}")
    rows: list[dict[str, str]] = []
    while len(rows) < n:
        for example in rng.sample(list(examples), len(examples)):
            word = rng.choice(("positive", "negative")) if verdicts == "coin" else VERDICT_OF[example.label]
            rows.append({"prompt": example.prompt, "completion": f"\\boxed{{{word.capitalize()}}}"})
    return rows[:n]


def arguments(recipe: TrainJudgeRecipe, warm: WarmStart, output: Path) -> dict[str, Any]:
    """SFTConfig's arguments for the warm start of a recipe."""
    common = core.trainer_arguments(
        output,
        steps=warm.steps,
        learning_rate=warm.learning_rate,
        seed=recipe.seed,
        hardware=recipe.hardware,
        saving=recipe.saving,
    )
    return common | {
        "per_device_train_batch_size": max(1, warm.batch // recipe.hardware.processes),
        "completion_only_loss": True,
        "max_length": recipe.grpo.max_prompt_tokens + recipe.grpo.max_tokens,
    }


def build_trainer(
    ctx: RunContext[TrainJudgeRecipe],
    warm: WarmStart,
    base: Path,
    examples: Sequence[Example],
    output: Path,
) -> Any:
    """An SFTTrainer whose loss counts the box and the end token only."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    recipe = ctx.recipe
    trainer = SFTTrainer(
        model=core.load_model(base, recipe.lora, recipe.hardware, seed=ctx.seed),
        processing_class=core.load_tokenizer(base, padding_side="right"),
        args=core.configured(SFTConfig, arguments(recipe, warm, output)),
        train_dataset=Dataset.from_list(
            answers(examples, warm.verdicts, warm.steps * warm.batch, recipe.seed)
        ),
        callbacks=[run_callback(ctx, part="warm start")],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
