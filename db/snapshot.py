"""Copies of data sets between stores, as one compressed file: everything that belongs to given data sets.

JSON lines in xz: a header, then for each table its columns and one array a row, parents before children. Ids in the
file are the writing store's; ``load`` gives new ones. Not in it: queues, people, drafts, the grader's cache, checkpoints, logs.
"""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, Table, select, union

from db.column_types import TokenIds, UtcDateTime
from db.errors import SnapshotError, store_errors
from db.snapshot_load import FORMAT, TABLES, VERSION, Loaded, load
from db.store import Store
from db.tables import (
    Base,
    Chunk,
    ChunkLabel,
    Judge,
    Judgment,
    Metric,
    Prefix,
    PrefixStop,
    Problem,
    Review,
    Rollout,
    RolloutText,
    Run,
    Trajectory,
    TrajectoryText,
)

__all__ = ["Loaded", "dump", "load"]
PRESET = 9


def dump(store: Store, path: Path, *, datasets: Sequence[str] | None = None) -> dict[str, int]:
    """Write everything that belongs to ``datasets`` (None: all) to ``path``. Returns {table: rows}.

    One state of the store, whatever is written meanwhile; written aside and renamed. Raises SnapshotError if the
    file cannot be written or a data set has no problem.
    """
    aside = path.with_name(path.name + ".part")
    counts: dict[str, int] = {}
    try:
        with (
            store_errors(store.name),
            store.engine.connect() as db,
            lzma.open(aside, "wt", encoding="utf-8", preset=PRESET) as out,
        ):
            if not store.is_sqlite:
                db = db.execution_options(isolation_level="REPEATABLE READ")
            out.write(json.dumps({"format": FORMAT, "version": VERSION}) + "\n")
            with db.begin():
                _check_known(db, datasets)
                for name, query in _queries(datasets).items():
                    counts[name] = _write(db, out, Base.metadata.tables[name], query)
        os.replace(aside, path)
    except OSError as error:
        raise SnapshotError(f"{path}: the snapshot cannot be written ({error.strerror or error})") from error
    finally:
        aside.unlink(missing_ok=True)
    return counts


def _check_known(db: Connection, datasets: Sequence[str] | None) -> None:
    for dataset in datasets or ():
        if db.scalar(select(Problem.id).where(Problem.dataset == dataset).limit(1)) is None:
            raise SnapshotError(f"there is no data set {dataset!r} in this store; nothing was written")


def _queries(datasets: Sequence[str] | None) -> dict[str, Select[Any]]:
    """{table: which of its rows}, in the order of TABLES."""
    problems = select(Problem.id)
    if datasets is not None:
        problems = problems.where(Problem.dataset.in_(datasets))
    prefixes = select(Prefix.id).where(Prefix.problem_id.in_(problems))
    trajectories = select(Trajectory.id).where(Trajectory.problem_id.in_(problems))
    chunks = select(Chunk.id).where(Chunk.trajectory_id.in_(trajectories))
    judges = select(Judgment.judge_id).where(Judgment.chunk_id.in_(chunks))
    runs = union(
        select(Problem.run_id).where(Problem.id.in_(problems)),
        select(Prefix.run_id).where(Prefix.id.in_(prefixes)),
        select(Trajectory.run_id).where(Trajectory.id.in_(trajectories)),
        select(Rollout.run_id).where(Rollout.prefix_id.in_(prefixes)),
        select(PrefixStop.run_id).where(PrefixStop.prefix_id.in_(prefixes)),
        select(Judge.run_id).where(Judge.id.in_(judges)),
        select(Judgment.run_id).where(Judgment.chunk_id.in_(chunks)),
    ).subquery()
    used = select(runs.c[0]).where(runs.c[0].is_not(None))
    rollouts = select(Rollout.id).where(Rollout.prefix_id.in_(prefixes))
    chosen: dict[Any, Any] = {
        Run: Run.id.in_(used),
        Metric: Metric.run_id.in_(used),
        Problem: Problem.id.in_(problems),
        Prefix: Prefix.id.in_(prefixes),
        PrefixStop: PrefixStop.prefix_id.in_(prefixes),
        Trajectory: Trajectory.id.in_(trajectories),
        TrajectoryText: TrajectoryText.trajectory_id.in_(trajectories),
        Chunk: Chunk.id.in_(chunks),
        ChunkLabel: ChunkLabel.chunk_id.in_(chunks),
        Rollout: Rollout.id.in_(rollouts),
        RolloutText: RolloutText.rollout_id.in_(rollouts),
        Judge: Judge.id.in_(judges),
        Judgment: Judgment.chunk_id.in_(chunks),
        Review: Review.chunk_id.in_(chunks),
    }
    by_name = {cls.__tablename__: select(cls.__table__).where(which) for cls, which in chosen.items()}
    return {name: by_name[name] for name in TABLES}


def _write(db: Connection, out: Any, table: Table, query: Select[Any]) -> int:
    out.write(json.dumps({"table": table.name, "columns": [column.name for column in table.c]}) + "\n")
    count = 0
    for row in db.execute(query.order_by(*table.primary_key.columns)):
        values = [_plain(column.type, value) for column, value in zip(table.c, row, strict=True)]
        out.write(json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n")
        count += 1
    return count


def _plain(kind: Any, value: Any) -> Any:
    if isinstance(kind, UtcDateTime) and value is not None:
        return value.isoformat()
    if isinstance(kind, TokenIds) and value is not None:
        return list(value)
    return value
