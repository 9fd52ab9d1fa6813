"""Supervised fine-tuning with TRL: the train-sft kind of run, and what every supervised trainer shares.

Rows come tokenized: the prompt as the door's ``encode`` does it, the completion's own tokens behind it, the end token
last. So what is trained is what is sampled, and the loss counts exactly the tokens that a row says. Which texts are
trained on is decided elsewhere (a frozen set of completions; ``rsft_judge``; ``discriminative``).
"""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints import resolve_checkpoint
from engine.errors import TrainingError
from engine.judge import load_prompt
from engine.llm.checkpoint import check_checkpoint
from engine.llm.tokens import Encoder, Tokens
from engine.pipeline.kept import own_folder
from training import core
from training.callbacks import Evaluate, run_callback, step_of
from training.sets import read_manifest, read_rows
from training.workspace import free_target, write_whole

if TYPE_CHECKING:
    from engine.runs import RunContext
    from training.sft_recipes import SftRecipe, SupervisedRecipe

IGNORED = -100
"""The label of a token that the loss does not count."""
LESS_MEMORY = "a smaller sft.micro_batch or sft.max_tokens, hardware.gradient_checkpointing: true, or lora"
ROWS_A_BATCH = 16
ADAPTER = "adapter"
"""The folder in a finished checkpoint that holds the LoRA adapter which its weights contain."""


@dataclass(frozen=True)
class Row:
    """Token ids, and for each the id that the loss wants there, or ``IGNORED``."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]

    @property
    def counted(self) -> int:
        """How many tokens the loss counts."""
        return sum(label != IGNORED for label in self.labels)


def run(ctx: RunContext[SftRecipe]) -> dict[str, Any]:
    """Fine-tune on the recipe's frozen set; returns counts, held-out loss before and after, the checkpoint's name.

    A stopped run continues from its last checkpoint when resumed, with the same result as if it had not stopped.
    Raises TrainingError (name taken, no such set, nothing that fits, out of memory, disk full, NaN), RunError (resumed
    with another recipe) and CheckpointError (base).
    """
    recipe, uid = ctx.recipe, ctx.store.run(ctx.run_id).uid
    if recipe.set is None:
        raise TrainingError("set: name the frozen training set to fine-tune on")
    target = free_target(ctx, uid)
    base = resolve_checkpoint(recipe.base, ctx.home)
    prompt = load_prompt(recipe.prompt, needs=("problem",) if recipe.role == "policy" else ("solution",))
    ctx.facts({prompt.name: prompt.hash})
    core.prepare(recipe.hardware)
    with core.first_process_first():
        folder = own_folder(ctx)
    tokens = tokens_of(base)
    parts = {}
    counts = dict(read_manifest(ctx.home, recipe.set).counts)
    for part in ("train", "held_out"):
        texts = read_rows(ctx.home, recipe.set, part, "completion")
        rows = [completion_row(tokens, row["prompt"], row["completion"], chat=recipe.chat) for row in texts]
        parts[part], left_out = fitting(rows, recipe.sft.max_tokens)
        counts |= {part: len(parts[part]), f"{part}_too_long": left_out}
    return train_rows(
        ctx,
        base,
        target,
        folder,
        parts["train"],
        parts["held_out"],
        counts,
        {"role": recipe.role, "prompt_hash": prompt.hash},
    )


def tokens_of(base: Path) -> Tokens:
    """The base's tokenizer, as doors encode with it, padded on the right. Raises TrainingError (see core)."""
    return Tokens(core.load_tokenizer(base, padding_side="right"), base.name)


def completion_row(tokens: Tokens, prompt: str, completion: str, *, chat: bool = False) -> Row:
    """Prompt and completion as one row; the loss counts the completion and the end token behind it.

    They are tokenized apart and joined: a token never spans the place where sampling begins. In a chat the completion
    stands in the assistant's turn as it does when a policy is asked that way, and the turn's own end token ends it.
    """
    end = tokens.tokenizer.eos_token_id
    if chat:
        messages = [{"role": "user", "content": prompt}]
        asked, whole = tokens.encode_chat(messages), tokens.encode_chat(messages, completion)
        answered = [*whole[len(asked) :], end if tokens.turn_end is None else tokens.turn_end]
    else:
        asked, answered = tokens.encode(prompt), [*plain_ids(tokens, completion), end]
    return Row((*asked, *answered), (*[IGNORED] * len(asked), *answered))


def plain_ids(encoder: Encoder, text: str) -> list[int]:
    """The tokens of ``text`` without a begin token."""
    return encoder.encode(text)[len(encoder.encode("")) :]


def fitting(rows: Sequence[Row], max_tokens: int) -> tuple[list[Row], int]:
    """Rows of at most ``max_tokens`` tokens, and how many were left out."""
    kept = [row for row in rows if len(row.ids) <= max_tokens]
    return kept, len(rows) - len(kept)


def order_of(rows: int, wanted: int, seed: int) -> list[int]:
    """Indices of all rows of a whole run: one seeded order of the rows after the other.

    Written out for the whole run, so that a resumed run goes on with the very next row, in whatever epoch.
    """
    rng = random.Random(seed)
    order: list[int] = []
    while len(order) < wanted:
        order += rng.sample(range(rows), rows)
    return order[:wanted]


def arguments(recipe: SupervisedRecipe, output: Path) -> dict[str, Any]:
    """SFTConfig's arguments for a recipe. Rows come tokenized, masked, packed and in order: TRL prepares nothing."""
    sft, processes = recipe.sft, recipe.hardware.processes
    common = core.trainer_arguments(
        output,
        steps=sft.steps,
        learning_rate=sft.learning_rate,
        seed=recipe.seed,
        hardware=recipe.hardware,
        saving=recipe.saving,
        warmup=sft.warmup,
        schedule=sft.schedule,
    )
    size = sft.per_device(processes)
    return (
        common
        | {
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": sft.batch // (size * processes),
            "save_total_limit": recipe.saving.keep
            + bool(getattr(recipe, "eval_every", None)),  # and the best one
            "train_sampling_strategy": "sequential",
            "max_length": None,  # what is longer was left out and counted
            "padding_free": sft.packing,  # one sequence with positions that begin anew: examples do not see each other
            "dataset_kwargs": {"skip_prepare_dataset": True},
        }
    )


def dataset_of(rows: Sequence[Row], recipe: SupervisedRecipe) -> Any:
    """The rows of a whole run in their order, packed first where the recipe asks for it, as a datasets.Dataset."""
    from datasets import Dataset

    data = Dataset.from_list([{"input_ids": list(row.ids), "labels": list(row.labels)} for row in rows])
    if recipe.sft.packing:
        from trl import pack_dataset

        data = pack_dataset(data, recipe.sft.max_tokens, "bfd")
    return data.select(order_of(len(data), recipe.sft.steps * recipe.sft.batch, recipe.seed))


def build_trainer(
    ctx: RunContext[Any],
    base: Path,
    rows: Sequence[Row],
    output: Path,
    callbacks: Iterable[Any] = (),
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
) -> Any:
    """An SFTTrainer over tokenized rows; ``evaluate`` as in ``run_callback``."""
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    recipe = ctx.recipe
    trainer = SFTTrainer(
        model=core.load_model(base, recipe.lora, recipe.hardware, seed=ctx.seed),
        processing_class=core.load_tokenizer(base, padding_side="right"),
        args=core.configured(SFTConfig, arguments(recipe, output)),
        train_dataset=dataset_of(rows, recipe),
        callbacks=[
            run_callback(
                ctx,
                curves=output.parent / "tensorboard",
                evaluate=evaluate,
                evaluate_every=evaluate_every,
            ),
            *callbacks,
        ],
    )
    trainer.remove_callback(PrinterCallback)  # the callback above reports
    return trainer


def trained(
    ctx: RunContext[Any],
    base: Path,
    rows: Sequence[Row],
    folder: Path,
    callbacks: Iterable[Any] = (),
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
) -> Path | None:
    """Train on ``rows`` to the end or to a stop; the trainer's last checkpoint then. Raises TrainingError without rows."""
    if not any(row.counted for row in rows):
        raise TrainingError(
            "no example is left to train on: each is longer than sft.max_tokens "
            f"({ctx.recipe.sft.max_tokens}), or there were none; raise it, or take another set"
        )
    output = folder / "trainer"
    return core.train_to_end(
        ctx,
        lambda: build_trainer(ctx, base, rows, output, callbacks, evaluate, evaluate_every),
        output,
        ctx.recipe.sft.steps,
        lower=LESS_MEMORY,
    )


def train_rows(
    ctx: RunContext[SftRecipe],
    base: Path,
    target: Path,
    folder: Path,
    rows: Sequence[Row],
    held_out: Sequence[Row],
    counts: Mapping[str, int],
    card: Mapping[str, Any],
) -> dict[str, Any]:
    """Train on ``rows``, measure the loss on ``held_out`` before, at every save and after, and save the checkpoint."""
    result: dict[str, Any] = {"set": dict(counts)}
    before = kept(folder / "before.json", lambda: _measured(ctx, base, held_out))
    ctx.metrics(0, before)
    last = trained(ctx, base, rows, folder, [_held_out_curve(ctx, held_out)])
    result["steps"] = step_of(last)
    if last is None or step_of(last) < ctx.recipe.sft.steps or not ctx.main:
        return result
    aside = saved_aside(last, base, folder / "final")
    after = _measured(ctx, aside, held_out)
    result |= {"loss_before": before, "loss_after": after, "checkpoint": target.name}
    metrics = {name: result[name] for name in ("steps", "loss_before", "loss_after")}
    finish(ctx, aside, target, {**card, "set": counts, "metrics": metrics}, last)
    return result


def saved_aside(last: Path, base: Path, folder: Path) -> Path:
    """The trainer's checkpoint as a checkpoint of its own: whole weights, and the adapter beside them under LoRA."""
    aside = core.save_aside(last, base, folder)
    if (last / "adapter_config.json").is_file():
        (aside / ADAPTER).mkdir(exist_ok=True)
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            shutil.copyfile(last / name, aside / ADAPTER / name)
    return aside


def finish(ctx: RunContext[Any], aside: Path, target: Path, card: Mapping[str, Any], last: Path) -> None:
    """Give the finished checkpoint in ``aside``, made from the trainer's ``last``, its card and its name.

    ``card`` needs ``role``, ``prompt_hash``, ``set`` (counts) and ``metrics``; what every run has is added.
    """
    recipe = ctx.recipe
    base = resolve_checkpoint(recipe.base, ctx.home)
    frozen: dict[str, str | None] = {"name": None}
    if recipe.set is not None:
        manifest = read_manifest(ctx.home, recipe.set)
        frozen = {"name": manifest.name, "hash": manifest.hash}
    facts = {
        "run_id": ctx.run_id,
        "run": ctx.store.run(ctx.run_id).uid,
        "base": recipe.base,
        "base_hash": check_checkpoint(base).content_hash,
        "recipe": recipe.model_dump(mode="json"),
        "prompt": recipe.prompt,
        **card,
        "set": {**frozen, "counts": dict(card["set"])},
    }
    core.finish(ctx, last, base, target, facts, aside=aside)


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``make`` returned the first time, kept in ``path``: a resumed run reads it back. Nothing is not kept."""
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    made = make()
    if made:
        write_whole(path, json.dumps(made))
    return made


def _measured(ctx: RunContext[Any], checkpoint: Path, rows: Sequence[Row]) -> dict[str, float]:
    """Held-out loss of a checkpoint; {} without rows, and in the processes beside the first."""
    if not rows or not ctx.main:
        return {}
    model = core.load_model(checkpoint, None, ctx.recipe.hardware, trainable=False)
    return held_out_loss(model, rows)


def held_out_loss(model: Any, rows: Sequence[Row]) -> dict[str, float]:
    """Mean loss and top-1 accuracy over the counted tokens of ``rows``; the model's mode is put back afterwards."""
    import torch

    was_training = model.training
    model.eval()
    loss, right, counted = 0.0, 0, 0
    with torch.inference_mode():
        for start in range(0, len(rows), ROWS_A_BATCH):
            ids, mask, labels = _padded(rows[start : start + ROWS_A_BATCH], model.device)
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
            wanted = labels[:, 1:]
            here = wanted != IGNORED
            loss += torch.nn.functional.cross_entropy(logits[here], wanted[here], reduction="sum").item()
            right += int((logits[here].argmax(-1) == wanted[here]).sum())
            counted += int(here.sum())
    model.train(was_training)
    if not counted:
        return {}
    return {"held_out/loss": loss / counted, "held_out/token_accuracy": right / counted}


def _padded(rows: Sequence[Row], device: Any) -> tuple[Any, Any, Any]:
    import torch

    longest = max(len(row.ids) for row in rows)
    ids, mask, labels = [], [], []
    for row in rows:
        room = longest - len(row.ids)
        ids.append([*row.ids, *[0] * room])
        mask.append([1] * len(row.ids) + [0] * room)
        labels.append([*row.labels, *[IGNORED] * room])
    return tuple(torch.tensor(part, device=device) for part in (ids, mask, labels))  # type: ignore[return-value]


def _held_out_curve(ctx: RunContext[Any], rows: Sequence[Row]) -> Any:
    """Measures the held-out loss whenever the trainer saves: a curve that turns up shows over-fitting.

    Not where the weights are cut up over devices: one process alone cannot compute with them.
    """
    from transformers import TrainerCallback

    hardware = ctx.recipe.hardware
    whole = hardware.processes == 1 or hardware.sharding == "ddp"

    class HeldOutCurve(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if rows and whole and ctx.main:
                found = held_out_loss(model, rows)
                ctx.metrics(state.global_step, found)
                ctx.log(f"step {state.global_step}: held-out loss {found.get('held_out/loss', math.nan):.4f}")

    return HeldOutCurve()
