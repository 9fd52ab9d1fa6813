"""The worker: runs in process groups of their own, one heavy run at a time, killed and stalled runs, stop and resume."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.processes import UNSTORED_CODE, Child
from app.settings import Settings
from app.store import open_or_make_store
from app.worker import Worker
from db.connect import connect
from db.errors import StoreLockedError
from db.store import Store

ROOT = Path(__file__).resolve().parents[1]


def wait(until: Callable[[], bool], seconds: float = 180) -> None:
    """Only a hang should end a test: the machine may be busy with something else."""
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database_url="", stalled_after_s=3)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = open_or_make_store(settings)
    yield store
    store.close()


@pytest.fixture
def worker(settings: Settings, store: Store) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a worker whose kinds are the slow and the broken one below, so that no test waits for an LLM."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        env = os.environ | {
            "STEPWISER_HOME": str(settings.home),
            "STEPWISER_DATABASE_URL": "",
            "STEPWISER_STALLED_AFTER_S": "3",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.slow_worker"], cwd=ROOT, env=env, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()


def queue(store: Store, kind: str = "sample", **fields: object) -> int:
    return store.create_run(kind, {"kind": kind, **fields}, "test")


def test_a_run_goes_from_queued_to_done_with_its_log_and_versions(store: Store, settings: Settings, worker):
    run_id = queue(store, seed=3)
    worker()
    wait(lambda: store.run(run_id).status == "done")
    run = store.run(run_id)
    assert run.done == run.total == 3 and run.result["slept"] == 3 and run.pid is not None
    assert run.versions["stepwiser-studio"] and run.prompt_hashes == {"none": "0"}
    log = (settings.logs / f"run-{run_id}.log").read_text()
    assert "attempt 1" in log and f"run {run_id}: done" in log
    assert run.pid != os.getpid() and os.getpgid(os.getpid()) != run.pid


def test_only_one_heavy_run_at_a_time_and_the_other_says_why(store: Store, worker):
    first, second = queue(store, seed=30), queue(store, "rollout", seed=1)
    worker()
    wait(lambda: store.run(first).status == "running" and "waiting for run" in store.run(second).waiting_for)
    assert store.run(second).status == "queued" and f"run {first}" in store.run(second).waiting_for
    store.request_stop(first)
    wait(lambda: store.run(second).status == "done")
    assert store.run(first).status == "stopped"


def test_a_failing_run_says_what_was_wrong(store: Store, settings: Settings, worker):
    run_id = queue(store, "judge")
    worker()
    wait(lambda: store.run(run_id).status == "failed")
    assert store.run(run_id).error == "this recipe cannot work: ask for less"
    unknown = queue(store, "train-judge")
    wait(lambda: store.run(unknown).status == "failed")
    assert "ZeroDivisionError" in (store.run(unknown).error or "")
    assert "Traceback" in (settings.logs / f"run-{unknown}.log").read_text()


def test_a_killed_run_is_seen_and_resumes(store: Store, worker):
    run_id = queue(store, seed=6)
    worker()
    wait(lambda: store.run(run_id).done >= 1)
    pid = store.run(run_id).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait(lambda: store.run(run_id).status == "failed")
    assert "ended with code -9" in (store.run(run_id).error or "")
    store.resume_run(run_id)
    wait(lambda: store.run(run_id).status == "done")
    assert store.run(run_id).attempt == 2


def test_a_killed_worker_and_run_show_stalled_and_a_new_worker_resumes(store: Store, worker):
    run_id = queue(store, seed=6)
    process = worker()
    wait(lambda: store.run(run_id).done >= 1)
    pid = store.run(run_id).pid
    assert pid is not None
    process.kill()
    process.wait()
    os.kill(pid, signal.SIGKILL)
    worker()
    wait(lambda: store.run(run_id).status == "stalled", seconds=30)
    store.resume_run(run_id)
    wait(lambda: store.run(run_id).status == "done")


def test_a_worker_that_is_ended_stops_its_run_first(store: Store, worker):
    run_id = queue(store, seed=600)
    process = worker()
    wait(lambda: store.run(run_id).done >= 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    assert store.run(run_id).status == "stopped" and store.worker() is None


def test_a_run_goes_on_while_its_worker_is_gone(store: Store, worker):
    """A killed worker does not take its run with it; the next worker leaves it alone."""
    run_id = queue(store, seed=12)
    process = worker()
    wait(lambda: store.run(run_id).done >= 1)
    process.kill()
    process.wait()
    worker()
    wait(lambda: store.run(run_id).status == "done")
    assert store.run(run_id).attempt == 1


def test_a_second_ctrl_c_ends_worker_and_run_at_once(store: Store, settings: Settings, worker):
    run_id = queue(store, "search")
    process = worker()
    log = settings.logs / f"run-{run_id}.log"
    wait(lambda: store.run(run_id).done == 1)
    process.send_signal(signal.SIGINT)
    wait(lambda: "stopping after the batch in hand" in log.read_text())
    assert process.poll() is None and store.run(run_id).status == "running"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    run = store.run(run_id)
    assert run.status == "stopped" and run.pid is not None and not psutil.pid_exists(run.pid)
    store.resume_run(run_id)


def test_a_locked_store_ends_no_worker_and_what_became_of_a_run_is_stored_later(
    store: Store, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    impatient = Store(connect(settings.store_url, busy_timeout_s=0.05))
    one = Worker(impatient, settings)
    run_id = queue(store)
    run = store.claim_next(pid=0)
    assert run is not None
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({UNSTORED_CODE})"])
    process.wait()
    one.child = Child(run_id, run.attempt, process)
    with store.write():
        assert not one.tick(until=lambda: True)  # what could not be looked at has not ended
        one.tick()
    said = capsys.readouterr().err
    assert said.count("waiting for the store") == 1 and "locked by another process" in said
    assert store.run(run_id).status == "running"
    one.tick()
    error = store.run(run_id).error or ""
    assert store.run(run_id).status == "failed" and "make space" in error and "resume the run" in error
    assert str(settings.logs / f"run-{run_id}.log") in error


def test_a_process_that_ends_late_says_nothing_of_the_attempt_that_took_its_place(
    store: Store, settings: Settings
):
    one = Worker(store, settings)
    run_id = queue(store)
    first = store.claim_next(pid=0)
    assert first is not None
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
    process.wait()
    store.mark_stalled(-1)
    store.resume_run(run_id)
    second = store.claim_next(pid=0)
    assert second is not None and second.attempt == first.attempt + 1
    one.child = Child(run_id, first.attempt, process)
    one.tick()
    assert one.child is None and store.run(run_id).status == "running"


def test_a_store_that_fails_while_the_end_is_looked_for_is_waited_for(
    store: Store, settings: Settings, capsys: pytest.CaptureFixture[str]
):
    one = Worker(store, settings)

    def fails() -> bool:
        raise StoreLockedError("locked by another process")

    assert not one.tick(until=fails) and "waiting for the store: locked" in capsys.readouterr().err
    assert one.tick(until=lambda: True) and not one.tick()
