"""Runs and what they report, and the worker that starts them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import JSON, CheckConstraint, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Id, UtcDateTime, utc_now
from db.tables.base import Base

RUN_STATUSES = ("queued", "running", "done", "failed", "stopped", "stalled")
RUN_KINDS = (
    "sample",
    "rollout",
    "judge",
    "import",
    "build-set",
    "segment",
    "select-solutions",
    "train-judge",
    "train-judge-rsft",
    "train-judge-sft",
    "train-sft",
    "train-policy",
    "evaluate-judge",
    "evaluate-policy",
    "search",
    "loop",
    "lab",
)


class Run(Base):
    """One piece of long work. ``waiting_for`` says in words why a queued run does not start yet."""

    __tablename__ = "runs"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True, default=lambda: uuid4().hex)
    """The same in every store that a snapshot of the run is loaded into (ids differ)."""
    kind: Mapped[str] = mapped_column(String(32))
    status: Mapped[str] = mapped_column(String(16), default="queued", index=True)
    actor: Mapped[str] = mapped_column(String(200))
    recipe: Mapped[dict[str, Any]] = mapped_column(JSON)
    """Resolved: every field with the value in force, the seed included."""
    versions: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    prompt_hashes: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    done: Mapped[int] = mapped_column(default=0)
    done_at_start: Mapped[int] = mapped_column(default=0)
    """``done`` when this attempt began: a rate counts only what this attempt did since ``started_at``."""
    total: Mapped[int | None]
    unit: Mapped[str] = mapped_column(String(32), default="")
    """What done and total count: rollouts, trajectories, judgments, steps."""
    message: Mapped[str] = mapped_column(Text, default="")
    waiting_for: Mapped[str] = mapped_column(Text, default="")
    error: Mapped[str | None] = mapped_column(Text)
    result: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """What the run reports at its end: counts, the checkpoint it made, the measured rate."""
    stop_requested: Mapped[bool] = mapped_column(default=False)
    attempt: Mapped[int] = mapped_column(default=0)
    pid: Mapped[int | None]
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"), index=True)
    """The run that made this one as a part of itself (a loop's round); the worker leaves such a run to its parent."""
    name: Mapped[str | None] = mapped_column(String(200))
    """Which part of its parent's plan it is."""
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    heartbeat_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    __table_args__ = (CheckConstraint(f"status IN {RUN_STATUSES}", name="status"),)


class Metric(Base):
    """One number of a run at one step (reward, tokens_per_s, …)."""

    __tablename__ = "metrics"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    name: Mapped[str] = mapped_column(String(120))
    step: Mapped[int]
    value: Mapped[float | None]
    """None: it was not a finite number (SQLite cannot hold NaN)."""
    at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    __table_args__ = (UniqueConstraint("run_id", "name", "step"),)


class RunSample(Base):
    """A completion that a training run drew at some step, kept so that people can read what is being rewarded."""

    __tablename__ = "run_samples"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    step: Mapped[int]
    idx: Mapped[int]
    prompt: Mapped[str] = mapped_column(Text)
    completion: Mapped[str] = mapped_column(Text)
    label: Mapped[str | None] = mapped_column(Text)
    """What the completion was compared with: a label, a reference answer, or nothing."""
    reward: Mapped[float | None]
    __table_args__ = (UniqueConstraint("run_id", "step", "idx"),)


class Worker(Base):
    """Who may start runs: one row, held by the live worker and kept alive by its heartbeat."""

    __tablename__ = "workers"
    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    pid: Mapped[int]
    host: Mapped[str] = mapped_column(String(200))
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    heartbeat_at: Mapped[datetime] = mapped_column(UtcDateTime)
