"""Is the store sound? Foreign keys, orphans, texts that do not rejoin, gaps in draws, review chains, totals,
and what rows keep of others (check_caches).

Reads only; full scans, so it takes a while on a large store. Repairs nothing (``Store.rebuild_totals`` recounts).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Connection, func, literal_column, select, table, text

from db.check_caches import CACHES
from db.findings import EXAMPLES, Finding
from db.migrate import FULL_TEXT
from db.session import batches
from db.store import Store
from db.tables import (
    Chunk,
    Judgment,
    Problem,
    Review,
    Rollout,
    RolloutText,
    Total,
    Trajectory,
    TrajectoryText,
)
from db.totals import head_of_chain, recount


def check(store: Store) -> list[Finding]:
    """All findings, at most 20 of a kind; none: the store is sound. Raises StoreError if it cannot be read."""
    found: list[Finding] = []
    with store.read() as db:
        for findings in (
            _foreign_keys(db),
            _orphans(db),
            _full_text(db),
            _rejoin(db),
            _gaps(db),
            _chains(db),
            *(findings(db) for findings in CACHES),
            _totals(db),
        ):
            found += islice(findings, EXAMPLES)
    return found


def _foreign_keys(db: Connection) -> Iterator[Finding]:
    if db.dialect.name != "sqlite":  # PostgreSQL enforces them whoever writes
        return
    for name, row, parent, _ in db.execute(text("PRAGMA foreign_key_check")):
        yield Finding("foreign key", f"{name} {row}", f"points to a row of {parent} that does not exist")


def _orphans(db: Connection) -> Iterator[Finding]:
    pairs: list[tuple[Any, Any]] = [
        (Trajectory, TrajectoryText.trajectory_id),
        (Rollout, RolloutText.rollout_id),
    ]
    for owner, key in pairs:
        query = select(owner.id).outerjoin_from(owner, key.class_, key == owner.id).where(key.is_(None))
        for id_ in db.scalars(query.limit(EXAMPLES)):
            yield Finding("orphan", f"{owner.__tablename__} {id_}", "has no text")
    counted = (
        select(Trajectory.id, Trajectory.n_chunks, func.count(Chunk.id).label("n"))
        .outerjoin(Chunk, Chunk.trajectory_id == Trajectory.id)
        .group_by(Trajectory.id, Trajectory.n_chunks)
        .having(Trajectory.n_chunks != func.count(Chunk.id))
    )
    for id_, said, n in db.execute(counted.limit(EXAMPLES)):
        yield Finding("orphan", f"trajectories {id_}", f"says it has {said} chunks and has {n}")


def _full_text(db: Connection) -> Iterator[Finding]:
    if db.dialect.name != "sqlite":
        return
    owners: tuple[Any, ...] = (Problem, Chunk, Judgment, Review)
    for index, owner in zip(FULL_TEXT, owners, strict=True):
        indexed: Any = select(literal_column("id")).select_from(table(f"{index}_docsize"))
        for id_ in db.scalars(select(owner.id).where(owner.id.not_in(indexed)).limit(EXAMPLES)):
            yield Finding("full text", f"{owner.__tablename__} {id_}", "is not in the search index")


def _rejoin(db: Connection) -> Iterator[Finding]:
    for batch in batches(list(db.scalars(select(Trajectory.id).order_by(Trajectory.id))), 500):
        joined: dict[int, list[str]] = {id_: [] for id_ in batch}
        query = select(Chunk.trajectory_id, Chunk.lead + Chunk.text + Chunk.close)
        query = query.where(Chunk.trajectory_id.in_(batch)).order_by(Chunk.trajectory_id, Chunk.idx)
        for id_, piece in db.execute(query):
            joined[id_].append(piece)
        texts = select(TrajectoryText.trajectory_id, TrajectoryText.text, TrajectoryText.tail)
        for id_, whole, tail in db.execute(texts.where(TrajectoryText.trajectory_id.in_(batch))):
            if "".join(joined[id_]) + tail != whole:
                yield Finding("rejoin", f"trajectories {id_}", "chunks and tail do not give its text back")


def _gaps(db: Connection) -> Iterator[Finding]:
    groups: list[tuple[Any, tuple[Any, ...]]] = [
        (Rollout, (Rollout.prefix_id,)),
        (Trajectory, (Trajectory.prefix_id,)),
        (Judgment, (Judgment.judge_id, Judgment.chunk_id)),
    ]
    for owner, keys in groups:
        query = select(*keys, func.count(), func.max(owner.draw) + 1).where(owner.draw.is_not(None))
        query = query.group_by(*keys).having(func.max(owner.draw) + 1 != func.count())
        for *ids, n, last in db.execute(query.limit(EXAMPLES)):
            names = ", ".join(f"{key.key} {id_}" for key, id_ in zip(keys, ids, strict=True))
            yield Finding(
                "gap in draws",
                f"{owner.__tablename__}, {names}",
                f"{n} draws of {last}: those behind the gap do not count; run it again to fill the gap",
            )


def _chains(db: Connection) -> Iterator[Finding]:
    twice = select(Review.supersedes).where(Review.supersedes.is_not(None)).group_by(Review.supersedes)
    for id_ in db.scalars(twice.having(func.count() > 1).limit(EXAMPLES)):
        yield Finding("review chain", f"reviews {id_}", "is superseded twice")
    heads = select(Review.actor, Review.chunk_id, func.count()).where(head_of_chain())
    heads = heads.group_by(Review.actor, Review.chunk_id).having(func.count() > 1)
    for actor, chunk_id, n in db.execute(heads.limit(EXAMPLES)):
        yield Finding("review chain", f"chunks {chunk_id}", f"{actor} has {n} chains on it instead of one")
    above = Review.__table__.alias("above")
    strays = (
        select(Review.id)
        .join(above, above.c.id == Review.supersedes)
        .where((above.c.actor != Review.actor) | (above.c.chunk_id != Review.chunk_id))
    )
    for id_ in db.scalars(strays.limit(EXAMPLES)):
        yield Finding("review chain", f"reviews {id_}", "supersedes a review of another person or chunk")


def _totals(db: Connection) -> Iterator[Finding]:
    rows = db.execute(select(Total.name, Total.key, Total.n, Total.amount).where(Total.n != 0))
    stored = {(name, key): (n, amount) for name, key, n, amount in rows}
    real = recount(db)
    for name, key in sorted(stored.keys() | real.keys()):
        (n, amount), (real_n, real_amount) = (
            stored.get((name, key), (0, 0.0)),
            real.get((name, key), (0, 0.0)),
        )
        if n != real_n or abs(amount - real_amount) > 1e-6 * max(1.0, abs(real_amount)):
            yield Finding(
                "total", f"{name} {key}", f"says {n} ({amount:.4f}), counted {real_n} ({real_amount:.4f})"
            )
