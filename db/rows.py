"""What goes into the store and what comes out of it: frozen dataclasses, no ORM objects. Field names are columns.

Not: rows that only one page reads; they stand beside their query in reads_*.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

# ---- what goes in


@dataclass(frozen=True)
class NewProblem:
    """``key`` is the user's id, unique within ``dataset``."""

    dataset: str
    key: str
    text: str
    answer: str
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NewPrefix:
    """``key`` hashes token ids, checkpoint and sampling (``engine.rollouts.prefix_key``)."""

    key: str
    problem_id: int
    policy: str
    checkpoint_hash: str
    sampling: dict[str, Any]
    token_ids: tuple[int, ...]
    base_seed: int
    error: str | None = None


@dataclass(frozen=True)
class NewChunk:
    """Its index is its place in the trajectory's ``chunks``."""

    lead: str
    text: str
    close: str = ""
    token_end: int | None = None


@dataclass(frozen=True)
class NewTrajectory:
    """Sampled ones carry ``prefix_id`` (prefix 0) and ``draw``; the others leave both None."""

    problem_id: int
    policy: str
    text: str
    tail: str
    chunks: tuple[NewChunk, ...]
    cutter: str
    outcome: str
    answer: str | None = None
    checkpoint_hash: str | None = None
    prefix_id: int | None = None
    draw: int | None = None
    seed: int | None = None
    token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class NewRollout:
    prefix_id: int
    draw: int
    outcome: str
    n_tokens: int
    text: str
    answer: str | None
    finish_reason: str
    seed: int
    note: str | None = None


@dataclass(frozen=True)
class NewJudgment:
    """``verdict``: positive, negative or None; ``score``: a discriminative judge's probability of ``+``."""

    judge_id: int
    chunk_id: int
    draw: int
    verdict: str | None
    rationale: str
    n_tokens: int
    finish_reason: str
    seed: int
    score: float | None = None


@dataclass(frozen=True)
class NewRunSample:
    """A completion drawn in training, what it was compared with, and its reward. Goes in and comes out."""

    prompt: str
    completion: str
    label: str | None
    reward: float | None


@dataclass(frozen=True)
class Label:
    """A chunk's values and labels at default parameters: goes in and comes out. See ``tables.ChunkLabel``."""

    chunk_id: int
    before_k: int | None = None
    before_n: int | None = None
    after_k: int | None = None
    after_n: int | None = None
    after_exact: int | None = None
    q_before: float | None = None
    q_after: float | None = None
    drop: float | None = None
    gamma_flip: float | None = None
    abs_q: str | None = None
    abs_q_conf: float | None = None
    rel_effective: str | None = None
    rel_effective_conf: float | None = None
    rel_ratio: str | None = None
    rel_ratio_conf: float | None = None


# ---- what comes out


@dataclass(frozen=True)
class AddedProblems:
    """``ids`` has every row's id by (dataset, key); ``differing`` were stored before with another text, answer or
    verifier."""

    added: tuple[int, ...]
    existing: tuple[int, ...]
    differing: tuple[int, ...]
    ids: dict[tuple[str, str], int]


@dataclass(frozen=True)
class ProblemRow:
    id: int
    dataset: str
    key: str
    text: str
    answer: str
    meta: dict[str, Any]
    actor: str
    run_id: int | None
    created_at: datetime


@dataclass(frozen=True)
class ChunkRow:
    id: int
    trajectory_id: int
    idx: int
    lead: str
    text: str
    close: str
    token_end: int | None
    prefix_id: int | None


@dataclass(frozen=True)
class TrajectoryHead:
    """A trajectory with its problem and text, without its chunks."""

    id: int
    problem_id: int
    problem: str
    reference: str
    verifier: str
    dataset: str
    key: str
    policy: str
    checkpoint_hash: str | None
    prefix_id: int | None
    draw: int | None
    outcome: str
    answer: str | None
    finish_reason: str | None
    cutter: str
    text: str
    tail: str
    token_ids: tuple[int, ...] | None
    run_id: int | None


@dataclass(frozen=True)
class StageTrajectory(TrajectoryHead):
    """A trajectory whole, as the stages need it: its chunks in order."""

    chunks: tuple[ChunkRow, ...]


@dataclass(frozen=True)
class PrefixRow:
    id: int
    key: str
    problem_id: int
    policy: str
    checkpoint_hash: str
    sampling: dict[str, Any]
    token_ids: tuple[int, ...]
    base_seed: int
    error: str | None
    run_id: int | None


@dataclass(frozen=True)
class JudgeRow:
    id: int
    name: str
    kind: str
    checkpoint: str
    checkpoint_hash: str
    prompt_name: str
    prompt_hash: str
    sampling: dict[str, Any]
    run_id: int | None
    created_at: datetime


@dataclass(frozen=True)
class RunRow:
    """A run as it is now; ``now`` is the store's clock at the reading."""

    id: int
    uid: str
    kind: str
    status: str
    actor: str
    recipe: dict[str, Any]
    versions: dict[str, str]
    prompt_hashes: dict[str, str]
    done: int
    done_at_start: int
    total: int | None
    unit: str
    message: str
    waiting_for: str
    error: str | None
    result: dict[str, Any]
    stop_requested: bool
    attempt: int
    pid: int | None
    parent_id: int | None
    name: str | None
    created_at: datetime
    started_at: datetime | None
    heartbeat_at: datetime | None
    ended_at: datetime | None
    now: datetime

    @property
    def heartbeat_age_s(self) -> float | None:
        """Seconds since the run's process last wrote; None before its first heartbeat."""
        return (self.now - self.heartbeat_at).total_seconds() if self.heartbeat_at else None

    @property
    def rate(self) -> float | None:
        """Units per second of this attempt so far; None before anything was done."""
        until = self.ended_at or self.heartbeat_at
        if self.started_at is None or until is None or self.done <= self.done_at_start:
            return None
        seconds = (until - self.started_at).total_seconds()
        return (self.done - self.done_at_start) / seconds if seconds > 0 else None

    @property
    def remaining_s(self) -> float | None:
        """Seconds to go at the rate so far; None when not running, or not known."""
        if self.status != "running" or self.total is None or not self.rate:
            return None
        return max(0, self.total - self.done) / self.rate


@dataclass(frozen=True)
class MetricRow:
    name: str
    step: int
    value: float | None
    at: datetime


@dataclass(frozen=True)
class WorkerRow:
    """The worker that holds the lock. ``age_s``: seconds since its heartbeat."""

    pid: int
    host: str
    started_at: datetime
    heartbeat_at: datetime
    age_s: float


@dataclass(frozen=True)
class ReviewDetails:
    """What a review may say beyond verdict and comment, and which item of a queue it answers. See ``tables.Review``."""

    flag: str | None = None
    span_start: int | None = None
    span_end: int | None = None
    correction: str | None = None
    item_id: int | None = None
    guideline_id: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class ReviewRow:
    """One row of the append-only chain. ``kind``: review, adjudication or undo. See ``tables.Review``."""

    id: int
    chunk_id: int
    action_id: str
    kind: str
    verdict: int | None
    comment: str
    actor: str
    supersedes: int | None
    restores: int | None
    flag: str | None
    span_start: int | None
    span_end: int | None
    correction: str | None
    item_id: int | None
    guideline_id: int | None
    seconds: float | None
    created_at: datetime

    @property
    def says_something(self) -> bool:
        """False for an undo that leaves nothing of its author's on the chunk."""
        return self.kind != "undo" or self.restores is not None
