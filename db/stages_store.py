"""What sampling and rolling out write and read back: prefixes, trajectories with chunks, rollouts, their counts.

All writes are idempotent by unique keys, so that a killed run that is resumed neither loses nor doubles anything.
A draw counts only after all draws below it: short completions finish first, and counting by arrival favours them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, func, insert, select, update

from db.blind import hidden_prefixes, hidden_with_siblings
from db.errors import StoreValueError
from db.problems_store import VERIFIER
from db.rows import ChunkRow, NewPrefix, NewRollout, NewTrajectory, PrefixRow, StageTrajectory, TrajectoryHead
from db.session import StoreBase, batches, columns, insert_new, rows_of
from db.tables import Chunk, Prefix, Problem, Rollout, RolloutText, Trajectory, TrajectoryText
from db.totals import Delta


class Stored(NamedTuple):
    """A trajectory's id, and whether this call stored it (False: it was there before)."""

    id: int
    new: bool


class StagesStore(StoreBase):
    """Batches in short transactions; the caller chooses their size."""

    # ---- prefixes

    def ensure_prefixes(self, rows: Iterable[NewPrefix], *, run_id: int | None = None) -> dict[str, int]:
        """{key: id}; those that are stored keep their base seed. Read it back with ``prefixes``."""
        rows = list(rows)
        found: dict[str, int] = {}
        if not rows:
            return found
        with self.read() as db:
            found |= _prefix_ids(db, {row.key for row in rows})
        if missing := [row for row in rows if row.key not in found]:
            with self.write() as db:
                db.execute(insert_new(db, Prefix), [{**row.__dict__, "run_id": run_id} for row in missing])
                found |= _prefix_ids(db, {row.key for row in missing})
        return found

    def prefixes(self, prefix_ids: Iterable[int]) -> dict[int, PrefixRow]:
        """{id: prefix}, with token ids and base seed: draw j has seed base + j."""
        found: dict[int, PrefixRow] = {}
        with self.read() as db:
            for batch in batches(prefix_ids):
                query = select(*columns(PrefixRow, Prefix)).where(Prefix.id.in_(batch))
                found.update({row.id: row for row in rows_of(PrefixRow, db.execute(query))})
        return found

    def set_prefix_errors(self, errors: Iterable[tuple[int, str | None]]) -> None:
        """(prefix id, why it cannot be rolled out); None takes the error back."""
        values = [{"which": id_, "why": why} for id_, why in errors]
        if values:
            with self.write() as db:
                statement = (
                    update(Prefix).where(Prefix.id == bindparam("which")).values(error=bindparam("why"))
                )
                db.execute(statement, values)

    def set_chunk_prefixes(self, pairs: Iterable[tuple[int, int | None]]) -> None:
        """(chunk id, id of the prefix that ends with it)."""
        values = [{"which": chunk_id, "prefix": prefix_id} for chunk_id, prefix_id in pairs]
        if values:
            with self.write() as db:
                db.execute(
                    update(Chunk).where(Chunk.id == bindparam("which")).values(prefix_id=bindparam("prefix")),
                    values,
                )

    # ---- trajectories

    def add_trajectories(
        self, rows: Sequence[NewTrajectory], *, run_id: int | None, actor: str
    ) -> list[Stored]:
        """Store a batch with its chunks in one transaction; what is stored already is skipped. In the rows' order.

        Sampled ones are known by (prefix, draw), others by problem, policy and text. Raises StoreValueError for
        chunks that do not rejoin to the text.
        """
        rows = list(rows)
        for row in rows:
            _check_rejoins(row)
        if not rows:
            return []
        with self.write() as db:
            values = [_trajectory_values(row, run_id, actor) for row in rows]
            result = db.execute(
                insert_new(db, Trajectory).returning(
                    Trajectory.id,
                    Trajectory.prefix_id,
                    Trajectory.draw,
                    Trajectory.problem_id,
                    Trajectory.import_key,
                ),
                values,
            )
            new = {_identity(r._mapping): r.id for r in result}
            fresh = {_identity(v): row for v, row in reversed(list(zip(values, rows, strict=True)))}
            _add_text_and_chunks(db, [(new[key], fresh[key]) for key in fresh if key in new])
            _count_trajectories(db, [fresh[key] for key in fresh if key in new])
            stored = []
            known = new | _find_trajectories(db, [v for v in values if _identity(v) not in new])
            unclaimed = set(new)
            for v in values:
                key = _identity(v)
                stored.append(Stored(known[key], key in unclaimed))
                unclaimed.discard(key)
            return stored

    def trajectory_ids(
        self,
        *,
        dataset: str | None = None,
        policy: str | None = None,
        checkpoint_hash: str | None = None,
        run_id: int | None = None,
        problem_ids: Sequence[int] | None = None,
        sampled: bool | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[int]:
        """Ids, ascending, of the trajectories that fit; ``sampled``: with (or without) token ids of their own."""
        query = select(Trajectory.id).where(Trajectory.id > after).order_by(Trajectory.id).limit(limit)
        if dataset is not None:
            query = query.where(
                Trajectory.problem_id.in_(select(Problem.id).where(Problem.dataset == dataset))
            )
        if policy is not None:
            query = query.where(Trajectory.policy == policy)
        if checkpoint_hash is not None:
            query = query.where(Trajectory.checkpoint_hash == checkpoint_hash)
        if run_id is not None:
            query = query.where(Trajectory.run_id == run_id)
        if sampled is not None:
            query = query.where(Trajectory.draw.is_not(None) if sampled else Trajectory.draw.is_(None))
        with self.read() as db:
            if problem_ids is None:
                return list(db.scalars(query))
            found: list[int] = []
            for batch in batches(problem_ids):
                found += db.scalars(query.where(Trajectory.problem_id.in_(batch)))
            return sorted(found)[:limit]

    def stage_trajectories(self, ids: Sequence[int]) -> list[StageTrajectory]:
        """Whole trajectories in the order of ``ids``: ask for a few hundred at a time.

        Unknown ids are left out, and, for a viewer, solutions of problems of which a blind queue hides one: their
        reference would give it away.
        """
        special = {"problem": Problem.text, "reference": Problem.answer, "verifier": VERIFIER}
        chosen = columns(TrajectoryHead, Trajectory, TrajectoryText, Problem, **special)
        heads: dict[int, TrajectoryHead] = {}
        chunks: dict[int, list[ChunkRow]] = {}
        with self.read() as db:
            for part in batches(ids):
                batch = set(part) - hidden_with_siblings(db, self.viewer, part)
                query = (
                    select(*chosen).select_from(Trajectory).join(Problem, Problem.id == Trajectory.problem_id)
                )
                query = query.join(TrajectoryText, TrajectoryText.trajectory_id == Trajectory.id)
                heads |= {
                    row.id: row
                    for row in rows_of(TrajectoryHead, db.execute(query.where(Trajectory.id.in_(batch))))
                }
                parts = select(*columns(ChunkRow, Chunk)).where(Chunk.trajectory_id.in_(batch))
                for row in rows_of(ChunkRow, db.execute(parts.order_by(Chunk.trajectory_id, Chunk.idx))):
                    chunks.setdefault(row.trajectory_id, []).append(row)
        return [
            StageTrajectory(**heads[i].__dict__, chunks=tuple(chunks.get(i, ()))) for i in ids if i in heads
        ]

    # ---- rollouts

    def add_rollouts(self, rows: Sequence[NewRollout], *, run_id: int) -> int:
        """Store a batch in one transaction; a (prefix, draw) that is stored stays. Returns how many were new."""
        rows = list(rows)
        if not rows:
            return 0
        with self.write() as db:
            narrow = [
                {"prefix_id": r.prefix_id, "draw": r.draw, "outcome": r.outcome, "n_tokens": r.n_tokens}
                | {"run_id": run_id}
                for r in rows
            ]
            result = db.execute(
                insert_new(db, Rollout).returning(Rollout.id, Rollout.prefix_id, Rollout.draw), narrow
            )
            ids = {(prefix_id, draw): id_ for id_, prefix_id, draw in result}
            fresh = {(r.prefix_id, r.draw): r for r in reversed(rows) if (r.prefix_id, r.draw) in ids}
            texts = [
                {"rollout_id": ids[key], "text": r.text, "answer": r.answer, "finish_reason": r.finish_reason}
                | {"seed": r.seed, "note": r.note}
                for key, r in fresh.items()
            ]
            if texts:
                db.execute(insert(RolloutText), texts)
            delta = Delta()
            for r in fresh.values():
                delta.add("rollouts/outcome", r.outcome)
            delta.apply(db)
            return len(ids)

    def draws_done(self, prefix_ids: Iterable[int]) -> dict[int, int]:
        """{prefix id: how many rollouts count}, 0 for none: draws 0, 1, … without a gap."""
        return self._draws(Rollout, prefix_ids)

    def sample_draws_done(self, prefix_ids: Iterable[int]) -> dict[int, int]:
        """The same for trajectories drawn from their prefix 0."""
        return self._draws(Trajectory, prefix_ids)

    def outcome_counts(self, prefix_ids: Iterable[int], m: int | None = None) -> dict[int, dict[str, int]]:
        """{prefix id: {outcome: n}} over the contiguous draws from 0 on, of the first ``m`` if given."""
        return self._outcomes(Rollout, prefix_ids, m)

    def draw_outcomes(self, prefix_ids: Iterable[int]) -> dict[int, list[str]]:
        """{prefix id: outcomes of its draws 0, 1, … without a gap}, in their order."""
        found: dict[int, list[str]] = {}
        with self.read() as db:
            for part in batches(prefix_ids):
                found |= {prefix_id: [] for prefix_id in part}
                shown = set(part) - hidden_prefixes(db, self.viewer, part)
                query = select(Rollout.prefix_id, Rollout.draw, Rollout.outcome)
                query = query.where(Rollout.prefix_id.in_(shown)).order_by(Rollout.prefix_id, Rollout.draw)
                for prefix_id, draw, outcome in db.execute(query):
                    if draw == len(found[prefix_id]):
                        found[prefix_id].append(outcome)
        return found

    def sample_counts(self, prefix_ids: Iterable[int], m: int | None = None) -> dict[int, dict[str, int]]:
        """The same over the trajectories drawn from each prefix 0: the value of the bare problem."""
        return self._outcomes(Trajectory, prefix_ids, m)

    def _draws(self, table: Any, prefix_ids: Iterable[int]) -> dict[int, int]:
        counts = self._outcomes(table, prefix_ids, None)
        return {prefix_id: sum(outcomes.values()) for prefix_id, outcomes in counts.items()}

    def _outcomes(self, table: Any, prefix_ids: Iterable[int], m: int | None) -> dict[int, dict[str, int]]:
        with self.read() as db:
            return count_outcomes(db, self.viewer, table, prefix_ids, m)


def count_outcomes(
    db: Connection, viewer: str | None, table: Any, prefix_ids: Iterable[int], m: int | None = None
) -> dict[int, dict[str, int]]:
    """{prefix id: {outcome: n}} over the contiguous draws of Rollout or Trajectory, in a transaction that is open."""
    found: dict[int, dict[str, int]] = {}
    for part in batches(prefix_ids):
        found |= {prefix_id: {} for prefix_id in part}
        batch = set(part) - hidden_prefixes(db, viewer, part)
        place = func.row_number().over(partition_by=table.prefix_id, order_by=table.draw) - 1
        ranked = select(table.prefix_id, table.draw, table.outcome, place.label("place"))
        ranked = ranked.where(table.prefix_id.in_(batch))
        if m is not None:
            ranked = ranked.where(table.draw < m)
        rows = ranked.subquery()
        # draws are unique and start at 0: the j-th smallest is j exactly as long as there is no gap
        query = select(rows.c.prefix_id, rows.c.outcome, func.count()).where(rows.c.draw == rows.c.place)
        for prefix_id, outcome, n in db.execute(query.group_by(rows.c.prefix_id, rows.c.outcome)):
            found[prefix_id][outcome] = n
    return found


def _prefix_ids(db: Connection, keys: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for batch in batches(keys):
        found |= {
            key: id_ for key, id_ in db.execute(select(Prefix.key, Prefix.id).where(Prefix.key.in_(batch)))
        }
    return found


def import_key(policy: str, text: str) -> str:
    """What identifies a trajectory of a problem that was not sampled here."""
    return hashlib.sha256(f"{policy}\0{text}".encode()).hexdigest()


def _check_rejoins(row: NewTrajectory) -> None:
    if (row.prefix_id is None) != (row.draw is None):
        raise StoreValueError(f"a trajectory of problem {row.problem_id} has only one of prefix_id and draw")
    if "".join(c.lead + c.text + c.close for c in row.chunks) + row.tail != row.text:
        raise StoreValueError(
            f"a trajectory of problem {row.problem_id} (policy {row.policy!r}, cut by {row.cutter!r}): chunks and "
            "tail do not give its text back; it was not stored"
        )


def _trajectory_values(row: NewTrajectory, run_id: int | None, actor: str) -> dict[str, Any]:
    apart = ("text", "tail", "token_ids", "chunks")
    values = {name: value for name, value in row.__dict__.items() if name not in apart}
    return values | {
        "import_key": None if row.draw is not None else import_key(row.policy, row.text),
        "n_chunks": len(row.chunks),
        "n_tokens": None if row.token_ids is None else len(row.token_ids),
        "run_id": run_id,
        "actor": actor,
    }


def _identity(values: Any) -> tuple[str, int, Any]:
    if values["draw"] is not None:
        return ("drawn", values["prefix_id"], values["draw"])
    return ("given", values["problem_id"], values["import_key"])


def _add_text_and_chunks(db: Connection, rows: Sequence[tuple[int, NewTrajectory]]) -> None:
    if not rows:
        return
    db.execute(
        insert(TrajectoryText),
        [{"trajectory_id": i, "text": r.text, "tail": r.tail, "token_ids": r.token_ids} for i, r in rows],
    )
    chunks = [
        {
            "trajectory_id": i,
            "idx": idx,
            "lead": c.lead,
            "text": c.text,
            "close": c.close,
            "token_end": c.token_end,
        }
        for i, r in rows
        for idx, c in enumerate(r.chunks)
    ]
    if chunks:
        db.execute(insert(Chunk), chunks)


def _count_trajectories(db: Connection, rows: Sequence[NewTrajectory]) -> None:
    delta = Delta()
    datasets: dict[int, str] = {}
    for batch in batches({row.problem_id for row in rows}):
        for id_, dataset in db.execute(select(Problem.id, Problem.dataset).where(Problem.id.in_(batch))):
            datasets[id_] = dataset
    for row in rows:
        delta.add("trajectories/outcome", row.outcome)
        delta.add("trajectories/policy", row.policy)
        delta.add("trajectories/dataset", datasets[row.problem_id])
        delta.add("chunks", "all", len(row.chunks))
    delta.apply(db)


def _find_trajectories(db: Connection, values: Sequence[dict[str, Any]]) -> dict[Any, int]:
    """Ids of trajectories that were stored before, by identity."""
    found: dict[Any, int] = {}
    chosen = (
        Trajectory.id,
        Trajectory.prefix_id,
        Trajectory.draw,
        Trajectory.problem_id,
        Trajectory.import_key,
    )
    for batch in batches({v["prefix_id"] for v in values if v["draw"] is not None}):
        for row in db.execute(select(*chosen).where(Trajectory.prefix_id.in_(batch))):
            found[_identity(row._mapping)] = row.id
    for batch in batches({v["problem_id"] for v in values if v["draw"] is None}):
        query = select(*chosen).where(Trajectory.problem_id.in_(batch), Trajectory.import_key.is_not(None))
        for row in db.execute(query):
            found[_identity(row._mapping)] = row.id
    return found
