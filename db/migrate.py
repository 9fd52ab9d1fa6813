"""The schema's version: bring a store up to date, or say that it is not. Not: the revisions (migrations/versions)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from db.connect import WRITE, is_read_only, store_name
from db.errors import UPGRADE, StoreOutdatedError, StoreReadOnlyError, store_errors
from db.session import one_at_a_time
from db.tables import Base

FULL_TEXT = ("problem_fts", "chunk_fts", "rationale_fts", "comment_fts")
"""The full-text tables (SQLite) and, with a suffix, the tables that they keep for themselves."""


def _ours(name: str | None, kind: str, _parent: Any) -> bool:
    """Which tables Alembic compares: not those of the full-text search, which tables.py cannot express."""
    return not (kind == "table" and name is not None and name.startswith(FULL_TEXT))


CONFIGURE: dict[str, Any] = {
    "target_metadata": Base.metadata,
    "render_as_batch": True,
    "compare_type": True,
    "include_name": _ours,
}
"""How every Alembic context of this store is set up: SQLite alters tables by copying them (batch mode)."""


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's settings without an ini file; a developer's ``revision --autogenerate`` uses them too."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def head_revision() -> str:
    """The revision that this code works with."""
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    assert head is not None, "the package has lost its migrations"
    return head


def current_revision(engine: Engine) -> str | None:
    """The store's revision; None for one that has no schema yet."""
    with store_errors(store_name(engine.url)), engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: Engine) -> tuple[str | None, str]:
    """Bring the store to this code's revision in one transaction. Returns the revisions before and after.

    Raises StoreOutdatedError if a newer version of the program made the store.
    """
    head, before = head_revision(), current_revision(engine)
    _refuse_newer(engine, before)
    if before == head:
        return before, head
    if is_read_only(engine.url):
        raise StoreReadOnlyError(
            f"{store_name(engine.url)} was opened read-only and its schema is not up to date"
        )
    writer = engine.execution_options(**{WRITE: True})
    with store_errors(store_name(engine.url)), writer.begin() as connection:
        one_at_a_time(connection, "upgrade")
        command.upgrade(alembic_config(connection), "head")
    return before, head


def check_current(engine: Engine) -> None:
    """Raises StoreOutdatedError unless the store has exactly this code's revision."""
    current = current_revision(engine)
    _refuse_newer(engine, current)
    if current is None:
        raise StoreOutdatedError(f"{store_name(engine.url)} is empty (no schema yet): {UPGRADE}")
    if current != head_revision():
        raise StoreOutdatedError(
            f"{store_name(engine.url)} has schema {current}, this version needs {head_revision()}: {UPGRADE}"
        )


def _refuse_newer(engine: Engine, revision: str | None) -> None:
    script = ScriptDirectory.from_config(alembic_config())
    if revision is not None and revision not in {known.revision for known in script.walk_revisions()}:
        raise StoreOutdatedError(
            f"{store_name(engine.url)} has schema {revision}, which this version does not know: a newer version "
            "made it. Update this installation, or give another store"
        )
