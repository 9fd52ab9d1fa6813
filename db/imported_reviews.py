"""Reviews that came with a file: each stored once, however often the file is imported. Not: reading files (engine)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import select

from db.errors import NotFoundError
from db.review_chain import append, begin, check_review, head_of
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
        """Store reviews that came with a solution, once: importing the file again adds nothing. Returns how many."""
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
                action_id = sha256(
                    f"import/{trajectory_id}/{place}/{row.idx}/{row.actor}".encode()
                ).hexdigest()
                if begin(db, chunk_id, action_id, row.actor) is None:
                    head = head_of(db, chunk_id, row.actor)
                    above = head.id if head else None
                    append(
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
