"""What ``stepwiser soak`` kills: a worker, its run, and two vLLM servers, each a real process, and how they come back.

Not: when, and what must be true afterwards (``app.soak``).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil

from app.processes import log_path
from app.settings import Settings
from app.soak_run import Order
from db.contents import last_rollout
from db.rows import RunRow
from db.store import Store
from engine.errors import RunError
from engine.llm import LLMSpec
from engine.llm.checkpoint import CheckpointInfo
from engine.llm.server_start import ServerProcess, server_command, server_environment

LOOK_S = 0.05
LONGEST_S = 600.0
"""What takes longer than this to happen never will."""
STALLED_S = 8.0


def place_of(settings: Settings) -> dict[str, str]:
    """Variables of a process that works in this home, on this machine, whatever the user has set."""
    return {
        "STEPWISER_HOME": str(settings.home),
        "STEPWISER_DATABASE_URL": "",
        "STEPWISER_RAY_ADDRESS": "",
    }


class Servers:
    """Two vLLM servers on this machine; one that is killed is started again at the same address."""

    def __init__(self, spec: LLMSpec, checkpoint: CheckpointInfo, folder: Path):
        self._spec, self._checkpoint, self._folder = spec, checkpoint, folder
        self._environment = server_environment(spec, checkpoint, os.environ)
        self._started: dict[str, ServerProcess] = {}
        self._starts = 0

    def __enter__(self) -> Self:
        try:
            for _ in range(2):
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    self._start(f"http://127.0.0.1:{free.getsockname()[1]}")
            for address, server in self._started.items():
                server.wait_until_well(address, LONGEST_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, address: str) -> None:
        self._starts += 1
        command = server_command(self._spec, self._checkpoint, "127.0.0.1", int(address.rpartition(":")[2]))
        log = self._folder / f"server-{self._starts}.log"
        self._started[address] = ServerProcess(command, self._environment, log)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(sorted(self._started))

    def kill(self, number: int) -> str:
        """Kill one, once the other is well, and start it again. Returns its address."""
        address, other = self.addresses[number % 2], self.addresses[1 - number % 2]
        self._started[other].wait_until_well(other, LONGEST_S)
        self._started[address].signal(signal.SIGKILL)
        self._started[address].stop()
        self._start(address)
        return address

    def __exit__(self, *exc: object) -> None:
        for server in self._started.values():
            server.signal(signal.SIGKILL)  # nothing to wait for
            server.stop()


class Scene:
    """A home with its store and a worker at work on it, which ends with the block.

    ``own_failures``: what ended a run that nobody here had killed.
    """

    def __init__(self, settings: Settings, store: Store):
        self.settings, self.store = settings, store
        self.own_failures: list[str] = []
        self._worker: subprocess.Popen[bytes] | None = None
        self._workers: set[int] = set()
        self._struck: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        self.start_worker()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end_worker()
        for run in self.store.runs(statuses=("running", "stalled")):
            if run.pid and run.pid not in self._workers and _alive(run.pid):
                os.killpg(run.pid, signal.SIGKILL)

    def start_worker(self) -> None:
        with (self.settings.home / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "app.soak_run"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | place_of(self.settings) | {"STEPWISER_STALLED_AFTER_S": str(STALLED_S)},
                start_new_session=True,
            )
        self._workers.add(self._worker.pid)

    def _end_worker(self) -> None:
        if self._worker is not None and self._worker.poll() is None:
            self._worker.kill()
            self._worker.wait()

    def kill_worker(self) -> None:
        """Kill it alone, so that its run goes on, and start another one."""
        self._end_worker()
        self.start_worker()

    def under_way(self, run_id: int) -> RunRow | None:
        """The run once its process is there, resumed if it was down; None: it is done."""
        last = time.monotonic() + LONGEST_S
        while time.monotonic() < last:
            run = self.store.run(run_id)
            alive = run.pid is not None and _alive(
                run.pid
            )  # its own process, or the worker that is starting it
            if run.status == "done":
                return None
            if run.status == "running" and alive and run.pid not in self._workers:
                return run
            if run.status in ("failed", "stalled", "stopped") and not alive:
                if (run_id, run.attempt) not in self._struck:
                    self.own_failures.append(f"attempt {run.attempt}: {run.error or run.status}")
                self.store.resume_run(run_id)
            time.sleep(LOOK_S)
        raise RunError(f"run {run_id} was not at work after {LONGEST_S:.0f} s; {self._logs(run_id)}")

    def reaches(self, run: RunRow, rows: int) -> bool:
        """Wait until so many rollouts are committed. False: the run ended before."""
        return self._wait(run, lambda: last_rollout(self.store) >= rows)

    def dies(self, run: RunRow, order: Order) -> bool:
        """Wait until the run has followed its order. False: it ended before."""
        self._struck.add((run.id, run.attempt))
        order.write(self.settings.home)
        return self._wait(run, lambda: not _alive(run.pid or 0))

    def kill(self, run: RunRow) -> None:
        assert run.pid is not None
        self._struck.add((run.id, run.attempt))
        os.kill(run.pid, signal.SIGKILL)
        while _alive(run.pid):
            time.sleep(LOOK_S)

    def _wait(self, run: RunRow, until: Callable[[], bool]) -> bool:
        last = time.monotonic() + LONGEST_S
        while time.monotonic() < last:
            ended = self.store.run(run.id).status == "done" or not _alive(run.pid or 0)
            if until():
                return self.store.run(run.id).status != "done"
            if ended:
                return False
            time.sleep(LOOK_S)
        raise RunError(f"run {run.id} came no further in {LONGEST_S:.0f} s; {self._logs(run.id)}")

    def _logs(self, run_id: int) -> str:
        return f"see {log_path(self.settings, run_id)} and {self.settings.home / 'worker.log'}"


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
