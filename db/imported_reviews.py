"""Reviews that came with a file: each stored once, however often the file is imported. Not: reading files (engine)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, select

from db.errors import NotFoundError
from db.review_chain import append, begin, check_review, details_of, head_of, own_action, said_by
from db.rows import ReviewDetails
from db.session import StoreBase
from db.tables import Chunk


@dataclass(frozen=True)
class ImportedReview:
    """A review that came with a file. ``idx``: the chunk's index; ``created_at`` None: now."""

    idx: int
    verdict: int | None
    comment: str
    actor: str
    created_at: datetime | None = None


class ImportedReviewsStore(StoreBase):
    """The write of an import."""

    def add_imported_reviews(
        self, trajectory_id: int, rows: Iterable[ImportedReview | dict[str, Any]]
    ) -> int:
        """Store reviews that came with a solution, once: importing the file again adds nothing but those that were
        edited in it. Returns how many.

        One that is older than what its author says of the chunk by now is stored in their history, and what they say
        stays in force.
        """
        given = [row if isinstance(row, ImportedReview) else ImportedReview(**row) for row in rows]
        added = 0
        with self.write() as db:
            query = select(Chunk.idx, Chunk.id).where(Chunk.trajectory_id == trajectory_id)
            chunks = {idx: id_ for idx, id_ in db.execute(query)} if given else {}
            for place, row in enumerate(given):
                check_review(row.verdict, "review", row.actor)
                if row.idx not in chunks:
                    raise NotFoundError(f"trajectory {trajectory_id} has no chunk {row.idx} to review")
                chunk_id = chunks[row.idx]
                action_id = _hash(f"import/{trajectory_id}/{place}/{row.idx}/{row.actor}")
                action_id = own_action(db, action_id, chunk_id, row.actor)
                known = begin(db, chunk_id, action_id, row.actor)
                if known and (known.verdict, known.comment) != (
                    row.verdict,
                    row.comment,
                ):  # the file was edited
                    action_id = _hash(f"{action_id}/{row.verdict}/{row.comment}")
                    action_id = own_action(db, action_id, chunk_id, row.actor)
                    known = begin(db, chunk_id, action_id, row.actor)
                if known is None:
                    _append(db, chunk_id, action_id, row)
                    added += 1
        return added


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _append(db: Connection, chunk_id: int, action_id: str, row: ImportedReview) -> None:
    """Put the review at the end of its actor's chain; what they said later than it stays in force."""
    head = head_of(db, chunk_id, row.actor)
    above = head.id if head else None
    stored = append(
        db, chunk_id, action_id, row.actor, row.verdict, row.comment, "review", above, None, row.created_at
    )
    if head is None or stored.created_at >= head.created_at:
        return
    again, said = _hash(f"{action_id}/older"), said_by(db, head)
    verdict, comment, restores = (said.verdict, said.comment, said.id) if said else (None, "", None)
    append(
        db,
        chunk_id,
        again,
        row.actor,
        verdict,
        comment,
        "undo",
        stored.id,
        restores,
        head.created_at,
        details_of(said) if said else ReviewDetails(),
    )
