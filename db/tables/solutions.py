"""Problems, trajectories with their chunks, prefixes with their rollouts, and the caches of labels and counts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Id, TokenIds, UtcDateTime, utc_now
from db.tables.base import OUTCOMES, Base


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


class PrefixStop(Base):
    """A prefix that a thrifty run draws towards ``m``, and the rules whose labels around it are decided already.

    It is stopped while its draws in a row are fewer than ``m``: then it has bounds and no point value. Changed by
    runs: another ``m`` replaces it, the same ``m`` adds rules.
    """

    __tablename__ = "prefix_stops"
    prefix_id: Mapped[int] = mapped_column(ForeignKey("prefixes.id"), primary_key=True)
    m: Mapped[int]
    rules: Mapped[list[str]] = mapped_column(JSON, default=list)
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
    __table_args__ = (
        Index("ix_chunk_labels_drop", "drop", "chunk_id"),
        Index("ix_chunk_labels_rel_ratio_conf", "rel_ratio_conf", "chunk_id"),
    )


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


class Grade(Base):
    """Cache of the grader: (answer text, reference) → correct or wrong. Errors are not kept: they may be retried."""

    __tablename__ = "grades"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    outcome: Mapped[str] = mapped_column(String(16))


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
