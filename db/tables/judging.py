"""Judges, what they said, and the cache of how they voted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Id, UtcDateTime, utc_now
from db.tables.base import Base


class Judge(Base):
    """Something that reads problem, history and chunk and returns a verdict; identified by weights, prompt, sampling."""

    __tablename__ = "judges"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    kind: Mapped[str] = mapped_column(String(32))
    checkpoint: Mapped[str] = mapped_column(Text)
    checkpoint_hash: Mapped[str] = mapped_column(String(64))
    prompt_name: Mapped[str] = mapped_column(String(200))
    prompt_hash: Mapped[str] = mapped_column(String(64))
    sampling: Mapped[dict[str, Any]] = mapped_column(JSON)
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    __table_args__ = (UniqueConstraint("checkpoint_hash", "prompt_hash", "sampling_digest"),)
    sampling_digest: Mapped[str] = mapped_column(String(16))


class Judgment(Base):
    """One output of a judge on one chunk. ``verdict`` None: it never boxed one of the two words."""

    __tablename__ = "judgments"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"))
    chunk_id: Mapped[int] = mapped_column(ForeignKey("chunks.id"), index=True)
    draw: Mapped[int]
    verdict: Mapped[str | None] = mapped_column(String(8))
    score: Mapped[float | None]
    """A discriminative judge's probability of ``+``; None for a generative judgment."""
    rationale: Mapped[str] = mapped_column(Text)
    n_tokens: Mapped[int]
    finish_reason: Mapped[str] = mapped_column(String(16))
    seed: Mapped[int] = mapped_column(BigInteger)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), index=True)
    __table_args__ = (
        UniqueConstraint("judge_id", "chunk_id", "draw"),
        CheckConstraint("verdict IN ('positive', 'negative')", name="verdict"),
    )


class ChunkVote(Base):
    """Cache, rebuildable: how a judge voted on a chunk. ``verdict``: its majority; None: a tie, or it never gave one."""

    __tablename__ = "chunk_votes"
    chunk_id: Mapped[int] = mapped_column(ForeignKey("chunks.id"), primary_key=True)
    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"), primary_key=True)
    positive: Mapped[int]
    negative: Mapped[int]
    total: Mapped[int]
    verdict: Mapped[str | None] = mapped_column(String(8))
    __table_args__ = (Index("ix_chunk_votes_judge_id_verdict_chunk_id", "judge_id", "verdict", "chunk_id"),)
