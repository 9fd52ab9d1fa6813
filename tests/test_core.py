"""What every trainer shares: a resume keeps its recipe, a full disk and a full memory are named, cards are written."""

from __future__ import annotations

import errno
import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoints import CARD, read_card
from engine.errors import RunError, TrainingError
from engine.llm.checkpoint import check_checkpoint
from tests.coin import context
from training import core
from training.callbacks import last_checkpoint
from training.card import model_card
from training.grpo_judge import train
from training.grpo_parts import Grpo
from training.jobs import TrainJudgeRecipe
from training.parts import Hardware, Saving


@contextmanager
def disk_of(most: int) -> Iterator[None]:
    """No file of this process may grow beyond ``most`` bytes: a write fails as on a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_fills_while_saving_keeps_the_checkpoint_before_and_a_resume_goes_on(
    tmp_path: Path, coin: Path
) -> None:
    ctx = context(tmp_path, coin, steps=8)
    ctx.stop_at = 3
    train(ctx)  # type: ignore[arg-type]
    ctx.stop_at, ctx.stopping = 10**9, False
    trainer = tmp_path / "runs" / "1" / "trainer"
    with (
        disk_of(200_000),
        pytest.raises(TrainingError, match=r"disk is full.*checkpoint-4 is intact.*resume"),
    ):
        train(ctx)  # type: ignore[arg-type]
    assert [path.name for path in trainer.glob("checkpoint-*")] == ["checkpoint-4"]
    check_checkpoint(trainer / "checkpoint-4")
    assert train(ctx)["steps"] == 8  # type: ignore[arg-type]


def test_out_of_memory_is_named_with_what_to_lower(
    tmp_path: Path,
    coin: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    monkeypatch.setattr(core, "load_model", lambda *a, **k: torch.empty(2**56))
    ctx = context(tmp_path, coin)
    with pytest.raises(
        TrainingError, match=r"out of memory.*no checkpoint.*less: a smaller grpo.micro_batch"
    ):
        train(ctx)  # type: ignore[arg-type]


def test_a_resume_with_another_recipe_is_refused_and_the_differences_are_listed(
    tmp_path: Path, coin: Path
) -> None:
    output = tmp_path / "trainer"
    recipe = context(tmp_path, coin).recipe
    core.keep_recipe(recipe, output)
    core.keep_recipe(recipe, output)
    elsewhere = recipe.model_copy(
        update={"name": "other", "hardware": recipe.hardware.model_copy(update={"threads": 2})}
    )
    core.keep_recipe(elsewhere, output)  # neither changes what is trained
    grpo = recipe.grpo.model_copy(update={"learning_rate": 0.5})
    with pytest.raises(RunError, match=r"same:\n  seed: 0 → 7\n  grpo.learning_rate: 0.001 → 0.5\n"):
        core.keep_recipe(recipe.model_copy(update={"seed": 7, "grpo": grpo}), output)


def test_a_recipe_whose_writing_was_cut_off_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, text: str, **_: Any) -> None:
        path.write_bytes(text[:9].encode())
        raise KeyboardInterrupt

    recipe = TrainJudgeRecipe()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "write_text", killed)
        core.keep_recipe(recipe, tmp_path)
    core.keep_recipe(recipe, tmp_path)
    core.keep_recipe(recipe, tmp_path)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_learning_rate_warms_up_whatever_the_schedule(tmp_path: Path, schedule: Any) -> None:
    import torch
    from transformers import get_scheduler

    grpo = Grpo(steps=20, warmup=10, schedule=schedule)
    given = core.grpo_arguments(grpo, tmp_path, seed=0, hardware=Hardware(), saving=Saving())
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    found = get_scheduler(given["lr_scheduler_type"], optimizer, given["warmup_steps"], given["max_steps"])
    rates = []
    for _ in range(11):
        rates += found.get_last_lr()
        optimizer.step()
        found.step()
    assert rates == pytest.approx([step / 10 for step in range(11)])


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError(
            "[enforce fail at inline_container.cc:672] . PytorchStreamWriter failed writing file data/3"
        ),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_known_however_a_library_says_it(error: Exception) -> None:
    assert core.disk_full(error) and not core.out_of_memory(error)
    wrapped = RuntimeError("saving failed")
    wrapped.__cause__ = error
    assert core.disk_full(wrapped)


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), core.failures_named(tmp_path, "x"):
        raise PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(ValueError, match="shape"), core.failures_named(tmp_path, "x"):
        raise ValueError("shape")


def test_what_a_cut_off_save_left_is_removed_and_only_that(tmp_path: Path) -> None:
    for step, whole in ((4, True), (8, False)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}) if whole else '{"glo')
    core.remove_torn(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-4"]
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-4"


def test_the_model_card_says_what_a_person_needs_to_know() -> None:
    card: dict[str, Any] = {
        "run_id": 7,
        "role": "judge",
        "base": "nano",
        "base_hash": "c0ffee",
        "prompt": "judge_nano",
        "recipe": {"kind": "train-judge", "seed": 3},
        "set": {"name": "mine", "hash": "abc", "counts": {"train": 400, "too_long": 2}},
        "metrics": {"held_out_after": {"single": 0.81234, "chunks": 200}, "before": None},
    }
    text = model_card("my-judge", card)
    for words in (
        "library_name: transformers",
        "# my-judge",
        "| base | nano |",
        "| counts: train | 400 |",
        "| held out after: single | 0.8123 |",
        "seed: 3",
        "stepwiser run judge --set llm.checkpoint=my-judge --set prompt=judge_nano",
    ):
        assert words in text, words
    assert "None" not in text


def test_a_card_with_a_bar_or_a_line_break_stays_one_table_row() -> None:
    text = model_card("x", {"role": "judge", "base": "a|b\nc"})
    assert "| base | a\\|b c |" in text


def test_a_finished_checkpoint_has_card_and_model_card(tmp_path: Path, coin: Path) -> None:
    ctx = context(tmp_path, coin)
    target = tmp_path / "checkpoints" / "done"
    core.finish(ctx, coin, coin, target, {"role": "judge", "base": "coin"}, aside=tmp_path / "final")  # type: ignore[arg-type]
    assert read_card(target)["role"] == "judge" and (target / CARD).is_file()
    assert "# done" in (target / "README.md").read_text()
    assert not (tmp_path / "final").exists()
