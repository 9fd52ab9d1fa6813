"""What a blind queue hides from those who work in it. Not: which fields are hidden; every read says so beside its query.

Whoever has begun to work in an open blind queue is not shown values, labels, verdicts, rationales, rollouts, others'
reviews, outcome or answer of a solution, while it has an item of that queue that they still may be asked about: one
that they have not answered (skipping does not release it), except where as many others as the queue asks for did.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Select, exists, false, or_, select, true

from db.session import batches
from db.tables import Assignment, Chunk, Queue, QueueItem, QueueMember, Trajectory

HIDDEN = "hidden"
"""Stands where an outcome would."""


def is_blind(db: Connection, viewer: str | None) -> bool:
    """Whether anything at all may be hidden from the viewer: they work in a blind queue that is open."""
    if viewer is None:
        return False
    query = (
        select(QueueMember.queue_id)
        .join(Queue, Queue.id == QueueMember.queue_id)
        .where(QueueMember.actor == viewer, Queue.blind == true(), Queue.closed_at.is_(None))
    )
    return db.execute(query.limit(1)).first() is not None


def hidden_query(viewer: str) -> Select[Any]:
    """Ids of the trajectories that are hidden from the viewer; a trajectory may occur more than once."""
    own = Assignment.__table__.alias("own")
    mine = (own.c.item_id == QueueItem.id) & (own.c.actor == viewer)
    done = exists().where(mine, own.c.status == "done")
    in_hand = exists().where(mine, own.c.status == "open")
    return (
        select(QueueItem.trajectory_id)
        .join(Queue, Queue.id == QueueItem.queue_id)
        .join(QueueMember, (QueueMember.queue_id == Queue.id) & (QueueMember.actor == viewer))
        .where(Queue.blind == true(), Queue.closed_at.is_(None))
        .where(~done, or_(QueueItem.settled == false(), in_hand))
    )


def not_hidden(db: Connection, viewer: str | None, trajectory_id: Any) -> list[Any]:
    """Conditions that leave hidden trajectories out of a query; none where nothing is hidden from the viewer."""
    if viewer is None or not is_blind(db, viewer):
        return []
    return [trajectory_id.not_in(hidden_query(viewer))]


def hidden(db: Connection, viewer: str | None, trajectory_ids: Iterable[int]) -> set[int]:
    """Those of the trajectories that are hidden from the viewer."""
    found: set[int] = set()
    if viewer is None or not is_blind(db, viewer):
        return found
    for batch in batches(trajectory_ids):
        found.update(db.scalars(hidden_query(viewer).where(QueueItem.trajectory_id.in_(batch))))
    return found


def hidden_chunks(db: Connection, viewer: str | None, chunk_ids: Iterable[int]) -> set[int]:
    """Those of the chunks whose trajectory is hidden from the viewer."""
    found: set[int] = set()
    if viewer is None or not is_blind(db, viewer):
        return found
    for batch in batches(chunk_ids):
        query = select(Chunk.id).where(Chunk.id.in_(batch), Chunk.trajectory_id.in_(hidden_query(viewer)))
        found.update(db.scalars(query))
    return found


def hidden_problems(db: Connection, viewer: str | None, problem_ids: Iterable[int]) -> set[int]:
    """Those of the problems of which some solution is hidden: their reference answer would give it away."""
    found: set[int] = set()
    if viewer is None or not is_blind(db, viewer):
        return found
    for batch in batches(problem_ids):
        query = select(Trajectory.problem_id).where(
            Trajectory.problem_id.in_(batch), Trajectory.id.in_(hidden_query(viewer))
        )
        found.update(db.scalars(query))
    return found


def hidden_with_siblings(db: Connection, viewer: str | None, trajectory_ids: Iterable[int]) -> set[int]:
    """Those of the trajectories that are hidden from the viewer, or are solutions of a problem with a hidden one."""
    found: set[int] = set()
    if viewer is None or not is_blind(db, viewer):
        return found
    problems = select(Trajectory.problem_id).where(Trajectory.id.in_(hidden_query(viewer)))
    for batch in batches(trajectory_ids):
        query = select(Trajectory.id).where(Trajectory.id.in_(batch), Trajectory.problem_id.in_(problems))
        found.update(db.scalars(query))
    return found


def hidden_prefixes(db: Connection, viewer: str | None, prefix_ids: Iterable[int]) -> set[int]:
    """Those of the prefixes that a hidden solution starts from or passes through, shared with others or not."""
    found: set[int] = set()
    if viewer is None or not is_blind(db, viewer):
        return found
    for batch in batches(prefix_ids):
        which = hidden_query(viewer)
        ends = select(Chunk.prefix_id).where(Chunk.prefix_id.in_(batch), Chunk.trajectory_id.in_(which))
        starts = [
            select(column).where(column.in_(batch), Trajectory.id.in_(which))
            for column in (Trajectory.prefix_id, Trajectory.value_prefix_id)
        ]
        for query in (ends, *starts):
            found.update(db.scalars(query))
    return found
