"""How an answer becomes reviews and closes its item, and which answer is the newest. Called by queue_work under the
queue's lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, exists, select, update

from db.errors import ReviewConflictError
from db.queue_views import Held, Place, answers_of, chain_of, newest_guideline, recount
from db.review_chain import take_back, write_review
from db.rows import ReviewDetails, ReviewRow
from db.session import batches, columns, rows_of, store_now
from db.tables import Assignment, Chunk, Draft, QueueItem, Review

_HEAD = Review.__table__.alias("head")
_LATER = Review.__table__.alias("later")


def stored(db: Connection, action_id: str) -> ReviewRow | None:
    query = select(*columns(ReviewRow, Review)).where(Review.action_id == action_id)
    rows = rows_of(ReviewRow, db.execute(query))
    return rows[0] if rows else None


def filled_in(db: Connection, place: Place, holding: Held, details: ReviewDetails) -> ReviewDetails:
    guideline = details.guideline_id
    if guideline is None and (beside := newest_guideline(db, place.queue_id)):
        guideline = beside.id
    seconds = (store_now(db) - holding.opened_at).total_seconds()
    if holding.status != "open" or seconds < 0:  # a change, or the clock went back: not known
        return replace(details, item_id=place.item_id, guideline_id=guideline, seconds=None)
    return replace(details, item_id=place.item_id, guideline_id=guideline, seconds=seconds)


def finish(
    db: Connection, place: Place, actor: str, holding: Held, seconds: float | None, right: bool | None
) -> None:
    values: dict[str, Any] = {"status": "done", "right": right}
    if holding.status != "done":
        values |= {"closed_at": store_now(db), "seconds": seconds}
    db.execute(update(Assignment).where(Assignment.id == holding.id).values(values))
    recount(db, place.item_id, actor)


def derived(action_id: str, idx: int) -> str:
    """The action's id on a further chunk."""
    return sha256(f"{action_id}/{idx}".encode()).hexdigest()


def say(
    db: Connection,
    place: Place,
    action_id: str,
    actor: str,
    chunks: list[int],
    first_error: int,
    comment: str,
    details: ReviewDetails,
) -> list[ReviewRow]:
    """One review for each chunk up to the first error; what an earlier answer said of later ones is taken back.

    With each goes what is half done on it, else what an earlier answer with the same verdict said of it; with the last
    what is given, if anything is.
    """
    last = first_error if first_error >= 0 else len(chunks) - 1
    plain = ReviewDetails(item_id=details.item_id, guideline_id=details.guideline_id)
    given = bool(comment) or replace(details, seconds=None) != plain
    typed = _half_done(db, actor, chunks[: last + 1])
    rows = []
    for idx, chunk_id in enumerate(chunks[: last + 1]):
        head, before = chain_of(db, chunk_id, actor)
        verdict = -1 if idx == first_error else 1
        words, more = comment, details
        if idx < last or not given:
            words, more = typed.get(chunk_id) or _words(before, details.item_id, verdict)
            more = replace(more, item_id=details.item_id, guideline_id=details.guideline_id)
            more = replace(more, seconds=details.seconds if idx == last else None)
        rows.append(
            write_review(
                db,
                chunk_id,
                action_id if idx == 0 else derived(action_id, idx),
                actor,
                verdict,
                words,
                supersedes=head.id if head else None,
                details=more,
            )
        )
    for idx, row in answers_of(db, place, actor).items():
        if idx > last:
            take_back(db, derived(action_id, idx), actor, row.chunk_id, whole_item=place.item_id)
    return rows


def _half_done(db: Connection, actor: str, chunk_ids: Sequence[int]) -> dict[int, tuple[str, ReviewDetails]]:
    """{chunk id: comment and details that the actor has not stored yet}."""
    found = {}
    for batch in batches(chunk_ids):
        query = select(Draft.chunk_id, Draft.text, Draft.data, Chunk.text.label("chunk"))
        query = query.join(Chunk, Chunk.id == Draft.chunk_id)
        for row in db.execute(query.where(Draft.actor == actor, Draft.chunk_id.in_(batch))):
            data = row.data or {}
            if not (row.text or data):  # stored since
                continue
            start, end = data.get("span") or (None, None)
            correction = data.get("correction")
            if (correction or "").strip() in ("", row.chunk.strip()):
                correction = None
            details = ReviewDetails(
                flag=data.get("flag"), span_start=start, span_end=end, correction=correction
            )
            found[row.chunk_id] = (row.text.strip(), details)
    return found


def _words(said: ReviewRow | None, item_id: int | None, verdict: int) -> tuple[str, ReviewDetails]:
    """What the review that answered this item said beyond its verdict, if that was this one."""
    if said is None or (said.item_id, said.verdict) != (item_id, verdict):
        return "", ReviewDetails()
    return said.comment, ReviewDetails(
        flag=said.flag, span_start=said.span_start, span_end=said.span_end, correction=said.correction
    )


def newest(db: Connection, queue_id: int, actor: str) -> ReviewRow | None:
    """The newest of the actor's answers in the queue that is in force."""
    in_force = exists().where(
        _HEAD.c.chunk_id == Review.chunk_id,
        _HEAD.c.actor == Review.actor,
        (_HEAD.c.id == Review.id) | (_HEAD.c.restores == Review.id),
        ~exists().where(_LATER.c.supersedes == _HEAD.c.id),
    )
    items = select(QueueItem.id).where(QueueItem.queue_id == queue_id)
    query = select(*columns(ReviewRow, Review)).where(
        Review.actor == actor, Review.kind != "undo", Review.item_id.in_(items), in_force
    )
    rows = rows_of(ReviewRow, db.execute(query.order_by(Review.id.desc()).limit(1)))
    return rows[0] if rows else None


def undone(db: Connection, undo: ReviewRow, actor: str, action_id: str) -> int:
    """The item that an undo, stored before under this id, took back."""
    query = select(Review.item_id).where(Review.id == undo.supersedes)
    item_id = db.scalar(query)
    if undo.actor != actor or undo.kind != "undo" or item_id is None:
        raise ReviewConflictError(f"action {action_id!r} was used for something else; nothing was taken back")
    return item_id
