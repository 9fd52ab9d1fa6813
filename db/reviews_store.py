"""Reviews by people: an append-only chain per person and chunk; drafts. Not: agreement or effective labels (engine).

A card on screen has an ``action_id``: however often it is sent, one row is stored. A card that was drawn before its
author's chain moved on is refused (ReviewConflictError), so nothing is overwritten unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, case, func, insert, select, update

from db.blind import hidden, hidden_chunks
from db.errors import NotFoundError, ReviewConflictError, StoreValueError
from db.opinions import refresh_opinions
from db.people_store import need, note
from db.queue_views import place_of, reopen_if_unanswered
from db.rows import ReviewDetails, ReviewRow
from db.session import StoreBase, batches, columns, one_at_a_time, rows_of, store_now, upsert
from db.tables import Chunk, Draft, Review, Trajectory
from db.totals import Delta, head_of_chain, in_force

VERDICTS = (-1, 0, 1, None)
KINDS = ("review", "adjudication")
FLAGS = ("flag", "bad-problem")
_COLUMNS = columns(ReviewRow, Review)


@dataclass(frozen=True)
class HistoryRow:
    """One step of a chunk's history: who, when, from what to what, why.

    ``review`` is the row (an undo repeats what is in force after it); ``before`` what its author said until then
    (None: nothing); ``in_force``: it is what its author says now.
    """

    review: ReviewRow
    idx: int
    before: ReviewRow | None
    in_force: bool


@dataclass(frozen=True)
class ImportedReview:
    """A review that came with a file. ``idx``: the chunk's index; ``created_at`` None: now."""

    idx: int
    verdict: int | None
    comment: str
    actor: str
    created_at: datetime | None = None


class ReviewsStore(StoreBase):
    """Every write is one short transaction in which the chain's head is looked at again."""

    def add_review(
        self,
        chunk_id: int,
        action_id: str,
        actor: str,
        verdict: int | None,
        comment: str = "",
        *,
        supersedes: int | None = None,
        kind: str = "review",
        details: ReviewDetails = ReviewDetails(),
    ) -> ReviewRow:
        """Store a review; ``supersedes`` is the head of the actor's chain on this chunk as the card showed it.

        The same ``action_id`` again returns the stored row. Raises ReviewConflictError for a stale card,
        NotFoundError for an unknown chunk, StoreValueError for a verdict other than -1, 0, 1, None or a span that is
        not in the chunk, NotAllowedError for a reader, and for an adjudication by anybody but an owner.
        """
        with self.write() as db:
            return write_review(
                db,
                chunk_id,
                action_id,
                actor,
                verdict,
                comment,
                supersedes=supersedes,
                kind=kind,
                details=details,
            )

    def undo(self, action_id: str, actor: str, chunk_id: int) -> ReviewRow:
        """Take back what the actor says on this chunk: what was said before it is in force again.

        A new row; the same ``action_id`` again returns the stored one. Raises ReviewConflictError if nothing is left
        to take back.
        """
        with self.write() as db:
            said = _said(db, _head(db, chunk_id, actor))
            item_id = said.item_id if said else None
            if item_id is not None:
                one_at_a_time(db, f"queue {place_of(db, item_id).queue_id}")
            row = take_back(db, action_id, actor, chunk_id)
            if item_id is not None:
                reopen_if_unanswered(db, item_id, actor)
            return row

    def add_imported_reviews(
        self, trajectory_id: int, rows: Iterable[ImportedReview | dict[str, Any]]
    ) -> int:
        """Store reviews that came with a solution, once: importing the file again adds nothing. Returns how many."""
        given = [row if isinstance(row, ImportedReview) else ImportedReview(**row) for row in rows]
        added = 0
        with self.write() as db:
            query = select(Chunk.idx, Chunk.id).where(Chunk.trajectory_id == trajectory_id)
            chunks = {idx: id_ for idx, id_ in db.execute(query)} if given else {}
            for place, row in enumerate(given):
                _check(row.verdict, "review", row.actor)
                if row.idx not in chunks:
                    raise NotFoundError(f"trajectory {trajectory_id} has no chunk {row.idx} to review")
                chunk_id = chunks[row.idx]
                action_id = sha256(
                    f"import/{trajectory_id}/{place}/{row.idx}/{row.actor}".encode()
                ).hexdigest()
                if _begin(db, chunk_id, action_id, row.actor) is None:
                    head = _head(db, chunk_id, row.actor)
                    above = head.id if head else None
                    _append(
                        db,
                        chunk_id,
                        action_id,
                        row.actor,
                        row.verdict,
                        row.comment,
                        "review",
                        above,
                        None,
                        row.created_at,
                    )
                    added += 1
        return added

    def chain_head(self, chunk_id: int, actor: str) -> ReviewRow | None:
        """The last row of the actor's chain on this chunk: what a card passes back as ``supersedes``."""
        with self.read() as db:
            if self._withheld(db, actor, chunk_id):
                return None
            return _head(db, chunk_id, actor)

    def last_review(self, actor: str) -> ReviewRow | None:
        """The newest of the actor's reviews that is in force: what "undo the last" takes back, reload or not."""
        said = case((Review.kind == "undo", Review.restores), else_=Review.id)
        with self.read() as db:
            newest = db.scalar(select(func.max(said)).where(Review.actor == actor, head_of_chain()))
            row = _row(db, newest)
            return None if row is None or self._withheld(db, actor, row.chunk_id) else row

    def history(self, chunk_id: int) -> list[HistoryRow]:
        """Everything that people said of one chunk, oldest first; of a hidden one what the viewer said."""
        with self.read() as db:
            mine = self._only_mine(bool(hidden_chunks(db, self.viewer, [chunk_id])))
            return _history(db, Chunk.id == chunk_id, *mine)

    def reviews_of(self, trajectory_id: int) -> list[HistoryRow]:
        """Everything that people said of one trajectory's chunks, oldest first; of a hidden one what the viewer said."""
        with self.read() as db:
            mine = self._only_mine(bool(hidden(db, self.viewer, [trajectory_id])))
            return _history(db, Chunk.trajectory_id == trajectory_id, *mine)

    def reviews_in_force(self, trajectory_ids: Iterable[int]) -> dict[int, list[ReviewRow]]:
        """{chunk id: what each person says of it now}; chunks without a review are left out, and others' of hidden ones."""
        found: dict[int, list[ReviewRow]] = {}
        said = case((Review.kind == "undo", Review.restores), else_=Review.id)
        with self.read() as db:
            for batch in batches(trajectory_ids):
                heads = select(said).join(Chunk, Chunk.id == Review.chunk_id)
                heads = heads.where(Chunk.trajectory_id.in_(batch), in_force())
                query = select(*_COLUMNS, Chunk.trajectory_id).join(Chunk, Chunk.id == Review.chunk_id)
                query = query.where(Review.id.in_(heads)).order_by(Review.id)
                away = hidden(db, self.viewer, batch)
                for *values, owner in db.execute(query):
                    row = ReviewRow(*values)
                    if owner in away and row.actor != self.viewer:
                        continue
                    found.setdefault(row.chunk_id, []).append(row)
        return found

    def chunk_place(self, chunk_id: int) -> tuple[int, int]:
        """(trajectory id, index) of a chunk. Raises NotFoundError."""
        with self.read() as db:
            row = db.execute(select(Chunk.trajectory_id, Chunk.idx).where(Chunk.id == chunk_id)).first()
            if row is None:
                raise NotFoundError(f"there is no chunk {chunk_id}")
            return row.trajectory_id, row.idx

    def get_draft(self, actor: str, chunk_id: int) -> str:
        """The actor's half-typed comment on this chunk; empty if there is none."""
        return self.draft(actor, chunk_id)[0]

    def draft(self, actor: str, chunk_id: int) -> tuple[str, dict[str, Any]]:
        """The actor's half-done review of this chunk: the comment, and what else was half done (flag, span, correction).

        Nobody else is shown one.
        """
        if self.viewer not in (None, actor):
            return "", {}
        query = select(Draft.text, Draft.data).where(Draft.actor == actor, Draft.chunk_id == chunk_id)
        with self.read() as db:
            row = db.execute(query).first()
            return (row.text, row.data or {}) if row else ("", {})

    def put_draft(self, actor: str, chunk_id: int, text: str, data: dict[str, Any] | None = None) -> None:
        """Keep a half-done review; storing it empties the draft. Raises NotAllowedError for a reader.

        Not on the audit list: nobody else sees a draft.
        """
        with self.write() as db:
            need(db, actor, "annotator", "keeping a draft")
            _put_draft(db, actor, chunk_id, text, data)

    def _withheld(self, db: Connection, actor: str, chunk_id: int) -> bool:
        """Whether it is somebody else's review of a chunk that a blind queue hides from the viewer."""
        return self.viewer not in (None, actor) and bool(hidden_chunks(db, self.viewer, [chunk_id]))

    def _only_mine(self, blind: bool) -> list[Any]:
        return [Review.actor == self.viewer] if blind else []


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
) -> ReviewRow:
    """``add_review`` inside a transaction that writes more than the review."""
    _check(verdict, kind, actor)
    known = _begin(db, chunk_id, action_id, actor)
    if known is not None:
        return known
    need(
        db,
        actor,
        "owner" if kind == "adjudication" else "annotator",
        "adjudicating" if kind == "adjudication" else "reviewing",
    )
    _check_details(db, chunk_id, details)
    head = _head(db, chunk_id, actor)
    if (head.id if head else None) != supersedes:
        raise ReviewConflictError(
            f"chunk {chunk_id}: {actor}'s review was changed since this card was drawn; nothing was stored. "
            "Look at the chunk again"
        )
    row = _append(db, chunk_id, action_id, actor, verdict, comment, kind, supersedes, None, None, details)
    _put_draft(db, actor, chunk_id, "")
    note(db, actor, kind, f"chunk {chunk_id}", verdict=verdict)
    return row


def take_back(
    db: Connection, action_id: str, actor: str, chunk_id: int, *, whole_item: int | None = None
) -> ReviewRow:
    """``undo`` inside a transaction that writes more. ``whole_item``: go back to before every answer to that item."""
    known = _begin(db, chunk_id, action_id, actor)
    if known is not None:
        return known
    need(db, actor, "annotator", "reviewing")
    head = _head(db, chunk_id, actor)
    said = _said(db, head)
    if head is None or said is None:
        raise ReviewConflictError(f"chunk {chunk_id}: {actor} has no review there to take back")
    before = _said(db, _row(db, said.supersedes))
    while before is not None and whole_item is not None and before.item_id == whole_item:
        before = _said(db, _row(db, before.supersedes))
    verdict, comment, restores = (before.verdict, before.comment, before.id) if before else (None, "", None)
    details = _details(before) if before else ReviewDetails(item_id=said.item_id)
    note(db, actor, "undo", f"chunk {chunk_id}", was=said.verdict)
    return _append(db, chunk_id, action_id, actor, verdict, comment, "undo", head.id, restores, None, details)


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


def _details(row: ReviewRow) -> ReviewDetails:
    return ReviewDetails(**{field.name: getattr(row, field.name) for field in fields(ReviewDetails)})


def _check(verdict: int | None, kind: str, actor: str) -> None:
    if verdict not in VERDICTS or isinstance(verdict, bool):
        raise StoreValueError(f"a review's verdict is 1, 0, -1 or None (cannot tell), not {verdict!r}")
    if kind not in KINDS:
        raise StoreValueError(f"a review is one of {', '.join(KINDS)}, not {kind!r}")
    if not actor.strip():
        raise StoreValueError("a review needs an actor: who is it from?")


def _begin(db: Connection, chunk_id: int, action_id: str, actor: str) -> ReviewRow | None:
    """Lock the chunk's chain; the row that this action stored already, if it did."""
    one_at_a_time(db, f"reviews of {chunk_id}")
    known = rows_of(ReviewRow, db.execute(select(*_COLUMNS).where(Review.action_id == action_id)))
    if known and (known[0].chunk_id, known[0].actor) != (chunk_id, actor):
        raise ReviewConflictError(
            f"action {action_id!r} was used for another chunk or by another person; nothing was stored"
        )
    if not known and db.scalar(select(Chunk.id).where(Chunk.id == chunk_id)) is None:
        raise NotFoundError(f"there is no chunk {chunk_id}; nothing was stored")
    return known[0] if known else None


def _row(db: Connection, review_id: int | None) -> ReviewRow | None:
    if review_id is None:
        return None
    rows = rows_of(ReviewRow, db.execute(select(*_COLUMNS).where(Review.id == review_id)))
    return rows[0] if rows else None


def _head(db: Connection, chunk_id: int, actor: str) -> ReviewRow | None:
    query = (
        select(*_COLUMNS).where(Review.chunk_id == chunk_id, Review.actor == actor).order_by(Review.id.desc())
    )
    rows = rows_of(ReviewRow, db.execute(query.limit(1)))
    return rows[0] if rows else None


def _said(db: Connection, row: ReviewRow | None) -> ReviewRow | None:
    """The review that is in force when ``row`` is its chain's head."""
    if row is None or row.kind != "undo":
        return row
    return _row(db, row.restores)


def _append(
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
    row = rows_of(ReviewRow, db.execute(insert(Review).values(values).returning(*_COLUMNS)))[0]
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


def _history(db: Connection, *where: Any) -> list[HistoryRow]:
    query = select(*_COLUMNS, Chunk.idx).join(Chunk, Chunk.id == Review.chunk_id)
    query = query.where(*where).order_by(Review.id)
    found = [(ReviewRow(*values), idx) for *values, idx in db.execute(query)]
    rows = {row.id: row for row, _ in found}
    superseded = {row.supersedes for row in rows.values()}
    heads = [row for row in rows.values() if row.id not in superseded]
    valid = {row.restores if row.kind == "undo" else row.id for row in heads}
    steps = []
    for row, idx in found:
        before = rows.get(row.supersedes) if row.supersedes is not None else None
        steps.append(
            HistoryRow(row, idx, before if before and before.says_something else None, row.id in valid)
        )
    return steps


def _put_draft(
    db: Connection, actor: str, chunk_id: int, text: str, data: dict[str, Any] | None = None
) -> None:
    statement = upsert(db, Draft, ["actor", "chunk_id"], ["text", "data", "updated_at"])
    values = {"actor": actor, "chunk_id": chunk_id, "text": text, "data": data, "updated_at": store_now(db)}
    db.execute(statement, [values])
