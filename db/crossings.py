"""What labels, judges and people say of the same chunks, counted against each other: kept totals, and their recount.

Names of the totals, each rule with its underscore (``rel_ratio``):

``pairs``                ``3/16 12/15``: values before and after (``=1`` or ``=0``: exact), of which any γ, α and n follow
``judged/RULE/JUDGE``    ``POSITION/+-``: label and the judge's majority (``0``: a tie, or no verdict) at a chunk index
``people/RULE``          ``+-/sure``: label and what people say, by whether the label's confidence is 0.9 or more
``opinions``             ``+``, ``-``, ``disputed``, ``none``: what the reviews of reviewed chunks amount to
``flags``                ``flag``, ``bad-problem``

Counted by one GROUP BY each, over everything or over some chunks: a write counts its chunks before and after and
adds the difference (``kept``). Not: the simple totals (totals).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, case, func, select

from db.session import batches
from db.tables import Chunk, ChunkLabel, ChunkOpinion, ChunkVote
from db.totals import LABEL_RULES, Delta

LAST_POSITION = 31
"""Chunks from this index on are counted together."""
SURE = 0.9
Counted = Iterator[tuple[str, str, int]]
Counter = Callable[[Connection, Sequence[int] | None], Counted]
_LABELS = [getattr(ChunkLabel, rule) for rule in LABEL_RULES]


def _of(query: Any, column: Any, chunk_ids: Sequence[int] | None) -> Any:
    return query if chunk_ids is None else query.where(column.in_(chunk_ids))


def count_pairs(db: Connection, chunk_ids: Sequence[int] | None) -> Counted:
    """Values before and after of the chunks that have both, as counts."""
    held = (ChunkLabel.before_k, ChunkLabel.before_n, ChunkLabel.after_k, ChunkLabel.after_n)
    query = (
        select(*held, ChunkLabel.after_exact, func.count())
        .where(ChunkLabel.drop.is_not(None), ChunkLabel.before_n > 0)
        .where((ChunkLabel.after_n > 0) | ChunkLabel.after_exact.is_not(None))
        .group_by(*held, ChunkLabel.after_exact)
    )
    for before_k, before_n, after_k, after_n, exact, n in db.execute(
        _of(query, ChunkLabel.chunk_id, chunk_ids)
    ):
        after = f"={exact}" if exact is not None else f"{after_k}/{after_n}"
        yield "pairs", f"{before_k}/{before_n} {after}", n


def count_judged(db: Connection, chunk_ids: Sequence[int] | None) -> Counted:
    """Each rule's label against each judge's majority, by chunk index."""
    position = case((Chunk.idx > LAST_POSITION, LAST_POSITION), else_=Chunk.idx)
    query = (
        select(ChunkVote.judge_id, position, ChunkVote.verdict, *_LABELS, func.count())
        .join(Chunk, Chunk.id == ChunkVote.chunk_id)
        .join(ChunkLabel, ChunkLabel.chunk_id == ChunkVote.chunk_id)
        .group_by(ChunkVote.judge_id, position, ChunkVote.verdict, *_LABELS)
    )
    signs = {"positive": "+", "negative": "-", None: "0"}
    for judge, idx, verdict, *labels, n in db.execute(_of(query, ChunkVote.chunk_id, chunk_ids)):
        for rule, label in zip(LABEL_RULES, labels, strict=True):
            if label is not None:
                yield f"judged/{rule}/{judge}", f"{idx}/{label}{signs[verdict]}", n


def count_people(db: Connection, chunk_ids: Sequence[int] | None) -> Counted:
    """Each rule's label against what people say, by how sure the label is."""
    sure = [case((getattr(ChunkLabel, f"{rule}_conf") >= SURE, 1), else_=0) for rule in LABEL_RULES]
    query = (
        select(ChunkOpinion.verdict, *_LABELS, *sure, func.count())
        .join(ChunkLabel, ChunkLabel.chunk_id == ChunkOpinion.chunk_id)
        .where(ChunkOpinion.verdict.is_not(None))
        .group_by(ChunkOpinion.verdict, *_LABELS, *sure)
    )
    many = len(LABEL_RULES)
    for verdict, *said, n in db.execute(_of(query, ChunkOpinion.chunk_id, chunk_ids)):
        for rule, label, is_sure in zip(LABEL_RULES, said[:many], said[many:], strict=True):
            if label is not None:
                yield f"people/{rule}", f"{label}{verdict}/{'sure' if is_sure else 'unsure'}", n


def count_opinions(db: Connection, chunk_ids: Sequence[int] | None) -> Counted:
    """What the reviews of reviewed chunks amount to, and flags."""
    held = (ChunkOpinion.verdict, ChunkOpinion.disputed, ChunkOpinion.flag)
    query = select(*held, func.count()).group_by(*held)
    for verdict, disputed, flag, n in db.execute(_of(query, ChunkOpinion.chunk_id, chunk_ids)):
        yield "opinions", verdict or ("disputed" if disputed else "none"), n
        if flag is not None:
            yield "flags", flag, n


OF_LABELS: tuple[Counter, ...] = (count_pairs, count_judged, count_people)
OF_OPINIONS: tuple[Counter, ...] = (count_people, count_opinions)
OF_VOTES: tuple[Counter, ...] = (count_judged,)
ALL: tuple[Counter, ...] = (count_pairs, count_judged, count_people, count_opinions)


@contextmanager
def kept(db: Connection, chunk_ids: Iterable[int], counters: Sequence[Counter]) -> Iterator[None]:
    """Keep these totals right over a change of the chunks' labels, votes or opinions made inside the block (the writer has
    passed ``one_opinion_at_a_time``)."""
    parts = list(batches(sorted(chunk_ids)))
    delta = Delta()
    _count(db, delta, parts, counters, -1)
    yield
    _count(db, delta, parts, counters, 1)
    delta.apply(db)


def _count(
    db: Connection, delta: Delta, parts: Sequence[Sequence[int]], counters: Sequence[Counter], sign: int
) -> None:
    for part in parts:
        for counter in counters:
            for name, key, n in counter(db, part):
                delta.add(name, key, sign * n)


def recount_crossings(db: Connection) -> dict[tuple[str, str], tuple[int, float]]:
    """All of them from the rows themselves."""
    delta = Delta()
    for counter in ALL:
        for name, key, n in counter(db, None):
            delta.add(name, key, n)
    return {key: (int(n), 0.0) for key, (n, _) in delta.changes.items()}
