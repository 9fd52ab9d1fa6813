"""What a row of the list of chunks shows: the chunk, its values, label, votes and reviews, and where a search was found.

Not: which chunks (find_store).
"""

from __future__ import annotations

from collections.abc import Sequence
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
    stopped = _stopped(db, [id_ for id_, row in rows.items() if None in (row["q_before"], row["q_after"])])
    for id_, row in rows.items():
        row["stopped_before"], row["stopped_after"] = stopped.get(id_, (None, None))
    votes = _votes(db, ids)
    hits = _hits(db, where, rows) if where.words else {}
    return [FoundChunk(**rows[id_], votes=votes.get(id_, {}), hits=tuple(hits.get(id_, ()))) for id_ in ids]


def _query(where: ChunkFilter, ids: Sequence[int]) -> Any:
    zero = func.coalesce
    return (
        select(
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
        .where(Chunk.id.in_(ids))
    )


def _stopped(db: Connection, ids: Sequence[int]) -> dict[int, tuple[Drawn | None, Drawn | None]]:
    """{chunk id: its prefix before and after, where stopped}; by the keys of the few prefixes that have a stop."""
    places: dict[int, tuple[int | None, int | None]] = {}
    for batch in batches(ids):
        earlier = aliased(Chunk)
        before = case((Chunk.idx == 0, Trajectory.value_prefix_id), else_=earlier.prefix_id)
        query = (
            select(Chunk.id, before, Chunk.prefix_id)
            .join(Trajectory, Trajectory.id == Chunk.trajectory_id)
            .outerjoin(
                earlier,
                (earlier.trajectory_id == Chunk.trajectory_id) & (earlier.idx == Chunk.idx - 1),
            )
            .where(Chunk.id.in_(batch))
        )
        places |= {id_: (first, last) for id_, first, last in db.execute(query)}
    drawn: dict[int | None, Drawn] = {}
    for batch in batches({prefix for both in places.values() for prefix in both if prefix is not None}):
        stops = select(PrefixStop.prefix_id, PrefixStop.m).where(PrefixStop.prefix_id.in_(batch)).subquery()
        right = func.sum(case((Rollout.outcome == "correct", 1), else_=0))
        counts = (
            select(stops.c.prefix_id, func.coalesce(right, 0), func.count(Rollout.id), stops.c.m)
            .outerjoin(Rollout, Rollout.prefix_id == stops.c.prefix_id)
            .group_by(stops.c.prefix_id, stops.c.m)
        )
        for prefix_id, successes, made, m in db.execute(counts):
            if made < m:
                drawn[prefix_id] = (int(successes), made, m)
    return {id_: (drawn.get(first), drawn.get(last)) for id_, (first, last) in places.items()}


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
