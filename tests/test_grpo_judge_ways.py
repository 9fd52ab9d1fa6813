"""The GRPO judge's other ways, a few real steps each: verdict only, LoRA with a best checkpoint, a frozen set, rewards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import RecipeError, TrainingError
from engine.recipes import resolve
from tests.coin import context, make_coin
from training.callbacks import trainer_state
from training.grpo_judge import train
from training.jobs import TrainJudgeRecipe
from training.sets import freeze
from training.warm_start import answers


def test_verdict_only_learns_its_form_from_a_coin_first_and_the_labels_from_the_reward(
    tmp_path: Path,
) -> None:
    analyst = make_coin(tmp_path / "analyst", tied=False, before="Goal: check. ")
    recipe = {
        "answer": "verdict",
        "warm_start": {"steps": 30, "batch": 16, "learning_rate": 3e-3},
        "rewards": {"verdict": 1.0, "format": 1.0},
        "labels": {"held_out_k": 2},
    }
    ctx = context(tmp_path, analyst, recipe=recipe, steps=8)
    result = train(ctx)  # type: ignore[arg-type]
    assert result["held_out_before"]["none"] > 0.9, "the base only ever writes an analysis first"
    assert ctx.curve("verdicts/none")[0] < 0.2, "the warm start taught the form"
    assert min(ctx.curve("rewards/format")) > -0.2 and max(ctx.curve("reward")) > 0.3
    assert len(ctx.curve("warm_start/loss")) == 30 and len(ctx.curve("loss")) == 8
    assert result["held_out_after"]["none"] < 0.2
    assert any("warm start: step 30/30" in message for message in ctx.messages)


def test_lora_keeps_the_best_checkpoint_and_stopped_equals_uninterrupted(tmp_path: Path, coin: Path) -> None:
    from transformers import AutoModelForCausalLM

    recipe = {"lora": {"r": 4, "alpha": 8}, "eval_every": 4, "saving": {"every": 4, "keep": 1}}
    whole = context(tmp_path, coin, run_id=1, recipe=recipe, steps=12)
    expected = train(whole)  # type: ignore[arg-type]
    trainer = tmp_path / "runs" / "1" / "trainer"
    kept = {path.name for path in trainer.glob("checkpoint-*")}
    best = trainer_state(trainer / "checkpoint-12")["best_global_step"]
    assert {"checkpoint-12", f"checkpoint-{best}"} <= kept and len(kept) == 2
    assert (trainer / "checkpoint-12" / "adapter_model.safetensors").is_file()
    assert len(whole.curve("held_out/accuracy")) == 4, "before, and after 4, 8 and 12 steps"

    halves = context(tmp_path, coin, run_id=2, recipe=recipe, steps=12)
    halves.stop_at = 6
    assert train(halves)["steps"] == 8  # type: ignore[arg-type]
    halves.stop_at, halves.stopping = 10**9, False
    assert train(halves) == {**expected, "checkpoint": "run-2"}  # type: ignore[arg-type]
    for name in ("reward", "loss", "entropy", "held_out/accuracy"):
        assert halves.curve(name) == whole.curve(name), name
    assert halves.drawn == whole.drawn and list(whole.drawn) == [1]

    merged, base = (
        AutoModelForCausalLM.from_pretrained(path).state_dict()
        for path in (tmp_path / "checkpoints" / "run-1", coin)
    )
    assert set(merged) == set(base), "the checkpoint stands alone"
    weight = "model.layers.0.self_attn.q_proj.weight"
    assert not merged[weight].equal(base[weight].to(merged[weight].dtype))
    events = list((tmp_path / "runs" / "1" / "tensorboard").glob("events.out.tfevents.*"))
    assert events and events[0].stat().st_size > 0
    assert _scalars(tmp_path / "runs" / "2" / "tensorboard", "loss") == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        12,
    ]


def _scalars(folder: Path, name: str) -> list[int]:
    """The steps that TensorBoard shows of a curve."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [event.step for event in events.Scalars(name)]


def test_a_frozen_set_is_trained_on_and_named_in_the_card(tmp_path: Path, coin: Path) -> None:
    ctx = context(tmp_path, coin, recipe={"set": "mine"}, steps=4)
    (tmp_path / "runs" / "1" / "examples.jsonl").unlink()
    rows = [
        {"chunk_id": i, "problem_id": i, "prompt": f"<new>{i}</new>\n", "label": "+-"[i % 2]}
        for i in range(10)
    ]
    long = {"chunk_id": 10, "problem_id": 10, "prompt": "1" * 500, "label": "+"}
    manifest = freeze(
        tmp_path, "mine", "judge", {"train": [*rows[:8], long], "held_out": rows[8:]},
        run="r", recipe={}, counts={"chunks": 11},
    )  # fmt: skip
    ctx.recipe.check(tmp_path)
    result = train(ctx)  # type: ignore[arg-type]
    wanted = {"chunks": 11, "train": 8, "held_out": 2, "too_long": 1, "too_long_positive": 1}
    assert {name: result["set"][name] for name in wanted} == wanted
    card = json.loads((tmp_path / "checkpoints" / "run-1" / "stepwiser.json").read_text())
    assert card["set"]["name"] == "mine" and card["set"]["hash"] == manifest.hash
    assert card["role"] == "judge" and card["prompt"] == "judge_nano"


def test_a_set_of_another_form_or_that_is_not_there_is_refused_before_queueing(
    tmp_path: Path, coin: Path
) -> None:
    recipe = context(tmp_path, coin, recipe={"set": "turns"}).recipe
    with pytest.raises(TrainingError, match="there is no training set 'turns'"):
        recipe.check(tmp_path)
    freeze(tmp_path, "turns", "turns", {"train": [], "held_out": []}, run="r", recipe={}, counts={})
    with pytest.raises(TrainingError, match="form 'turns'; GRPO needs one of form 'judge'"):
        recipe.check(tmp_path)


def test_other_processes_wait_while_the_first_draws_or_measures_alone_for_an_hour(tmp_path: Path) -> None:
    """Torch would end them after thirty minutes (gloo) or ten (NCCL), and the run with them."""
    script = tmp_path / "one_of_several.py"
    script.write_text(
        "import torch\n"
        "import torch.distributed as dist\n"
        "from training import core\n"
        "from training.parts import Hardware\n"
        "core.prepare(Hardware(processes=2))\n"
        "group = dist.distributed_c10d._get_default_group()\n"
        "print('waits', group._get_backend(torch.device('cpu')).options._timeout.total_seconds())\n"
        "dist.destroy_process_group()\n"
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "1"]
    hidden = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(Path(__file__).parents[1])}
    said = subprocess.run(
        [*launcher, str(script)], env=os.environ | hidden, capture_output=True, text=True, check=True
    ).stdout
    assert float(said.split("waits")[1]) > 3600


def test_a_coin_tells_nothing_of_the_label_and_labels_do() -> None:
    from training.sets import Example

    examples = [Example(i, i, f"p{i}", "+-"[i % 2]) for i in range(40)]
    rows = answers(examples, "coin", 400, seed=1)
    assert len(rows) == 400 and {row["completion"] for row in rows} == {
        r"\boxed{Positive}",
        r"\boxed{Negative}",
    }
    right = sum(
        (row["completion"] == r"\boxed{Positive}") == (int(row["prompt"][1:]) % 2 == 0) for row in rows
    )
    assert 160 < right < 240
    told = answers(examples, "labels", 40, seed=1)
    assert all(
        (row["completion"] == r"\boxed{Positive}") == (int(row["prompt"][1:]) % 2 == 0) for row in told
    )


def test_settings_that_do_not_fit_together_are_refused() -> None:
    for data, words in (
        ({"warm_start": {}}, "set answer to verdict"),
        ({"hardware": {"processes": 3}}, "cannot be cut over 3 processes"),
        ({"eval_every": 4, "hardware": {"processes": 2, "sharding": "fsdp"}}, "set hardware.sharding to ddp"),
        ({"grpo": {"micro_batch": 5}}, "cannot be cut into micro_batch = 5"),
    ):
        with pytest.raises(RecipeError, match=words):
            resolve(TrainJudgeRecipe, data)
