"""Where an index says that only few chunks can fit a filter: which ones. Not: whether each of them fits (find_store)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, select

from db.chunk_filter import ChunkFilter
from db.full_text import TEXTS, has_words, index_query, indexed_words
from db.session import batches
from db.tables import Chunk, ChunkOpinion, ChunkVote, Judgment, Problem, QueueItem, Review, Trajectory
from db.totals import in_force

FEW = 5_000
"""Chunks that are read and sorted at once, whatever the order."""


@dataclass(frozen=True)
class Few:
    """``searched``: the full-text indexes found them, so that their texts need not be read again."""

    ids: list[int]
    searched: bool = False


def few_chunks(db: Connection, where: ChunkFilter) -> Few | None:
    """The chunks that can fit, if some index shows that they are at most ``FEW``; None: it may be any."""
    if where.words and (found := _searched(db, where)) is not None:
        return Few(found, searched=True)
    for query in _sources(where):
        ids = list(db.scalars(query.limit(FEW + 1)))
        if len(ids) <= FEW:
            return Few(list(dict.fromkeys(ids)))
    return None


def _sources(where: ChunkFilter) -> Iterator[Select[Any]]:
    """Chunk ids by an index, for every part of the filter that has one; the narrowest kinds first."""
    if where.trajectory_id is not None:
        yield select(Chunk.id).where(Chunk.trajectory_id == where.trajectory_id)
    if where.queue_id is not None:
        items = QueueItem.queue_id == where.queue_id
        whole = select(QueueItem.trajectory_id).where(items, QueueItem.chunk_id.is_(None))
        of_whole = select(Chunk.id).where(Chunk.trajectory_id.in_(whole))
        own = select(QueueItem.chunk_id).where(items, QueueItem.chunk_id.is_not(None))
        yield select(own.union_all(of_whole).subquery().c[0])
    if where.flag == "any":
        yield select(ChunkOpinion.chunk_id).where(ChunkOpinion.flag.is_not(None))
    elif where.flag is not None:
        yield select(ChunkOpinion.chunk_id).where(ChunkOpinion.flag == where.flag)
    if where.disputed:
        yield select(ChunkOpinion.chunk_id).where(ChunkOpinion.disputed.is_(True))
    for reviewer in (where.reviewed_by, where.other_reviewer):
        if reviewer is not None:
            yield select(Review.chunk_id).where(Review.actor == reviewer)
    if where.people is not None or where.review is not None or where.reviewed:
        yield select(ChunkOpinion.chunk_id)
    for judge_id, verdict in ((where.judge_id, where.verdict), (where.other_judge_id, where.other_verdict)):
        if judge_id is not None:
            query = select(ChunkVote.chunk_id).where(ChunkVote.judge_id == judge_id)
            if verdict is not None:
                majority = ChunkVote.verdict
                query = query.where(majority.is_(None) if verdict == "none" else majority == verdict)
            yield query
    if where.run_id is not None:
        own = select(Trajectory.id).where(Trajectory.run_id == where.run_id).limit(FEW + 1)
        yield select(Chunk.id).where(Chunk.trajectory_id.in_(own))


def _searched(db: Connection, where: ChunkFilter) -> list[int] | None:
    """Chunks that the search finds, from the full-text indexes; None: more than ``FEW``, or no index finds them."""
    models = {"problem": Problem, "chunk": Chunk, "rationale": Judgment, "comment": Review}
    places = models if where.search_in == "anywhere" else {where.search_in: models[where.search_in]}
    found: dict[int, None] = {}
    for model in places.values():
        texts = _texts(db, where.words, model)
        if texts is None:
            return None
        for batch in batches(texts):
            found |= dict.fromkeys(db.scalars(_chunks_of(model, batch).limit(FEW + 1)))
            if len(found) > FEW:
                return None
    return list(found)


def _chunks_of(model: Any, ids: list[int]) -> Select[Any]:
    if model is Chunk:
        return select(Chunk.id).where(Chunk.id.in_(ids))
    if model is Problem:
        inside = Trajectory.id == Chunk.trajectory_id
        return select(Chunk.id).join(Trajectory, inside).where(Trajectory.problem_id.in_(ids))
    if model is Review:
        return select(Review.chunk_id).where(Review.id.in_(ids), in_force())
    return select(Judgment.chunk_id).where(Judgment.id.in_(ids))


def _texts(db: Connection, words: list[str], model: Any) -> list[int] | None:
    """Ids of the rows whose text holds every word; None: more than ``FEW``, or reading them all would take long."""
    index, column = TEXTS[model]
    by_index = indexed_words(db, words)
    rest = [word for word in words if word not in by_index]
    if by_index:
        query = index_query(index, by_index)
        ids = list(db.scalars(query.limit(FEW + 1)))
        if len(ids) > FEW or not rest:
            return ids if len(ids) <= FEW else None
        kept: list[int] = []
        for batch in batches(ids):
            kept += db.scalars(select(model.id).where(model.id.in_(batch), has_words(column, rest)))
        return kept
    if db.dialect.name == "sqlite" and model in (Chunk, Judgment):
        return None  # words too short for the index, in tables that are long
    ids = list(db.scalars(select(model.id).where(has_words(column, words)).limit(FEW + 1)))
    return ids if len(ids) <= FEW else None
