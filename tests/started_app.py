"""``stepwiser app`` as a user starts it, for the tests that go whole ways in a browser: pages, worker and sample."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from db.rows import RunRow
from db.store import Store, open_store
from tests.browser_support import free_port, settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class App:
    """``stepwiser app`` as a user starts it; ``facts`` carries ids from test to test."""

    url: str
    home: Path
    store: Store
    process: subprocess.Popen[bytes]
    facts: dict[str, Any] = field(default_factory=dict)

    def wait_for_run(self, run_id: int, seconds: float = 420) -> RunRow:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            run = self.store.run(run_id)
            if run.status in ("done", "failed", "stopped"):
                log = self.home / "logs" / f"run-{run_id}.log"
                assert run.status == "done", f"{run.error}\n{log.read_text(errors='replace')[-4000:]}"
                return run
            time.sleep(0.3)
        raise AssertionError(f"run {run_id} is still {self.store.run(run_id).status}")


@contextmanager
def started_app(home: Path) -> Iterator[App]:
    """Start it below ``home`` and wait until it answers; it is ended at the end, whatever happened."""
    port = free_port()
    env = {k: v for k, v in os.environ.items() if not k.startswith("STEPWISER_")}
    env |= {"STEPWISER_HOME": str(home), "STEPWISER_ACTOR": "ada"}
    with (home / "app.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "app", "--port", str(port)],
            cwd=ROOT,
            env=env,
            stdout=log,
            stderr=log,
        )
    store = None
    try:
        deadline = time.monotonic() + 300  # only a hang should end it
        while "StepWiser Studio is at" not in (said := (home / "app.log").read_text(errors="replace")):
            assert process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.2)
        store = open_store(f"sqlite:///{home / 'stepwiser.db'}")
        yield App(f"http://127.0.0.1:{port}", home, store, process)
    finally:
        if process.poll() is None:
            process.terminate()  # its run is stopped first
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
        if store is not None:
            store.close()


def start_run(page: Page, app: App) -> int:
    """Press Start on the form that is open; returns the run's id, which the address then names."""
    page.get_by_role("button", name=re.compile(r"^(\S+ )?Start:")).click()
    page.wait_for_url(re.compile(r"[?&]run=\d+"), timeout=120_000)
    settled(page)
    return int(re.search(r"[?&]run=(\d+)", page.url).group(1))


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
