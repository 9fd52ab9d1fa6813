"""A worker whose runs can be told to kill themselves with signal 9 inside a transaction: ``stepwiser soak`` starts it.

``python -m app.soak_run`` is the worker and ``python -m app.soak_run run ID ATTEMPT`` a run's own process, both as in
``app.worker``. When, is read from a file in the home; without that file they are an ordinary worker and run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import app.processes
import app.worker
from app.settings import get_settings
from db.watch import watch_writes

ORDER = "soak-kill.json"


@dataclass(frozen=True)
class Order:
    """Die in this attempt, once ``rows`` more rollouts are committed: before that statement of write transactions (1 is
    the first; they may lie in several transactions), or with 0 when the next transaction is about to commit."""

    attempt: int
    rows: int
    statement: int

    def write(self, home: Path) -> None:
        """Whole or not at all: the run may be reading."""
        new = home / f"{ORDER}.new"
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        new.replace(home / ORDER)


class Doom:
    """Counts what is committed, and ends this process when its order says so."""

    def __init__(self, home: Path, attempt: int):
        self._file, self._attempt = home / ORDER, attempt
        self._read_at, self._order = 0, Order(0, 0, 0)
        self._rows = self._statements = 0
        self._lock = threading.Lock()  # the heartbeat writes from a thread of its own

    def watch(self) -> None:
        """Listen to every store that this process opens."""
        watch_writes(self._before, self._at_commit)

    def _due(self) -> bool:
        return self._order.attempt == self._attempt and self._rows >= self._order.rows

    def _before(self, statement: str, rows: int) -> None:
        with self._lock:
            if self._due() and self._order.statement:
                self._statements += 1
                if self._statements == self._order.statement:
                    _die()
            if statement.startswith("INSERT INTO rollouts"):
                self._rows += rows

    def _at_commit(self) -> None:
        with self._lock:
            if self._due() and not self._order.statement:
                _die()
            self._look()

    def _look(self) -> None:
        """Read the order if there is a new one."""
        try:
            written = self._file.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if written != self._read_at:
            self._read_at, self._rows, self._statements = written, 0, 0
            self._order = Order(**json.loads(self._file.read_text(encoding="utf-8")))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> int:
    app.processes.MODULE = "app.soak_run"
    if arguments[:1] == ["run"]:
        Doom(get_settings().home, int(arguments[2])).watch()
    return app.worker.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
