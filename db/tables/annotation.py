"""Queues of chunks to review, who works in them, and what they were told. Not: the reviews (reviews)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Id, UtcDateTime, utc_now
from db.tables.base import Base

ORDERS = (
    "disagreement",
    "least-confident",
    "biggest-drop",
    "judges-disagree",
    "label-noise",
    "random",
    "reading",
)
MODES = ("chunk", "first-error")


class Queue(Base):
    """A named list of items, made once from a filter and an order; its members are asked in that order.

    ``mode``: ``chunk``, an item is one chunk; ``first-error``, an item is a solution, read until its first error.
    """

    __tablename__ = "queues"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    mode: Mapped[str] = mapped_column(String(16))
    order: Mapped[str] = mapped_column(String(32))
    recipe: Mapped[dict[str, Any]] = mapped_column(JSON)
    """How the items were chosen: filter, order, rule, judge, seed, limit."""
    blind: Mapped[bool]
    """Its members see neither values, verdicts, rationales nor others' reviews of a solution that has items left."""
    reviews_per_item: Mapped[int]
    n_items: Mapped[int]
    n_settled: Mapped[int] = mapped_column(default=0)
    """Cache: items that are settled."""
    actor: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    closed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    __table_args__ = (
        CheckConstraint(f"mode IN {MODES}", name="mode"),
        CheckConstraint("reviews_per_item >= 1", name="reviews_per_item"),
    )


class QueueItem(Base):
    """One thing to answer. ``known``: a quality-control item, with the verdict that is right; every member gets it.

    ``chunk_id`` None: the whole solution (mode first-error; ``known`` is then the index of its first error, −1: none).
    """

    __tablename__ = "queue_items"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    queue_id: Mapped[int] = mapped_column(ForeignKey("queues.id"))
    position: Mapped[int]
    trajectory_id: Mapped[int] = mapped_column(ForeignKey("trajectories.id"), index=True)
    chunk_id: Mapped[int | None] = mapped_column(ForeignKey("chunks.id"), index=True)
    known: Mapped[int | None]
    n_done: Mapped[int]
    """Cache: assignments of it that are done."""
    settled: Mapped[bool] = mapped_column(default=False)
    """Cache: it has as many answers as its queue asks for. Never true of a quality-control item."""
    __table_args__ = (
        UniqueConstraint("queue_id", "position"),
        UniqueConstraint("queue_id", "trajectory_id", "chunk_id"),
        # The next item is the first of a queue's unsettled ones: however much of it is done, nothing is walked over.
        Index("ix_queue_items_next", "queue_id", "settled", "position"),
    )


class QueueMember(Base):
    """Somebody who began to work in a queue: from then on a blind queue hides what its items must not show."""

    __tablename__ = "queue_members"
    queue_id: Mapped[int] = mapped_column(ForeignKey("queues.id"), primary_key=True)
    actor: Mapped[str] = mapped_column(String(200), primary_key=True, index=True)
    joined_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    position: Mapped[int] = mapped_column(default=-1)
    """The furthest item that was handed out: the search for the next one begins behind it."""
    n_done: Mapped[int] = mapped_column(default=0)
    """Cache: items that the member answered."""


class Assignment(Base):
    """An item in somebody's hands. ``open`` ones that were not seen for a while may go to others too."""

    __tablename__ = "assignments"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    item_id: Mapped[int] = mapped_column(ForeignKey("queue_items.id"))
    actor: Mapped[str] = mapped_column(String(200))
    status: Mapped[str] = mapped_column(String(16))
    opened_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    closed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    seconds: Mapped[float | None]
    """From its appearance to the answer."""
    right: Mapped[bool | None]
    """Whether the answer to a quality-control item was the known one."""
    __table_args__ = (
        UniqueConstraint("item_id", "actor"),
        Index("ix_assignments_actor_status", "actor", "status", "item_id"),
        CheckConstraint("status IN ('open', 'done', 'skipped')", name="status"),
    )


class Guideline(Base):
    """What reviewers of a queue are told, in Markdown. Append-only: an edit is the next version."""

    __tablename__ = "guidelines"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    queue_id: Mapped[int] = mapped_column(ForeignKey("queues.id"))
    version: Mapped[int]
    text: Mapped[str] = mapped_column(Text)
    actor: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    __table_args__ = (UniqueConstraint("queue_id", "version"),)
