"""The caches that hold labels, and what a trajectory's row repeats of them for sorting. All of it can be rebuilt.

Not: how a label follows from counts (engine.labels).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, select, update

from db.blind import hidden_chunks
from db.crossings import OF_LABELS, kept
from db.rows import Label
from db.session import StoreBase, batches, columns, one_opinion_at_a_time, rows_of, upsert
from db.tables import Chunk, ChunkLabel, ChunkVote, Judgment, Trajectory
from db.totals import LABEL_RULES, NO_VERDICT, Delta, count_drop

_FIELDS = [f.name for f in fields(Label)]


class LabelsStore(StoreBase):
    """Labels at default parameters; under moved parameters they follow from the counts, without the store."""

    def put_labels(self, rows: Iterable[Label]) -> None:
        """Store or replace chunks' values and labels, with the totals and their trajectories' caches."""
        for batch in batches(rows, 2000):
            with self.write() as db:
                one_opinion_at_a_time(db)
                _put(db, {row.chunk_id: row for row in batch})

    def labels(self, chunk_ids: Iterable[int]) -> dict[int, Label]:
        """{chunk id: values and labels}; a chunk that has none is left out."""
        found: dict[int, Label] = {}
        with self.read() as db:
            for batch in batches(chunk_ids):
                away = hidden_chunks(db, self.viewer, batch)
                query = select(*columns(Label, ChunkLabel)).where(ChunkLabel.chunk_id.in_(set(batch) - away))
                found |= {row.chunk_id: row for row in rows_of(Label, db.execute(query))}
        return found


def _put(db: Connection, rows: dict[int, Label]) -> None:
    if not rows:
        return
    watched = (*LABEL_RULES, "drop")
    positions: dict[int, int] = {}
    trajectories: set[int] = set()
    delta = Delta()
    for batch in batches(rows):
        for chunk_id, trajectory_id, idx in db.execute(
            select(Chunk.id, Chunk.trajectory_id, Chunk.idx).where(Chunk.id.in_(batch))
        ):
            positions[chunk_id] = idx
            trajectories.add(trajectory_id)
    chosen = [ChunkLabel.chunk_id, *(getattr(ChunkLabel, name) for name in watched)]
    statement = upsert(db, ChunkLabel, ["chunk_id"], [name for name in _FIELDS if name != "chunk_id"])
    with kept(db, rows, OF_LABELS):
        for batch in batches(rows):  # only in here nobody else changes them
            for old in db.execute(select(*chosen).where(ChunkLabel.chunk_id.in_(batch))):
                _count(delta, positions[old.chunk_id], old, -1)
        db.execute(statement, [row.__dict__ for row in rows.values()])
    for row in rows.values():
        _count(delta, positions[row.chunk_id], row, 1)
    delta.apply(db)
    refresh_caches(db, trajectories)


def _count(delta: Delta, position: int, label: Any, sign: int) -> None:
    for rule in LABEL_RULES:
        delta.add(f"labels/{rule}", getattr(label, rule) or NO_VERDICT, sign)
    if label.drop is not None:
        count_drop(delta, position, label.drop, sign)


def refresh_caches(db: Connection, trajectory_ids: Iterable[int]) -> None:
    """Set biggest_drop, least_confidence, n_negative and n_disagree from labels and judgments."""
    statement = (
        update(Trajectory)
        .where(Trajectory.id == bindparam("which"))
        .values(
            {
                name: bindparam(name)
                for name in ("biggest_drop", "least_confidence", "n_negative", "n_disagree")
            }
        )
    )
    for batch in batches(sorted(trajectory_ids), 1000):
        against = disagreements(db, batch)
        labelled = select(
            Chunk.trajectory_id,
            func.max(ChunkLabel.drop),
            func.min(ChunkLabel.rel_ratio_conf),
            func.sum(case((ChunkLabel.rel_ratio == "-", 1), else_=0)),
            func.count(ChunkLabel.rel_ratio),
        ).join(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
        values = [
            {
                "which": trajectory_id,
                "biggest_drop": drop,
                "least_confidence": confidence,
                "n_negative": int(negative) if known else None,
                "n_disagree": against.get(trajectory_id),
            }
            for trajectory_id, drop, confidence, negative, known in db.execute(
                labelled.where(Chunk.trajectory_id.in_(batch)).group_by(Chunk.trajectory_id)
            )
        ]
        if values:
            db.execute(statement, values)


def votes_query(chunk_ids: Collection[int] | None = None, trajectory_ids: Sequence[int] | None = None) -> Any:
    """Rows (chunk_id, judge_id, positive, negative, total): how each judge voted on each chunk."""
    query = select(
        Judgment.chunk_id,
        Judgment.judge_id,
        func.sum(case((Judgment.verdict == "positive", 1), else_=0)).label("positive"),
        func.sum(case((Judgment.verdict == "negative", 1), else_=0)).label("negative"),
        func.count().label("total"),
    ).group_by(Judgment.chunk_id, Judgment.judge_id)
    if chunk_ids is not None:
        query = query.where(Judgment.chunk_id.in_(chunk_ids))
    if trajectory_ids is not None:
        query = query.join(Chunk, Chunk.id == Judgment.chunk_id).where(
            Chunk.trajectory_id.in_(trajectory_ids)
        )
    return query


def disagreements(db: Connection, trajectory_ids: Sequence[int]) -> dict[int, int]:
    """{trajectory id: chunks on which some judge's majority contradicts rel-ratio}, where both exist at all."""
    against = ((ChunkVote.verdict == "positive") & (ChunkLabel.rel_ratio == "-")) | (
        (ChunkVote.verdict == "negative") & (ChunkLabel.rel_ratio == "+")
    )
    query = (
        select(Chunk.trajectory_id, func.count(case((against, Chunk.id)).distinct()))
        .join(ChunkVote, ChunkVote.chunk_id == Chunk.id)
        .join(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
        .where(
            Chunk.trajectory_id.in_(trajectory_ids),
            ChunkVote.verdict.is_not(None),
            ChunkLabel.rel_ratio.is_not(None),
        )
        .group_by(Chunk.trajectory_id)
    )
    return {trajectory_id: n for trajectory_id, n in db.execute(query)}
