"""One person's chain of reviews on one chunk: writing a review and taking one back, inside a transaction.

A card on screen has an ``action_id``: however often it is sent, one row is stored. A card that was drawn before its
author's chain moved on is refused (ReviewConflictError), so nothing is overwritten unseen. Not: whole writes and reads
(reviews_store), what reviews amount to (opinions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from hashlib import sha256

from sqlalchemy import Connection, func, insert, select, update

from db.drafts_store import keep_draft
from db.errors import NotFoundError, ReviewConflictError, SpokenMeanwhileError, StoreValueError
from db.opinions import refresh_opinions
from db.people_store import need, note
from db.rows import ReviewDetails, ReviewRow
from db.session import columns, one_opinion_at_a_time, rows_of, store_now
from db.tables import Chunk, Review, Trajectory
from db.totals import Delta, in_force

VERDICTS = (-1, 0, 1, None)
KINDS = ("review", "adjudication")
FLAGS = ("flag", "bad-problem")
REVIEW = columns(ReviewRow, Review)
"""The columns of a ReviewRow."""


def write_review(
    db: Connection,
    chunk_id: int,
    action_id: str,
    actor: str,
    verdict: int | None,
    comment: str,
    *,
    supersedes: int | None,
    kind: str = "review",
    details: ReviewDetails = ReviewDetails(),
    seen: int | None = None,
) -> ReviewRow:
    """``add_review`` inside a transaction that writes more than the review."""
    check_review(verdict, kind, actor)
    known = begin(db, chunk_id, action_id, actor)
    if known is not None:
        return known
    need(
        db,
        actor,
        "owner" if kind == "adjudication" else "annotator",
        "adjudicating" if kind == "adjudication" else "reviewing",
    )
    _check_details(db, chunk_id, details)
    head = head_of(db, chunk_id, actor)
    if (head.id if head else None) != supersedes:
        raise ReviewConflictError(
            f"chunk {chunk_id}: {actor}'s review was changed since this card was drawn; nothing was stored. "
            "Look at the chunk again"
        )
    if seen is not None:
        _check_seen(db, chunk_id, seen)
    row = append(db, chunk_id, action_id, actor, verdict, comment, kind, supersedes, None, None, details)
    keep_draft(db, actor, chunk_id, "")
    note(db, actor, kind, f"chunk {chunk_id}", verdict=verdict)
    return row


def take_back(
    db: Connection,
    action_id: str,
    actor: str,
    chunk_id: int,
    *,
    whole_item: int | None = None,
    review_id: int | None = None,
) -> ReviewRow:
    """``undo`` inside a transaction that writes more. ``whole_item``: go back to before every answer to that item."""
    known = begin(db, chunk_id, action_id, actor)
    if known is not None:
        return known
    head = head_of(db, chunk_id, actor)
    said = said_by(db, head)
    decided = said is not None and said.kind == "adjudication"
    need(db, actor, "owner" if decided else "annotator", "adjudicating" if decided else "reviewing")
    if head is None or said is None:
        raise ReviewConflictError(f"chunk {chunk_id}: {actor} has no review there to take back")
    if review_id not in (None, said.id):
        raise ReviewConflictError(
            f"chunk {chunk_id}: {actor}'s review was changed since this card was drawn; nothing was taken back. "
            "Look at the chunk again"
        )
    before = said_by(db, review_row(db, said.supersedes))
    while before is not None and whole_item is not None and before.item_id == whole_item:
        before = said_by(db, review_row(db, before.supersedes))
    verdict, comment, restores = (before.verdict, before.comment, before.id) if before else (None, "", None)
    details = details_of(before) if before else ReviewDetails(item_id=said.item_id)
    note(db, actor, "undo", f"chunk {chunk_id}", was=said.verdict)
    return append(db, chunk_id, action_id, actor, verdict, comment, "undo", head.id, restores, None, details)


def _check_seen(db: Connection, chunk_id: int, seen: int) -> None:
    """Raises SpokenMeanwhileError; the chunk is locked, so that nobody speaks between this and the write."""
    newest = db.scalar(select(func.max(Review.id)).where(Review.chunk_id == chunk_id)) or 0
    if newest != seen:
        raise SpokenMeanwhileError(
            f"chunk {chunk_id}: somebody spoke about this chunk since you opened it; nothing was stored. Look again"
        )


def _check_details(db: Connection, chunk_id: int, details: ReviewDetails) -> None:
    if details.flag is not None and details.flag not in FLAGS:
        raise StoreValueError(f"a review's flag is one of {', '.join(FLAGS)}, not {details.flag!r}")
    if (details.span_start, details.span_end) == (None, None):
        return
    length = len(db.scalar(select(Chunk.text).where(Chunk.id == chunk_id)) or "")
    start, end = details.span_start, details.span_end
    if start is None or end is None or not 0 <= start < end <= length:
        raise StoreValueError(
            f"chunk {chunk_id} has {length} characters: [{start}, {end}) is no span of it; nothing was stored"
        )


def details_of(row: ReviewRow) -> ReviewDetails:
    """What a review says beside its verdict and comment."""
    return ReviewDetails(**{field.name: getattr(row, field.name) for field in fields(ReviewDetails)})


def check_review(verdict: int | None, kind: str, actor: str) -> None:
    """Raises StoreValueError for what no review can be."""
    if verdict not in VERDICTS or isinstance(verdict, bool):
        raise StoreValueError(f"a review's verdict is 1, 0, -1 or None (cannot tell), not {verdict!r}")
    if kind not in KINDS:
        raise StoreValueError(f"a review is one of {', '.join(KINDS)}, not {kind!r}")
    if not actor.strip():
        raise StoreValueError("a review needs an actor: who is it from?")


def begin(db: Connection, chunk_id: int, action_id: str, actor: str) -> ReviewRow | None:
    """Lock the chains; the row that this action stored already, if it did."""
    one_opinion_at_a_time(db)
    known = rows_of(ReviewRow, db.execute(select(*REVIEW).where(Review.action_id == action_id)))
    if known and (known[0].chunk_id, known[0].actor) != (chunk_id, actor):
        raise ReviewConflictError(
            f"action {action_id!r} was used for another chunk or by another person; nothing was stored"
        )
    if not known and db.scalar(select(Chunk.id).where(Chunk.id == chunk_id)) is None:
        raise NotFoundError(f"there is no chunk {chunk_id}; nothing was stored")
    return known[0] if known else None


def own_action(db: Connection, action_id: str, chunk_id: int, actor: str) -> str:
    """The id, or where another chunk's or person's review has it, one made from it: imports into two stores give the same
    ids to different reviews, which a snapshot brings together."""
    query = select(Review.chunk_id, Review.actor).where(Review.action_id == action_id)
    if db.execute(query).first() in (None, (chunk_id, actor)):
        return action_id
    return sha256(f"{action_id}/{chunk_id}/{actor}".encode()).hexdigest()


def review_row(db: Connection, review_id: int | None) -> ReviewRow | None:
    """One review; None where there is none."""
    if review_id is None:
        return None
    rows = rows_of(ReviewRow, db.execute(select(*REVIEW).where(Review.id == review_id)))
    return rows[0] if rows else None


def head_of(db: Connection, chunk_id: int, actor: str) -> ReviewRow | None:
    """The last row of the actor's chain on the chunk."""
    query = (
        select(*REVIEW).where(Review.chunk_id == chunk_id, Review.actor == actor).order_by(Review.id.desc())
    )
    rows = rows_of(ReviewRow, db.execute(query.limit(1)))
    return rows[0] if rows else None


def said_by(db: Connection, row: ReviewRow | None) -> ReviewRow | None:
    """The review that is in force when ``row`` is its chain's head."""
    if row is None or row.kind != "undo":
        return row
    return review_row(db, row.restores)


def append(
    db: Connection,
    chunk_id: int,
    action_id: str,
    actor: str,
    verdict: int | None,
    comment: str,
    kind: str,
    supersedes: int | None,
    restores: int | None,
    created_at: datetime | None,
    details: ReviewDetails = ReviewDetails(),
) -> ReviewRow:
    """Write the chain's next row, with every cache and total that follows from it (the chunk is locked)."""
    reviewed = _is_reviewed(db, chunk_id)
    values = {
        "chunk_id": chunk_id,
        "action_id": action_id,
        "actor": actor,
        "verdict": verdict,
        "comment": comment,
        "kind": kind,
        "supersedes": supersedes,
        "restores": restores,
        "created_at": created_at or store_now(db),
        **details.__dict__,
    }
    row = rows_of(ReviewRow, db.execute(insert(Review).values(values).returning(*REVIEW)))[0]
    count_reviewed(db, [(chunk_id, reviewed, _is_reviewed(db, chunk_id))])
    refresh_opinions(db, [chunk_id])
    return row


def _is_reviewed(db: Connection, chunk_id: int) -> bool:
    return db.scalar(select(Review.id).where(Review.chunk_id == chunk_id, in_force()).limit(1)) is not None


def count_reviewed(db: Connection, changes: Sequence[tuple[int, bool, bool]]) -> None:
    """Keep n_reviewed and the totals right: (chunk id, reviewed before, reviewed after)."""
    delta = Delta()
    for chunk_id, before, after in changes:
        if before == after:
            continue
        step = int(after) - int(before)
        owner = select(Chunk.trajectory_id).where(Chunk.id == chunk_id).scalar_subquery()
        statement = (
            update(Trajectory).where(Trajectory.id == owner).values(n_reviewed=Trajectory.n_reviewed + step)
        )
        now = db.execute(statement.returning(Trajectory.n_reviewed)).scalar_one()
        delta.add("reviewed", "chunks", step)
        if now == (1 if step > 0 else 0):
            delta.add("reviewed", "trajectories", step)
    delta.apply(db)
