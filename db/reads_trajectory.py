"""What the page of one trajectory reads, in parts, so that blind mode can leave parts out and 500 chunks stay quick.

Not: values and intervals (engine.values), reviews (reviews_store).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import false, select

from db.blind import HIDDEN, hidden, hidden_chunks, hidden_prefixes, hidden_problems
from db.labels_store import votes_query
from db.problems_store import VERIFIER
from db.rows import Label
from db.session import StoreBase, columns, rows_of
from db.tables import (
    Chunk,
    ChunkLabel,
    Judge,
    Judgment,
    Problem,
    Review,
    Rollout,
    RolloutText,
    Trajectory,
    TrajectoryText,
)
from db.totals import in_force


@dataclass(frozen=True)
class TrajectoryView:
    """A trajectory with its problem, without chunks. See ``tables.Trajectory``.

    ``blind``: a queue hides it from the viewer; outcome is then ``hidden``; answers, tail and caches are empty. The
    reference is empty, too, where another solution of the problem is hidden.
    """

    id: int
    problem_id: int
    dataset: str
    key: str
    problem: str
    reference: str
    verifier: str
    policy: str
    checkpoint_hash: str | None
    prefix_id: int | None
    value_prefix_id: int | None
    draw: int | None
    seed: int | None
    outcome: str
    answer: str | None
    finish_reason: str | None
    cutter: str
    note: str | None
    tail: str
    n_chunks: int
    n_tokens: int | None
    biggest_drop: float | None
    least_confidence: float | None
    n_negative: int | None
    n_disagree: int | None
    n_reviewed: int
    actor: str
    run_id: int | None
    created_at: datetime
    blind: bool = False


@dataclass(frozen=True)
class ChunkView:
    """A chunk with its cached labels (None: not labelled yet)."""

    id: int
    idx: int
    lead: str
    text: str
    close: str
    prefix_id: int | None
    label: Label | None


@dataclass(frozen=True)
class CurvePoint:
    """A chunk of the Q curve, without its text. ``reviewed``: somebody's review is in force."""

    chunk_id: int
    idx: int
    prefix_id: int | None
    label: Label | None
    reviewed: bool


@dataclass(frozen=True)
class JudgmentView:
    """One judgment with its judge's name. Rationales are untrusted text."""

    id: int
    judge_id: int
    judge: str
    kind: str
    draw: int
    verdict: str | None
    rationale: str
    n_tokens: int
    finish_reason: str
    run_id: int
    score: float | None = None
    """A discriminative judge's probability of ``+``; it writes no rationale."""


@dataclass(frozen=True)
class RolloutView:
    """A rollout without its text."""

    id: int
    prefix_id: int
    draw: int
    outcome: str
    n_tokens: int
    answer: str | None
    finish_reason: str
    run_id: int


@dataclass(frozen=True)
class RolloutWhole:
    """A rollout with its text."""

    id: int
    prefix_id: int
    draw: int
    outcome: str
    n_tokens: int
    answer: str | None
    finish_reason: str
    run_id: int
    text: str
    seed: int
    note: str | None


@dataclass(frozen=True)
class Sibling:
    """Another solution of the same problem."""

    id: int
    policy: str
    outcome: str
    answer: str | None
    n_chunks: int
    biggest_drop: float | None
    prefix_id: int | None
    draw: int | None


class TrajectoryReads(StoreBase):
    """Reads of the page of one trajectory. An unknown id gives None or nothing, never an error.

    So does what a blind queue hides from the viewer.
    """

    def trajectory_view(self, trajectory_id: int) -> TrajectoryView | None:
        chosen = columns(
            TrajectoryView,
            Trajectory,
            TrajectoryText,
            Problem,
            problem=Problem.text,
            reference=Problem.answer,
            verifier=VERIFIER,
            blind=false(),
        )
        query = (
            select(*chosen)
            .select_from(Trajectory)
            .join(Problem, Problem.id == Trajectory.problem_id)
            .join(TrajectoryText, TrajectoryText.trajectory_id == Trajectory.id)
            .where(Trajectory.id == trajectory_id)
        )
        with self.read() as db:
            rows = rows_of(TrajectoryView, db.execute(query))
            if not rows:
                return None
            row = rows[0]
            if hidden(db, self.viewer, [row.id]):
                return replace(row, **_WITHHELD)
            return replace(row, reference="") if hidden_problems(db, self.viewer, [row.problem_id]) else row

    def chunk_page(self, trajectory_id: int, first: int = 0, count: int = 50) -> list[ChunkView]:
        """Chunks ``first`` … ``first + count - 1`` with their cached labels."""
        query = (
            select(Chunk.id, Chunk.idx, Chunk.lead, Chunk.text, Chunk.close, Chunk.prefix_id, *_LABEL)
            .outerjoin(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
            .where(Chunk.trajectory_id == trajectory_id, Chunk.idx >= first, Chunk.idx < first + count)
            .order_by(Chunk.idx)
        )
        with self.read() as db:
            blind = bool(hidden(db, self.viewer, [trajectory_id]))
            return [
                ChunkView(*row[:5], *((None, None) if blind else (row.prefix_id, _label(row[6:]))))
                for row in db.execute(query)
            ]

    def curve(self, trajectory_id: int) -> list[CurvePoint]:
        """All chunks in order, without text."""
        reviewed = (
            select(Review.chunk_id)
            .join(Chunk, Chunk.id == Review.chunk_id)
            .where(Chunk.trajectory_id == trajectory_id, in_force())
        )
        query = (
            select(Chunk.id, Chunk.idx, Chunk.prefix_id, *_LABEL)
            .outerjoin(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
            .where(Chunk.trajectory_id == trajectory_id)
            .order_by(Chunk.idx)
        )
        with self.read() as db:
            blind = bool(hidden(db, self.viewer, [trajectory_id]))
            said = set(db.scalars(reviewed.where(Review.actor == self.viewer) if blind else reviewed))
            return [
                CurvePoint(
                    row.id,
                    row.idx,
                    None if blind else row.prefix_id,
                    None if blind else _label(row[3:]),
                    row.id in said,
                )
                for row in db.execute(query)
            ]

    def judgments_of(self, chunk_id: int) -> list[JudgmentView]:
        """Every judgment on the chunk, by judge, then by draw."""
        query = (
            select(*columns(JudgmentView, Judgment, Judge, judge=Judge.name))
            .join(Judge, Judge.id == Judgment.judge_id)
            .where(Judgment.chunk_id == chunk_id)
            .order_by(Judgment.judge_id, Judgment.draw)
        )
        with self.read() as db:
            if hidden_chunks(db, self.viewer, [chunk_id]):
                return []
            return rows_of(JudgmentView, db.execute(query))

    def votes_of(self, trajectory_id: int) -> dict[int, dict[str, tuple[int, int, int]]]:
        """{chunk id: {judge's name: (positive, negative, without a verdict)}}, without rationales."""
        found: dict[int, dict[str, tuple[int, int, int]]] = {}
        with self.read() as db:
            if hidden(db, self.viewer, [trajectory_id]):
                return {}
            names = {id_: name for id_, name in db.execute(select(Judge.id, Judge.name))}
            for chunk_id, judge_id, positive, negative, total in db.execute(
                votes_query(trajectory_ids=[trajectory_id])
            ):
                counts = (int(positive), int(negative), int(total - positive - negative))
                found.setdefault(chunk_id, {})[names[judge_id]] = counts
        return found

    def rollouts_of(
        self, prefix_id: int, *, outcome: str | None = None, after_draw: int = -1, limit: int = 100
    ) -> list[RolloutView]:
        """A prefix's rollouts by draw, without text; ``after_draw``: only draws above it (the next page)."""
        query = (
            select(*columns(RolloutView, Rollout, RolloutText))
            .join(RolloutText, RolloutText.rollout_id == Rollout.id)
            .where(Rollout.prefix_id == prefix_id, Rollout.draw > after_draw)
            .order_by(Rollout.draw)
            .limit(limit)
        )
        if outcome is not None:
            query = query.where(Rollout.outcome == outcome)
        with self.read() as db:
            if hidden_prefixes(db, self.viewer, [prefix_id]):
                return []
            return rows_of(RolloutView, db.execute(query))

    def rollout_text(self, rollout_id: int) -> RolloutWhole | None:
        """One rollout whole."""
        query = (
            select(*columns(RolloutWhole, Rollout, RolloutText))
            .join(RolloutText, RolloutText.rollout_id == Rollout.id)
            .where(Rollout.id == rollout_id)
        )
        with self.read() as db:
            rows = rows_of(RolloutWhole, db.execute(query))
            withheld = rows and hidden_prefixes(db, self.viewer, [rows[0].prefix_id])
            return rows[0] if rows and not withheld else None

    def siblings(self, problem_id: int, limit: int = 50) -> list[Sibling]:
        """Solutions of the problem, oldest first; none where one is hidden: the others' answers give its outcome away."""
        query = select(*columns(Sibling, Trajectory)).where(Trajectory.problem_id == problem_id)
        with self.read() as db:
            if hidden_problems(db, self.viewer, [problem_id]):
                return []
            return rows_of(Sibling, db.execute(query.order_by(Trajectory.id).limit(limit)))

    def neighbours(self, trajectory_id: int) -> tuple[int | None, int | None]:
        """(previous id, next id) by id."""
        before = (
            select(Trajectory.id).where(Trajectory.id < trajectory_id).order_by(Trajectory.id.desc()).limit(1)
        )
        after = select(Trajectory.id).where(Trajectory.id > trajectory_id).order_by(Trajectory.id).limit(1)
        with self.read() as db:
            return db.scalar(before), db.scalar(after)


_WITHHELD: dict[str, Any] = {
    "blind": True,
    "outcome": HIDDEN,
    "reference": "",
    "tail": "",
    **dict.fromkeys(("answer", "finish_reason", "note", "n_tokens")),
    **dict.fromkeys(("biggest_drop", "least_confidence", "n_negative", "n_disagree")),
    "n_reviewed": 0,
}
_LABEL: list[Any] = [getattr(ChunkLabel, field.name) for field in fields(Label)]


def _label(values: Any) -> Label | None:
    return None if values[0] is None else Label(*values)
