"""Chunks on which people disagree and nobody has decided. Not: the decision itself, a review of kind adjudication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, or_, select, true

from db.blind import not_hidden
from db.session import StoreBase, columns, rows_of
from db.tables import Chunk, ChunkOpinion, Problem, QueueItem, Trajectory

EXCERPT = 300


@dataclass(frozen=True)
class Dispute:
    """A chunk with how many say + and − and how many abstain. ``text`` and ``problem`` are cut at 300 characters."""

    chunk_id: int
    trajectory_id: int
    idx: int
    n_chunks: int
    text: str
    problem: str
    plus: int
    minus: int
    abstained: int


class DisputeReads(StoreBase):
    """Reads of the Adjudication page; what a blind queue hides from the viewer is left out."""

    def disputes(
        self, *, queue_id: int | None = None, after: int = 0, before: int | None = None, limit: int = 50
    ) -> list[Dispute]:
        """Disputed chunks in order of their ids: those above ``after``, or the last ones below ``before``."""
        chosen = columns(
            Dispute,
            ChunkOpinion,
            Chunk,
            Trajectory,
            text=func.substr(Chunk.text, 1, EXCERPT),
            problem=func.substr(Problem.text, 1, EXCERPT),
        )
        with self.read() as db:
            query = (
                _disputed(db, self.viewer, queue_id, *chosen)
                .join(Problem, Problem.id == Trajectory.problem_id)
                .limit(limit)
            )
            at = ChunkOpinion.chunk_id
            if before is not None:
                rows = rows_of(Dispute, db.execute(query.where(at < before).order_by(at.desc())))
                return rows[::-1]
            return rows_of(Dispute, db.execute(query.where(at > after).order_by(at)))

    def count_disputes(self, *, queue_id: int | None = None, stop: int = 1000) -> int:
        """How many there are, counted up to ``stop`` + 1 (shown as "1,000+")."""
        with self.read() as db:
            found = _disputed(db, self.viewer, queue_id, ChunkOpinion.chunk_id).limit(stop + 1).subquery()
            return db.execute(select(func.count()).select_from(found)).scalar_one()


def _disputed(db: Connection, viewer: str | None, queue_id: int | None, *chosen: Any) -> Select[Any]:
    query = (
        select(*chosen)
        .select_from(ChunkOpinion)
        .join(Chunk, Chunk.id == ChunkOpinion.chunk_id)
        .join(Trajectory, Trajectory.id == Chunk.trajectory_id)
        .where(ChunkOpinion.disputed == true(), *not_hidden(db, viewer, Trajectory.id))
    )
    if queue_id is not None:
        item = QueueItem.queue_id == queue_id
        alone = select(QueueItem.chunk_id).where(item, QueueItem.chunk_id.is_not(None))
        whole = select(QueueItem.trajectory_id).where(item, QueueItem.chunk_id.is_(None))
        query = query.where(or_(Chunk.id.in_(alone), Chunk.trajectory_id.in_(whole)))
    return query
