"""Judges, their judgments, and the grader's cache. Not: reviews by people (reviews_store)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, case, func, insert, select

from db.blind import hidden_chunks
from db.labels_store import refresh_caches, votes_query
from db.opinions import refresh_votes
from db.rows import JudgeRow, NewJudgment
from db.session import (
    StoreBase,
    batches,
    columns,
    insert_new,
    one_at_a_time,
    one_opinion_at_a_time,
    rows_of,
    store_now,
)
from db.tables import Chunk, Grade, Judge, Judgment
from db.totals import NO_VERDICT, Delta


class JudgesStore(StoreBase):
    """Judgments are known by (judge, chunk, draw)."""

    def ensure_judge(
        self,
        *,
        name: str,
        kind: str,
        checkpoint: str,
        checkpoint_hash: str,
        prompt_name: str,
        prompt_hash: str,
        sampling: dict[str, Any],
        sampling_digest: str,
        run_id: int | None = None,
    ) -> int:
        """The id of the judge with these weights, prompt and sampling, stored now if it is new.

        If another judge has the name already, this one gets the name with a number behind it.
        """
        with self.write() as db:
            one_at_a_time(db, "judge")
            known = db.scalar(
                select(Judge.id).where(
                    Judge.checkpoint_hash == checkpoint_hash,
                    Judge.prompt_hash == prompt_hash,
                    Judge.sampling_digest == sampling_digest,
                )
            )
            if known is not None:
                return known
            values = {
                "name": free_judge_name(db, name),
                "kind": kind,
                "checkpoint": checkpoint,
                "checkpoint_hash": checkpoint_hash,
                "prompt_name": prompt_name,
                "prompt_hash": prompt_hash,
                "sampling": sampling,
                "sampling_digest": sampling_digest,
                "run_id": run_id,
                "created_at": store_now(db),
            }
            return db.execute(insert(Judge).values(values).returning(Judge.id)).scalar_one()

    def judges(self) -> list[JudgeRow]:
        """All judges, oldest first."""
        with self.read() as db:
            return rows_of(JudgeRow, db.execute(select(*columns(JudgeRow, Judge)).order_by(Judge.id)))

    def judged(self, judge_id: int, chunk_ids: Iterable[int]) -> dict[int, int]:
        """{chunk id: how many judgments count}, 0 for none: draws 0, 1, … without a gap."""
        found: dict[int, int] = {}
        with self.read() as db:
            for batch in batches(chunk_ids):
                found |= dict.fromkeys(batch, 0)
                place = func.row_number().over(partition_by=Judgment.chunk_id, order_by=Judgment.draw) - 1
                rows = (
                    select(Judgment.chunk_id, Judgment.draw, place.label("place"))
                    .where(Judgment.judge_id == judge_id, Judgment.chunk_id.in_(batch))
                    .subquery()
                )
                query = select(rows.c.chunk_id, func.count()).where(rows.c.draw == rows.c.place)
                found |= {chunk_id: n for chunk_id, n in db.execute(query.group_by(rows.c.chunk_id))}
        return found

    def add_judgments(self, rows: Sequence[NewJudgment], *, run_id: int) -> int:
        """Store a batch in one transaction; what is stored stays. Returns how many were new."""
        rows = list(rows)
        if not rows:
            return 0
        with self.write() as db:
            one_opinion_at_a_time(db)
            result = db.execute(
                insert_new(db, Judgment).returning(Judgment.chunk_id, Judgment.verdict),
                [{**row.__dict__, "run_id": run_id} for row in rows],
            )
            delta, chunks, n = Delta(), set(), 0
            for chunk_id, verdict in result:
                delta.add("judgments/verdict", verdict or NO_VERDICT)
                chunks.add(chunk_id)
                n += 1
            delta.apply(db)
            refresh_votes(db, chunks)
            trajectories: set[int] = set()
            for batch in batches(chunks):
                trajectories.update(db.scalars(select(Chunk.trajectory_id).where(Chunk.id.in_(batch))))
            refresh_caches(db, trajectories)
            return n

    def votes(self, chunk_ids: Iterable[int]) -> dict[int, dict[int, tuple[int, int, int]]]:
        """{chunk id: {judge id: (positive, negative, without a verdict)}}."""
        found: dict[int, dict[int, tuple[int, int, int]]] = {}
        with self.read() as db:
            for batch in batches(chunk_ids):
                shown = set(batch) - hidden_chunks(db, self.viewer, batch)
                for chunk_id, judge_id, positive, negative, total in db.execute(votes_query(chunk_ids=shown)):
                    counts = (int(positive), int(negative), int(total - positive - negative))
                    found.setdefault(chunk_id, {})[judge_id] = counts
        return found

    def chunk_scores(self, judge_id: int, chunk_ids: Iterable[int]) -> dict[int, float]:
        """{chunk id: score of 0..1} for the chunks this judge has read: the share of its judgments that are positive,
        or the mean of its own scores where it gives them (a discriminative judge)."""
        found: dict[int, float] = {}
        positive = case((Judgment.verdict == "positive", 1.0), else_=0.0)
        with self.read() as db:
            for batch in batches(chunk_ids):
                shown = set(batch) - hidden_chunks(db, self.viewer, batch)
                query = select(Judgment.chunk_id, func.avg(func.coalesce(Judgment.score, positive))).where(
                    Judgment.judge_id == judge_id, Judgment.chunk_id.in_(shown)
                )
                found |= {i: float(score) for i, score in db.execute(query.group_by(Judgment.chunk_id))}
        return found

    @property
    def grades(self) -> GradesCache:
        """The grader's cache."""
        return GradesCache(self)


class GradesCache:
    """{hash of answer and reference: outcome}; only what is certain (correct, wrong) is worth putting in."""

    def __init__(self, store: StoreBase) -> None:
        self._store = store

    def get_many(self, keys: Iterable[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        with self._store.read() as db:
            for batch in batches(keys):
                for key, outcome in db.execute(select(Grade.key, Grade.outcome).where(Grade.key.in_(batch))):
                    found[key] = outcome
        return found

    def put_many(self, grades: Mapping[str, str]) -> None:
        if grades:
            with self._store.write() as db:
                db.execute(insert_new(db, Grade), [{"key": k, "outcome": v} for k, v in grades.items()])


def free_judge_name(db: Connection, name: str) -> str:
    """``name``, or ``name (2)``, ``name (3)``, … if it is taken."""
    taken = set(db.scalars(select(Judge.name).where(Judge.name.startswith(name, autoescape=True))))
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name} ({number})", number + 1
    return candidate
