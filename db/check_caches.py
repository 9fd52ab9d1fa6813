"""Are the counts that rows keep of other rows right? Queues, their items and members, opinions, votes, trajectories.

Each is recomputed from what it counts. Part of ``check``; not: the totals of the whole store (totals.recount).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection, and_, case, func, or_, select

from db.findings import EXAMPLES, Finding
from db.labels_store import disagreements, votes_query
from db.opinions import kept_opinions, majority, opinions
from db.session import batches
from db.tables import (
    Assignment,
    Chunk,
    ChunkLabel,
    ChunkOpinion,
    ChunkVote,
    Queue,
    QueueItem,
    QueueMember,
    Review,
    Trajectory,
)
from db.totals import in_force

DONE = case((Assignment.status == "done", 1))
"""To be counted: an assignment that is done."""


def _reviewed(db: Connection) -> Iterator[Finding]:
    reviewed = (
        select(Chunk.trajectory_id, func.count(Review.chunk_id.distinct()).label("n"))
        .join(Review, Review.chunk_id == Chunk.id)
        .where(in_force())
        .group_by(Chunk.trajectory_id)
        .subquery()
    )
    n = func.coalesce(reviewed.c.n, 0)
    query = select(Trajectory.id, Trajectory.n_reviewed, n).outerjoin(
        reviewed, reviewed.c.trajectory_id == Trajectory.id
    )
    for id_, said, real in db.execute(query.where(Trajectory.n_reviewed != n).limit(EXAMPLES)):
        yield Finding("cache", f"trajectories {id_}", f"says {said} chunks are reviewed, {real} are")


def _items(db: Connection) -> Iterator[Finding]:
    """Answers of each item, and whether they are as many as its queue asks for."""
    n = func.count(DONE)
    settled = and_(QueueItem.known.is_(None), n >= Queue.reviews_per_item)
    query = (
        select(QueueItem.id, QueueItem.n_done, n, QueueItem.settled, settled)
        .join(Queue, Queue.id == QueueItem.queue_id)
        .outerjoin(Assignment, Assignment.item_id == QueueItem.id)
        .group_by(QueueItem.id, QueueItem.n_done, QueueItem.settled, QueueItem.known, Queue.reviews_per_item)
        .having(or_(QueueItem.n_done != n, QueueItem.settled != settled))
    )
    for id_, said, real, says_settled, is_settled in db.execute(query.limit(EXAMPLES)):
        if said != real:
            yield Finding("queue count", f"queue_items {id_}", f"says {said} answered it, {real} did")
        if bool(says_settled) != bool(is_settled):
            yield Finding(
                "queue count",
                f"queue_items {id_}",
                f"says it is {'' if says_settled else 'not '}settled, which it is{' not' if says_settled else ''}",
            )


def _queues(db: Connection) -> Iterator[Finding]:
    n, settled = func.count(QueueItem.id), func.count(case((QueueItem.settled, 1)))
    query = (
        select(Queue.id, Queue.n_items, n, Queue.n_settled, settled)
        .outerjoin(QueueItem, QueueItem.queue_id == Queue.id)
        .group_by(Queue.id, Queue.n_items, Queue.n_settled)
        .having(or_(Queue.n_items != n, Queue.n_settled != settled))
    )
    for id_, said, real, says_settled, is_settled in db.execute(query.limit(EXAMPLES)):
        if said != real:
            yield Finding("queue count", f"queues {id_}", f"says it has {said} items and has {real}")
        if says_settled != is_settled:
            yield Finding(
                "queue count", f"queues {id_}", f"says {says_settled} items are settled, {is_settled} are"
            )


def _members(db: Connection) -> Iterator[Finding]:
    """Items that each member answered; and answers of somebody who is no member."""
    done = (
        select(QueueItem.queue_id, Assignment.actor, func.count(DONE).label("n"))
        .join(QueueItem, QueueItem.id == Assignment.item_id)
        .group_by(QueueItem.queue_id, Assignment.actor)
        .subquery()
    )
    same = and_(done.c.queue_id == QueueMember.queue_id, done.c.actor == QueueMember.actor)
    n = func.coalesce(done.c.n, 0)
    query = select(QueueMember.queue_id, QueueMember.actor, QueueMember.n_done, n).outerjoin(done, same)
    for queue, actor, said, real in db.execute(query.where(QueueMember.n_done != n).limit(EXAMPLES)):
        where = f"queue_members {queue}, {actor!r}"
        yield Finding("queue count", where, f"says {said} items are answered, {real} are")
    strays = select(done.c.queue_id, done.c.actor).outerjoin(QueueMember, same)
    for queue, actor in db.execute(strays.where(QueueMember.actor.is_(None)).limit(EXAMPLES)):
        yield Finding("queue count", f"queues {queue}", f"{actor!r} has items of it and is no member")


def _opinions(db: Connection) -> Iterator[Finding]:
    """What reviews amount to, read anew."""
    spoken_of = select(Review.chunk_id).union(select(ChunkOpinion.chunk_id)).subquery()
    for batch in batches(list(db.scalars(select(spoken_of.c[0]).order_by(spoken_of.c[0])))):
        kept, real = kept_opinions(db, batch), opinions(db, batch)
        for chunk_id in sorted(kept.keys() | real.keys()):
            said, is_ = kept.get(chunk_id), real.get(chunk_id)
            if said != is_:
                yield Finding(
                    "opinion", f"chunks {chunk_id}", f"{said or 'none'} is kept, reviews say {is_ or 'none'}"
                )


def _votes(db: Connection) -> Iterator[Finding]:
    """How each judge voted on each chunk, read anew."""
    names = ("positive", "negative", "total")
    judged = votes_query().subquery()
    same = and_(ChunkVote.chunk_id == judged.c.chunk_id, ChunkVote.judge_id == judged.c.judge_id)
    kept = [func.coalesce(getattr(ChunkVote, name), 0) for name in names]
    real = [func.coalesce(judged.c[name], 0) for name in names]
    differs = or_(*(k != r for k, r in zip(kept, real, strict=True)))
    lost = select(judged.c.chunk_id, judged.c.judge_id, ChunkVote.verdict, *kept, *real).outerjoin_from(
        judged, ChunkVote, same
    )
    extra = select(ChunkVote.chunk_id, ChunkVote.judge_id, ChunkVote.verdict, *kept, *real).outerjoin_from(
        ChunkVote, judged, same
    )
    for query in (lost.where(differs), extra.where(judged.c.chunk_id.is_(None))):
        for chunk_id, judge_id, _, *counts in db.execute(query.limit(EXAMPLES)):
            said, is_ = (" / ".join(str(int(n)) for n in part) for part in (counts[:3], counts[3:]))
            yield Finding(
                "vote",
                f"chunks {chunk_id}, judge {judge_id}",
                f"positive / negative / all: {said} are kept, there are {is_}",
            )
    query = select(
        ChunkVote.chunk_id, ChunkVote.judge_id, ChunkVote.positive, ChunkVote.negative, ChunkVote.verdict
    )
    more, less = ChunkVote.positive > ChunkVote.negative, ChunkVote.positive < ChunkVote.negative
    sign = func.coalesce(case((more, "positive"), (less, "negative")), "none")
    wrong = func.coalesce(ChunkVote.verdict, "none") != sign
    for chunk_id, judge_id, positive, negative, verdict in db.execute(query.where(wrong).limit(EXAMPLES)):
        yield Finding(
            "vote",
            f"chunks {chunk_id}, judge {judge_id}",
            f"says the majority is {verdict or 'none'}, it is {majority(positive, negative) or 'none'}",
        )


def _trajectories(db: Connection) -> Iterator[Finding]:
    """What lists are sorted by, from labels and votes."""
    negative = func.sum(case((ChunkLabel.rel_ratio == "-", 1), else_=0))
    real = (
        select(
            Chunk.trajectory_id,
            func.max(ChunkLabel.drop).label("biggest_drop"),
            func.min(ChunkLabel.rel_ratio_conf).label("least_confidence"),
            case((func.count(ChunkLabel.rel_ratio) > 0, negative)).label("n_negative"),
        )
        .join(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
        .group_by(Chunk.trajectory_id)
        .subquery()
    )
    for name in ("biggest_drop", "least_confidence", "n_negative"):
        kept: Any = getattr(Trajectory, name)
        query = (
            select(Trajectory.id, kept, real.c[name])
            .outerjoin(real, real.c.trajectory_id == Trajectory.id)
            .where(kept.is_distinct_from(real.c[name]))
        )
        for id_, said, is_ in db.execute(query.limit(EXAMPLES)):
            yield Finding("cache", f"trajectories {id_}", f"says {name} is {said}, it is {is_}")
    ids = list(db.scalars(select(Trajectory.id).order_by(Trajectory.id)))
    for batch in batches(ids, 1000):
        against = disagreements(db, batch)
        rows = select(Trajectory.id, Trajectory.n_disagree).where(Trajectory.id.in_(batch))
        for id_, said in db.execute(rows.order_by(Trajectory.id)):
            if said != against.get(id_):
                yield Finding(
                    "cache", f"trajectories {id_}", f"says n_disagree is {said}, it is {against.get(id_)}"
                )


CACHES: tuple[Callable[[Connection], Iterator[Finding]], ...] = (
    _reviewed,
    _items,
    _queues,
    _members,
    _opinions,
    _votes,
    _trajectories,
)
"""The checks, each with at most ``EXAMPLES`` findings worth reading."""
