"""What a store holds of rollouts and labels, row by row in an order that does not depend on luck: to compare two
stores, or one store before and after a disaster. Not: what any of it means, or whether it is sound (check).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, func, select

from db.session import columns
from db.store import Store
from db.tables import ChunkLabel, Prefix, Rollout, RolloutText


@dataclass(frozen=True)
class StoredRollout:
    """One rollout, named by its prefix's key and draw; ``id`` is its row's."""

    id: int
    key: str
    draw: int
    outcome: str
    n_tokens: int
    text: str
    answer: str | None
    finish_reason: str
    seed: int
    note: str | None


def last_rollout(store: Store) -> int:
    """The id of the newest committed rollout; 0: there is none."""
    with store.read() as db:
        return db.scalar(select(func.max(Rollout.id))) or 0


def rollouts(store: Store) -> list[StoredRollout]:
    """Every committed rollout in the order of its row."""
    with store.read() as db:
        return list(_rollouts(db))


def _rollouts(db: Connection) -> Iterator[StoredRollout]:
    query = select(*columns(StoredRollout, Rollout, RolloutText, Prefix))
    query = query.join(RolloutText, RolloutText.rollout_id == Rollout.id)
    query = query.join(Prefix, Prefix.id == Rollout.prefix_id).order_by(Rollout.id)
    for row in db.execute(query.execution_options(yield_per=2000)):
        yield StoredRollout(*row)


def digests(store: Store, marks: Sequence[int] = ()) -> dict[int, str]:
    """{last row id: hash of every rollout up to it}: for each of ``marks``, and for what is there now.

    A row that was lost, changed, or slipped in among older ones changes the hash of every mark behind it.
    """
    wanted, found, last = sorted(set(marks)), {}, 0
    hashed = hashlib.sha256()
    with store.read() as db:
        for row in _rollouts(db):
            while wanted and wanted[0] < row.id:
                found[wanted.pop(0)] = hashed.hexdigest()
            hashed.update(repr(tuple(getattr(row, field.name) for field in fields(row))).encode())
            last = row.id
    return found | dict.fromkeys((*wanted, last), hashed.hexdigest())


def labels(store: Store) -> list[tuple[Any, ...]]:
    """Every chunk's label and the counts it was made from, in the order of chunks."""
    with store.read() as db:
        table = ChunkLabel.__table__
        return [tuple(row) for row in db.execute(select(*table.c).order_by(table.c.chunk_id))]
