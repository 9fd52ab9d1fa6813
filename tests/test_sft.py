"""Supervised fine-tuning for real, on a Llama of a few thousand parameters: rows token by token, learning, resuming."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoints import CARD
from engine.errors import RecipeError, RunError, TrainingError
from engine.llm.checkpoint import check_checkpoint
from engine.llm.tokens import Tokens
from engine.recipes import read_recipe, resolve
from tests.run_context import Context
from tests.tiny_llama import make_tiny_llama
from training.sets import freeze
from training.sft import (
    IGNORED,
    Row,
    arguments,
    build_trainer,
    completion_row,
    dataset_of,
    held_out_loss,
    order_of,
    run,
)
from training.sft_recipes import SftRecipe

RECIPES = Path(__file__).parents[1] / "training" / "recipes"
ON_ONE_CPU = {"bf16": False, "use_cpu": True, "ddp_backend": None}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("sft") / "tiny")


@pytest.fixture
def tokens(tiny: Path) -> Tokens:
    return Tokens.load(tiny)


def solutions(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts with a completion that follows from them: the digit again, three times, in a chunk."""
    rng = random.Random(seed)
    digits = [rng.randrange(10) for _ in range(count)]
    return [
        {"problem_id": i, "prompt": f"say {d}\n", "completion": f"<chunk>{d}{d}{d}</chunk>\n{d}"}
        for i, d in enumerate(digits)
    ]


def context(home: Path, tiny: Path, run_id: int = 1, name: str | None = None, **fields: Any) -> Context:
    (home / "checkpoints").mkdir(exist_ok=True)
    if not (home / "checkpoints" / "tiny").exists():
        (home / "checkpoints" / "tiny").symlink_to(tiny)
    if not (home / "sets" / "digits").exists():
        parts = {"train": solutions(60), "held_out": solutions(12, seed=1)}
        freeze(home, "digits", "completion", parts, run="uid-0", recipe={}, counts={"solutions": 72})
    sft = {"steps": 12, "batch": 8, "learning_rate": 3e-3, "warmup": 2, "max_tokens": 64}
    data = {"kind": "train-sft", "base": "tiny", "name": name, "set": "digits", "saving": {"every": 4}}
    return Context(resolve(SftRecipe, {**data, "sft": sft, **fields}), home, run_id)


def weights(checkpoint: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(checkpoint / "model.safetensors")


# Rows


def test_a_row_is_prompt_and_completion_tokenized_apart_and_the_end_token(tokens: Tokens) -> None:
    row = completion_row(tokens, "1a", "b\n\n2")
    names = tokens.tokenizer.convert_ids_to_tokens(list(row.ids))
    assert names == ["<s>", "1", "a", "b", "\n\n", "2", "</s>"], (
        "no token 'ab' across the boundary, one begin token"
    )
    assert row.labels == (IGNORED, IGNORED, IGNORED, *row.ids[3:])
    assert row.counted == 4
    assert list(row.ids[:3]) == tokens.encode("1a"), "the prompt is what the door would be asked"


def test_a_chat_row_ends_the_prompt_where_the_assistant_begins(tokens: Tokens) -> None:
    row = completion_row(tokens, "1", "2", chat=True)
    counted = [i for i, label in enumerate(row.labels) if label != IGNORED]
    assert tokens.tokenizer.decode(row.ids[: counted[0]]) == "<s>user: 1\nassistant: "
    assert tokens.tokenizer.convert_ids_to_tokens([row.ids[i] for i in counted]) == ["2", "</s>"]


def test_the_order_covers_every_row_before_any_comes_again() -> None:
    order = order_of(5, 12, seed=3)
    assert sorted(order[:5]) == sorted(order[5:10]) == list(range(5))
    assert order[:5] != order[5:10] and order == order_of(5, 12, seed=3) != order_of(5, 12, seed=4)
    assert order_of(5, 10, seed=3) == order[:10], "more steps go on with the same order"


def test_the_loss_counts_the_completions_tokens_and_no_others(
    tmp_path: Path, tiny: Path, tokens: Tokens
) -> None:
    """In the batches that the model itself is given, padding included."""
    ctx = context(tmp_path, tiny, sft={"steps": 2, "batch": 4, "learning_rate": 1e-3, "warmup": 0})
    rows = [completion_row(tokens, f"is {'1' * i}\n", "a" * (7 - i)) for i in range(1, 6)]
    trainer = build_trainer(ctx, tiny, rows, tmp_path / "trainer")  # type: ignore[arg-type]
    seen = []
    forward = trainer.model.forward

    def spy(**inputs: Any) -> Any:
        seen.append(
            (inputs["input_ids"].tolist(), inputs["labels"].tolist(), inputs["attention_mask"].tolist())
        )
        return forward(**inputs)

    trainer.model.forward = spy
    trainer.train()
    order = order_of(5, 8, ctx.seed)
    given = [batch for batch, *_ in seen for batch in batch]
    assert len(given) == 8
    for (ids, labels, mask), index in zip(
        (r for batch in seen for r in zip(*batch, strict=True)), order, strict=True
    ):
        row, room = rows[index], len(ids) - len(rows[index].ids)
        assert ids[: len(row.ids)] == list(row.ids)
        assert labels == [*row.labels, *[IGNORED] * room]
        assert mask == [1] * len(row.ids) + [0] * room


def test_packed_examples_do_not_see_each_other(tmp_path: Path, tiny: Path, tokens: Tokens) -> None:
    import torch

    sft = {"steps": 1, "batch": 1, "learning_rate": 1e-3, "warmup": 0, "max_tokens": 40, "packing": True}
    ctx = context(tmp_path, tiny, sft=sft)
    rows = [completion_row(tokens, f"say {i}\n", f"{i}{i}b") for i in range(3)]
    data = dataset_of(rows, ctx.recipe)
    assert [len(lengths) for lengths in data["seq_lengths"]] == [3], "three examples in one sequence"
    trainer = build_trainer(ctx, tiny, rows, tmp_path / "trainer")  # type: ignore[arg-type]
    (batch,) = list(trainer.get_train_dataloader())
    assert batch["position_ids"].tolist()[0].count(0) == 3
    trainer.model.eval()
    with torch.inference_mode():
        packed = trainer.model(
            input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False
        )
        alone = [trainer.model(input_ids=torch.tensor([row.ids])).logits[0] for row in rows]
    start = 0
    by_ids = {row.ids: logits for row, logits in zip(rows, alone, strict=True)}
    for length in data["seq_lengths"][0]:
        ids = tuple(batch["input_ids"][0, start : start + length].tolist())
        torch.testing.assert_close(
            packed.logits[0, start : start + length], by_ids[ids], atol=1e-4, rtol=1e-4
        )
        labels = batch["labels"][0, start : start + length].tolist()
        assert tuple(labels) == next(row.labels for row in rows if row.ids == ids)
        start += length


# Runs


def test_fine_tuning_lowers_the_loss_and_saves_a_policy(tmp_path: Path, tiny: Path) -> None:
    sft = {"steps": 40, "batch": 8, "learning_rate": 1e-2, "warmup": 2, "max_tokens": 64}
    ctx = context(tmp_path, tiny, name="fine", sft=sft)
    result = run(ctx)  # type: ignore[arg-type]
    assert result["steps"] == 40 and result["checkpoint"] == "fine"
    assert result["set"] == {
        "solutions": 72,
        "train": 60,
        "held_out": 12,
        "train_too_long": 0,
        "held_out_too_long": 0,
    }
    assert result["loss_after"]["held_out/loss"] < 0.5 * result["loss_before"]["held_out/loss"]
    loss, accuracy = ctx.curve("loss"), ctx.curve("mean_token_accuracy")
    assert len(loss) == len(accuracy) == 40 and loss[-1] < 0.5 * loss[0] and accuracy[-1] > accuracy[0]
    held_out = ctx.curve("held_out/loss")
    assert len(held_out) == 11, "before, and at every save"
    assert ctx.curve("learning_rate")[:3] == pytest.approx([0.0, 5e-3, 1e-2])
    checkpoint = tmp_path / "checkpoints" / "fine"
    check_checkpoint(checkpoint)
    card = json.loads((checkpoint / CARD).read_text())
    assert card["role"] == "policy" and card["prompt"] == "policy_nano" and card["base"] == "tiny"
    assert card["metrics"]["loss_after"] == result["loss_after"]
    assert (checkpoint / "README.md").is_file() and not (checkpoint / "adapter").exists()


def test_stopped_and_resumed_is_the_run_that_never_stopped(tmp_path: Path, tiny: Path) -> None:
    whole = context(tmp_path, tiny, run_id=1, name="whole")
    run(whole)  # type: ignore[arg-type]
    halves = context(tmp_path, tiny, run_id=2, name="halves")
    halves.stop_at = 5
    stopped = run(halves)  # type: ignore[arg-type]
    assert stopped["steps"] == 6 and "checkpoint" not in stopped, "seen at the end of the step after"
    halves.stop_at, halves.stopping = 10**9, False
    result = run(halves)  # type: ignore[arg-type]
    assert "continuing from checkpoint-6" in halves.lines and result["steps"] == 12
    for name in ("loss", "mean_token_accuracy", "grad_norm", "learning_rate"):
        assert halves.curve(name) == whole.curve(name), name
    one, other = (weights(tmp_path / "checkpoints" / name) for name in ("whole", "halves"))
    assert one.keys() == other.keys() and all((one[key] == other[key]).all() for key in one)


def test_lora_saves_the_adapter_and_merged_weights_that_stand_alone(tmp_path: Path, tiny: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ctx = context(tmp_path, tiny, name="added", lora={"r": 4, "alpha": 8})
    result = run(ctx)  # type: ignore[arg-type]
    assert result["loss_after"]["held_out/loss"] < result["loss_before"]["held_out/loss"]
    checkpoint = tmp_path / "checkpoints" / "added"
    merged = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    ids = torch.tensor([[1, 12, 13, 14, 15]])
    with torch.inference_mode():
        plain = base(ids).logits
        added = PeftModel.from_pretrained(base, checkpoint / "adapter").eval()(ids).logits
        whole = merged(ids).logits
    assert (added - plain).abs().max() > 0.1
    torch.testing.assert_close(whole, added, atol=0.15, rtol=0.05)  # merged weights are stored in bfloat16
    check_checkpoint(checkpoint)


def test_the_learning_rate_follows_the_recipes_schedule(tmp_path: Path) -> None:
    def schedule(**sft: Any) -> str:
        return str(arguments(resolve(SftRecipe, {"set": "s", "sft": sft}), tmp_path)["lr_scheduler_type"])

    assert schedule(warmup=0) == "constant" and schedule(warmup=5) == "constant_with_warmup"
    assert schedule(warmup=5, schedule="linear") == "linear" and schedule(schedule="cosine") == "cosine"


def test_accumulated_micro_batches_are_one_step(tmp_path: Path, tiny: Path) -> None:
    sft = {"steps": 3, "batch": 8, "learning_rate": 3e-3, "warmup": 0, "max_tokens": 64}
    whole = context(tmp_path, tiny, run_id=1, name="one", sft=sft)
    cut = context(tmp_path, tiny, run_id=2, name="cut", sft=sft | {"micro_batch": 2})
    run(whole)  # type: ignore[arg-type]
    run(cut)  # type: ignore[arg-type]
    assert cut.curve("loss") == pytest.approx(whole.curve("loss"), rel=1e-4)


# What is refused


def test_examples_that_are_too_long_are_left_out_and_counted(tmp_path: Path, tiny: Path) -> None:
    ctx = context(tmp_path, tiny, sft={"steps": 1, "batch": 1, "max_tokens": 8})
    with pytest.raises(TrainingError, match=r"each is longer than sft.max_tokens \(8\)"):
        run(ctx)  # type: ignore[arg-type]


def test_a_recipe_that_cannot_work_is_refused_before_it_is_queued(tmp_path: Path, tiny: Path) -> None:
    ctx = context(tmp_path, tiny)
    ctx.recipe.check(tmp_path)
    for fields, said in (
        ({"set": None}, "name the frozen training set"),
        ({"set": "other"}, "there is no training set 'other'; there are digits"),
        ({"base": "absent"}, "there is no checkpoint 'absent'"),
        ({"prompt": "judge_nano"}, "which nothing fills"),
    ):
        with pytest.raises(Exception, match=said):
            ctx.recipe.model_copy(update=fields).check(tmp_path)
    freeze(tmp_path, "turns", "turns", {}, run="uid-0", recipe={}, counts={})
    with pytest.raises(RecipeError, match="has the form 'turns', and this kind of run needs 'completion'"):
        ctx.recipe.model_copy(update={"set": "turns"}).check(tmp_path)
    with pytest.raises(RecipeError, match="30 examples a step cannot be cut over 4 processes"):
        resolve(SftRecipe, {"set": "s", "sft": {"batch": 30}, "hardware": {"processes": 4}})


def test_a_resume_with_another_recipe_names_the_differences(tmp_path: Path, tiny: Path) -> None:
    ctx = context(tmp_path, tiny)
    ctx.stop_at = 2
    run(ctx)  # type: ignore[arg-type]
    ctx.stopping, ctx.stop_at = False, 10**9
    ctx.recipe = ctx.recipe.model_copy(
        update={"sft": ctx.recipe.sft.model_copy(update={"learning_rate": 1.0})}
    )
    with pytest.raises(RunError, match=r"sft.learning_rate: 0.003 → 1.0"):
        run(ctx)  # type: ignore[arg-type]


def test_held_out_loss_is_the_mean_over_counted_tokens_whatever_the_padding(
    tiny: Path, tokens: Tokens
) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny)
    rows = [completion_row(tokens, "say " + "a" * i, "12" * (1 + i % 3)) for i in range(20)]
    single = [held_out_loss(model, [row])["held_out/loss"] * row.counted for row in rows]
    together = held_out_loss(model, rows)
    assert together["held_out/loss"] == pytest.approx(
        sum(single) / sum(row.counted for row in rows), rel=1e-4
    )
    masked = replace(rows[0], labels=(IGNORED,) * len(rows[0].ids))
    assert held_out_loss(model, [masked]) == {} and isinstance(masked, Row)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("sft-*.yaml")), ids=lambda p: p.stem)
def test_dry_run_of_shipped_recipes_gives_arguments_that_trl_knows(path: Path, tmp_path: Path) -> None:
    from trl import SFTConfig

    recipe = resolve(SftRecipe, read_recipe(path))
    config = SFTConfig(**(arguments(recipe, tmp_path) | ON_ONE_CPU))
    size = config.per_device_train_batch_size * config.gradient_accumulation_steps * recipe.hardware.processes
    assert size == recipe.sft.batch and config.max_steps == recipe.sft.steps
