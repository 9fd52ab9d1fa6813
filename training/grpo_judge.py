"""GRPO on a generative judge with TRL: reward 1 where the verdict equals the label (StepWiser §3.3).

Covers one run from the store's labels to a checkpoint that judges at once; resumes from its last checkpoint on the
same curve. What is an example: ``sets``; the reward: ``rewards``; accuracy before and after: ``held_out``.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints import CARD, resolve_checkpoint
from engine.errors import TrainingError
from engine.judge import load_prompt
from engine.llm.checkpoint import check_checkpoint
from training.callbacks import last_checkpoint, run_callback, step_of
from training.held_out import Accuracy, measure
from training.rewards import verdict_reward
from training.sets import Example, TrainingSet, label_examples, read_set, write_set
from training.workspace import free_target, own_folder, put_in_place, save_model

if TYPE_CHECKING:
    from engine.runs import RunContext
    from training.jobs import Grpo, TrainJudgeRecipe


def train(ctx: RunContext[TrainJudgeRecipe]) -> dict[str, Any]:
    """Train and save the judge; returns counts, accuracy before and after, and the checkpoint's name.

    A stopped run returns what it has, and continues from its last checkpoint and its own stored examples when
    resumed. Raises TrainingError (name taken, set too small, NaN), CheckpointError (base) and RecipeError (rule).
    """
    recipe, grpo = ctx.recipe, ctx.recipe.grpo
    uid = ctx.store.run(ctx.run_id).uid
    target = free_target(ctx, uid)
    base = resolve_checkpoint(recipe.base, ctx.home)
    base_hash = check_checkpoint(base).content_hash
    prompt = load_prompt(recipe.prompt)
    ctx.facts({prompt.name: prompt.hash})
    _prepare(recipe.threads)
    folder = own_folder(ctx, uid)
    data = _examples(ctx, base, folder)
    before = _before(ctx, base, data, folder)
    result: dict[str, Any] = {"set": data.counts, "held_out_before": _asdict(before)}
    if ctx.stopping:
        return result

    last = _trained(ctx, base, data, folder / "trainer")
    result["steps"] = step_of(last)
    if last is None or step_of(last) < grpo.steps:
        return result

    state = json.loads((last / "trainer_state.json").read_text(encoding="utf-8"))
    result["reward"] = reward_curve(state["log_history"])
    aside = folder / "final"
    save_model(last, base, aside)
    after = _measure(ctx, aside, data, stopping=lambda: False)  # seconds, and the run is all but done
    _log_accuracy(ctx, "after", after, grpo.steps)
    result |= {"held_out_after": _asdict(after), "checkpoint": target.name}
    card = {
        "run_id": ctx.run_id,
        "run": uid,
        "base": recipe.base,
        "base_hash": base_hash,
        "prompt_hash": prompt.hash,
    }
    card |= {"recipe": recipe.model_dump(mode="json"), **result}
    (aside / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    put_in_place(aside, target)
    ctx.log(f"saved checkpoint {target.name}: name it as a judge's checkpoint to use it")
    return result


def _examples(ctx: RunContext[TrainJudgeRecipe], base: Path, folder: Path) -> TrainingSet:
    """The run's examples: chosen once, kept beside the run, so that new labels do not change a resumed run."""
    from transformers import AutoTokenizer

    kept = folder / "examples.jsonl"
    if kept.is_file():
        return read_set(kept)
    tokenizer = AutoTokenizer.from_pretrained(base)
    data = label_examples(
        ctx.store,
        ctx.recipe,
        lambda texts: [len(ids) for ids in tokenizer(list(texts), verbose=False)["input_ids"]],
    )
    write_set(data, kept)
    ctx.log("examples: " + ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in data.counts.items()))
    return data


def _before(
    ctx: RunContext[TrainJudgeRecipe], base: Path, data: TrainingSet, folder: Path
) -> Accuracy | None:
    kept = folder / "before.json"
    if kept.is_file():
        return Accuracy(**json.loads(kept.read_text(encoding="utf-8")))
    ctx.progress(0, ctx.recipe.grpo.steps, "steps", "measuring the base on held-out chunks")
    before = _measure(ctx, base, data, stopping=lambda: ctx.stopping)
    if before:
        kept.write_text(json.dumps(asdict(before)), encoding="utf-8")
    _log_accuracy(ctx, "before", before, 0)
    return before


def _measure(
    ctx: RunContext[TrainJudgeRecipe], checkpoint: Path, data: TrainingSet, stopping: Callable[[], bool]
) -> Accuracy | None:
    grpo = ctx.recipe.grpo
    return measure(
        checkpoint,
        data.held_out,
        k=ctx.recipe.labels.held_out_k,
        temperature=grpo.temperature,
        max_tokens=grpo.max_tokens,
        seed=ctx.seed,
        stopping=stopping,
    )


def _log_accuracy(ctx: RunContext[TrainJudgeRecipe], when: str, accuracy: Accuracy | None, step: int) -> None:
    if accuracy is None:
        return
    ctx.metric("held_out/accuracy", step, accuracy.single)
    ctx.metric("held_out/majority", step, accuracy.majority)
    ctx.log(
        f"held-out accuracy {when} training: {accuracy.single:.3f} a judgment, {accuracy.majority:.3f} by majority of "
        f"{accuracy.k} ({accuracy.chunks} balanced chunks, {accuracy.none:.1%} without a verdict)"
    )


def _prepare(threads: int) -> None:
    """The run's log is read line by line: no bars, and no warning about a vLLM that a CPU does not train with."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if not torch.cuda.is_available():
        torch.set_num_threads(threads)
        warnings.filterwarnings("ignore", message="TRL currently supports vLLM")


def _trained(ctx: RunContext[TrainJudgeRecipe], base: Path, data: TrainingSet, output: Path) -> Path | None:
    """Train from the run's last checkpoint, or from ``base``, to the last step or a stop; the last checkpoint then."""
    last = last_checkpoint(output)
    if step_of(last) < ctx.recipe.grpo.steps:
        ctx.log(f"continuing from {last.name}" if last else f"training from {ctx.recipe.base}")
        trainer = build_trainer(ctx, base, data.train, output)
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    return last_checkpoint(output)


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


def build_trainer(
    ctx: RunContext[TrainJudgeRecipe], base: Path, examples: Sequence[Example], output: Path
) -> Any:
    """A GRPOTrainer over plain-text prompts: no chat template; the tokenizer alone adds a begin token, as the door's
    ``encode`` does. Weights are kept in float32: bfloat16 would round small updates away.

    Raises TrainingError for a tokenizer that closes every text with an end token: answers would begin after it.
    """
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
    from trl import GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    if tokenizer("1")["input_ids"][-1] == tokenizer.eos_token_id:
        raise TrainingError(
            f"the tokenizer of checkpoint {ctx.recipe.base!r} ends every text with its end token; "
            "switch that off in its tokenizer.json (post_processor) before training"
        )
    grpo = ctx.recipe.grpo
    batches = -(-grpo.steps // grpo.steps_per_batch)
    rows = Dataset.from_list([{"prompt": e.prompt, "label": e.label} for e in examples])
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        processing_class=tokenizer,
        reward_funcs=verdict_reward,
        args=_arguments(grpo, ctx.seed, output),
        train_dataset=rows.select(
            data_order([e.label for e in examples], batches, grpo.prompts_per_batch, ctx.seed)
        ),
        callbacks=[run_callback(ctx, grpo.steps_per_batch)],
    )
    trainer.remove_callback(PrinterCallback)  # the callback above reports
    return trainer


def _arguments(grpo: Grpo, seed: int, output: Path) -> Any:
    """TRL's settings. One generation batch is cut into ``steps_per_batch`` optimizer steps: from the second on the
    policy has moved, the ratio leaves 1 and clipping acts (with one step a batch it never does)."""
    import torch
    from trl import GRPOConfig

    gpu = torch.cuda.is_available()
    return GRPOConfig(
        output_dir=str(output),
        max_steps=grpo.steps,
        per_device_train_batch_size=grpo.prompts_per_batch * grpo.generations // grpo.steps_per_batch,
        steps_per_generation=grpo.steps_per_batch,
        gradient_accumulation_steps=1,
        num_generations=grpo.generations,
        num_iterations=1,
        learning_rate=grpo.learning_rate,
        lr_scheduler_type="constant",
        epsilon=grpo.epsilon,
        epsilon_high=grpo.epsilon_high,
        beta=0.0,
        temperature=grpo.temperature,
        max_completion_length=grpo.max_tokens,
        shuffle_dataset=False,  # data_order shuffles
        # colocated vLLM syncs its weights on GPUs only; on a CPU transformers generate
        use_vllm=gpu,
        vllm_mode="colocate",
        vllm_max_model_length=grpo.max_prompt_tokens + grpo.max_tokens,
        use_cpu=not gpu,
        bf16=gpu,
        gradient_checkpointing=gpu,
        dataloader_pin_memory=gpu,
        seed=seed,
        data_seed=seed,
        logging_steps=1,
        logging_nan_inf_filter=False,  # the callback must see a NaN
        # a whole number of generation batches: a resumed trainer begins with a new one
        save_steps=-(-grpo.save_every // grpo.steps_per_batch) * grpo.steps_per_batch,
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
    )


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
