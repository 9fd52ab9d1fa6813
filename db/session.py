"""Short sessions on the store: one transaction a block, database errors turned into StoreErrors.

A write block takes the store's write lock at its beginning (SQLite), so that what it reads stays true until it
commits. Never keep a block open while a stage, a page or a person is at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields
from datetime import datetime
from itertools import islice
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine, Insert, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

from db.column_types import utc_now
from db.connect import WRITE, is_read_only, store_name
from db.errors import StoreReadOnlyError, store_errors

T = TypeVar("T")
IN_LIST = 5000
"""Most values in one IN list: SQLite allows 32,766 parameters, PostgreSQL 65,535."""

LARGEST = 2**63 - 1
"""The largest whole number that a database holds."""


class StoreBase:
    """What every part of the store shares. ``read()`` and ``write()`` give a connection in a transaction.

    ``viewer``: whose eyes the reads are for; None: a command's or a run's, which see everything.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name = store_name(engine.url)
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._writer = engine.execution_options(**{WRITE: True})
        self.viewer: str | None = None

    def seen_by(self, actor: str) -> Self:
        """The same store for somebody's eyes: reads leave out what a blind queue hides from the actor (db.blind)."""
        store = copy(self)
        store.viewer = actor
        return store

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with store_errors(self.name), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        if is_read_only(self.engine.url):
            raise StoreReadOnlyError(
                f"{self.name} was opened read-only; nothing was written. Open it without mode=ro"
            )
        with store_errors(self.name), self._writer.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections; the store opens new ones when it is used again."""
        self.engine.dispose()


def insert_new(connection: Connection, table: Any) -> Insert:
    """INSERT … ON CONFLICT DO NOTHING for the connection's database: what is stored already stays as it is."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


def upsert(connection: Connection, table: Any, keys: Sequence[str], set_: Sequence[str]) -> Insert:
    """INSERT … ON CONFLICT (keys) DO UPDATE SET the named columns to the new values."""
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table)
    return statement.on_conflict_do_update(
        index_elements=list(keys), set_={name: statement.excluded[name] for name in set_}
    )


def store_now(connection: Connection) -> datetime:
    """The store's clock, by which heartbeats are compared: the server's, or this machine's for SQLite."""
    if connection.dialect.name == "sqlite":
        return utc_now()
    return connection.execute(select(func.clock_timestamp())).scalar_one()


def one_at_a_time(connection: Connection, what: str) -> None:
    """Until this transaction ends nobody else passes here with the same ``what`` (SQLite: a write block is alone)."""
    if connection.dialect.name != "sqlite":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(what, 0))))


def one_opinion_at_a_time(connection: Connection) -> None:
    """First in every write of labels, judgments, reviews or what links solutions to their values: the caches and totals
    that follow are counted from rows of other writers too, and they lock chunks and trajectories in many orders."""
    one_at_a_time(connection, "labels, judgments and reviews")


def batches(items: Iterable[T], size: int = IN_LIST) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def columns(cls: type, *tables: Any, **special: Any) -> list[Any]:
    """The columns that a row dataclass asks for, by name, from the first of ``tables`` that has it.

    ``special`` gives an expression for a field that no table has under that name.
    """
    found = []
    for field in fields(cls):
        if field.name in special:
            found.append(special[field.name].label(field.name))
            continue
        table = next(t for t in tables if field.name in _table(t).c)
        found.append(_table(table).c[field.name])
    return found


def _table(table: Any) -> Table:
    return table if isinstance(table, Table) else table.__table__


def rows_of(cls: type[T], result: Any) -> list[T]:
    """The rows of a result made with ``columns``, as instances of the dataclass."""
    return [cls(*row) for row in result]
