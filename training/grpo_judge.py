"""GRPO on a generative judge with TRL: rewarded where the verdict equals the label (StepWiser §3.3).

Covers one run from the store's labels, or a frozen set, to a checkpoint that judges at once; resumes from its last
checkpoint on the same curve. What is an example: ``sets``; the rewards: ``rewards``; accuracy: ``held_out``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints import resolve_checkpoint
from engine.errors import TrainingError
from engine.judge import load_prompt
from engine.llm.checkpoint import check_checkpoint
from engine.pipeline.kept import own_folder
from engine.recipes import Draws
from training import core
from training.callbacks import run_callback, step_of, trainer_state
from training.held_out import Accuracy, measure, measure_model
from training.rewards import JudgeReward, Samples
from training.sets import (
    Example,
    TrainingSet,
    examples_for,
    read_manifest,
    read_set,
    write_set,
)
from training.warm_start import warm_start
from training.workspace import free_target, write_whole

if TYPE_CHECKING:
    from engine.runs import RunContext
    from training.jobs import TrainJudgeRecipe

LESS_MEMORY = (
    "a smaller grpo.micro_batch, grpo.prompts_per_batch or grpo.max_tokens, hardware.gradient_checkpointing: true, "
    "hardware.vllm_memory on a GPU, or lora"
)
SAMPLED_GROUPS = 2
"""Groups of completions kept for reading: enough to see one agree and one disagree."""


def train(ctx: RunContext[TrainJudgeRecipe]) -> dict[str, Any]:
    """Train and save the judge; returns counts, accuracy before and after, and the checkpoint's name.

    A stopped run returns what it has, and continues from its last checkpoint and its own stored examples when
    resumed. Raises TrainingError (name taken, set too small, out of memory, disk full, NaN), RunError (resumed with
    another recipe), CheckpointError (base) and RecipeError (rule).
    """
    recipe, uid = ctx.recipe, ctx.store.run(ctx.run_id).uid
    target = free_target(ctx, uid)
    base = resolve_checkpoint(recipe.base, ctx.home)
    base_hash = check_checkpoint(base).content_hash
    prompt = load_prompt(recipe.prompt)
    ctx.facts({prompt.name: prompt.hash})
    core.prepare(recipe.hardware)
    with core.first_process_first():
        folder = own_folder(ctx)
        data = _examples(ctx, base, folder)
        before = _before(ctx, base, data, folder)
    result: dict[str, Any] = {"set": data.counts, "held_out_before": _asdict(before)}
    if core.stop_everywhere(ctx):
        return result

    warm = recipe.warm_start
    start = warm_start(ctx, warm, base, data.train, folder) if warm else base
    if start is None:
        return result
    output = folder / "trainer"
    last = core.train_to_end(
        ctx, lambda: build_trainer(ctx, start, data, output), output, recipe.grpo.steps, lower=LESS_MEMORY
    )
    result["steps"] = step_of(last)
    if last is None or step_of(last) < recipe.grpo.steps or not ctx.main:
        return result

    chosen = core.best_checkpoint(last) if recipe.eval_every else last
    result["reward"] = reward_curve(trainer_state(last)["log_history"])
    if chosen != last:
        ctx.log(f"{chosen.name} was best on the held-out chunks: it becomes the judge")
        result["best_step"] = step_of(chosen)
    aside = core.save_aside(chosen, start, folder / "final")
    after = _measure(ctx, aside, data, stopping=lambda: False)  # seconds, and the run is all but done
    _log_accuracy(ctx, "after", after, recipe.grpo.steps)
    result |= {"held_out_after": _asdict(after), "checkpoint": target.name}
    card = {
        "run_id": ctx.run_id,
        "run": uid,
        "role": "judge",
        "base": recipe.base,
        "base_hash": base_hash,
        "prompt": recipe.prompt,
        "prompt_hash": prompt.hash,
        "recipe": recipe.model_dump(mode="json"),
        "set": _set_facts(ctx, data),
        "metrics": {name: result[name] for name in ("steps", "reward", "held_out_before", "held_out_after")},
    }
    core.finish(ctx, chosen, start, target, card, aside=aside)
    return result


def _examples(ctx: RunContext[TrainJudgeRecipe], base: Path, folder: Path) -> TrainingSet:
    """The run's examples: chosen once, kept beside the run, so that new labels do not change a resumed run."""
    kept = folder / "examples.jsonl"
    if kept.is_file():
        return read_set(kept)
    tokenizer = core.load_tokenizer(base)

    def count_tokens(texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in tokenizer(list(texts), verbose=False)["input_ids"]]

    longest = ctx.recipe.grpo.max_prompt_tokens
    data = examples_for(ctx.store, ctx.home, ctx.recipe, count_tokens=count_tokens, max_tokens=longest)
    if {example.label for example in data.train} != {"+", "-"}:
        raise TrainingError(
            f"of training set {ctx.recipe.set!r} {len(data.train)} examples have prompts of at most {longest} tokens, "
            "and + and - are not both among them; raise grpo.max_prompt_tokens or build another set"
        )
    write_set(data, kept)
    ctx.log("examples: " + ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in data.counts.items()))
    return data


def _set_facts(ctx: RunContext[TrainJudgeRecipe], data: TrainingSet) -> dict[str, Any]:
    """What the card says of the data: the frozen set's name and hash, or that the run chose it, and the counts."""
    if ctx.recipe.set is None:
        return {"name": None, "counts": data.counts}
    manifest = read_manifest(ctx.home, ctx.recipe.set)
    return {"name": manifest.name, "hash": manifest.hash, "counts": data.counts}


def _before(
    ctx: RunContext[TrainJudgeRecipe], base: Path, data: TrainingSet, folder: Path
) -> Accuracy | None:
    kept = folder / "before.json"
    if kept.is_file():
        return Accuracy(**json.loads(kept.read_text(encoding="utf-8")))
    if not ctx.main:
        return None
    ctx.progress(0, ctx.recipe.grpo.steps, "steps", "measuring the base on held-out chunks")
    before = _measure(ctx, base, data, stopping=lambda: ctx.stopping)
    if before:
        write_whole(kept, json.dumps(asdict(before)))
    _log_accuracy(ctx, "before", before, 0)
    return before


def _measure(
    ctx: RunContext[TrainJudgeRecipe], checkpoint: Path, data: TrainingSet, stopping: Callable[[], bool]
) -> Accuracy | None:
    return measure(checkpoint, data.held_out, stopping=stopping, **_drawing(ctx))


def _drawing(ctx: RunContext[TrainJudgeRecipe]) -> dict[str, Any]:
    """How held-out judgments are drawn: as judging draws them by default, whatever the temperature of the training."""
    recipe = ctx.recipe
    return {
        "k": recipe.labels.held_out_k,
        "temperature": Draws().temperature,
        "max_tokens": recipe.grpo.max_tokens,
        "answer": recipe.answer,
        "seed": ctx.seed,
    }


def _log_accuracy(ctx: RunContext[TrainJudgeRecipe], when: str, accuracy: Accuracy | None, step: int) -> None:
    if accuracy is None:
        return
    ctx.metrics(step, _held_out(accuracy))
    ctx.log(
        f"held-out accuracy {when} training: {accuracy.single:.3f} a judgment, {accuracy.majority:.3f} by majority of "
        f"{accuracy.k} ({accuracy.chunks} balanced chunks, {accuracy.none:.1%} without a verdict)"
    )


def _held_out(accuracy: Accuracy) -> dict[str, float]:
    return {"held_out/accuracy": accuracy.single, "held_out/majority": accuracy.majority}


def data_order(labels: Sequence[str], batches: int, prompts_per_batch: int, seed: int) -> list[int]:
    """Indices of all prompts of a whole run: one seeded order of the examples after the other.

    Written out for the whole run, so that a resumed run goes on with the very next prompt, in whatever epoch. Each
    label is spread evenly over an epoch: a batch with more of one label would push the judge towards that verdict.
    """
    rng = random.Random(seed)
    order: list[int] = []
    while len(order) < batches * prompts_per_batch:
        places: list[tuple[float, int]] = []
        for label in sorted(set(labels)):
            own = [i for i, other in enumerate(labels) if other == label]
            rng.shuffle(own)
            places += [((rank + 0.5) / len(own), i) for rank, i in enumerate(own)]
        order += [i for _, i in sorted(places)]
    return order[: batches * prompts_per_batch]


def arguments(recipe: TrainJudgeRecipe, output: Path) -> dict[str, Any]:
    """GRPOConfig's arguments for a recipe."""
    return core.grpo_arguments(
        recipe.grpo, output, seed=recipe.seed, hardware=recipe.hardware, saving=recipe.saving
    ) | {"save_total_limit": recipe.saving.keep + bool(recipe.eval_every)}  # and the best one


def build_trainer(ctx: RunContext[TrainJudgeRecipe], base: Path, data: TrainingSet, output: Path) -> Any:
    """A GRPOTrainer over plain-text prompts: no chat template; the tokenizer alone adds a begin token, as the door's
    ``encode`` does.

    Raises TrainingError for a tokenizer that closes every text with an end token: answers would begin after it.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    recipe, grpo, examples = ctx.recipe, ctx.recipe.grpo, data.train
    tokenizer = core.load_tokenizer(base)
    batches = -(-grpo.steps // grpo.steps_per_batch)
    rows = Dataset.from_list([{"prompt": e.prompt, "label": e.label} for e in examples])
    order = data_order([e.label for e in examples], batches, grpo.prompts_per_batch, ctx.seed)
    samples = Samples(
        ctx.samples, grpo.samples_every, grpo.steps_per_batch, SAMPLED_GROUPS * grpo.generations
    )
    trainer = GRPOTrainer(
        model=core.load_model(base, recipe.lora, recipe.hardware, seed=ctx.seed),
        processing_class=tokenizer,
        reward_funcs=JudgeReward(recipe.rewards, recipe.answer, grpo.max_tokens, samples),
        args=core.configured(GRPOConfig, arguments(recipe, output)),
        train_dataset=rows.select(order),
        callbacks=[
            run_callback(
                ctx,
                grpo.steps_per_batch,
                headline="reward",
                curves=output.parent / "tensorboard",
                evaluate=_evaluation(ctx, data.held_out, tokenizer),
                evaluate_every=recipe.eval_every,
            )
        ],
    )
    trainer.remove_callback(PrinterCallback)  # the callback above reports
    return trainer


def _evaluation(
    ctx: RunContext[TrainJudgeRecipe], held_out: Sequence[Example], tokenizer: Any
) -> Callable[[Any], Mapping[str, float]] | None:
    """Held-out accuracy of the model in training, where the recipe asks for it and there is something to measure on."""
    if not (ctx.recipe.eval_every and held_out):
        return None

    def evaluate(model: Any) -> Mapping[str, float]:
        accuracy = measure_model(model, tokenizer, held_out, stopping=lambda: False, **_drawing(ctx))
        return _held_out(accuracy) if accuracy else {}

    return evaluate


def reward_curve(history: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Mean reward of the first and the last quarter of the generation batches."""
    rewards = [float(entry["reward"]) for entry in history if entry.get("reward") is not None]
    if not rewards:
        return {}
    quarter = max(1, len(rewards) // 4)
    return {
        "first_quarter": sum(rewards[:quarter]) / quarter,
        "last_quarter": sum(rewards[-quarter:]) / quarter,
    }


def _asdict(accuracy: Accuracy | None) -> dict[str, Any] | None:
    return asdict(accuracy) if accuracy else None
