"""What ``stepwiser soak`` relies on: a loss is seen, and a real run that kills itself inside a transaction goes on.

The command itself takes minutes: it is run by hand. Five kills of scripted runs are in test_kill.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from app.settings import Settings
from app.soak import Soak, conclude_soak
from app.soak_run import Order
from app.soak_scene import Scene
from db.check import check
from db.contents import digests, last_rollout, rollouts
from db.store import open_store
from engine.llm import LLMSpec
from engine.llm.base import LLM
from engine.pipeline.rolling import roll_out
from engine.pipeline.sampling import sample_with
from engine.recipes import Draws
from engine.runs import RunContext, execute
from tests import little_world as little
from tests.tiny_llama import make_tiny_llama

ROOT = Path(__file__).resolve().parents[1]


def test_a_lost_or_changed_rollout_changes_every_later_digest(tmp_path: Path):
    store = little.open_little(tmp_path)
    sample_with(little.context(store, little.sample_recipe(), tmp_path), little.scripted_policy())
    assert digests(store, [0]) == {0: digests(store)[0]}
    roll_out(little.context(store, little.rollout_recipe(m=4), tmp_path), little.scripted_policy())
    rows, last = rollouts(store), last_rollout(store)
    assert [row.id for row in rows] == sorted(row.id for row in rows) and rows[-1].id == last
    marks = [rows[2].id, rows[10].id, last]
    before = digests(store, marks)
    roll_out(little.context(store, little.rollout_recipe(m=8), tmp_path), little.scripted_policy())
    assert digests(store, marks).items() >= before.items(), "what came later changes nothing"
    for change in (
        f"UPDATE rollout_texts SET text = 'another' WHERE rollout_id = {rows[5].id}",
        f"DELETE FROM rollout_texts WHERE rollout_id = {rows[5].id}",
    ):
        with store.write() as db:
            db.exec_driver_sql(change)
        after = digests(store, marks)
        assert [after[mark] == before[mark] for mark in marks] == [True, False, False]


def test_the_soak_fails_where_a_rollout_is_lost_or_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    whole = little.open_little(tmp_path)
    sample_with(little.context(whole, little.sample_recipe(), tmp_path), little.scripted_policy())
    roll_out(little.context(whole, little.rollout_recipe(m=4), tmp_path), little.scripted_policy())
    expected = rollouts(whole)

    def code(change: str) -> tuple[int, dict[str, float]]:
        copy = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
        with closing(sqlite3.connect(tmp_path / "little.db")) as one, closing(sqlite3.connect(copy)) as other:
            one.backup(other)
            for statement in filter(None, change.split(";")):
                other.execute(statement)
            other.commit()
        store = open_store(f"sqlite:///{copy}")
        settings = Settings(home=tmp_path, database_url="")
        state = Soak(Console(quiet=True), Scene(settings, store), 1, 0.0)
        state.made["run"] = 1
        ended = conclude_soak(state.console, state, 1, whole, expected, store)
        line = json.loads(capsys.readouterr().out.splitlines()[-1])
        return ended, {part["name"]: part["value"] for part in line["parts"] if not part["holds"]}

    id_ = expected[3].id
    assert code("") == (0, {})
    ended, missed = code(
        f"DELETE FROM rollout_texts WHERE rollout_id = {id_}; DELETE FROM rollouts WHERE id = {id_}"
    )
    assert ended == 1 and missed["rollouts missing"] == 1
    ended, missed = code(f"UPDATE rollout_texts SET text = 'x' WHERE rollout_id = {id_}")
    assert ended == 1 and missed["share that rounding changed"] == round(1 / len(expected), 4)
    ended, missed = code("UPDATE chunk_labels SET after_k = 99 WHERE after_k > 0")
    assert ended == 1 and missed["labels different though no draw is"] > 0


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A run listens to signals; afterwards they are pytest's again."""
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in kept.items():
        signal.signal(signum, handler)


@pytest.mark.vllm
def test_a_real_run_killed_inside_a_transaction_goes_on(vllm_door: LLM, tmp_path: Path):
    """vLLM in the run's own process, killed there; resumed through the vLLM of this one, and drawn whole by it too."""
    make_tiny_llama(tmp_path / "checkpoints" / "tiny")
    store = little.open_little(tmp_path, problems=100)
    ctx = little.context(store, little.sample_recipe(n=2), tmp_path)
    assert execute(ctx, lambda ctx: sample_with(ctx, little.scripted_policy())) == "done"
    recipe = little.rollout_recipe(m=10, llm=LLMSpec(checkpoint="tiny", max_num_seqs=16))
    recipe = recipe.model_copy(update={"draws": Draws(max_tokens=12)})
    run_id = little.context(store, recipe, tmp_path).run_id
    store.close()
    whole = tmp_path / "whole"
    whole.mkdir()
    shutil.copy(tmp_path / "little.db", whole)

    Order(attempt=1, rows=300, statement=10).write(tmp_path)
    url = f"sqlite:///{tmp_path / 'little.db'}"
    died = subprocess.run(
        [sys.executable, "-m", "app.soak_run", "run", str(run_id), "1"],
        cwd=ROOT,
        env=os.environ | {"STEPWISER_HOME": str(tmp_path), "STEPWISER_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert died.returncode == -signal.SIGKILL, died.stdout[-2000:] + died.stderr[-2000:]
    committed = little.all_rollouts(store)
    store.finish_run(run_id, "failed", error="killed, as the worker sees it")
    store.resume_run(run_id)
    run = store.claim_next(pid=0)
    assert run is not None and run.attempt == 2
    again: RunContext[Any] = RunContext(store, run_id, 2, recipe, tmp_path, "test", resumed=True)
    assert execute(again, lambda ctx: roll_out(ctx, vllm_door)) == "done"
    expected = open_store(f"sqlite:///{whole / 'little.db'}")
    roll_out(little.context(expected, recipe, whole), vllm_door)
    rows = little.all_rollouts(store)
    assert rows == little.all_rollouts(expected)
    assert 0 < len(committed) < len(rows) and set(committed) < set(rows)
    assert check(store) == []
