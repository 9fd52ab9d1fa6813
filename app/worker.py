"""The worker: takes queued runs one at a time and starts each in a process group of its own.

``python -m app.worker`` is the worker, ``python -m app.worker until ID`` one that ends when that run has ended;
``python -m app.worker run ID ATTEMPT`` is what both start. A worker that is
ended asks its run to stop first (a second Ctrl-C ends both at once); one that is killed leaves the run going, and the
next worker sees its heartbeat. A store that cannot be written for a while is waited for.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

import psutil

from app.kinds import kind_of, resolve_recipe
from app.processes import UNSTORED_CODE, Child, end_at_once, pass_stop_on, reap, start_process
from app.settings import Settings, get_settings
from app.store import open_store
from db.errors import StoreError, WorkerLockedError
from db.store import Store
from engine.runs import NOT_STORED, RunContext, execute

POLL_S = 0.5
RUN_BUSY_S = 300.0
"""How long a run waits for a locked store: its work is worth more than a page's, which gives up after 30 s."""


class Worker:
    """Holds the store's worker lock; ``serve`` until told to stop or until ``until`` says so."""

    def __init__(self, store: Store, settings: Settings):
        self.store, self.settings = store, settings
        self.child: Child | None = None
        self.ending = False
        self._said = ""
        self.store.take_worker_lock(pid=os.getpid(), host=socket.gethostname(), is_alive=psutil.pid_exists)

    def serve(self, until: Callable[[], bool] | None = None) -> None:
        """Poll for work. A signal ends it after its run has stopped."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)
        try:
            while not self.tick(until) and not (self.ending and self.child is None):
                time.sleep(POLL_S)
        finally:
            self.store.release_worker_lock(pid=os.getpid(), host=socket.gethostname())

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.ending and signum == signal.SIGINT and self.child is not None:
            end_at_once(self.child)
        self.ending = True

    def tick(self, until: Callable[[], bool] | None = None) -> bool:
        """One round: lock heartbeat, reap, stalled runs, stop requests, the next run. What ``until`` says then."""
        try:
            self._round()
            return until is not None and until()
        except WorkerLockedError:
            raise
        except StoreError as error:
            if str(error) != self._said:
                print(f"waiting for the store: {error}", file=sys.stderr, flush=True)
            self._said = str(error)
            return False

    def _round(self) -> None:
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
        self.child = start_process(self.settings, run)

    def ended(self, run_id: int) -> bool:
        """Whether that run has ended and its process is cleared away."""
        return self.child is None and self.store.run(run_id).ended_at is not None

    def _pass_stop_on(self, child: Child) -> None:
        if self.ending or self.store.run(child.run_id).stop_requested:
            pass_stop_on(child)

    def _reap(self) -> None:
        if self.child is not None and reap(self.store, self.settings, self.child):
            self.child = None


def run_one(run_id: int, attempt: int) -> int:
    """The run's own process: resolve its function and execute it. Returns an exit code."""
    settings = get_settings()
    store = open_store(settings, busy_timeout_s=RUN_BUSY_S)
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
        main=int(os.environ.get("RANK", "0")) == 0,  # a launcher of several processes numbers them
        llm_keys={address: key.get_secret_value() for address, key in settings.llm_keys.items()},
    )
    if ctx.main:
        store.set_run_pid(run_id, os.getpid())
    status = execute(ctx, kind.load())
    return 0 if status in ("done", "stopped") else UNSTORED_CODE if status == NOT_STORED else 1


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["run"]:
        return run_one(int(arguments[1]), int(arguments[2]))
    settings = get_settings()
    worker = Worker(open_store(settings), settings)
    worker.serve(until=partial(worker.ended, int(arguments[1])) if arguments[:1] == ["until"] else None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
