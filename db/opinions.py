"""What a chunk's reviews and judgments amount to: the caches that filters, queues and pictures read instead of counting.

Recomputed, for the chunks that a write touches, in the transaction of that write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, delete, insert, select

from db.crossings import OF_OPINIONS, OF_VOTES, kept
from db.session import batches, columns, rows_of, upsert
from db.tables import ChunkOpinion, ChunkVote, Review
from db.totals import in_force


@dataclass(frozen=True)
class Opinion:
    """What the reviews in force on a chunk amount to. See ``tables.ChunkOpinion``."""

    chunk_id: int
    plus: int
    minus: int
    abstained: int
    adjudicated: bool
    disputed: bool
    flag: str | None
    verdict: str | None


def said_query(where: Any) -> Any:
    """Reviews in force where ``where`` holds of their chain's head, as (chunk_id, kind, verdict, flag), oldest first."""
    said = case((Review.kind == "undo", Review.restores), else_=Review.id)
    heads = select(said).where(in_force(), where)
    query = select(Review.chunk_id, Review.kind, Review.verdict, Review.flag)
    return query.where(Review.id.in_(heads)).order_by(Review.chunk_id, Review.id)


def opinion_of(chunk_id: int, said: Iterable[tuple[str, int | None, str | None]]) -> Opinion | None:
    """``said``: (kind, verdict, flag) of the reviews in force, oldest first; None where there are none.

    The last adjudication decides; else those who say + or - where they agree; 0 and None abstain.
    """
    rows = list(said)
    if not rows:
        return None
    decided = [verdict for kind, verdict, _ in rows if kind == "adjudication" and verdict is not None]
    verdicts = [verdict for kind, verdict, _ in rows if kind == "review"]
    plus, minus = verdicts.count(1), verdicts.count(-1)
    disputed = not decided and plus > 0 and minus > 0
    sign = decided[-1] if decided else 0 if disputed else plus - minus
    flags = {flag for _, _, flag in rows if flag}
    return Opinion(
        chunk_id=chunk_id,
        plus=plus,
        minus=minus,
        abstained=len(verdicts) - plus - minus,
        adjudicated=bool(decided),
        disputed=disputed,
        flag="bad-problem" if "bad-problem" in flags else "flag" if flags else None,
        verdict="+" if sign > 0 else "-" if sign < 0 else None,
    )


def opinions(db: Connection, chunk_ids: Iterable[int]) -> dict[int, Opinion]:
    """{chunk id: opinion} from the reviews themselves."""
    found: dict[int, Opinion] = {}
    for batch in batches(chunk_ids):
        rows: dict[int, list[Any]] = {}
        for chunk_id, *said in db.execute(said_query(Review.chunk_id.in_(batch))):
            rows.setdefault(chunk_id, []).append(said)
        for chunk_id, of_chunk in rows.items():
            if opinion := opinion_of(chunk_id, of_chunk):
                found[chunk_id] = opinion
    return found


def kept_opinions(db: Connection, chunk_ids: Iterable[int]) -> dict[int, Opinion]:
    """{chunk id: opinion} as the cache holds them; chunks that nobody reviewed are left out."""
    found: dict[int, Opinion] = {}
    for batch in batches(chunk_ids):
        query = select(*columns(Opinion, ChunkOpinion)).where(ChunkOpinion.chunk_id.in_(batch))
        found |= {row.chunk_id: row for row in rows_of(Opinion, db.execute(query))}
    return found


def refresh_opinions(db: Connection, chunk_ids: Iterable[int]) -> None:
    """Bring the cache of these chunks up to date with their reviews, and the totals with the cache."""
    ids = list(chunk_ids)
    now = opinions(db, ids)
    with kept(db, ids, OF_OPINIONS):
        for batch in batches([chunk_id for chunk_id in ids if chunk_id not in now]):
            db.execute(delete(ChunkOpinion).where(ChunkOpinion.chunk_id.in_(batch)))
        if now:
            names = [name for name in Opinion.__dataclass_fields__ if name != "chunk_id"]
            statement = upsert(db, ChunkOpinion, ["chunk_id"], names)
            db.execute(statement, [opinion.__dict__ for opinion in now.values()])


def refresh_votes(db: Connection, chunk_ids: Iterable[int]) -> None:
    """Bring the cache of votes on these chunks up to date with the judgments, and the totals with the cache."""
    from db.labels_store import votes_query

    for batch in batches(chunk_ids):
        rows = [
            {
                "chunk_id": chunk_id,
                "judge_id": judge_id,
                "positive": int(positive),
                "negative": int(negative),
                "total": total,
                "verdict": majority(int(positive), int(negative)),
            }
            for chunk_id, judge_id, positive, negative, total in db.execute(votes_query(chunk_ids=batch))
        ]
        with kept(db, batch, OF_VOTES):
            db.execute(delete(ChunkVote).where(ChunkVote.chunk_id.in_(batch)))
            if rows:
                db.execute(insert(ChunkVote), rows)


def majority(positive: int, negative: int) -> str | None:
    """``positive``, ``negative``, or None for a tie."""
    return "positive" if positive > negative else "negative" if negative > positive else None
