"""The benches that need no LLM, over little: what they count, and how a missed bar is said. No time is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.bench import Bar, conclude
from app.bench_commands import bench_app, console
from app.settings import Settings
from app.store import open_or_make_store
from db.store import Store
from tests.labelled_store import fill_store

PAIRS = [(16, 0), (0, 16), (8, 8), (16, 16)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_or_make_store(Settings(home=tmp_path, database_url="", actor="ada"))


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(bench_app, arguments)


def test_a_missed_bar_is_said_and_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    held, missed = Bar("more", 2.0, 1.0), Bar("less", 2.0, 1.0, "<=")
    assert conclude(console, "x", [], [held]) == 0
    assert conclude(console, "x", [], [held, missed]) == 1
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["holds"] is False and [part["holds"] for part in line["parts"]] == [True, False]


def test_thrift_replays_a_stores_rollouts(tmp_path: Path, store: Store) -> None:
    fill_store(store, PAIRS)
    done = bench("thrift", "--store", str(tmp_path))
    parts = {part["name"]: part["value"] for part in json.loads(done.stdout.splitlines()[-1])["parts"]}
    assert parts["labels that differ"] == 0
    # of 8 prefixes four succeed at once, two never, and two at the (16 + 1) / (8 + 1)-th draw in the mean of all orders
    mean = (4 + 2 * 16 + 2 * 17 / 9) / (8 * 16)
    assert parts["abs-q: share of all rollouts"] == pytest.approx(mean, rel=0.02)
    assert parts["rel-ratio: share of all rollouts"] < 1
    assert done.exit_code == 0


def test_a_store_without_rollouts_is_named(tmp_path: Path, store: Store) -> None:
    done = bench("thrift", "--store", str(tmp_path))
    assert done.exit_code == 1 and f"the store in {tmp_path} has no rollouts to replay" in str(done.exception)


def test_the_store_bench_leaves_one_prefix_open_and_finds_it() -> None:
    done = bench("store", "--rollouts", "1000")
    shown = " ".join(done.stdout.split())
    # 2 problems × (5 solutions × 5 chunks + the problem itself) × 16 draws, but for the last one
    assert "rollouts 831 of 51 prefixes" in shown
    assert "requests left after the resume (one prefix 1 was left open)" in shown
    line = json.loads(done.stdout.splitlines()[-1])
    assert [part["name"] for part in line["parts"]] == [
        "a trajectory's values, ms (median)",
        "what a resumed run has left to do, s",
    ]
