"""GRPO for real, on a Llama of a few thousand parameters that tosses a coin: it learns, stops, resumes, is saved."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.checkpoints import CARD, list_checkpoints
from engine.errors import CheckpointError, RecipeError, TrainingError
from engine.llm.checkpoint import check_checkpoint
from engine.pipeline.kept import own_folder
from engine.recipes import read_recipe, resolve
from engine.runs import RunContext
from tests.coin import context, prompt
from tests.labelled_store import store_with
from tests.run_context import Context
from tests.tiny_llama import make_tiny_llama
from training.callbacks import kept_metrics, last_checkpoint
from training.grpo_judge import build_trainer, data_order, train
from training.held_out import measure_model, score
from training.jobs import TrainJudgeRecipe
from training.sets import Example, TrainingSet


@pytest.mark.timeout(900)  # seconds on a free machine
def test_a_judge_learns_the_labels_and_is_saved_as_a_checkpoint(tmp_path: Path, coin: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ctx = context(tmp_path, coin, steps=80, prompts_per_batch=16, name="learned")
    result = train(ctx)

    rewards = ctx.curve("reward")
    assert len(rewards) == 20, "one reward a generation batch of four steps"
    assert sum(rewards[:5]) / 5 < 0.6 < 0.75 < sum(rewards[-5:]) / 5
    assert result["held_out_before"]["single"] < 0.65 < 0.8 < result["held_out_after"]["single"]
    assert ctx.curve("held_out/accuracy") == [
        result["held_out_before"]["single"],
        result["held_out_after"]["single"],
    ]
    assert result["steps"] == 80 and ctx.messages[-1].startswith("80/80 steps reward ")
    for name in ("loss", "entropy", "clip_ratio/high_mean", "clip_ratio/low_mean", "step_time"):
        assert len(ctx.curve(name)) == 80, name
    for name in ("reward_std", "frac_reward_zero_std", "completions/mean_length", "verdicts/none"):
        assert len(ctx.curve(name)) == 20, name
    # the ratio is 1 in the first step of a batch and leaves it afterwards: clipping acts
    high = ctx.curve("clip_ratio/high_mean")
    assert max(high[0::4]) == 0 and max(high) > 0

    target = tmp_path / "checkpoints" / "learned"
    check_checkpoint(target)
    card = json.loads((target / CARD).read_text())
    assert card["run"] == "uid-1" and card["base_hash"] == check_checkpoint(coin).content_hash
    assert (
        card["recipe"]["grpo"]["steps"] == 80
        and card["metrics"]["held_out_after"] == result["held_out_after"]
    )
    assert json.loads((target / "config.json").read_text())["dtype"] == "bfloat16"
    assert (target / "generation_config.json").is_file()
    assert AutoTokenizer.from_pretrained(target)(prompt(3)) == AutoTokenizer.from_pretrained(coin)(prompt(3))
    before, after = (AutoModelForCausalLM.from_pretrained(path).lm_head.weight for path in (coin, target))
    assert not (before.float() == after.float()).all()
    kept = {path.name for path in (tmp_path / "runs" / "1" / "trainer").glob("checkpoint-*")}
    assert kept == {"checkpoint-76", "checkpoint-80"}, "trainer checkpoints are pruned to two"


def test_stopped_and_resumed_is_the_run_that_never_stopped(tmp_path: Path, tied_coin: Path) -> None:
    whole = context(tmp_path, tied_coin, run_id=1)
    expected = train(whole)

    halves = context(tmp_path, tied_coin, run_id=2)
    halves.stop_at = 6
    stopped = train(halves)
    assert stopped["steps"] == 8, "it stops where a generation batch ends"
    assert "checkpoint" not in stopped and not (tmp_path / "checkpoints" / "run-2").exists()

    halves.stop_at, halves.stopping = 10**9, False
    # labels may have changed since: the run keeps the examples that it began with (the store is not even read)
    result = train(halves)
    assert "continuing from checkpoint-8" in halves.lines
    assert result == {**expected, "checkpoint": "run-2"}
    for name in ("reward", "loss", "entropy", "clip_ratio/high_mean", "completions/mean_length"):
        assert halves.curve(name) == whole.curve(name), name


def test_a_torn_save_is_passed_over_when_resuming(tmp_path: Path, coin: Path) -> None:
    ctx = context(tmp_path, coin)
    ctx.stop_at = 7
    train(ctx)
    trainer = tmp_path / "runs" / "1" / "trainer"
    (trainer / "checkpoint-12").mkdir()  # a kill cut the save off before its state was written
    (trainer / "checkpoint-12" / "model.safetensors").write_bytes(b"torn")
    assert last_checkpoint(trainer) == trainer / "checkpoint-8"
    ctx.stop_at, ctx.stopping = 10**9, False
    assert train(ctx)["steps"] == 16


def test_a_finished_training_is_only_saved_again(tmp_path: Path, coin: Path) -> None:
    ctx = context(tmp_path, coin, name="mine")
    first = train(ctx)
    again = train(ctx)  # as after a kill between the last step and the run's end
    assert again == first
    assert check_checkpoint(tmp_path / "checkpoints" / "mine")


def test_a_taken_name_is_refused_before_anything_is_trained(tmp_path: Path, coin: Path) -> None:
    ctx = context(tmp_path, coin, name="coin")
    with pytest.raises(TrainingError, match="already a checkpoint 'coin'"):
        train(ctx)
    with pytest.raises(TrainingError, match="packaged"):
        train(context(tmp_path, coin, name="nano"))
    with pytest.raises(CheckpointError, match="cannot name a checkpoint"):
        train(context(tmp_path, coin, name="../elsewhere"))
    assert not ctx.lines and not (tmp_path / "runs" / "1" / "trainer").exists()


def test_a_diverging_loss_ends_the_run_and_names_the_last_good_checkpoint(tmp_path: Path, coin: Path) -> None:
    ctx = context(tmp_path, coin)
    ctx.stop_at = 3
    train(ctx)
    ctx.stopping, ctx.stop_at = False, 10**9
    poison(tmp_path / "runs" / "1" / "trainer" / "checkpoint-4")
    with pytest.raises(TrainingError, match=r"(loss|grad_norm) became nan at step 6; .*checkpoint-4"):
        train(ctx)
    assert any(math.isnan(value) for (_, step), value in ctx.values.items() if step == 6)
    assert not (tmp_path / "checkpoints" / "run-1").exists()


def poison(checkpoint: Path) -> None:
    """Let the next update be NaN, as after an overflow: Adam's second moments are negative."""
    import torch

    path = checkpoint / "optimizer.pt"
    state = torch.load(path, weights_only=True)
    for moments in state["state"].values():
        moments["exp_avg_sq"].fill_(-1.0)
    torch.save(state, path)


def test_prompts_are_plain_text_with_one_begin_token_and_no_chat_template(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    base = make_tiny_llama(tmp_path / "checkpoints" / "chatty")
    data = {"base": "chatty", "grpo": {"steps": 4, "prompts_per_batch": 4, "generations": 4, "max_tokens": 4}}
    ctx = Context(resolve(TrainJudgeRecipe, data), tmp_path)
    rows = [Example(i, i, f"is {i} right?\n", "+-"[i % 2]) for i in range(4)]
    data_set = TrainingSet(tuple(rows), (), {})
    trainer = build_trainer(ctx, base, data_set, tmp_path / "out" / "trainer")
    seen = {}
    generate = trainer.model.generate

    def spy(**inputs: Any) -> Any:
        seen.setdefault("ids", inputs["input_ids"].tolist())
        return generate(**inputs)

    trainer.model.generate = spy
    trainer.train()
    tokenizer = AutoTokenizer.from_pretrained(base)
    wanted = sorted(tokenizer.encode(row.prompt) for row in rows for _ in range(4))
    assert sorted(seen["ids"]) == wanted
    assert all(ids[0] == tokenizer.bos_token_id and tokenizer.bos_token_id not in ids[1:] for ids in wanted)


def test_the_kind_of_run_trains_from_the_stores_labels(tmp_path: Path, coin: Path) -> None:
    from training.jobs import train_judge

    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "coin").symlink_to(coin)
    store, _ = store_with(tmp_path, [(16, 2), (1, 12), (15, 1), (2, 13)] * 3)
    grpo = {"steps": 4, "prompts_per_batch": 4, "generations": 2, "max_tokens": 8}
    data = {"base": "coin", "name": "from-store", "select": {}, "labels": {"min_confidence": 0}, "grpo": grpo}
    recipe = resolve(TrainJudgeRecipe, data)
    run_id = store.start_run("train-judge", recipe.model_dump(mode="json"), "ada", pid=1)
    ctx = RunContext(store, run_id, 1, recipe, tmp_path, "ada")

    result = train_judge(ctx)
    assert result["steps"] == 4 and result["checkpoint"] == "from-store"
    assert result["set"]["chunks"] == 36 and result["set"]["train"] > 0 < result["set"]["held_out"]
    metrics = store.metrics(run_id)
    assert [row.step for row in metrics["reward"]] == [1]
    assert [row.step for row in metrics["loss"]] == [1, 2, 3, 4]
    assert [row.step for row in metrics["held_out/accuracy"]] == [0, 4]
    assert list(store.run(run_id).prompt_hashes) == ["judge_nano"]
    assert "from-store" in list_checkpoints(tmp_path)


def test_a_store_without_labels_fails_before_training_and_says_what_to_do(tmp_path: Path, coin: Path) -> None:
    from db.store import open_store

    ctx = context(tmp_path, coin)
    ctx.store = open_store(f"sqlite:///{tmp_path / 'store.db'}", migrate=True)
    ctx.run_id = ctx.store.start_run("train-judge", ctx.recipe.model_dump(mode="json"), "ada", pid=1)
    with pytest.raises(TrainingError, match=r"no trajectory that fits select .policy .nano.*sample first"):
        train(ctx)
    assert not (tmp_path / "runs" / "1" / "trainer").exists()


def test_what_another_stores_run_of_the_same_number_left_is_not_continued(tmp_path: Path, coin: Path) -> None:
    ctx = context(tmp_path, coin, name="mine")
    ctx.stop_at = 3
    train(ctx)
    ctx.store = SimpleNamespace(run=lambda run_id: SimpleNamespace(uid="another"))
    folder = own_folder(ctx)  # type: ignore[arg-type]
    assert [path.name for path in folder.iterdir()] == ["run"]
    assert own_folder(ctx) == folder and folder.is_dir()  # type: ignore[arg-type]


def test_the_packaged_recipe_is_what_the_form_offers() -> None:
    packaged = read_recipe(Path(__file__).parents[1] / "training" / "recipes" / "judge-grpo-nano.yaml")
    assert resolve(TrainJudgeRecipe, packaged) == TrainJudgeRecipe()


def test_settings_that_cannot_be_cut_into_equal_steps_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"grpo: .*15 prompts × 3 generations = 45 completions.*= 4"):
        resolve(TrainJudgeRecipe, {"grpo": {"prompts_per_batch": 15, "generations": 3}})


def test_a_step_of_fewer_completions_than_processes_is_refused_in_words() -> None:
    grpo = {"prompts_per_batch": 1, "generations": 4, "steps_per_batch": 1}
    with pytest.raises(RecipeError, match="4 completions a step cannot be cut over 8 processes"):
        resolve(TrainJudgeRecipe, {"grpo": grpo, "hardware": {"processes": 8}})


def test_data_order_covers_every_example_before_any_comes_again() -> None:
    order = data_order("+-+-+", batches=3, prompts_per_batch=4, seed=7)
    assert len(order) == 12
    assert sorted(order[:5]) == sorted(order[5:10]) == [0, 1, 2, 3, 4]
    assert order == data_order("+-+-+", 3, 4, seed=7) != data_order("+-+-+", 3, 4, seed=8)
    assert data_order("+-+-+", batches=6, prompts_per_batch=4, seed=7)[:12] == order


def test_every_batch_has_the_labels_in_the_sets_proportion() -> None:
    for labels, minus in (("+-" * 20, 4), ("+++-" * 10, 2)):
        order = data_order(labels, batches=10, prompts_per_batch=8, seed=3)
        batches = [[labels[i] for i in order[start : start + 8]] for start in range(0, 80, 8)]
        assert [batch.count("-") for batch in batches] == [minus] * 10


def test_held_out_judgments_are_drawn_without_the_penalties_of_a_checkpoints_own_config(coin: Path) -> None:
    """Judging and training draw without them, and instruct models often name some."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(coin)
    tokenizer = AutoTokenizer.from_pretrained(coin, padding_side="left")
    examples = [Example(i, i, prompt(i), "+") for i in range(2)]

    def measured() -> list[Any]:
        drawn: list[Any] = []
        generate = model.generate

        def kept(**settings: Any) -> Any:
            rows = generate(**settings)
            drawn.append(rows.tolist())
            return rows

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "generate", kept)
            measure_model(
                model,
                tokenizer,
                examples,
                k=8,
                temperature=1.0,
                max_tokens=12,
                seed=0,
                stopping=lambda: False,
            )
        return drawn

    plain = measured()
    model.generation_config.repetition_penalty, model.generation_config.min_p = 5.0, 0.9
    assert measured() == plain


def test_score_counts_votes_ties_and_missing_verdicts() -> None:
    p, n = "positive", "negative"
    accuracy = score([[p, p, n, p], [p, p, n, n], [None, None, None, n], [n, n, n, n]], ["+", "+", "-", "+"])
    assert accuracy.single == (3 + 2 + 1 + 0) / 16
    assert accuracy.majority == 2 / 4, "a tie is a miss, an empty verdict does not vote"
    assert (accuracy.none, accuracy.split, accuracy.chunks, accuracy.k) == (3 / 16, 3 / 4, 4, 4)


def test_only_known_numbers_of_a_log_are_kept() -> None:
    logs = {
        "loss": 0.5,
        "epoch": 1.0,
        "clip_ratio/high_mean": 0.1,
        "reward": None,
        "total_flos": 3,
        "verdicts/none": 0,
    }
    assert kept_metrics(logs) == {"loss": 0.5, "clip_ratio/high_mean": 0.1, "verdicts/none": 0.0}
