"""A rollout run in a process of its own that kills itself (-9): after a number of committed rows, between batches or
inside a transaction. ``python -m tests.kill_run FOLDER KILL_AFTER inside|between``; KILL_AFTER 0 never kills."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import event

from db.store import open_store
from engine.pipeline.rolling import roll_out
from tests import little_world as little

DRAWS = 16


def main(folder: Path, kill_after: int, where: str) -> None:
    store = open_store(f"sqlite:///{folder / 'little.db'}")
    written = {"rows": 0}
    fatal = "INSERT INTO rollout_texts" if where == "inside" else "INSERT INTO rollouts"

    def before(
        conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
    ) -> None:
        if kill_after and written["rows"] >= kill_after and statement.startswith(fatal):
            os.kill(os.getpid(), signal.SIGKILL)
        if statement.startswith("INSERT INTO rollouts"):
            written["rows"] += max(1, len(context.compiled_parameters or ()))

    event.listen(store.engine, "before_cursor_execute", before)
    roll_out(
        little.context(store, little.rollout_recipe(m=DRAWS), folder), little.scripted_policy(in_flight=64)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
