"""Queues of items to review: make, list, close, guidelines, progress. Not: working in one (queue_work), choosing
its items (queue_items), what a blind one hides (blind).

    queue = store.make_queue(NewQueue("first look", order="disagreement", where=ChunkFilter(dataset="math")), "ann")
    item = store.next_item(queue, "ann")
    store.answer(item.id, card, "ann", -1, "7 + 5 is 12", supersedes=item.head)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

from sqlalchemy import Connection, case, func, insert, select, true, update

from db.errors import NotFoundError, QueueStateError, StoreValueError
from db.people_store import need, note, role_of
from db.queue_items import Chosen, Item, choose
from db.queue_rows import GuidelineRow, ItemView, MemberProgress, NewQueue, QueueRow
from db.queue_views import is_neutral, neutral_name
from db.queue_work import QueueWork
from db.session import batches, columns, one_at_a_time, rows_of, store_now
from db.tables import Assignment, Chunk, Guideline, Queue, QueueItem, QueueMember

__all__ = ["GuidelineRow", "ItemView", "MemberProgress", "NewQueue", "QueueRow", "QueuesStore"]

LAST = 200
"""Answers that a member's pace is taken from."""


class QueuesStore(QueueWork):
    """Owners make and close queues; annotators work in them; everybody may look at the list."""

    def make_queue(self, new: NewQueue, actor: str) -> int:
        """Choose the items and store the queue. Returns its id.

        Raises StoreValueError if the name is taken or nothing fits, NotFoundError for chunks that there are not,
        NotAllowedError unless the actor is an owner.
        """
        with self.read() as db:
            need(db, actor, "owner", "making a queue")
            _check_name(db, new.name)
            chosen = choose(db, new)  # may take seconds: nobody's write waits for it
        with self.write() as db:
            one_at_a_time(db, "queues")
            need(db, actor, "owner", "making a queue")
            _check_name(db, new.name)
            return _insert(db, new, chosen, actor)

    def queue_for_chunks(self, name: str, chunk_ids: Sequence[int], actor: str) -> tuple[int, int]:
        """Put chunks into the open queue of that name, or into a new one of that name, in the order given.

        Returns (queue id, how many were not in it before). Raises QueueStateError if that queue is closed or asks for
        whole solutions; otherwise as ``make_queue``.
        """
        name = name.strip()
        with self.read() as db:
            found = db.scalar(select(Queue.id).where(Queue.name == name))
        if found is None:
            new = NewQueue(name, order="reading", chunk_ids=chunk_ids, limit=max(1, len(set(chunk_ids))))
            queue_id = self.make_queue(new, actor)
            return queue_id, len(set(chunk_ids))
        with self.write() as db:
            one_at_a_time(db, f"queue {found}")
            need(db, actor, "owner", "adding to a queue")
            return found, _append(db, found, chunk_ids, actor)

    def queues(self) -> list[QueueRow]:
        """All queues, newest first."""
        with self.read() as db:
            return self._rows(db)

    def queue(self, id_or_name: int | str) -> QueueRow:
        """One queue. Raises NotFoundError."""
        key = Queue.id == id_or_name if isinstance(id_or_name, int) else Queue.name == id_or_name
        with self.read() as db:
            rows = self._rows(db, key)
        if not rows:
            raise NotFoundError(f"there is no queue {id_or_name!r}")
        return rows[0]

    def close_queue(self, queue_id: int, actor: str) -> None:
        """Nobody is asked any more; what a blind queue hid can be seen again. Closing it twice changes nothing."""
        self._set_closed(queue_id, actor, "close queue", True)

    def reopen_queue(self, queue_id: int, actor: str) -> None:
        """Go on where it was closed."""
        self._set_closed(queue_id, actor, "reopen queue", False)

    def guidelines(self, queue_id: int) -> list[GuidelineRow]:
        """All versions of what its reviewers are told, newest first. Raises NotFoundError."""
        query = select(*columns(GuidelineRow, Guideline)).where(Guideline.queue_id == queue_id)
        with self.read() as db:
            _check_there(db, queue_id)
            return rows_of(GuidelineRow, db.execute(query.order_by(Guideline.version.desc())))

    def set_guidelines(self, queue_id: int, text: str, actor: str) -> int:
        """Store the next version, unless nothing changed. Returns the version's number."""
        with self.write() as db:
            one_at_a_time(db, f"queue {queue_id}")
            need(db, actor, "owner", "writing guidelines")
            _check_there(db, queue_id)
            newest = select(Guideline.version, Guideline.text).where(Guideline.queue_id == queue_id)
            before = db.execute(newest.order_by(Guideline.version.desc()).limit(1)).first()
            if before is not None and before.text == text:
                return before.version
            version = before.version + 1 if before else 1
            _insert_guideline(db, queue_id, version, text, actor)
            note(db, actor, "set guidelines", f"queue {queue_id}", version=version)
            return version

    def queue_progress(self, queue_id: int) -> list[MemberProgress]:
        """How far each member has come, in the order in which they joined. Raises NotFoundError.

        While the queue is open only an owner sees how many known items were answered, and how many of them right:
        from what one answer adds to that, a member would learn which items are the known ones.
        """
        with self.read() as db:
            _check_there(db, queue_id)
            found = _progress(db, queue_id)
            is_open = db.scalar(select(Queue.closed_at).where(Queue.id == queue_id)) is None
            if is_open and self.viewer is not None and role_of(db, self.viewer) != "owner":
                return [replace(one, known=0, right=0) for one in found]
            return found

    def _rows(self, db: Connection, *where: Any) -> list[QueueRow]:
        members: dict[int, list[str]] = {}
        query = select(QueueMember.queue_id, QueueMember.actor)
        for queue_id, actor in db.execute(query.order_by(QueueMember.joined_at, QueueMember.actor)):
            members.setdefault(queue_id, []).append(actor)
        names = [name for name in QueueRow.__dataclass_fields__ if name != "members"]
        found = []
        for row in db.execute(
            select(*(Queue.__table__.c[name] for name in names)).where(*where).order_by(Queue.id.desc())
        ):
            values = dict(row._mapping)
            open_ = values["closed_at"] is None
            if self.viewer is not None and is_neutral(db, self.viewer, values["id"], values["blind"], open_):
                values |= {"name": neutral_name(values["id"]), "order": "", "recipe": {}}
            found.append(QueueRow(**values, members=tuple(members.get(values["id"], ()))))
        return found

    def _set_closed(self, queue_id: int, actor: str, action: str, closed: bool) -> None:
        with self.write() as db:
            one_at_a_time(db, f"queue {queue_id}")
            need(db, actor, "owner", f"to {action}")
            _check_there(db, queue_id)
            at: datetime | None = store_now(db) if closed else None
            is_ = Queue.closed_at.is_(None) if closed else Queue.closed_at.is_not(None)
            if db.execute(update(Queue).where(Queue.id == queue_id, is_).values(closed_at=at)).rowcount:
                note(db, actor, action, f"queue {queue_id}")


def _check_there(db: Connection, queue_id: int) -> None:
    if db.scalar(select(Queue.id).where(Queue.id == queue_id)) is None:
        raise NotFoundError(f"there is no queue {queue_id}")


def _check_name(db: Connection, name: str) -> None:
    if db.scalar(select(Queue.id).where(Queue.name == name.strip())) is not None:
        raise StoreValueError(f"there is a queue named {name.strip()!r} already: give another name")


def _insert(db: Connection, new: NewQueue, chosen: Chosen, actor: str) -> int:
    recipe = {
        "filter": new.where.asks if new.where else {},
        "chunks": None if new.chunk_ids is None else len(set(new.chunk_ids)),
        "rule": new.rule,
        "judge_id": new.judge_id,
        "seed": new.seed,
        "limit": new.limit,
        "only": new.only,
        "known": sum(item.known is not None for item in chosen.items),
        "known_rate": new.known_rate if new.known else 0.0,
        "first": chosen.first,
    }
    values = {
        "name": new.name.strip(),
        "mode": new.mode,
        "order": new.order,
        "recipe": recipe,
        "blind": new.blind,
        "reviews_per_item": new.reviews_per_item,
        "n_items": len(chosen.items),
        "n_settled": 0,
        "actor": actor,
        "created_at": store_now(db),
    }
    queue_id = db.execute(insert(Queue).values(values).returning(Queue.id)).scalar_one()
    _insert_items(db, queue_id, 0, chosen.items)
    if new.guidelines.strip():
        _insert_guideline(db, queue_id, 1, new.guidelines, actor)
    note(db, actor, "create queue", f"queue {queue_id}", name=new.name.strip(), items=len(chosen.items))
    return queue_id


def _insert_items(db: Connection, queue_id: int, first: int, items: Sequence[Item]) -> None:
    rows = [
        {
            "queue_id": queue_id,
            "position": first + place,
            "trajectory_id": item.trajectory_id,
            "chunk_id": item.chunk_id,
            "known": item.known,
            "n_done": 0,
            "settled": False,
        }
        for place, item in enumerate(items)
    ]
    db.execute(insert(QueueItem), rows)


def _append(db: Connection, queue_id: int, chunk_ids: Sequence[int], actor: str) -> int:
    """Put chunks that are not in the queue behind its items; how many that were."""
    queue = db.execute(select(Queue.mode, Queue.closed_at, Queue.n_items).where(Queue.id == queue_id)).one()
    if queue.closed_at is not None:
        raise QueueStateError(
            f"queue {queue_id} is closed: nothing was added. Open it again, or name another"
        )
    if queue.mode != "chunk":
        raise QueueStateError(f"queue {queue_id} asks for whole solutions, not for chunks: name another")
    wanted = list(dict.fromkeys(int(chunk_id) for chunk_id in chunk_ids))
    owners: dict[int, int] = {}
    inside: set[int] = set()
    for batch in batches(wanted):
        query = select(Chunk.id, Chunk.trajectory_id).where(Chunk.id.in_(batch))
        owners |= {chunk_id: owner for chunk_id, owner in db.execute(query)}
        item = (QueueItem.queue_id == queue_id, QueueItem.chunk_id.in_(batch))
        inside.update(db.scalars(select(QueueItem.chunk_id).where(*item)))
    missing = [str(chunk_id) for chunk_id in wanted if chunk_id not in owners]
    if missing:
        raise NotFoundError(f"there are no chunks {', '.join(missing[:5])}; nothing was added")
    items = [Item(owners[chunk_id], chunk_id) for chunk_id in wanted if chunk_id not in inside]
    if items:
        _insert_items(db, queue_id, queue.n_items, items)
        db.execute(update(Queue).where(Queue.id == queue_id).values(n_items=Queue.n_items + len(items)))
        note(db, actor, "add to queue", f"queue {queue_id}", items=len(items))
    return len(items)


def _insert_guideline(db: Connection, queue_id: int, version: int, text: str, actor: str) -> None:
    values = {"queue_id": queue_id, "version": version, "text": text, "actor": actor}
    db.execute(insert(Guideline), [values | {"created_at": store_now(db)}])


def _progress(db: Connection, queue_id: int) -> list[MemberProgress]:
    counted: dict[str, dict[str, int]] = {}
    of_queue = (
        select(Assignment.actor, Assignment.status, func.count(), func.count(Assignment.right))
        .add_columns(func.sum(case((Assignment.right == true(), 1), else_=0)))
        .join(QueueItem, QueueItem.id == Assignment.item_id)
        .where(QueueItem.queue_id == queue_id)
        .group_by(Assignment.actor, Assignment.status)
    )
    for actor, status, n, known, right in db.execute(of_queue):
        row = counted.setdefault(actor, {"known": 0, "right": 0})
        row[status] = n
        row["known"] += known
        row["right"] += int(right or 0)
    members = select(QueueMember.actor, QueueMember.joined_at).where(QueueMember.queue_id == queue_id)
    found = []
    for actor, joined_at in db.execute(members.order_by(QueueMember.joined_at, QueueMember.actor)).all():
        row = counted.get(actor, {})
        seconds, per_hour, last_at = _pace(db, queue_id, actor)
        counts = {"done": row.get("done", 0), "skipped": row.get("skipped", 0), "open": row.get("open", 0)}
        found.append(
            MemberProgress(
                actor=actor,
                joined_at=joined_at,
                **counts,
                known=row.get("known", 0),
                right=row.get("right", 0),
                seconds=seconds,
                per_hour=per_hour,
                last_at=last_at,
            )
        )
    return found


def _pace(db: Connection, queue_id: int, actor: str) -> tuple[float | None, float | None, datetime | None]:
    """(median seconds per item, answers per hour, when the last was given) over the last 200 answers."""
    query = (
        select(Assignment.seconds, Assignment.closed_at)
        .join(QueueItem, QueueItem.id == Assignment.item_id)
        .where(QueueItem.queue_id == queue_id, Assignment.actor == actor, Assignment.status == "done")
        .order_by(Assignment.closed_at.desc())
        .limit(LAST)
    )
    rows = db.execute(query).all()
    seconds = [row.seconds for row in rows if row.seconds is not None]
    times = [row.closed_at for row in rows if row.closed_at is not None]
    gaps = [(later - earlier).total_seconds() for later, earlier in pairwise(times)]
    gap = median(gaps) if gaps else 0.0
    return (
        median(seconds) if seconds else None,
        3600 / gap if gap > 0 else None,
        times[0] if times else None,
    )
