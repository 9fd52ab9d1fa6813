"""What people said of chunks, and what follows from it at once. Not: the queues that ask them (annotation)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Id, UtcDateTime, utc_now
from db.tables.base import Base


class Review(Base):
    """What a person said of a chunk. Append-only.

    One chain per person and chunk: a change or an undo is a new row whose ``supersedes`` (unique) is the row it
    replaces. An undo names in ``restores`` the review that is in force again and repeats its verdict and comment
    (``restores`` None: nothing is said any more). The row of a chain that nobody supersedes is its head.
    """

    __tablename__ = "reviews"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    chunk_id: Mapped[int] = mapped_column(ForeignKey("chunks.id"), index=True)
    action_id: Mapped[str] = mapped_column(String(64), unique=True)
    kind: Mapped[str] = mapped_column(String(16), default="review")
    verdict: Mapped[int | None]
    """1 sound, -1 error, 0 neutral; None: cannot tell (kind review) or taken back (kind undo)."""
    comment: Mapped[str] = mapped_column(Text, default="")
    actor: Mapped[str] = mapped_column(String(200))
    supersedes: Mapped[int | None] = mapped_column(ForeignKey("reviews.id"), unique=True)
    restores: Mapped[int | None] = mapped_column(ForeignKey("reviews.id"))
    flag: Mapped[str | None] = mapped_column(String(16))
    """``flag``: somebody should look at this; ``bad-problem``: the problem or its reference answer is wrong."""
    span_start: Mapped[int | None]
    """Characters [span_start, span_end) of the chunk's text that hold the error."""
    span_end: Mapped[int | None]
    correction: Mapped[str | None] = mapped_column(Text)
    """What the chunk should have said."""
    item_id: Mapped[int | None] = mapped_column(ForeignKey("queue_items.id"), index=True)
    """The queue's item that it answers; None: given on the page of its trajectory, or imported."""
    guideline_id: Mapped[int | None] = mapped_column(ForeignKey("guidelines.id"))
    """The guidelines that stood beside the item."""
    seconds: Mapped[float | None]
    """From the item's appearance to the answer."""
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    __table_args__ = (
        Index("ix_reviews_actor_id", "actor", "id"),
        CheckConstraint("verdict IN (-1, 0, 1)", name="verdict"),
        CheckConstraint("kind IN ('review', 'undo', 'adjudication')", name="kind"),
    )


class Draft(Base):
    """A half-typed comment, kept so that a reload loses nothing. One per person and chunk."""

    __tablename__ = "drafts"
    actor: Mapped[str] = mapped_column(String(200), primary_key=True)
    chunk_id: Mapped[int] = mapped_column(ForeignKey("chunks.id"), primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """What else was half done: flag, span, correction."""
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class ChunkOpinion(Base):
    """Cache, rebuildable: what the reviews in force on a chunk amount to; changed with every review.

    ``verdict``: ``+`` or ``-`` where adjudication or consensus says so (0 and "cannot tell" abstain).
    """

    __tablename__ = "chunk_opinions"
    chunk_id: Mapped[int] = mapped_column(ForeignKey("chunks.id"), primary_key=True)
    plus: Mapped[int]
    minus: Mapped[int]
    abstained: Mapped[int]
    adjudicated: Mapped[bool]
    disputed: Mapped[bool]
    """Reviewers disagree and nobody adjudicated: the chunk has no effective label."""
    flag: Mapped[str | None] = mapped_column(String(16))
    verdict: Mapped[str | None] = mapped_column(String(1))
    __table_args__ = (
        Index("ix_chunk_opinions_disputed", "disputed", "chunk_id"),
        Index("ix_chunk_opinions_flag", "flag", "chunk_id"),
    )
