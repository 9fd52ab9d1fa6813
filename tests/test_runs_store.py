"""A run's states in the store: queue, claim, heartbeat, stalled, stop, resume; the worker's lock; metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from db.errors import NotFoundError, RunStateError, WorkerLockedError
from db.rows import NewRunSample
from db.store import Store
from db.tables import Run, Worker, utc_now
from tests.store_world import BACKENDS, add_run, fresh_store


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store


def beat(store: Store, run_id: int, done: int = 0, attempt: int | None = None) -> bool:
    return store.heartbeat(run_id, done=done, total=10, unit="rollouts", message="", attempt=attempt)


def age(store: Store, run_id: int, seconds: float) -> None:
    """Put a run's heartbeat into the past."""
    with store.write() as db:
        db.execute(
            update(Run).where(Run.id == run_id).values(heartbeat_at=utc_now() - timedelta(seconds=seconds))
        )


def test_one_heavy_run_at_a_time_and_the_others_say_why_they_wait(store: Store):
    heavy = [store.create_run(kind, {"kind": kind}, "ann") for kind in ("rollout", "judge", "train-judge")]
    light = store.create_run("import", {}, "ann")
    first = store.claim_next(pid=11)
    assert first is not None and (first.id, first.status, first.attempt, first.pid) == (
        heavy[0],
        "running",
        1,
        11,
    )
    second = store.claim_next(pid=11)
    assert second is not None and second.id == light
    assert store.claim_next(pid=11) is None
    assert store.run(heavy[1]).waiting_for == f"waiting for run {heavy[0]} (rollout) on this device"
    store.finish_run(heavy[0], "done", result={"rollouts": 5})
    third = store.claim_next(pid=11)
    assert third is not None and (third.id, third.waiting_for) == (heavy[1], "")
    assert store.claim_next(pid=11) is None
    assert store.run(heavy[2]).waiting_for == f"waiting for run {heavy[1]} (judge) on this device"
    assert store.run(heavy[0]).result == {"rollouts": 5}


def test_an_empty_queue_gives_nothing(store: Store):
    assert store.claim_next(pid=1) is None


def test_progress_rate_and_remaining_time_count_this_attempt_only(store: Store):
    run = store.create_run("rollout", {}, "ann")
    store.claim_next(pid=1)
    assert store.run(run).rate is None
    time.sleep(0.05)
    assert beat(store, run, done=4) is False
    row = store.run(run)
    assert row.heartbeat_at and row.started_at and row.rate and row.remaining_s
    seconds = (row.heartbeat_at - row.started_at).total_seconds()
    assert row.rate == pytest.approx(4 / seconds) and row.remaining_s == pytest.approx(6 * seconds / 4)
    store.finish_run(run, "stopped")
    store.resume_run(run)
    resumed = store.claim_next(pid=2)
    assert resumed is not None and (resumed.attempt, resumed.done, resumed.done_at_start) == (2, 4, 4)
    assert resumed.rate is None


def test_a_stop_reaches_the_run_by_its_heartbeat(store: Store):
    run = store.create_run("rollout", {}, "ann")
    store.claim_next(pid=1)
    assert store.request_stop(run).status == "running"
    assert beat(store, run) is True
    store.finish_run(run, "stopped")
    with pytest.raises(RunStateError, match=f"run {run} is stopped: there is nothing to stop"):
        store.request_stop(run)


def test_a_queued_run_is_stopped_at_once(store: Store):
    run = store.create_run("rollout", {}, "ann")
    assert store.request_stop(run).status == "stopped"
    assert store.claim_next(pid=1) is None


def test_a_silent_run_is_stalled_and_can_be_resumed(store: Store):
    run = store.create_run("rollout", {}, "ann")
    store.claim_next(pid=1)
    assert store.mark_stalled(after_s=20) == []
    age(store, run, 21)
    assert store.mark_stalled(after_s=20) == [run]
    assert store.run(run).status == "stalled" and store.mark_stalled(after_s=20) == []
    other = store.create_run("judge", {}, "ann")
    claimed = store.claim_next(pid=2)
    assert claimed is not None and claimed.id == other  # a stalled run does not hold the device
    store.finish_run(other, "done")
    assert store.resume_run(run).status == "queued"
    again = store.claim_next(pid=2)
    assert again is not None and (again.id, again.attempt) == (run, 2)


def test_a_stalled_run_that_lives_after_all_runs_again(store: Store):
    run = store.create_run("rollout", {}, "ann")
    store.claim_next(pid=1)
    age(store, run, 60)
    store.mark_stalled()
    assert beat(store, run, attempt=1) is False
    assert store.run(run).status == "running"


def test_an_attempt_that_was_replaced_is_told_to_stop_and_cannot_end_the_run(store: Store):
    run = store.create_run("rollout", {}, "ann")
    store.claim_next(pid=1)
    age(store, run, 60)
    store.mark_stalled()
    store.resume_run(run)
    store.claim_next(pid=2)
    assert beat(store, run, done=9, attempt=1) is True
    assert store.run(run).done == 0
    with pytest.raises(RunStateError, match="attempt 2"):
        store.finish_run(run, "failed", error="x", attempt=1)
    assert beat(store, run, done=3, attempt=2) is False


def test_states_from_which_nothing_can_be_resumed(store: Store):
    run = store.create_run("rollout", {}, "ann")
    with pytest.raises(RunStateError, match="is queued: only a stopped, failed or stalled run"):
        store.resume_run(run)
    store.claim_next(pid=1)
    with pytest.raises(RunStateError, match="is running"):
        store.resume_run(run)
    store.finish_run(run, "done")
    with pytest.raises(RunStateError, match="is done"):
        store.resume_run(run)
    with pytest.raises(RunStateError, match="it cannot become failed"):
        store.finish_run(run, "failed")
    with pytest.raises(NotFoundError, match="no run 999"):
        store.request_stop(999)


def test_failure_and_facts_are_kept(store: Store):
    run = store.create_run("sample", {"seed": 3}, "ann")
    store.claim_next(pid=1)
    store.set_run_facts(run, versions={"torch": "2.13"}, prompt_hashes={"policy": "abc"})
    store.finish_run(run, "failed", error="it broke")
    row = store.run(run)
    assert (row.versions, row.prompt_hashes, row.recipe) == (
        {"torch": "2.13"},
        {"policy": "abc"},
        {"seed": 3},
    )
    assert (row.status, row.error) == ("failed", "it broke") and row.ended_at is not None
    assert store.resume_run(run).error is None


def test_runs_are_paged_newest_first(store: Store):
    ids = [store.create_run("sample", {}, "ann") for _ in range(5)]
    assert [run.id for run in store.runs(2)] == ids[:2:-1]
    assert [run.id for run in store.runs(2, before=ids[3])] == [ids[2], ids[1]]
    store.request_stop(ids[0])
    assert [run.id for run in store.runs(statuses=["stopped"])] == [ids[0]]
    assert store.runs(kinds=["judge"]) == []


def test_metrics_are_never_replaced_and_a_nan_is_kept_as_nothing(store: Store):
    run = add_run(store)
    store.add_metrics(run, [("reward", 2, 0.5), ("reward", 1, float("nan")), ("loss", 1, 3.0)])
    store.add_metrics(run, [("reward", 2, 9.0), ("reward", 3, float("inf"))])
    store.add_metrics(run, [])
    series = store.metrics(run)
    assert [(m.step, m.value) for m in series["reward"]] == [(1, None), (2, 0.5), (3, None)]
    assert list(store.metrics(run, ["loss"])) == ["loss"]


def test_one_worker_holds_the_lock(store: Store):
    assert store.worker() is None and not store.worker_alive()
    store.take_worker_lock(pid=11, host="here")
    store.take_worker_lock(pid=11, host="here")
    assert store.worker_alive()
    with pytest.raises(WorkerLockedError, match="process 11 on here"):
        store.take_worker_lock(pid=12, host="here")
    store.release_worker_lock(pid=12, host="here")  # not its own: nothing happens
    store.beat_worker_lock(pid=11, host="here")
    store.release_worker_lock(pid=11, host="here")
    store.take_worker_lock(pid=12, host="there")
    assert store.worker() is not None
    with pytest.raises(WorkerLockedError, match="no longer is the worker"):
        store.beat_worker_lock(pid=11, host="here")


def test_a_dead_workers_lock_expires(store: Store):
    store.take_worker_lock(pid=11, host="here")
    with pytest.raises(WorkerLockedError):
        store.take_worker_lock(pid=12, host="here", is_alive=lambda pid: True)
    with pytest.raises(WorkerLockedError):  # of another host nobody here can tell
        store.take_worker_lock(pid=12, host="there", is_alive=lambda pid: False)
    store.take_worker_lock(pid=12, host="here", is_alive=lambda pid: pid != 11)
    with store.write() as db:
        db.execute(update(Worker).values(heartbeat_at=utc_now() - timedelta(seconds=16)))
    assert not store.worker_alive()
    store.take_worker_lock(pid=13, host="there")
    worker = store.worker()
    assert worker is not None and (worker.pid, worker.host) == (13, "there")


def test_parts_of_a_run_are_left_to_it(store: Store):
    parent = store.create_run("loop", {}, "ann")
    part = store.create_run("sample", {"n": 1}, "ann", parent_id=parent)
    assert store.claim_next(pid=1).id == parent
    assert store.claim_next(pid=1) is None
    assert store.claim_child(part, pid=2).status == "running"
    with pytest.raises(RunStateError, match=f"run {part} is running: it cannot be started"):
        store.claim_child(part, pid=2)
    store.finish_run(part, "stopped")
    with pytest.raises(RunStateError, match=f"a part of run {parent}: resume that one"):
        store.resume_run(part)
    again = store.claim_child(part, pid=3)
    assert (again.attempt, again.status, again.pid) == (2, "running", 3)
    store.finish_run(part, "done")
    with pytest.raises(RunStateError, match="is done"):
        store.claim_child(part, pid=2)
    with pytest.raises(RunStateError, match="is running"):
        store.claim_child(parent, pid=2)
    assert [run.id for run in store.children(parent)] == [part]
    assert [run.id for run in store.runs(parts=False)] == [parent]


def test_completions_of_a_step_are_kept_once_in_their_order(store: Store):
    run = store.create_run("train-judge", {}, "ann")
    rows = [NewRunSample("p", "one", "+", 1.0), NewRunSample("p", "two", None, None)]
    store.add_run_samples(run, 8, rows)
    store.add_run_samples(run, 8, [NewRunSample("p", "other", "-", 0.0)])
    store.add_run_samples(run, 4, rows[:1])
    store.add_run_samples(run, 5, [])
    assert store.run_sample_steps(run) == [4, 8]
    assert store.run_samples(run, 8) == rows
