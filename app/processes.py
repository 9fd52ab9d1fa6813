"""A run's own process: start it, pass a stop on, clear up behind it. The worker and plans share it.

Not: which run is next (``app.worker``, ``app.plans``) or what the run does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.settings import Settings
from db.rows import RunRow
from db.store import Store

MODULE = "app.worker"
"""What a run's own process executes: ``python -m MODULE run ID ATTEMPT``."""
STOP_GRACE_S = 90.0


def log_path(settings: Settings, run_id: int) -> Path:
    return settings.logs / f"run-{run_id}.log"


@dataclass
class Child:
    """A run's process and since when it was asked to stop (monotonic seconds)."""

    run_id: int
    process: subprocess.Popen[bytes]
    stop_since: float | None = None


def start_process(settings: Settings, run: RunRow, env: dict[str, str] | None = None) -> Child:
    """Start a claimed run in a process group of its own; what it prints goes to its log. ``env``: more variables."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    place = {"STEPWISER_HOME": str(settings.home), "STEPWISER_DATABASE_URL": settings.database_url}
    with log_path(settings, run.id).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, "run", str(run.id), str(run.attempt)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | place | (env or {}),
        )
    return Child(run.id, process)


def pass_stop_on(child: Child, grace_s: float = STOP_GRACE_S) -> None:
    """Ask the process to stop; call it again and again: after ``grace_s`` seconds it is ended with its group."""
    now = time.monotonic()
    if child.stop_since is None:
        child.stop_since = now
        child.process.send_signal(signal.SIGTERM)
    elif now - child.stop_since > grace_s:
        os.killpg(child.process.pid, signal.SIGKILL)


def reap(store: Store, settings: Settings, child: Child) -> bool:
    """True once the process has ended; a run that could not say so itself is stored as failed or stopped."""
    if child.process.poll() is None:
        return False
    with suppress(ProcessLookupError):  # what a killed run left behind: graders, dataloaders
        os.killpg(child.process.pid, signal.SIGKILL)
    run, code = store.run(child.run_id), child.process.returncode
    if run.status in ("running", "stalled"):
        store.finish_run(
            run.id,
            "stopped" if child.stop_since is not None else "failed",
            error=f"its process ended with code {code} before it could say why; see {log_path(settings, run.id)}",
        )
    return True
