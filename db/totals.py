"""Counts that pages show without a scan: changed in the transaction that changes what they count, and recounted.

Names: problems by dataset; trajectories by outcome, dataset and policy; chunks; rollouts by outcome; judgments by
verdict; labels of each rule; Q lost (n: chunks with a known drop) and gained by chunk position; reviewed chunks and
trajectories; and what labels, judges and people say against each other (crossings).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, literal, select
from sqlalchemy.dialects import postgresql, sqlite

from db.session import StoreBase
from db.tables import Chunk, ChunkLabel, Judgment, Problem, Review, Rollout, Total, Trajectory

LABEL_RULES = ("abs_q", "rel_effective", "rel_ratio")
MAX_POSITION = 499
"""Chunks from this index on are counted together."""
NO_VERDICT = "none"


@dataclass
class Delta:
    """Changes of totals gathered during one transaction: {(name, key): [n, amount]}."""

    changes: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, name: str, key: str, n: int = 1, amount: float = 0.0) -> None:
        change = self.changes.setdefault((name, key), [0, 0.0])
        change[0] += n
        change[1] += amount

    def apply(self, db: Connection) -> None:
        """Write the changes, in one order for everybody, so that two writers cannot wait for each other."""
        rows = [
            {"name": name, "key": key, "n": int(n), "amount": amount}
            for (name, key), (n, amount) in sorted(self.changes.items())
            if n or amount
        ]
        if not rows:
            return
        dialect: Any = sqlite if db.dialect.name == "sqlite" else postgresql
        statement = dialect.insert(Total)
        db.execute(
            statement.on_conflict_do_update(
                index_elements=["name", "key"],
                set_={
                    "n": Total.n + statement.excluded.n,
                    "amount": Total.amount + statement.excluded.amount,
                },
            ),
            rows,
        )


def count_drop(delta: Delta, position: int, drop: float, sign: int) -> None:
    """Where Q is lost and where it is gained, apart: under its own policy the signed mean is 0 at every position."""
    key = str(min(position, MAX_POSITION))
    delta.add("lost/position", key, sign, sign * max(drop, 0.0))
    if drop < 0:
        delta.add("gained/position", key, sign, -sign * drop)


def head_of_chain(review: Any = Review) -> Any:
    """Condition: nobody supersedes this review."""
    later = Review.__table__.alias("later")
    return ~exists().where(later.c.supersedes == review.id)


def in_force(review: Any = Review) -> Any:
    """Condition: this row is the head of its chain and says something."""
    return head_of_chain(review) & ((review.kind != "undo") | review.restores.is_not(None))


def recount(db: Connection) -> dict[tuple[str, str], tuple[int, float]]:
    """All totals from the rows themselves (full scans: for ``db check`` and repairs)."""
    from db.crossings import recount_crossings

    counted: dict[tuple[str, str], tuple[int, float]] = {}

    def count(name: str, key: Any, *joins: Any) -> None:
        query = select(key, func.count(), literal(0.0)).group_by(key)
        for table, on in joins:
            query = query.join(table, on)
        for value, n, total in db.execute(query):
            counted[(name, str(value))] = (n, float(total))

    count("problems/dataset", Problem.dataset)
    count("trajectories/outcome", Trajectory.outcome)
    count("trajectories/policy", Trajectory.policy)
    count("trajectories/dataset", Problem.dataset, (Trajectory, Trajectory.problem_id == Problem.id))
    count("rollouts/outcome", Rollout.outcome)
    count("judgments/verdict", func.coalesce(Judgment.verdict, NO_VERDICT))
    for rule in LABEL_RULES:
        column = getattr(ChunkLabel, rule)
        count(f"labels/{rule}", func.coalesce(column, NO_VERDICT))
    moves = Delta()
    rows: Any = db.execute(
        select(Chunk.idx, ChunkLabel.drop)
        .join(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
        .where(ChunkLabel.drop.is_not(None))
    )
    for position, drop in rows:
        count_drop(moves, position, drop, 1)
    counted |= {key: (int(n), amount) for key, (n, amount) in moves.changes.items()}
    chunks = db.scalar(select(func.count()).select_from(Chunk))
    reviewed = db.scalar(select(func.count(Review.chunk_id.distinct())).where(in_force()))
    counted[("chunks", "all")] = (chunks or 0, 0.0)
    counted[("reviewed", "chunks")] = (reviewed or 0, 0.0)
    trajectories = db.scalar(
        select(func.count(Chunk.trajectory_id.distinct()))
        .join(Review, Review.chunk_id == Chunk.id)
        .where(in_force())
    )
    counted[("reviewed", "trajectories")] = (trajectories or 0, 0.0)
    counted |= recount_crossings(db)
    return {key: value for key, value in counted.items() if value[0]}


class TotalsStore(StoreBase):
    """Reading and rebuilding the totals."""

    def totals(self) -> dict[str, dict[str, tuple[int, float]]]:
        """{name: {key: (n, amount)}} of all but the many-keyed ones (pairs, judged): one read of a small table."""
        many = (Total.name == "pairs") | Total.name.startswith("judged/")
        return self._totals(~many)

    def pairs(self) -> dict[str, int]:
        """{values before and after, as ``db.crossings`` writes them: chunks that have them}."""
        found = self._totals(Total.name == "pairs").get("pairs", {})
        return {key: n for key, (n, _) in found.items()}

    def judged_by_position(self, rule: str) -> dict[int, dict[str, int]]:
        """{judge id: {``POSITION/+-``: chunks}}: a rule's labels (``rel_ratio``, …) against each judge's majority."""
        found = self._totals(Total.name.startswith(f"judged/{rule}/", autoescape=True))
        return {
            int(name.rpartition("/")[2]): {key: n for key, (n, _) in keys.items()}
            for name, keys in found.items()
        }

    def _totals(self, where: Any) -> dict[str, dict[str, tuple[int, float]]]:
        found: dict[str, dict[str, tuple[int, float]]] = {}
        chosen = select(Total.name, Total.key, Total.n, Total.amount).where(Total.n != 0, where)
        with self.read() as db:
            for name, key, n, amount in db.execute(chosen.order_by(Total.name, Total.key)):
                found.setdefault(name, {})[key] = (n, amount)
        return found

    def counts(self) -> dict[str, int]:
        """{problems, trajectories, chunks, rollouts, judgments: how many}."""
        found = self.totals()
        names = {"problems": "problems/dataset", "trajectories": "trajectories/outcome", "chunks": "chunks"}
        names |= {"rollouts": "rollouts/outcome", "judgments": "judgments/verdict"}
        return {noun: sum(n for n, _ in found.get(name, {}).values()) for noun, name in names.items()}

    def is_empty(self) -> bool:
        """True while there is no problem."""
        return self.counts()["problems"] == 0

    def rebuild_totals(self) -> None:
        """Count everything anew: after a repair by hand."""
        with self.write() as db:
            write_totals(db, recount(db))


def write_totals(db: Connection, counted: Mapping[tuple[str, str], tuple[int, float]]) -> None:
    db.execute(delete(Total))
    rows = [{"name": k[0], "key": k[1], "n": n, "amount": amount} for k, (n, amount) in counted.items()]
    if rows:
        db.execute(insert(Total), rows)
