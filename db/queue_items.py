"""Which chunks or solutions become a queue's items, and in which order. Not: handing them out (queue_work).

Reads only, over everything that fits: seconds on a large store, once in a queue's life and outside any write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from sqlalchemy import Connection, Select, bindparam, case, func, select

from db.chunk_filter import ChunkFilter, chunk_query, confidence_column, label_column
from db.errors import NotFoundError, StoreValueError
from db.queue_rows import MOST_ITEMS, NewQueue
from db.session import batches
from db.tables import Chunk, ChunkLabel, ChunkVote, Judge, Trajectory

NEUTRAL = ("random", "reading")
"""Orders that say nothing of an item."""


@dataclass(frozen=True)
class Item:
    """``chunk_id`` None: the whole solution."""

    trajectory_id: int
    chunk_id: int | None
    known: int | None = None


@dataclass(frozen=True)
class Chosen:
    """A queue's items in order; ``first``: how many of them the order speaks of."""

    items: list[Item]
    first: int


def choose(db: Connection, new: NewQueue) -> Chosen:
    """The items of a new queue. Raises StoreValueError if nothing fits, NotFoundError for ids that there are not."""
    if new.judge_id is not None and db.scalar(select(Judge.id).where(Judge.id == new.judge_id)) is None:
        raise NotFoundError(f"there is no judge {new.judge_id}; no queue was made")
    known = known_items(db, new.mode, new.known)
    apart = {(item.trajectory_id, item.chunk_id) for item in known}
    items, first = _take(db, new, apart)
    if not items:
        raise StoreValueError("no chunk fits: no queue was made. Loosen the filter, or give other chunks")
    rng = Random(new.seed)
    if new.blind and new.order not in NEUTRAL:
        rng.shuffle(items)
    return Chosen(mix(items, known, new.known_rate, rng), first)


def known_items(db: Connection, mode: str, known: Mapping[int, int]) -> list[Item]:
    """Quality-control items from {chunk or trajectory id: what is right}, ascending by id."""
    found: list[Item] = []
    for batch in batches(sorted(known)):
        if mode == "chunk":
            query = select(Chunk.id, Chunk.trajectory_id).where(Chunk.id.in_(batch)).order_by(Chunk.id)
            found += [Item(row.trajectory_id, row.id, known[row.id]) for row in db.execute(query)]
            continue
        query = select(Trajectory.id, Trajectory.n_chunks).where(Trajectory.id.in_(batch))
        for row in db.execute(query.order_by(Trajectory.id)):
            if row.n_chunks == 0:
                raise StoreValueError(f"trajectory {row.id} has no chunks: nobody can be asked about it")
            if not -1 <= known[row.id] < row.n_chunks:
                raise StoreValueError(
                    f"trajectory {row.id} has {row.n_chunks} chunks: its first error cannot be at {known[row.id]}"
                )
            found.append(Item(row.id, None, known[row.id]))
    noun = "chunks" if mode == "chunk" else "trajectories"
    _all_there(noun, known, {item.chunk_id or item.trajectory_id for item in found})
    return found


def mix(items: list[Item], known: list[Item], rate: float, rng: Random) -> list[Item]:
    """``items`` with so many of the known ones, evenly spread, that they are ``rate`` of all."""
    if not known:
        return items
    n = min(len(known), max(1, round(len(items) * rate / (1 - rate))))
    mixed, total = list(items), len(items) + n
    for which, item in enumerate(rng.sample(known, n)):
        mixed.insert(int((which + rng.random()) * total / n), item)
    return mixed


def _take(db: Connection, new: NewQueue, apart: set[tuple[int, int | None]]) -> tuple[list[Item], int]:
    """(up to ``limit`` items that are not ``apart``, how many of them the order speaks of)."""
    items: list[Item] = []
    seen = set(apart)

    def add(rows: Iterable[tuple[int, int]]) -> None:
        for chunk_id, trajectory_id in rows:
            key = (trajectory_id, chunk_id if new.mode == "chunk" else None)
            if key not in seen:
                seen.add(key)
                items.append(Item(*key))
            if len(items) == new.limit:
                return

    fitting = _fitting(db, new)
    if new.order == "random":
        add(_shuffled(db, fitting, new.seed))
        return items, len(items)
    add(_rows(db, _speaking(fitting, new)))
    first = len(items)
    if len(items) < new.limit and not new.only and new.order != "reading":
        add(_rows(db, fitting.order_by(Chunk.trajectory_id, Chunk.idx)))
    return items, first


def _fitting(db: Connection, new: NewQueue) -> Select[Any]:
    query = chunk_query(db, new.where or ChunkFilter(), Chunk.id, Chunk.trajectory_id)
    if new.chunk_ids is None:
        return query
    ids = sorted({int(chunk_id) for chunk_id in new.chunk_ids})
    if len(ids) > MOST_ITEMS:
        raise StoreValueError(f"a queue holds at most {MOST_ITEMS:,} items, not {len(ids):,}")
    there: set[int] = set()
    for batch in batches(ids):
        there.update(db.scalars(select(Chunk.id).where(Chunk.id.in_(batch))))
    _all_there("chunks", ids, there)
    # Written into the statement: databases take 32,766 parameters, and these are numbers of ours.
    given: Any = bindparam("given", ids, expanding=True, literal_execute=True)
    return query.where(Chunk.id.in_(given))


def _all_there(noun: str, wanted: Iterable[int], there: set[int]) -> None:
    missing = [str(id_) for id_ in wanted if id_ not in there]
    if missing:
        more = " …" if len(missing) > 5 else ""
        raise NotFoundError(f"there are no {noun} {', '.join(missing[:5])}{more}; no queue was made")


def _rows(db: Connection, query: Select[Any]) -> Iterator[tuple[int, int]]:
    for row in db.execute(query):
        yield row[0], row[1]


def _shuffled(db: Connection, fitting: Select[Any], seed: int) -> list[tuple[int, int]]:
    rows = list(_rows(db, fitting.order_by(Chunk.id)))
    Random(seed).shuffle(rows)
    return rows


def _speaking(fitting: Select[Any], new: NewQueue) -> Select[Any]:
    """What the order speaks of, in its order."""
    label, confidence = label_column(new.rule), confidence_column(new.rule)
    if new.order == "reading":
        return fitting.order_by(Chunk.trajectory_id, Chunk.idx)
    if new.order == "biggest-drop":
        return fitting.where(ChunkLabel.drop.is_not(None)).order_by(ChunkLabel.drop.desc(), Chunk.id)
    if new.order == "least-confident":
        return fitting.where(confidence.is_not(None)).order_by(confidence, Chunk.id)
    votes = _votes(new)
    fitting = fitting.join(votes, votes.c.chunk_id == Chunk.id)
    if new.order == "judges-disagree":
        split = case((votes.c.plus < votes.c.minus, votes.c.plus), else_=votes.c.minus)
        return fitting.where(split > 0).order_by(split.desc(), (votes.c.plus + votes.c.minus), Chunk.id)
    against = case((label == "+", votes.c.minus), (label == "-", votes.c.plus), else_=0)
    agreeing = votes.c.plus + votes.c.minus - against
    if new.rule == "rel-ratio":  # kept for every trajectory at that rule: most are ruled out at once
        fitting = fitting.where(Trajectory.n_disagree > 0)
    if new.order == "label-noise":
        return fitting.where(against > 0, agreeing == 0).order_by(
            votes.c.margin.desc(), against.desc(), Chunk.id
        )
    return fitting.where(against > 0).order_by(
        against.desc(), func.coalesce(confidence, 0.0).desc(), Chunk.id
    )


def _votes(new: NewQueue) -> Any:
    """Per chunk: judges for ``+`` and for ``-``, and their mean margin (how sure they are), of 0..1."""
    margin = func.abs(ChunkVote.positive - ChunkVote.negative) * 1.0 / ChunkVote.total
    query = select(
        ChunkVote.chunk_id,
        func.sum(case((ChunkVote.verdict == "positive", 1), else_=0)).label("plus"),
        func.sum(case((ChunkVote.verdict == "negative", 1), else_=0)).label("minus"),
        func.avg(margin).label("margin"),
    ).where(ChunkVote.verdict.is_not(None))
    if new.judge_id is not None and new.order != "judges-disagree":
        query = query.where(ChunkVote.judge_id == new.judge_id)
    return query.group_by(ChunkVote.chunk_id).subquery()
