"""Several processes on one store: nothing is lost, nobody is locked out, a killed writer leaves it sound."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from db.check import check
from db.rows import Label, NewProblem
from db.store import Store
from db.tables import Review, Run, utc_now
from tests.store_world import (
    BACKENDS,
    add_judge,
    add_prefix,
    add_problem,
    add_trajectory,
    fresh_store,
    judgment,
    rollout,
)

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


def both(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Both at once; the error of either."""
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(first), pool.submit(second)]:
            done.result()


def test_two_imports_of_one_file_count_its_problems_once(store: Store):
    rows = [NewProblem("twice", str(i), "What?", "1") for i in range(200)]
    added: list[int] = []

    def one() -> None:
        added.append(len(store.add_problems(rows, run_id=None, actor="ann").added))

    both(one, one)
    assert sorted(added) == [0, 200] and store.count_problems("twice") == 200
    assert check(store) == []


def test_two_runs_that_label_the_same_chunks_leave_the_totals_right(store: Store):
    chunks = [chunk.id for chunk in store.stage_trajectories([1])[0].chunks]

    def one(sign: str) -> None:
        for _ in range(10):
            store.put_labels([Label(chunk, drop=0.5, rel_ratio=sign) for chunk in chunks])

    both(lambda: one("+"), lambda: one("-"))
    assert check(store) == []


def test_judges_and_a_reviewer_at_once_lose_no_vote_and_do_not_lock_each_other_out(store: Store):
    _, chunks = add_trajectory(store, 1, steps=60, words="all at once")
    store.put_labels([Label(chunk, rel_ratio="+-"[i % 2]) for i, chunk in enumerate(chunks)])
    judges = [add_judge(store, name, name) for name in ("first", "second")]

    def judge(which: int, verdict: str) -> None:
        for chunk in chunks:
            store.add_judgments([judgment(judges[which], chunk, 0, verdict)], run_id=1)

    def review() -> None:
        for chunk in chunks:
            store.add_review(chunk, f"at-once-{chunk}", "ann", 1)

    with ThreadPoolExecutor(3) as pool:
        first, second = pool.submit(judge, 0, "positive"), pool.submit(judge, 1, "negative")
        for done in (first, second, pool.submit(review)):
            done.result()
    assert check(store) == []


def test_a_run_that_ends_while_it_is_looked_for_is_not_stalled(store: Store):
    """PostgreSQL reads what was there before the end; SQLite waits for it from the beginning."""
    with store.write() as db:
        db.execute(update(Run).values(heartbeat_at=utc_now() - timedelta(hours=1)))
    with ThreadPoolExecutor(1) as pool:
        with store.write() as db:
            db.execute(update(Run).values(status="done"))
            looking = pool.submit(store.mark_stalled)
            time.sleep(0.3)
        assert looking.result() == []
    assert store.run(1).status == "done"
