"""Two processes train one judge on a CPU, as a run does it: the first writes to the store, both hold the same weights."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from db.store import open_store
from engine.recipes import resolve
from tests.coin import context
from training.hardware import launch_command
from training.jobs import TrainJudgeRecipe

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_processes_train_one_judge_and_one_of_them_writes(tmp_path: Path, coin: Path) -> None:
    prepared = context(tmp_path, coin, recipe={"hardware": {"processes": 2}}, steps=4)
    recipe = resolve(TrainJudgeRecipe, prepared.recipe.model_dump(mode="json"))
    url = f"sqlite:///{tmp_path / 'store.db'}"
    store = open_store(url, migrate=True)
    run_id = store.start_run("train-judge", recipe.model_dump(mode="json"), "ada", pid=1)
    assert run_id == 1
    (tmp_path / "runs" / "1" / "run").write_text(store.run(1).uid)

    command = launch_command(recipe.hardware, run_id, 1, gpu=False)
    place = {"STEPWISER_HOME": str(tmp_path), "STEPWISER_DATABASE_URL": url, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | place, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    run = store.run(run_id)
    assert run.status == "done" and run.result["steps"] == 4 and run.result["checkpoint"] == "run-1"
    metrics = store.metrics(run_id)
    assert [row.step for row in metrics["loss"]] == [1, 2, 3, 4]
    assert [row.step for row in metrics["reward"]] == [1]
    assert done.stdout.count("run 1: done") == 1, "the other process is silent"
    store.close()
