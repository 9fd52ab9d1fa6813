"""The worker: takes queued runs one at a time and starts each in a process group of its own.

``python -m app.worker`` is the worker; ``python -m app.worker run ID ATTEMPT`` is what it starts. A worker that is
ended asks its run to stop first; one that is killed leaves the run going, and the next worker sees its heartbeat.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil

from app.kinds import kind_of, resolve_recipe
from app.settings import Settings, get_settings
from app.store import open_store
from db.store import Store
from engine.runs import RunContext, execute

MODULE = "app.worker"
"""What a run's own process executes."""
POLL_S = 0.5
STOP_GRACE_S = 90.0


def log_path(settings: Settings, run_id: int) -> Path:
    return settings.logs / f"run-{run_id}.log"


@dataclass
class Child:
    """A run's process and since when it was asked to stop (monotonic seconds)."""

    run_id: int
    process: subprocess.Popen[bytes]
    stop_since: float | None = None


class Worker:
    """Holds the store's worker lock; ``serve`` until told to stop or until ``until`` says so."""

    def __init__(self, store: Store, settings: Settings):
        self.store, self.settings = store, settings
        self.child: Child | None = None
        self.ending = False
        self.store.take_worker_lock(pid=os.getpid(), host=socket.gethostname(), is_alive=psutil.pid_exists)

    def serve(self, until: Callable[[], bool] | None = None) -> None:
        """Poll for work. A signal ends it after its run has stopped."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)
        try:
            while not (self.ending and self.child is None) and not (until and until()):
                self.tick()
                time.sleep(POLL_S)
        finally:
            self.store.release_worker_lock(pid=os.getpid(), host=socket.gethostname())

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self.ending = True

    def tick(self) -> None:
        """One round: lock heartbeat, reap, stalled runs, stop requests, the next run."""
        self.store.beat_worker_lock(pid=os.getpid(), host=socket.gethostname())
        self._reap()
        self.store.mark_stalled(self.settings.stalled_after_s)
        if self.child is not None:
            self._pass_stop_on(self.child)
        elif not self.ending:
            self._start_next()

    def _start_next(self) -> None:
        run = self.store.claim_next(pid=os.getpid())
        if run is None:
            return
        self.settings.logs.mkdir(parents=True, exist_ok=True)
        with log_path(self.settings, run.id).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULE, "run", str(run.id), str(run.attempt)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"STEPWISER_HOME": str(self.settings.home)},
            )
        self.child = Child(run.id, process)

    def _pass_stop_on(self, child: Child) -> None:
        if not (self.ending or self.store.run(child.run_id).stop_requested):
            return
        now = time.monotonic()
        if child.stop_since is None:
            child.stop_since = now
            child.process.send_signal(signal.SIGTERM)
        elif now - child.stop_since > STOP_GRACE_S:
            os.killpg(child.process.pid, signal.SIGKILL)

    def _reap(self) -> None:
        if self.child is None or self.child.process.poll() is None:
            return
        with suppress(ProcessLookupError):  # what a killed run left behind: graders, dataloaders
            os.killpg(self.child.process.pid, signal.SIGKILL)
        run, code = self.store.run(self.child.run_id), self.child.process.returncode
        if run.status in ("running", "stalled"):
            where = log_path(self.settings, run.id)
            status = "stopped" if self.child.stop_since is not None else "failed"
            self.store.finish_run(
                run.id,
                status,
                error=f"its process ended with code {code} before it could say why; see {where}",
            )
        self.child = None


def run_one(run_id: int, attempt: int) -> int:
    """The run's own process: resolve its function and execute it. Returns an exit code."""
    settings = get_settings()
    store = open_store(settings)
    run = store.run(run_id)
    kind = kind_of(run.kind)
    recipe = resolve_recipe(run.kind, run.recipe)
    ctx = RunContext(
        store,
        run_id,
        attempt,
        recipe,
        settings.home,
        run.actor,
        result=dict(run.result or {}),
        resumed=attempt > 1,
    )
    store.set_run_pid(run_id, os.getpid())
    return 0 if execute(ctx, kind.load()) in ("done", "stopped") else 1


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["run"]:
        return run_one(int(arguments[1]), int(arguments[2]))
    settings = get_settings()
    Worker(open_store(settings), settings).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
