"""A run's own process: start it, pass a stop on, clear up behind it. The worker and plans share it.

With a Ray cluster the process only sends the run there and follows it (``app.cluster_run``).
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

import psutil

from app.settings import Settings
from db.rows import RunRow
from db.store import Store
from training.hardware import launch_command
from training.parts import Hardware

MODULE = "app.worker"
"""What a run's own process executes: ``python -m MODULE run ID ATTEMPT``."""
FOLLOWER = "app.cluster_run"
"""What it executes where the run is worked on by a Ray cluster."""
PLANS = ("loop", "lab")
"""Kinds whose own process stays here: it only starts other runs, and those are sent to the cluster."""
STOP_GRACE_S = 90.0
UNSTORED_CODE = 75
"""Exit code of a run that could not store how it ended: the store was locked, or its disk full."""


def log_path(settings: Settings, run_id: int) -> Path:
    return settings.logs / f"run-{run_id}.log"


@dataclass
class Child:
    """The process of one attempt at a run, and since when it was asked to stop (monotonic seconds)."""

    run_id: int
    attempt: int
    process: subprocess.Popen[bytes]
    stop_since: float | None = None


def start_process(settings: Settings, run: RunRow, env: dict[str, str] | None = None) -> Child:
    """Start a claimed run in a process group of its own; what it prints goes to its log. ``env``: more variables."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    place = {
        "STEPWISER_HOME": str(settings.home),
        "STEPWISER_DATABASE_URL": settings.database_url,
        "STEPWISER_RAY_ADDRESS": settings.ray_address,
    }
    with log_path(settings, run.id).open("ab") as log:
        process = subprocess.Popen(
            _command(settings, run),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | place | (env or {}),
        )
    return Child(run.id, run.attempt, process)


def _command(settings: Settings, run: RunRow) -> list[str]:
    if settings.ray_address and run.kind not in PLANS:
        return [sys.executable, "-m", FOLLOWER, str(run.id), str(run.attempt), MODULE]
    return launch_command(_hardware(run), run.id, run.attempt, module=MODULE)


def _hardware(run: RunRow) -> Hardware | None:
    """The hardware part of the run's recipe; None for kinds that train nothing."""
    part = run.recipe.get("hardware")
    return Hardware.model_validate(part) if part else None


def pass_stop_on(child: Child, grace_s: float = STOP_GRACE_S) -> None:
    """Ask the process to stop; call it again and again: after ``grace_s`` seconds it is ended with its group."""
    now = time.monotonic()
    if child.stop_since is None:
        child.stop_since = now
        for process in _workers(child):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
    elif now - child.stop_since > grace_s:
        os.killpg(child.process.pid, signal.SIGKILL)


def end_at_once(child: Child) -> None:
    """Kill the process with its group, as somebody asks for who does not want to wait for the batch in hand."""
    child.stop_since = child.stop_since or time.monotonic()
    with suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)


def _workers(child: Child) -> list[psutil.Process]:
    """The processes that do the run's work: a launcher would end its own before they have saved."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(child.process.pid)
        ranks = [p for p in first.children() if "RANK" in _environment(p)]
        return ranks if ranks and "RANK" not in _environment(first) else [first]
    return []


def _environment(process: psutil.Process) -> dict[str, str]:
    with suppress(psutil.Error):
        return process.environ()
    return {}


def reap(store: Store, settings: Settings, child: Child) -> bool:
    """True once the process has ended; a run that could not say so itself is stored as failed or stopped.

    A later attempt, taken up by another worker when this one seemed dead, is left alone.
    Raises StoreError where that cannot be stored now: call it again.
    """
    if child.process.poll() is None:
        return False
    with suppress(ProcessLookupError):  # what a killed run left behind: graders, dataloaders
        os.killpg(child.process.pid, signal.SIGKILL)
    run, code = store.run(child.run_id), child.process.returncode
    if run.status in ("running", "stalled") and run.attempt == child.attempt:
        store.finish_run(
            run.id,
            "stopped" if child.stop_since is not None else "failed",
            error=f"{_ending(code, child)}; see {log_path(settings, run.id)}",
            attempt=child.attempt,
        )
    return True


def _ending(code: int, child: Child) -> str:
    if code == UNSTORED_CODE:
        return (
            "the store could not be written when the run ended (its disk full, or locked by another process): make "
            "space, or end what holds it, then resume the run; everything it had committed is there"
        )
    why = ""
    if code == -signal.SIGKILL and child.stop_since is not None:
        why = " (it was asked to stop and did not in time, so it was ended)"
    elif code == -signal.SIGKILL:
        why = " (killed: most often by the system, for want of memory)"
    return f"its process ended with code {code}{why} before it could say why"
