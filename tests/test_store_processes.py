"""Several processes on one store: nothing is lost, nobody is locked out, a killed writer leaves it sound."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from db.check import check
from db.store import Store
from db.tables import Review
from tests.store_world import BACKENDS, add_prefix, add_problem, add_trajectory, fresh_store, rollout

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        store.start_run("rollout", {}, "ann", pid=1)
        problem = add_problem(store)
        for i in range(4):
            add_prefix(store, problem, f"k{i}")
        add_trajectory(store, problem, steps=5)
        yield store


def start(store: Store, what: str, name: str, count: int) -> subprocess.Popen[str]:
    url = store.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.store_writer", url, what, name, str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_reviewers_and_a_rollout_run_write_at_once(store: Store):
    running = [
        start(store, "reviews", "ann", 100),
        start(store, "reviews", "bob", 100),
        start(store, "rollouts", "run", 60),
    ]
    for process in running:
        _, error = process.communicate(timeout=240)
        assert process.returncode == 0, error
    with store.read() as db:
        per_person = dict(db.execute(select(Review.actor, func.count()).group_by(Review.actor)).all())  # type: ignore[arg-type]
    assert per_person == {"ann": 100, "bob": 100}
    assert store.counts()["rollouts"] == 60 * 16
    assert sum(store.draws_done([1, 2, 3, 4]).values()) == 60 * 16
    said = store.reviews_in_force([1])
    assert {row.action_id for rows in said.values() for row in rows} == {
        f"{name}-{i}" for name in ("ann", "bob") for i in range(95, 100)
    }
    assert check(store) == []


def test_a_writer_killed_inside_a_transaction_leaves_what_was_committed(store: Store):
    for attempt in range(3):
        done = store.draws_done([1])[1]
        process = start(store, "hang", "run", done + 7)
        try:
            assert process.stdout is not None and process.stdout.readline() == "inside\n"
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
        assert store.draws_done([1]) == {1: 7 * (attempt + 1)}
        assert store.counts()["rollouts"] == 7 * (attempt + 1)
        assert check(store) == []
    assert store.add_rollouts([rollout(1, 21), rollout(1, 20)], run_id=1) == 1
