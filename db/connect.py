"""Opening a store by URL. SQLite on a local disk (never NFS) by default, PostgreSQL through psycopg.

SQLite: WAL (readers never wait for the writer), foreign keys on, a busy timeout, and every write transaction
begins IMMEDIATE: a deferred one that upgrades from read to write fails at once in spite of the timeout.
``sqlite:///file:PATH?mode=ro&uri=true`` opens a store read-only. Not: the schema (migrate.py).
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError

from db.errors import StoreError, StoreUnreachableError, store_errors

BUSY_TIMEOUT_S = 30.0
RETRY_S = 0.001
CASEFOLD = "casefold"
"""SQL function of every SQLite connection: a text without differences of case, in any script (``str.casefold``)."""
WRITE = "store_write"
"""Execution option of a connection whose transactions write."""


def store_name(url: str | URL) -> str:
    """The store as messages name it: its URL without the password."""
    return f"store {make_url(url).render_as_string(hide_password=True)}"


def connect(url: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Engine:
    """Open the store at ``url`` and check that it answers.

    Raises StoreUnreachableError for a bad URL, a missing folder or server, or a database in memory (other
    processes could not see it); the schema is not looked at.
    """
    with store_errors(f"store {url.split('@')[-1]}"):
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            engine = _sqlite(parsed, busy_timeout_s)
        elif parsed.get_backend_name() == "postgresql":
            engine = _postgres(parsed, busy_timeout_s)
        else:
            raise StoreUnreachableError(
                f"{store_name(parsed)}: only sqlite:///PATH and postgresql://… are supported"
            )
    with store_errors(store_name(parsed)), engine.connect():
        return engine


def is_read_only(url: str | URL) -> bool:
    """True for an SQLite URL with ``mode=ro`` or ``immutable=1``."""
    query = make_url(url).query
    return query.get("mode") == "ro" or query.get("immutable") == "1"


def _sqlite(url: URL, busy_timeout_s: float) -> Engine:
    if url.database in (None, "", ":memory:") or "mode=memory" in str(url):
        raise StoreUnreachableError(
            "a store in memory cannot be shared by pages, worker and runs: give a file, sqlite:///PATH"
        )
    engine = create_engine(url, connect_args={"timeout": busy_timeout_s})
    read_only = is_read_only(url)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = (
            None  # transactions begin where `begin` below says, not where sqlite3 guesses
        )
        connection.execute("PRAGMA foreign_keys = ON")
        connection.create_function(CASEFOLD, 1, _casefold, deterministic=True)
        if not read_only:
            _write_ahead(connection, busy_timeout_s, store_name(url))

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(WRITE, False):
            _begin_write(connection, busy_timeout_s)
        else:
            connection.exec_driver_sql("BEGIN DEFERRED")

    return engine


def _casefold(text: str | None) -> str | None:
    return None if text is None else text.casefold()


def _begin_write(connection: Connection, timeout_s: float) -> None:
    """BEGIN IMMEDIATE, tried again every millisecond until the timeout.

    SQLite's own waiting looks only every tenth of a second after a while: beside a run that writes one transaction
    after another it meets the gaps between them so seldom that a person's review waits for seconds.
    """
    until = time.monotonic() + timeout_s
    connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                return
            except OperationalError as error:
                busy = getattr(error.orig, "sqlite_errorname", "").startswith("SQLITE_BUSY")
                if not busy or time.monotonic() > until:
                    raise
            time.sleep(RETRY_S)
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(timeout_s * 1000)}")


def _write_ahead(connection: Any, timeout_s: float, name: str) -> None:
    """Switch to write-ahead logging, once in a file's life. Nobody waits for the switch but this loop."""
    until = time.monotonic() + timeout_s
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            if mode != "wal":
                raise StoreError(
                    f"{name}: write-ahead logging is not available here (journal mode {mode!r}); "
                    "put the file on a local disk, not a network share"
                )


def _postgres(url: URL, busy_timeout_s: float) -> Engine:
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    options = f"-c lock_timeout={int(busy_timeout_s * 1000)} -c timezone=UTC"
    try:
        return create_engine(url, connect_args={"options": options}, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise StoreUnreachableError(
            f"{store_name(url)} needs psycopg, which is not installed: pip install 'stepwiser-studio[postgres]'"
        ) from error
