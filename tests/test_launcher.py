"""Starting the app: refusals that say what to do, and a command line whose errors are sentences."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.launcher import LaunchError, check_host, check_port, pages_command
from app.settings import Settings
from app.store import open_or_make_store
from app.worker import Worker
from db.errors import WorkerLockedError

ROOT = Path(__file__).resolve().parents[1]


def own(home: Path, **extra: str) -> dict[str, str]:
    """The environment of a command below ``home``."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("STEPWISER_")}
    return kept | {"STEPWISER_HOME": str(home)} | extra


def stepwiser(home: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli", *arguments]
    env = own(home, **extra)
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module", autouse=True)
def held_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A command before a store that somebody holds: it waits for half a minute, and the other tests run meanwhile."""
    home = tmp_path_factory.mktemp("held")
    open_or_make_store(Settings(home=home, database_url="")).close()
    command = [sys.executable, "-m", "app.cli", "run", "sample", "--detach"]
    with closing(sqlite3.connect(home / "stepwiser.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, env=own(home), stdout=pipe, stderr=pipe, text=True)
        yield process
        process.kill()
        process.wait()
        holder.execute("ROLLBACK")


def test_serving_other_machines_without_authentication_is_refused():
    with pytest.raises(LaunchError, match=r"no authentication is configured.*secrets\.toml"):
        check_host("0.0.0.0", {})
    check_host("127.0.0.1", {})
    check_host("0.0.0.0", {"client_id": "c"})


def test_the_command_refuses_too(tmp_path: Path):
    done = stepwiser(tmp_path, "app", "--host", "0.0.0.0", HOME=str(tmp_path))
    assert done.returncode == 2 and "authentication" in done.stderr and "Traceback" not in done.stderr


def test_a_port_in_use_is_named_with_another_to_take():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"port {port} .*PORT={port + 1}"):
            check_port("127.0.0.1", port)


def test_the_pages_are_told_not_to_phone_home():
    command = " ".join(pages_command("127.0.0.1", 8501))
    assert "gatherUsageStats=false" in command and "server.address=127.0.0.1" in command
    assert "allowedHosts=127.0.0.1" in command and "allowedHosts" not in " ".join(pages_command("0.0.0.0", 1))
    assert "--server.trustedUserHeaders={}" in command
    behind = pages_command("127.0.0.1", 8501, "https://studio.example.org")
    assert "--server.allowedHosts=studio.example.org" in behind


def test_a_second_worker_is_refused_and_a_dead_ones_lock_is_taken_over(tmp_path: Path):
    settings = Settings(home=tmp_path, database_url="")
    store = open_or_make_store(settings)
    env = os.environ | {"STEPWISER_HOME": str(tmp_path), "STEPWISER_DATABASE_URL": ""}
    first = subprocess.Popen([sys.executable, "-m", "app.worker"], cwd=ROOT, env=env)
    try:
        deadline = time.monotonic() + 60
        while not store.worker_alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        with pytest.raises(WorkerLockedError, match=str(first.pid)):
            Worker(store, settings)
        first.send_signal(signal.SIGKILL)
        first.wait()
        Worker(store, settings).store.release_worker_lock(pid=os.getpid(), host=socket.gethostname())
    finally:
        first.kill()
    assert store.worker() is None


def test_errors_of_a_command_are_sentences(tmp_path: Path):
    done = stepwiser(tmp_path, "run", "rollout", "--set", "m=nine")
    assert done.returncode == 2 and "m: Input should be a valid integer" in done.stderr
    done = stepwiser(tmp_path, "run", "sample", "--set", "llm.checkpoint=nowhere")
    assert done.returncode == 2 and "no checkpoint 'nowhere'" in done.stderr and "nano" in done.stderr
    done = stepwiser(tmp_path, "run", "dance")
    assert done.returncode == 2 and "no kind of run 'dance'" in done.stderr
    for result in (done,):
        assert "Traceback" not in result.stderr


def test_a_store_that_is_read_only_is_named(tmp_path: Path):
    open_or_make_store(Settings(home=tmp_path, database_url=""))
    url = f"sqlite:///file:{tmp_path / 'stepwiser.db'}?mode=ro&uri=true"
    done = stepwiser(tmp_path, "run", "sample", "--detach", STEPWISER_DATABASE_URL=url)
    assert done.returncode == 2 and "read-only" in done.stderr and "Traceback" not in done.stderr
    assert stepwiser(tmp_path, "runs", STEPWISER_DATABASE_URL=url).returncode == 0


def test_a_queued_run_can_be_listed_stopped_and_resumed(tmp_path: Path):
    done = stepwiser(tmp_path, "run", "sample", "--set", "generate.count=3", "--detach")
    assert done.returncode == 0 and "run 1 is queued" in done.stdout and "no worker is running" in done.stdout
    assert "queued" in stepwiser(tmp_path, "runs").stdout
    assert stepwiser(tmp_path, "stop", "1").returncode == 0
    assert "stopped" in stepwiser(tmp_path, "runs").stdout
    assert stepwiser(tmp_path, "resume", "1", "--detach").returncode == 0
    assert "queued" in stepwiser(tmp_path, "runs").stdout


def test_a_store_that_stays_locked_is_named(held_up: subprocess.Popen[str]):
    _, said = held_up.communicate(timeout=180)
    assert held_up.returncode == 2 and "locked" in said and "Traceback" not in said
