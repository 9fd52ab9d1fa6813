"""What a row of the list of chunks shows: the chunk, its values, label, votes and reviews, and where a search was found.

Not: which chunks (find_store).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, func, select
from sqlalchemy.orm import aliased

from db.chunk_filter import ChunkFilter, confidence_column, label_column
from db.full_text import has_words
from db.session import batches
from db.tables import (
    Chunk,
    ChunkLabel,
    ChunkOpinion,
    ChunkVote,
    Judgment,
    PrefixStop,
    Problem,
    Review,
    Rollout,
    Trajectory,
)
from db.totals import in_force

TEXT_CHARS = 20_000
"""Characters of a text in which a search's words are looked for to show them."""


@dataclass(frozen=True)
class Hit:
    """A text that holds the words searched for, cut around the first of them. ``place``: problem, chunk, rationale,
    comment; ``by``: the judge, or who commented."""

    place: str
    text: str
    by: str = ""


Drawn = tuple[int, int, int]
"""Of a prefix that was stopped early: rollouts that succeeded, rollouts there are, rollouts there would be in all."""


@dataclass(frozen=True)
class FoundChunk:
    """A chunk as the list shows it. Label and confidence are of the filter's rule; ``votes``: {judge id: (positive,
    negative, all)}; people's numbers are 0 and None where nobody reviewed. ``stopped_…``: where a value is not known
    because a thrifty run stopped at its prefix."""

    id: int
    trajectory_id: int
    idx: int
    n_chunks: int
    dataset: str
    key: str
    policy: str
    outcome: str
    text: str
    problem: str
    q_before: float | None
    q_after: float | None
    drop: float | None
    stopped_before: Drawn | None
    stopped_after: Drawn | None
    label: str | None
    confidence: float | None
    plus: int
    minus: int
    abstained: int
    people: str | None
    disputed: bool
    adjudicated: bool
    flag: str | None
    votes: dict[int, tuple[int, int, int]]
    hits: tuple[Hit, ...]


def found_chunks(db: Connection, where: ChunkFilter, ids: Sequence[int]) -> list[FoundChunk]:
    """The rows of these chunks, in their order; a few hundred at a time."""
    rows: dict[int, dict[str, Any]] = {}
    for batch in batches(ids):
        rows |= {row.id: dict(row._mapping) for row in db.execute(_query(where, batch))}
    _stopped(db, rows.values())
    votes = _votes(db, ids)
    hits = _hits(db, where, rows) if where.words else {}
    return [FoundChunk(**rows[id_], votes=votes.get(id_, {}), hits=tuple(hits.get(id_, ()))) for id_ in ids]


def _query(where: ChunkFilter, ids: Sequence[int]) -> Any:
    zero = func.coalesce
    earlier, first, last = aliased(Chunk), aliased(PrefixStop), aliased(PrefixStop)
    before = case((Chunk.idx == 0, Trajectory.value_prefix_id), else_=earlier.prefix_id)
    return (
        select(
            first.prefix_id.label("before_id"),
            first.m.label("before_m"),
            last.prefix_id.label("after_id"),
            last.m.label("after_m"),
            Chunk.id,
            Chunk.trajectory_id,
            Chunk.idx,
            Trajectory.n_chunks,
            Problem.dataset,
            Problem.key,
            Trajectory.policy,
            Trajectory.outcome,
            func.substr(Chunk.text, 1, TEXT_CHARS).label("text"),
            func.substr(Problem.text, 1, TEXT_CHARS).label("problem"),
            ChunkLabel.q_before,
            ChunkLabel.q_after,
            ChunkLabel.drop,
            label_column(where.rule).label("label"),
            confidence_column(where.rule).label("confidence"),
            zero(ChunkOpinion.plus, 0).label("plus"),
            zero(ChunkOpinion.minus, 0).label("minus"),
            zero(ChunkOpinion.abstained, 0).label("abstained"),
            ChunkOpinion.verdict.label("people"),
            zero(ChunkOpinion.disputed, False).label("disputed"),
            zero(ChunkOpinion.adjudicated, False).label("adjudicated"),
            ChunkOpinion.flag,
        )
        .join(Trajectory, Trajectory.id == Chunk.trajectory_id)
        .join(Problem, Problem.id == Trajectory.problem_id)
        .outerjoin(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
        .outerjoin(ChunkOpinion, ChunkOpinion.chunk_id == Chunk.id)
        .outerjoin(earlier, (earlier.trajectory_id == Chunk.trajectory_id) & (earlier.idx == Chunk.idx - 1))
        .outerjoin(first, first.prefix_id == before)
        .outerjoin(last, last.prefix_id == Chunk.prefix_id)
        .where(Chunk.id.in_(ids))
    )


def _stopped(db: Connection, rows: Iterable[dict[str, Any]]) -> None:
    """In place of the rows' stops (``_query``): successes and draws there, where a stop is live."""
    rows = list(rows)
    sides = ("before", "after")
    made = _draws(db, {row[f"{side}_id"] for row in rows for side in sides if row[f"{side}_id"] is not None})
    for row in rows:
        for side in sides:
            prefix_id, m = row.pop(f"{side}_id"), row.pop(f"{side}_m")
            right, n = made.get(prefix_id, (0, 0))
            row[f"stopped_{side}"] = (right, n, m) if prefix_id is not None and n < m else None


def _draws(db: Connection, prefix_ids: set[int]) -> dict[int, tuple[int, int]]:
    """{prefix id: (rollouts that succeeded, rollouts)}; a prefix without any is left out."""
    found: dict[int, tuple[int, int]] = {}
    for batch in batches(prefix_ids):
        right = func.sum(case((Rollout.outcome == "correct", 1), else_=0))
        query = select(Rollout.prefix_id, right, func.count()).where(Rollout.prefix_id.in_(batch))
        found |= {id_: (int(k), n) for id_, k, n in db.execute(query.group_by(Rollout.prefix_id))}
    return found


def _votes(db: Connection, ids: Sequence[int]) -> dict[int, dict[int, tuple[int, int, int]]]:
    found: dict[int, dict[int, tuple[int, int, int]]] = {}
    for batch in batches(ids):
        query = select(
            ChunkVote.chunk_id, ChunkVote.judge_id, ChunkVote.positive, ChunkVote.negative, ChunkVote.total
        ).where(ChunkVote.chunk_id.in_(batch))
        for chunk_id, judge_id, *counts in db.execute(query.order_by(ChunkVote.judge_id)):
            found.setdefault(chunk_id, {})[judge_id] = (counts[0], counts[1], counts[2])
    return found


def _hits(db: Connection, where: ChunkFilter, rows: dict[int, dict[str, Any]]) -> dict[int, list[Hit]]:
    """One hit a place: the chunk's own text, a rationale, a comment, the problem."""
    found: dict[int, list[Hit]] = {}
    words, places = where.words, where.search_in

    def add(chunk_id: int, place: str, text: str, by: str = "") -> None:
        if all(word.casefold() in text.casefold() for word in words):
            found.setdefault(chunk_id, []).append(Hit(place, excerpt(text, words), by))

    if places in ("anywhere", "chunk"):
        for chunk_id, row in rows.items():
            add(chunk_id, "chunk", row["text"])
    if places in ("anywhere", "rationale"):
        for chunk_id, judge_id, text in _first(
            db, Judgment, Judgment.judge_id, Judgment.rationale, rows, words
        ):
            add(chunk_id, "rationale", text, str(judge_id))
    if places in ("anywhere", "comment"):
        for chunk_id, actor, text in _first(
            db, Review, Review.actor, Review.comment, rows, words, in_force()
        ):
            add(chunk_id, "comment", text, actor)
    if places in ("anywhere", "problem"):
        for chunk_id, row in rows.items():
            add(chunk_id, "problem", row["problem"])
    return found


def _first(
    db: Connection, model: Any, by: Any, column: Any, ids: Any, words: Sequence[str], *also: Any
) -> Any:
    """(chunk id, whose, text) of each chunk's first row that holds the words."""
    for batch in batches(ids):
        first = select(func.min(model.id)).where(model.chunk_id.in_(batch), has_words(column, words), *also)
        text = func.substr(column, 1, TEXT_CHARS)
        query = select(model.chunk_id, by, text).where(model.id.in_(first.group_by(model.chunk_id)))
        yield from db.execute(query)


def excerpt(text: str, words: Sequence[str], *, width: int = 220) -> str:
    """``text`` on one line, cut to about ``width`` characters around the first word that is found in it."""
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    places = [line.casefold().find(word.casefold()) for word in words]
    first = min((place for place in places if place >= 0), default=0)
    start = max(0, min(first - width // 3, len(line) - width))
    cut = line[start : start + width]
    return ("…" if start else "") + cut + ("…" if start + width < len(line) else "")
