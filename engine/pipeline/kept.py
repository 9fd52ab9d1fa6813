"""What a run keeps in its own folder: JSON lines that survive a kill, so that the run goes on and a report recomputes.

Not for what belongs in the store.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from engine.errors import RunError
from engine.runs import RunContext


def own_folder(ctx: RunContext[Any]) -> Path:
    """The run's folder, emptied if another store's run of the same number left it there."""
    uid = ctx.store.run(ctx.run_id).uid
    folder = ctx.home / "runs" / str(ctx.run_id)
    owner = folder / "run"
    if not owner.is_file() or owner.read_text(encoding="utf-8") != uid:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        owner.write_text(uid, encoding="utf-8")
    return folder


class Kept:
    """A file of JSON lines that only grows. A last line that a kill cut off is dropped when it is opened.

    Raises RunError for a file that holds something else.
    """

    def __init__(self, path: Path):
        self.path = path
        text = path.read_bytes() if path.is_file() else b""
        whole = text[: text.rfind(b"\n") + 1]
        try:
            self.rows: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise RunError(f"{path} holds something else than JSON lines ({error}); move it away") from error
        if whole != text:
            with path.open("r+b") as file:
                file.truncate(len(whole))

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append rows, on disk when this returns."""
        new = list(rows)
        self.rows += new
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in new))
            file.flush()
            os.fsync(file.fileno())


def once(path: Path, make: Any) -> list[dict[str, Any]]:
    """The rows in ``path``; if it is not there, those that ``make()`` returns, written aside and renamed.

    What a run has chosen stays chosen when it is resumed, whatever the store has learnt meanwhile.
    """
    if not path.is_file():
        rows: Sequence[dict[str, Any]] = list(make())
        aside = path.with_suffix(".writing")
        aside.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
        os.replace(aside, path)
    return Kept(path).rows
