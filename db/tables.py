"""The tables (SQLAlchemy 2 declarative). What each row means is in the docstring; queries are in the modules of store.py.

Append-only: rollouts, judgments and reviews are never updated or deleted by a page or a run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from db.column_types import Id, TokenIds, UtcDateTime, utc_now

OUTCOMES = ("correct", "wrong", "unparsed", "truncated", "error")
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


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
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


class Problem(Base):
    """A question with a checkable reference answer. ``key`` is the user's id within the data set."""

    __tablename__ = "problems"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    dataset: Mapped[str] = mapped_column(String(200))
    key: Mapped[str] = mapped_column(String(200))
    text: Mapped[str] = mapped_column(Text)
    answer: Mapped[str] = mapped_column(Text)
    meta: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    actor: Mapped[str] = mapped_column(String(200))
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    __table_args__ = (UniqueConstraint("dataset", "key"),)


class Prefix(Base):
    """What rollouts start from: exact token ids, checkpoint and sampling settings (not M, not the seed).

    ``key`` hashes those three; trajectories that begin alike share the row and so its rollouts.
    """

    __tablename__ = "prefixes"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"), index=True)
    policy: Mapped[str] = mapped_column(String(200))
    checkpoint_hash: Mapped[str] = mapped_column(String(64))
    sampling: Mapped[dict[str, Any]] = mapped_column(JSON)
    token_ids: Mapped[tuple[int, ...]] = mapped_column(TokenIds)
    base_seed: Mapped[int] = mapped_column(BigInteger)
    """Draw j has seed base_seed + j, whichever run draws it: fixed when the prefix is first drawn from."""
    error: Mapped[str | None] = mapped_column(Text)
    """Set when the prefix cannot be rolled out (it does not fit the context)."""
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"))


_FILTERS = ("problem_id", "policy", "outcome", "run_id")


class Trajectory(Base):
    """One solution: sampled (has draw, token ids, policy's checkpoint hash), imported or written by hand.

    Narrow, so that lists and counts stay fast; the text lies in ``trajectory_texts``.
    """

    __tablename__ = "trajectories"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    policy: Mapped[str] = mapped_column(String(200))
    checkpoint_hash: Mapped[str | None] = mapped_column(String(64))
    prefix_id: Mapped[int | None] = mapped_column(ForeignKey("prefixes.id"), index=True)
    """Prefix 0 that it was drawn from (sampled only); with ``draw`` unique. Its siblings give q_{-1}."""
    value_prefix_id: Mapped[int | None] = mapped_column(ForeignKey("prefixes.id"), index=True)
    """Prefix 0 under the policy whose rollouts give its values: the pass rate there (else its rollouts) is q_{-1}."""
    draw: Mapped[int | None]
    import_key: Mapped[str | None] = mapped_column(String(64))
    """Not sampled here: hash of policy and text, so that importing a file twice adds nothing."""
    seed: Mapped[int | None] = mapped_column(BigInteger)
    finish_reason: Mapped[str | None] = mapped_column(String(16))
    outcome: Mapped[str] = mapped_column(String(16))
    answer: Mapped[str | None] = mapped_column(Text)
    cutter: Mapped[str] = mapped_column(String(32))
    note: Mapped[str | None] = mapped_column(Text)
    """What a reader should know: tags malformed and so cut on blank lines, …"""
    n_chunks: Mapped[int]
    n_tokens: Mapped[int | None]
    biggest_drop: Mapped[float | None]
    """Cache: largest q_{i-1} - q_i over chunks with both values known; rebuilt with the labels."""
    least_confidence: Mapped[float | None]
    """Cache: smallest rel-ratio confidence over its chunks at the default rule."""
    n_negative: Mapped[int | None]
    """Cache: chunks labelled - by rel-ratio at the default rule."""
    n_disagree: Mapped[int | None]
    """Cache: chunks where some judge's vote and the rel-ratio label differ."""
    n_reviewed: Mapped[int] = mapped_column(default=0)
    """Cache: chunks on which some person's review is in force."""
    actor: Mapped[str] = mapped_column(String(200))
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    __table_args__ = (
        UniqueConstraint("prefix_id", "draw"),
        UniqueConstraint("problem_id", "import_key"),
        CheckConstraint(f"outcome IN {OUTCOMES}", name="outcome"),
        CheckConstraint("draw >= 0", name="draw"),
        Index("ix_trajectories_problem_id_id", "problem_id", "id"),
        # Sorted lists walk one of these from its end. They hold what a list can be filtered by, so that a filter
        # that fits almost nothing is still answered from the index alone.
        Index("ix_trajectories_by_drop", "biggest_drop", "id", *_FILTERS, "n_reviewed"),
        Index("ix_trajectories_by_confidence", "least_confidence", "id", *_FILTERS, "n_reviewed"),
        Index("ix_trajectories_by_disagreement", "n_disagree", "id", *_FILTERS, "n_reviewed"),
        Index("ix_trajectories_by_reviews", "n_reviewed", "id", *_FILTERS),
        Index("ix_trajectories_run_id_id", "run_id", "id"),
    )


class TrajectoryText(Base):
    """``text`` is the whole solution; chunks' lead + text + close, then ``tail``, give it back exactly."""

    __tablename__ = "trajectory_texts"
    trajectory_id: Mapped[int] = mapped_column(ForeignKey("trajectories.id"), primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    tail: Mapped[str] = mapped_column(Text)
    token_ids: Mapped[tuple[int, ...] | None] = mapped_column(TokenIds)
    """Completion's tokens exactly as drawn (without the prompt's); None when not sampled here."""


class Chunk(Base):
    """Chunk ``idx`` (from 0) of a trajectory. ``token_end``: completion tokens up to and with its close."""

    __tablename__ = "chunks"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    trajectory_id: Mapped[int] = mapped_column(ForeignKey("trajectories.id"))
    idx: Mapped[int]
    lead: Mapped[str] = mapped_column(Text, default="")
    text: Mapped[str] = mapped_column(Text)
    close: Mapped[str] = mapped_column(Text, default="")
    token_end: Mapped[int | None]
    prefix_id: Mapped[int | None] = mapped_column(ForeignKey("prefixes.id"), index=True)
    """The prefix that ends with this chunk (prefix idx+1), once it was rolled out; None for the terminal one."""
    __table_args__ = (UniqueConstraint("trajectory_id", "idx"),)


class ChunkLabel(Base):
    """Cache, rebuildable: a chunk's two values and its label under the three rules at default parameters.

    Counts are exact; a terminal value has n = 0 and ``after_exact`` 0 or 1. NULL label: a value unknown.
    """

    __tablename__ = "chunk_labels"
    chunk_id: Mapped[int] = mapped_column(ForeignKey("chunks.id"), primary_key=True)
    before_k: Mapped[int | None]
    before_n: Mapped[int | None]
    after_k: Mapped[int | None]
    after_n: Mapped[int | None]
    after_exact: Mapped[int | None]
    q_before: Mapped[float | None]
    q_after: Mapped[float | None]
    drop: Mapped[float | None]
    gamma_flip: Mapped[float | None]
    """γ* = q_i / q_{i-1}: rel-ratio says + exactly for γ below it."""
    abs_q: Mapped[str | None] = mapped_column(String(1))
    abs_q_conf: Mapped[float | None]
    rel_effective: Mapped[str | None] = mapped_column(String(1))
    rel_effective_conf: Mapped[float | None]
    rel_ratio: Mapped[str | None] = mapped_column(String(1))
    rel_ratio_conf: Mapped[float | None]


class Rollout(Base):
    """One continuation of a prefix: narrow, its text apart, so that a value is a count over small rows."""

    __tablename__ = "rollouts"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    prefix_id: Mapped[int] = mapped_column(ForeignKey("prefixes.id"))
    draw: Mapped[int]
    outcome: Mapped[str] = mapped_column(String(16))
    n_tokens: Mapped[int]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), index=True)
    __table_args__ = (
        UniqueConstraint("prefix_id", "draw"),
        CheckConstraint(f"outcome IN {OUTCOMES}", name="outcome"),
        CheckConstraint("draw >= 0", name="draw"),
    )


class RolloutText(Base):
    """The continuation's text, its extracted answer and why it ended."""

    __tablename__ = "rollout_texts"
    rollout_id: Mapped[int] = mapped_column(ForeignKey("rollouts.id"), primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    answer: Mapped[str | None] = mapped_column(Text)
    finish_reason: Mapped[str] = mapped_column(String(16))
    seed: Mapped[int] = mapped_column(BigInteger)
    note: Mapped[str | None] = mapped_column(Text)


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
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    __table_args__ = (
        Index("ix_reviews_actor_id", "actor", "id"),
        CheckConstraint("verdict IN (-1, 0, 1)", name="verdict"),
        CheckConstraint("kind IN ('review', 'undo', 'adjudication')", name="kind"),
    )


class Grade(Base):
    """Cache of the grader: (answer text, reference) → correct or wrong. Errors are not kept: they may be retried."""

    __tablename__ = "grades"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    outcome: Mapped[str] = mapped_column(String(16))


class Draft(Base):
    """A half-typed comment, kept so that a reload loses nothing. One per person and chunk."""

    __tablename__ = "drafts"
    actor: Mapped[str] = mapped_column(String(200), primary_key=True)
    chunk_id: Mapped[int] = mapped_column(ForeignKey("chunks.id"), primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class Worker(Base):
    """Who may start runs: one row, held by the live worker and kept alive by its heartbeat."""

    __tablename__ = "workers"
    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    pid: Mapped[int]
    host: Mapped[str] = mapped_column(String(200))
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    heartbeat_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Total(Base):
    """Counts that pages show without scanning: changed in the transaction that changes what they count.

    ``name`` says what is counted (trajectories by outcome, label of a rule, drop by chunk position, …), ``key``
    the class; ``amount`` sums a quantity where there is one (drops). Rebuildable: ``Store.rebuild_totals``.
    """

    __tablename__ = "totals"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    n: Mapped[int] = mapped_column(BigInteger, default=0)
    amount: Mapped[float] = mapped_column(default=0.0)
