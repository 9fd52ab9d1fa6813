"""Looking on while a process writes to its stores: for what has to happen at an exact moment of a transaction.

Not: how long anything takes, or what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, event

from db.connect import WRITE


def watch_writes(statement: Callable[[str, int], None], commit: Callable[[], None]) -> None:
    """From now on, in write transactions of every store that this process opens: ``statement`` is told each statement's
    text and number of rows before it is sent, and ``commit`` is called before each commit."""

    def before(
        connection: Connection, cursor: Any, text: str, parameters: Any, context: Any, many: bool
    ) -> None:
        begins = text.startswith(("BEGIN", "PRAGMA"))
        if connection.get_execution_options().get(WRITE) and not begins:
            statement(text, len(getattr(context, "compiled_parameters", None) or (0,)))

    def at_commit(connection: Connection) -> None:
        if connection.get_execution_options().get(WRITE):
            commit()

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "commit", at_commit)
