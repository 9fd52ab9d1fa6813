"""Working in a queue: the next item, answer, skip, undo. Every step is one transaction under the queue's lock.

An item is handed to at most as many people as its queue asks for (quality-control items to everybody), never twice
to one person. An open item that was not looked at for half an hour may go to somebody else too; whoever comes back to
it may still answer. Not: making and closing queues (queues_store).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, exists, insert, select, update

from db.errors import NotFoundError, QueueStateError, ReviewConflictError, StoreValueError
from db.people_store import need, note, role_of
from db.queue_answers import derived, filled_in, finish, newest, say, stored, undone
from db.queue_rows import ItemView
from db.queue_views import (
    STALE_S,
    Held,
    Place,
    answers_of,
    chain_of,
    held,
    item_view,
    place_of,
    reopen_if_unanswered,
    wants_more,
)
from db.review_chain import take_back, write_review
from db.rows import ReviewDetails, ReviewRow
from db.session import StoreBase, insert_new, one_at_a_time, store_now
from db.tables import Assignment, Chunk, Queue, QueueItem, QueueMember

SEEN_EVERY_S = 60.0
"""How exactly it is kept when an open item was last looked at: a write in so many seconds."""


class QueueWork(StoreBase):
    """What an annotator's page does. Raises NotFoundError for ids that there are not, NotAllowedError for readers,
    QueueStateError for a closed queue or an item that others have answered meanwhile."""

    def next_item(self, queue_id: int, actor: str) -> ItemView | None:
        """The item to work on: the actor's own open one first, else the next that lacks a reviewer, now the actor's.

        None: nothing is left for the actor (others may hold some, or the actor skipped some: ``retry_skipped``).
        """
        with self.read() as db:
            _check_open(db, queue_id)
            need(db, actor, "annotator", "reviewing")
            item_id = _in_hand(db, queue_id, actor)
            if item_id is not None and not _is_old(db, held(db, item_id, actor)):
                return item_view(db, item_id, actor)
        with self.write() as db:
            _lock(db, queue_id)
            _check_open(db, queue_id)
            item_id = _in_hand(db, queue_id, actor)
            if item_id is None:
                item_id = _free(db, queue_id, actor)
                if item_id is None:
                    return None
                _claim(db, place_of(db, item_id), actor)
            _look(db, held(db, item_id, actor))
            return item_view(db, item_id, actor)

    def item(self, item_id: int, actor: str, *, queue_id: int | None = None) -> ItemView:
        """One item. If its queue is open and it lacks a reviewer, it is the actor's from now on; a reader only looks.

        ``queue_id``: the queue that it is looked for in. Raises NotFoundError where it is in another.
        """
        with self.read() as db:
            place = place_of(db, item_id)
            if queue_id not in (None, place.queue_id):
                raise NotFoundError(f"item {item_id} is not in queue {queue_id}")
            view = item_view(db, item_id, actor)
            if not place.is_open or not self._may_take(db, place, actor):
                return view
        with self.write() as db:
            _lock(db, place.queue_id)
            holding = held(db, item_id, actor)
            if holding is None and _has_room(db, item_id, actor):
                _claim(db, place, actor)
            _look(db, held(db, item_id, actor))
            return item_view(db, item_id, actor)

    def _may_take(self, db: Connection, place: Place, actor: str) -> bool:
        holding = held(db, place.item_id, actor)
        if role_of(db, actor) == "reader":
            return False
        if holding is None:
            return _has_room(db, place.item_id, actor)
        return holding.status == "open" and _is_old(db, holding)

    def answer(
        self,
        item_id: int,
        action_id: str,
        actor: str,
        verdict: int | None,
        comment: str = "",
        details: ReviewDetails = ReviewDetails(),
        *,
        supersedes: int | None = None,
    ) -> ReviewRow:
        """Review the item's chunk and be done with it, in one transaction; the same ``action_id`` again changes nothing.

        ``supersedes``: the item's ``head`` as the card showed it; an item that is done already is changed. Which item,
        which guidelines (if ``details`` name none) and how many seconds is filled in here. Raises as ``add_review``.
        """
        with self.write() as db:
            place = _begin(db, item_id)
            chunk_id = place.chunk_id
            if chunk_id is None:
                raise StoreValueError(
                    f"item {item_id} is a whole solution: it is answered by its first error"
                )
            if stored(db, action_id) is not None:  # sent again: what is stored, however things stand now
                return write_review(db, chunk_id, action_id, actor, verdict, comment, supersedes=supersedes)
            holding = _hold_to_answer(db, place, actor)
            details = filled_in(db, place, holding, details)
            row = write_review(
                db, chunk_id, action_id, actor, verdict, comment, supersedes=supersedes, details=details
            )
            right = None if place.known is None else verdict == place.known
            finish(db, place, actor, holding, details.seconds, right)
            return row

    def answer_first_error(
        self,
        item_id: int,
        action_id: str,
        actor: str,
        first_error: int,
        comment: str = "",
        details: ReviewDetails = ReviewDetails(),
        *,
        supersedes: int | None = None,
    ) -> list[ReviewRow]:
        """Say where a solution goes wrong first: +1 for the chunks before, -1 for that one, nothing after (as PRM800K).

        ``first_error`` -1: every chunk is sound. Comment and details go to the chunk in error, or to the last; a draft
        on one of the others is stored with it. An answer given before is changed whole. Returns the reviews in the
        order of their chunks; raises as ``answer``.
        """
        with self.write() as db:
            place = _begin(db, item_id)
            if place.chunk_id is not None:
                raise StoreValueError(f"item {item_id} is a chunk: it is answered by a verdict")
            query = select(Chunk.id).where(Chunk.trajectory_id == place.trajectory_id).order_by(Chunk.idx)
            chunks = list(db.scalars(query))
            if isinstance(first_error, bool) or not -1 <= first_error < len(chunks):
                raise StoreValueError(
                    f"item {item_id} has {len(chunks)} chunks: its first error cannot be at {first_error!r}"
                )
            known = stored(db, action_id)
            if known is not None:
                if (known.actor, known.item_id) != (actor, item_id):
                    raise ReviewConflictError(f"action {action_id!r} was used before; nothing was stored")
                return [row for _, row in sorted(answers_of(db, place, actor).items())]
            holding = _hold_to_answer(db, place, actor)
            details = filled_in(db, place, holding, details)
            head, _ = chain_of(db, chunks[0], actor)
            if (head.id if head else None) != supersedes:
                raise ReviewConflictError(
                    f"item {item_id}: {actor}'s answer was changed since this card was drawn; nothing was stored. "
                    "Look at it again"
                )
            rows = say(db, place, action_id, actor, chunks, first_error, comment, details)
            right = None if place.known is None else first_error == place.known
            finish(db, place, actor, holding, details.seconds, right)
            return rows

    def skip(self, item_id: int, actor: str) -> None:
        """Leave the item to others. Raises QueueStateError if the actor has answered it."""
        with self.write() as db:
            place = _begin(db, item_id)
            need(db, actor, "annotator", "reviewing")
            holding = _hold(db, place, actor)
            if holding.status == "done":
                raise QueueStateError(f"item {item_id} is answered: undo the answer instead of skipping it")
            if holding.status == "open":
                values = {"status": "skipped", "closed_at": store_now(db)}
                db.execute(update(Assignment).where(Assignment.id == holding.id).values(values))
                note(db, actor, "skip", f"item {item_id}")

    def retry_skipped(self, queue_id: int, actor: str) -> int:
        """Be asked again what the actor skipped and nobody answered meanwhile. Returns how many items."""
        with self.write() as db:
            _lock(db, queue_id)
            _check_open(db, queue_id)
            need(db, actor, "annotator", "reviewing")
            items = select(QueueItem.id).where(QueueItem.queue_id == queue_id, ~QueueItem.settled)
            mine = (Assignment.actor == actor, Assignment.status == "skipped", Assignment.item_id.in_(items))
            n = db.execute(delete(Assignment).where(*mine)).rowcount
            _walk_from(db, queue_id, actor, -1)
            if n:
                note(db, actor, "ask again what was skipped", f"queue {queue_id}", items=n)
            return n

    def undo_last(self, queue_id: int, actor: str, action_id: str) -> int:
        """Take back the actor's newest answer in this queue, after a reload too. Returns its item, which is open again
        (a changed chunk answer goes back to what was said before the change).

        Raises ReviewConflictError if there is none.
        """
        with self.write() as db:
            _lock(db, queue_id)
            known = stored(db, action_id)
            if known is not None:
                return undone(db, known, actor, action_id)
            _check_open(db, queue_id)
            said = newest(db, queue_id, actor)
            if said is None or said.item_id is None:
                raise ReviewConflictError(f"{actor} has no answer in queue {queue_id} to take back")
            place = place_of(db, said.item_id)
            for idx, row in answers_of(db, place, actor).items():
                key = action_id if row.chunk_id == said.chunk_id else derived(action_id, idx)
                whole = place.item_id if place.chunk_id is None else None
                take_back(db, key, actor, row.chunk_id, whole_item=whole)
            reopen_if_unanswered(db, place.item_id, actor)
            return place.item_id

    def neighbour_items(self, queue_id: int, item_id: int, actor: str) -> tuple[int | None, int | None]:
        """(previous, next) among the items that the actor has had, in the queue's order."""
        with self.read() as db:
            here = place_of(db, item_id).position
            mine = exists().where(Assignment.item_id == QueueItem.id, Assignment.actor == actor)
            query = select(QueueItem.id).where(QueueItem.queue_id == queue_id, mine).limit(1)
            before = query.where(QueueItem.position < here).order_by(QueueItem.position.desc())
            after = query.where(QueueItem.position > here).order_by(QueueItem.position)
            return db.scalar(before), db.scalar(after)


# ---- whose turn it is


def _lock(db: Connection, queue_id: int) -> None:
    one_at_a_time(db, f"queue {queue_id}")


def _check_open(db: Connection, queue_id: int) -> None:
    row = db.execute(select(Queue.name, Queue.closed_at).where(Queue.id == queue_id)).first()
    if row is None:
        raise NotFoundError(f"there is no queue {queue_id}")
    if row.closed_at is not None:
        raise QueueStateError(f"queue {queue_id} was closed: nothing was stored. An owner can open it again")


def _begin(db: Connection, item_id: int) -> Place:
    """The item, with its queue locked."""
    _lock(db, place_of(db, item_id).queue_id)
    return place_of(db, item_id)


def _in_hand(db: Connection, queue_id: int, actor: str) -> int | None:
    query = select(QueueItem.id).join(Assignment, Assignment.item_id == QueueItem.id)
    mine = (Assignment.actor == actor, Assignment.status == "open", QueueItem.queue_id == queue_id)
    return db.scalar(query.where(*mine).order_by(QueueItem.position).limit(1))


def _free(db: Connection, queue_id: int, actor: str) -> int | None:
    """The next item for the actor: behind the furthest that they had, else from the beginning.

    Quality-control items alone are no work: somebody who comes when everything is answered gets none.
    """
    member = select(QueueMember.position, QueueMember.n_done)
    row = db.execute(member.where(QueueMember.queue_id == queue_id, QueueMember.actor == actor)).first()
    reached, n_done = (row.position, row.n_done) if row else (-1, 0)
    query = (
        select(QueueItem.id, QueueItem.known)
        .join(Queue, Queue.id == QueueItem.queue_id)
        .where(QueueItem.queue_id == queue_id, wants_more(actor, store_now(db)))
        .order_by(QueueItem.position)
        .limit(1)
    )
    for stretch in (QueueItem.position > reached, QueueItem.position <= reached):
        found = db.execute(query.where(stretch)).first()
        if found is None:
            continue
        if found.known is None or n_done or db.execute(query.where(QueueItem.known.is_(None))).first():
            return found.id
    return None


def _has_room(db: Connection, item_id: int, actor: str) -> bool:
    query = select(QueueItem.id).join(Queue, Queue.id == QueueItem.queue_id)
    query = query.where(QueueItem.id == item_id, wants_more(actor, store_now(db)))
    return db.execute(query).first() is not None


def _claim(db: Connection, place: Place, actor: str) -> Held:
    now = store_now(db)
    member = {"queue_id": place.queue_id, "actor": actor, "joined_at": now, "position": -1, "n_done": 0}
    db.execute(insert_new(db, QueueMember), [member])
    _walk_from(db, place.queue_id, actor, place.position)
    values = {"item_id": place.item_id, "actor": actor, "status": "open", "opened_at": now, "seen_at": now}
    db.execute(insert(Assignment), [values])
    holding = held(db, place.item_id, actor)
    assert holding is not None
    return holding


def _walk_from(db: Connection, queue_id: int, actor: str, position: int) -> None:
    mine = (QueueMember.queue_id == queue_id, QueueMember.actor == actor)
    db.execute(update(QueueMember).where(*mine).values(position=position))


def _hold(db: Connection, place: Place, actor: str) -> Held:
    """The actor's assignment of the item, claimed now if there is room. Raises QueueStateError."""
    _check_open(db, place.queue_id)
    need(db, actor, "annotator", "reviewing")
    holding = held(db, place.item_id, actor)
    if holding is not None:
        return holding
    if not _has_room(db, place.item_id, actor):
        raise QueueStateError(
            f"item {place.item_id} was taken by as many others as queue {place.queue_id} asks for; "
            "nothing was stored. Go on to the next"
        )
    return _claim(db, place, actor)


def _hold_to_answer(db: Connection, place: Place, actor: str) -> Held:
    """``_hold``, but what the actor skipped and others have settled is over: a blind queue shows them its answers."""
    holding = _hold(db, place, actor)
    if holding.status == "skipped" and place.settled:
        raise QueueStateError(
            f"item {place.item_id}, which {actor} skipped, was answered by as many others as queue "
            f"{place.queue_id} asks for; nothing was stored. Go on to the next"
        )
    return holding


def _is_old(db: Connection, holding: Held | None) -> bool:
    """Whether it is time to write down that somebody looks at the item (or the clock has moved back since)."""
    if holding is None:
        return True
    return abs((store_now(db) - holding.seen_at).total_seconds()) > SEEN_EVERY_S


def _look(db: Connection, holding: Held | None) -> None:
    """Write down that the item is being looked at; after a long absence its time begins anew."""
    if holding is None or holding.status != "open":
        return
    now = store_now(db)
    values: dict[str, datetime] = {"seen_at": now}
    if abs(now - holding.seen_at) > timedelta(seconds=STALE_S):
        values["opened_at"] = now
    db.execute(update(Assignment).where(Assignment.id == holding.id).values(values))
