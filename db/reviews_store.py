"""Reviews by people: an append-only chain per person and chunk. Not: how a chain grows (review_chain), drafts
(drafts_store), reviews that came with a file (imported_reviews), agreement or effective labels (engine).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, func, select

from db.blind import hidden, hidden_chunks
from db.errors import NotFoundError
from db.queue_views import place_of, reopen_if_unanswered
from db.review_chain import REVIEW, head_of, review_row, said_by, take_back, write_review
from db.rows import ReviewDetails, ReviewRow
from db.session import StoreBase, batches, one_at_a_time
from db.tables import Chunk, Review
from db.totals import head_of_chain, in_force


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
        seen: int | None = None,
    ) -> ReviewRow:
        """Store a review; ``supersedes`` is the head of the actor's chain on this chunk as the card showed it.

        The same ``action_id`` again returns the stored row. ``seen``: the newest row of anybody on this chunk that the
        actor has looked at (0: none), for a decision that must know them all. Raises ReviewConflictError for a stale
        card, SpokenMeanwhileError where there is a newer row than ``seen``, NotFoundError for an unknown chunk,
        StoreValueError for a verdict other than -1, 0, 1, None or a span that is not in the chunk, NotAllowedError for
        a reader, and for an adjudication by anybody but an owner.
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
                seen=seen,
            )

    def undo(self, action_id: str, actor: str, chunk_id: int, *, review_id: int | None = None) -> ReviewRow:
        """Take back what the actor says on this chunk: what was said before it is in force again.

        A new row; the same ``action_id`` again returns the stored one. ``review_id``: the review that is meant.
        Raises ReviewConflictError if nothing is left to take back, or another review than that one is in force.
        """
        with self.write() as db:
            said = said_by(db, head_of(db, chunk_id, actor))
            item_id = said.item_id if said else None
            if item_id is not None:
                one_at_a_time(db, f"queue {place_of(db, item_id).queue_id}")
            row = take_back(db, action_id, actor, chunk_id, review_id=review_id)
            if item_id is not None:
                reopen_if_unanswered(db, item_id, actor)
            return row

    def chain_head(self, chunk_id: int, actor: str) -> ReviewRow | None:
        """The last row of the actor's chain on this chunk: what a card passes back as ``supersedes``."""
        with self.read() as db:
            if self._withheld(db, actor, chunk_id):
                return None
            return head_of(db, chunk_id, actor)

    def last_review(self, actor: str) -> ReviewRow | None:
        """The newest of the actor's reviews that is in force: what "undo the last" takes back, reload or not."""
        said = case((Review.kind == "undo", Review.restores), else_=Review.id)
        with self.read() as db:
            newest = db.scalar(select(func.max(said)).where(Review.actor == actor, head_of_chain()))
            row = review_row(db, newest)
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
                query = select(*REVIEW, Chunk.trajectory_id).join(Chunk, Chunk.id == Review.chunk_id)
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

    def _withheld(self, db: Connection, actor: str, chunk_id: int) -> bool:
        """Whether it is somebody else's review of a chunk that a blind queue hides from the viewer."""
        return self.viewer not in (None, actor) and bool(hidden_chunks(db, self.viewer, [chunk_id]))

    def _only_mine(self, blind: bool) -> list[Any]:
        return [Review.actor == self.viewer] if blind else []


def _history(db: Connection, *where: Any) -> list[HistoryRow]:
    query = select(*REVIEW, Chunk.idx).join(Chunk, Chunk.id == Review.chunk_id)
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
