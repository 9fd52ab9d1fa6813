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
_OWN = Assignment.__table__.alias("own")


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


def hidden_query(viewer: str, *, from_queues: bool = False) -> Select[Any]:
    """Ids of the trajectories that are hidden from the viewer; a trajectory may occur more than once.

    Sought from the trajectory on (add a condition on ``QueueItem.trajectory_id``), or, ``from_queues``, all of them from
    the items of the blind queues in which the viewer works.
    """
    mine = (_OWN.c.item_id == QueueItem.id) & (_OWN.c.actor == viewer)
    done = exists().where(mine, _OWN.c.status == "done")
    in_hand = exists().where(mine, _OWN.c.status == "open")
    return (
        select(QueueItem.trajectory_id)
        # + 0: not by the index of the queue's items, of which there may be many thousands
        .join(Queue, Queue.id == (QueueItem.queue_id if from_queues else QueueItem.queue_id + 0))
        .join(QueueMember, (QueueMember.queue_id == Queue.id) & (QueueMember.actor == viewer))
        .where(Queue.blind == true(), Queue.closed_at.is_(None))
        .where(~done, or_(QueueItem.settled == false(), in_hand))
    )


def all_hidden(db: Connection, viewer: str | None) -> set[int]:
    """All trajectories that are hidden from the viewer."""
    if viewer is None or not is_blind(db, viewer):
        return set()
    return set(db.scalars(hidden_query(viewer, from_queues=True)))


def not_hidden(db: Connection, viewer: str | None, trajectory_id: Any) -> list[Any]:
    """Conditions that leave hidden trajectories out of a query; none where nothing is hidden from the viewer."""
    if viewer is None or not is_blind(db, viewer):
        return []
    return [~hidden_query(viewer).where(QueueItem.trajectory_id == trajectory_id).exists()]


def hidden(db: Connection, viewer: str | None, trajectory_ids: Iterable[int]) -> set[int]:
    """Those of the trajectories that are hidden from the viewer."""
    return _hidden(db, viewer, trajectory_ids) if viewer is not None and is_blind(db, viewer) else set()


def hidden_chunks(db: Connection, viewer: str | None, chunk_ids: Iterable[int]) -> set[int]:
    """Those of the chunks whose trajectory is hidden from the viewer."""
    return _by_trajectory(db, viewer, chunk_ids, (Chunk.id, Chunk.trajectory_id))


def hidden_problems(db: Connection, viewer: str | None, problem_ids: Iterable[int]) -> set[int]:
    """Those of the problems of which some solution is hidden: their reference answer would give it away."""
    return _by_trajectory(db, viewer, problem_ids, (Trajectory.problem_id, Trajectory.id))


def hidden_prefixes(db: Connection, viewer: str | None, prefix_ids: Iterable[int]) -> set[int]:
    """Those of the prefixes that a hidden solution starts from or passes through, shared with others or not."""
    starts = [(column, Trajectory.id) for column in (Trajectory.prefix_id, Trajectory.value_prefix_id)]
    return _by_trajectory(db, viewer, prefix_ids, (Chunk.prefix_id, Chunk.trajectory_id), *starts)


def hidden_with_siblings(db: Connection, viewer: str | None, trajectory_ids: Iterable[int]) -> set[int]:
    """Those of the trajectories that are hidden from the viewer, or are solutions of a problem with a hidden one."""
    if viewer is None or not is_blind(db, viewer):
        return set()
    problems: dict[int, int] = {}
    for batch in batches(trajectory_ids):
        query = select(Trajectory.id, Trajectory.problem_id).where(Trajectory.id.in_(batch))
        problems |= {id_: problem for id_, problem in db.execute(query)}
    away = hidden_problems(db, viewer, set(problems.values()))
    return {id_ for id_, problem in problems.items() if problem in away}


def _hidden(db: Connection, viewer: str, trajectory_ids: Iterable[int]) -> set[int]:
    found: set[int] = set()
    for batch in batches(trajectory_ids):
        found.update(db.scalars(hidden_query(viewer).where(QueueItem.trajectory_id.in_(batch))))
    return found


def _by_trajectory(
    db: Connection, viewer: str | None, ids: Iterable[int], *ways: tuple[Any, Any]
) -> set[int]:
    """Those of ``ids`` that one of the ``ways`` (column of the id, column of its trajectory) leads to a hidden one."""
    if viewer is None or not is_blind(db, viewer):
        return set()
    found: set[int] = set()
    for batch in batches(ids):
        owners = [
            pair for key, owner in ways for pair in db.execute(select(key, owner).where(key.in_(batch)))
        ]
        away = _hidden(db, viewer, {owner for _, owner in owners})
        found.update(id_ for id_, owner in owners if owner in away)
    return found
