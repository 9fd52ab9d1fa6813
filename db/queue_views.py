"""What one person sees of a queue's item, and who holds it. Read by queue_work inside its transactions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, false, func, or_, select, update

from db.blind import hidden_problems
from db.errors import NotFoundError
from db.people_store import role_of
from db.problems_store import VERIFIER
from db.queue_rows import GuidelineRow, ItemView
from db.rows import ReviewRow
from db.session import columns, rows_of, store_now
from db.tables import (
    Assignment,
    Chunk,
    Guideline,
    Problem,
    Queue,
    QueueItem,
    QueueMember,
    Review,
    Trajectory,
)
from db.totals import head_of_chain

STALE_S = 1800.0
"""An open item that was not looked at for so long may go to others too."""


@dataclass(frozen=True)
class Place:
    """An item with what its queue says of it."""

    item_id: int
    queue_id: int
    position: int
    trajectory_id: int
    chunk_id: int | None
    known: int | None
    n_done: int
    settled: bool
    mode: str
    reviews_per_item: int
    is_open: bool


@dataclass(frozen=True)
class Held:
    """Somebody's assignment of an item."""

    id: int
    status: str
    opened_at: datetime
    seen_at: datetime


def place_of(db: Connection, item_id: int) -> Place:
    """Raises NotFoundError."""
    found = db.execute(
        select(
            QueueItem.id,
            QueueItem.queue_id,
            QueueItem.position,
            QueueItem.trajectory_id,
            QueueItem.chunk_id,
            QueueItem.known,
            QueueItem.n_done,
            QueueItem.settled,
            Queue.mode,
            Queue.reviews_per_item,
            Queue.closed_at.is_(None),
        )
        .join(Queue, Queue.id == QueueItem.queue_id)
        .where(QueueItem.id == item_id)
    ).first()
    if found is None:
        raise NotFoundError(f"there is no item {item_id} in any queue")
    return Place(*found)


def held(db: Connection, item_id: int, actor: str) -> Held | None:
    """The actor's assignment of the item."""
    query = select(*columns(Held, Assignment))
    rows = rows_of(Held, db.execute(query.where(Assignment.item_id == item_id, Assignment.actor == actor)))
    return rows[0] if rows else None


def is_fresh(now: datetime) -> ColumnElement[bool]:
    """An open assignment that was looked at lately. One from the future is not: the clock was wrong, then or now."""
    margin = timedelta(seconds=STALE_S)
    return and_(
        Assignment.status == "open", Assignment.seen_at > now - margin, Assignment.seen_at < now + margin
    )


def wants_more(actor: str, now: datetime) -> ColumnElement[bool]:
    """Condition on QueueItem joined with Queue: the actor never had it, and it is known or lacks a reviewer."""
    mine = exists().where(Assignment.item_id == QueueItem.id, Assignment.actor == actor)
    in_hands = (
        select(func.count())
        .select_from(Assignment)
        .where(Assignment.item_id == QueueItem.id, is_fresh(now))
        .correlate(QueueItem)
        .scalar_subquery()
    )
    lacks = QueueItem.n_done + in_hands < Queue.reviews_per_item
    return and_(QueueItem.settled == false(), ~mine, or_(QueueItem.known.is_not(None), lacks))


def newest_guideline(db: Connection, queue_id: int) -> GuidelineRow | None:
    query = select(*columns(GuidelineRow, Guideline)).where(Guideline.queue_id == queue_id)
    rows = rows_of(GuidelineRow, db.execute(query.order_by(Guideline.version.desc()).limit(1)))
    return rows[0] if rows else None


def is_neutral(db: Connection, actor: str, queue_id: int, blind: bool, is_open: bool) -> bool:
    """Whether the actor is not to know what the queue is after: blind, open, and they work in it or own nothing."""
    if not (blind and is_open):
        return False
    member = exists().where(QueueMember.queue_id == queue_id, QueueMember.actor == actor)
    return role_of(db, actor) != "owner" or bool(db.scalar(select(member)))


def neutral_name(queue_id: int) -> str:
    return f"Queue {queue_id}"


def item_view(db: Connection, item_id: int, actor: str) -> ItemView:
    """Raises NotFoundError."""
    place = place_of(db, item_id)
    row: Any = db.execute(
        select(
            Queue.name,
            Queue.blind,
            Queue.n_items,
            Trajectory.n_chunks,
            Trajectory.problem_id,
            Problem.text,
            Problem.answer,
            VERIFIER,
            Chunk.idx,
            func.coalesce(QueueMember.n_done, 0),
        )
        .select_from(Queue)
        .join(Trajectory, Trajectory.id == place.trajectory_id)
        .join(Problem, Problem.id == Trajectory.problem_id)
        .outerjoin(Chunk, Chunk.id == place.chunk_id)
        .outerjoin(QueueMember, and_(QueueMember.queue_id == Queue.id, QueueMember.actor == actor))
        .where(Queue.id == place.queue_id)
    ).one()
    name, blind, n_items, n_chunks, problem_id, problem, reference, verifier, idx, n_done = row
    holding = held(db, item_id, actor)
    head, mine, first_error = _said(db, place, actor)
    return ItemView(
        id=item_id,
        queue_id=place.queue_id,
        queue=neutral_name(place.queue_id)
        if is_neutral(db, actor, place.queue_id, blind, place.is_open)
        else name,
        mode=place.mode,
        blind=blind,
        is_open=place.is_open,
        position=place.position,
        n_items=n_items,
        trajectory_id=place.trajectory_id,
        chunk_id=place.chunk_id,
        idx=idx,
        n_chunks=n_chunks,
        problem=problem,
        reference=None if hidden_problems(db, actor, [problem_id]) else reference,
        verifier=verifier,
        status=holding.status if holding else None,
        opened_at=holding.opened_at if holding else None,
        n_done=n_done,
        guideline=newest_guideline(db, place.queue_id),
        mine=mine,
        head=head,
        first_error=first_error,
    )


def first_chunk(db: Connection, trajectory_id: int) -> int | None:
    return db.scalar(select(Chunk.id).where(Chunk.trajectory_id == trajectory_id, Chunk.idx == 0))


def chain_of(db: Connection, chunk_id: int, actor: str) -> tuple[ReviewRow | None, ReviewRow | None]:
    """(head of the actor's chain on the chunk, the review that is in force)."""
    query = select(*columns(ReviewRow, Review))
    heads = rows_of(
        ReviewRow,
        db.execute(query.where(Review.chunk_id == chunk_id, Review.actor == actor, head_of_chain())),
    )
    if not heads:
        return None, None
    head = heads[0]
    if head.kind != "undo":
        return head, head
    if head.restores is None:
        return head, None
    restored = rows_of(ReviewRow, db.execute(query.where(Review.id == head.restores)))
    return head, restored[0] if restored else None


def answers_of(db: Connection, place: Place, actor: str) -> dict[int, ReviewRow]:
    """{chunk index: the actor's review in force that answers this item}."""
    query = (
        select(Chunk.id, Chunk.idx)
        .join(Review, Review.chunk_id == Chunk.id)
        .where(Review.item_id == place.item_id, Review.actor == actor)
        .distinct()
    )
    found: dict[int, ReviewRow] = {}
    for chunk_id, idx in db.execute(query).all():
        said = chain_of(db, chunk_id, actor)[1]
        if said is not None and said.item_id == place.item_id:
            found[idx] = said
    return found


def _said(db: Connection, place: Place, actor: str) -> tuple[int | None, ReviewRow | None, int | None]:
    chunk_id = place.chunk_id
    first_error = None
    if chunk_id is None:
        chunk_id = first_chunk(db, place.trajectory_id)
        answers = answers_of(db, place, actor)
        errors = [idx for idx, said in answers.items() if said.verdict == -1]
        chunks = select(func.count()).where(Chunk.trajectory_id == place.trajectory_id)
        whole = bool(answers) and len(answers) == db.scalar(chunks)
        first_error = errors[0] if errors else -1 if whole else None
    if chunk_id is None:
        return None, None, None
    head, said = chain_of(db, chunk_id, actor)
    return head.id if head else None, said, first_error


# ---- caches that follow from assignments


def recount(db: Connection, item_id: int, actor: str) -> None:
    """Bring the caches of an item, its queue and the member up to date with the assignments (queue's lock held)."""
    place = place_of(db, item_id)
    done = (Assignment.status == "done",)
    n_done = db.scalar(select(func.count()).where(Assignment.item_id == item_id, *done)) or 0
    settled = place.known is None and n_done >= place.reviews_per_item
    db.execute(update(QueueItem).where(QueueItem.id == item_id).values(n_done=n_done, settled=settled))
    change = n_done - place.n_done
    if change:
        mine = (QueueMember.queue_id == place.queue_id, QueueMember.actor == actor)
        db.execute(update(QueueMember).where(*mine).values(n_done=QueueMember.n_done + change))
    if settled != place.settled:
        step = 1 if settled else -1
        db.execute(update(Queue).where(Queue.id == place.queue_id).values(n_settled=Queue.n_settled + step))


def reopen_if_unanswered(db: Connection, item_id: int, actor: str) -> None:
    """If the actor's answer was taken back, the item is in their hands again (queue's lock held).

    Where an earlier answer is in force again, it is the one that a quality-control item is held against.
    """
    place = place_of(db, item_id)
    mine = (Assignment.item_id == item_id, Assignment.actor == actor, Assignment.status == "done")
    if answers := answers_of(db, place, actor):
        if place.known is not None:
            right = all(said.verdict == place.known for said in answers.values())
            if place.chunk_id is None:
                right = _said(db, place, actor)[2] == place.known
            db.execute(update(Assignment).where(*mine).values(right=right))
        return
    now = store_now(db)
    values = {"status": "open", "opened_at": now, "seen_at": now, "closed_at": None, "seconds": None}
    if db.execute(update(Assignment).where(*mine).values(**values, right=None)).rowcount:
        recount(db, item_id, actor)
