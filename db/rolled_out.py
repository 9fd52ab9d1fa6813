"""Which trajectories of a selection have nothing left to roll out: what a resumed run passes over without reading it.

Counted in the store, from narrow rows and indexes. Not: what a trajectory that is not among them still lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, exists, func, or_, select

from db.blind import hidden
from db.session import StoreBase, batches
from db.tables import Chunk, ChunkLabel, Rollout, Trajectory


@dataclass(frozen=True)
class RolledOut:
    """A trajectory with all its draws and its labels. ``first``: its prefix 0; ``prefixes``: of its rolled-out
    chunks; ``finished``: its end is graded; ``labelled``: chunks with both values."""

    trajectory_id: int
    problem_id: int
    first: int
    prefixes: tuple[int, ...]
    finished: bool
    labelled: int


class RolledOutStore(StoreBase):
    """Reads of a run; for a viewer they leave out what a blind queue hides."""

    def rolled_out(self, trajectory_ids: Sequence[int], m: int) -> list[RolledOut]:
        """Those of the trajectories of which every prefix that a run rolls out has its first ``m`` draws and every
        chunk labels made from as many; under whichever policy they were linked to last."""
        found: list[RolledOut] = []
        with self.read() as db:
            for part in batches(trajectory_ids, 1000):
                batch = set(part) - hidden(db, self.viewer, part)
                prefixes: dict[int, list[int]] = {}
                rolled = select(Chunk.trajectory_id, Chunk.prefix_id).join(
                    Trajectory, Trajectory.id == Chunk.trajectory_id
                )
                rolled = rolled.where(
                    Chunk.trajectory_id.in_(batch), _is_rolled(), Chunk.prefix_id.is_not(None)
                )
                rows: Any = db.execute(rolled.order_by(Chunk.trajectory_id, Chunk.idx))
                for trajectory_id, prefix_id in rows:
                    prefixes.setdefault(trajectory_id, []).append(prefix_id)
                labelled = select(func.count()).select_from(Chunk).join(ChunkLabel)
                labelled = labelled.where(Chunk.trajectory_id == Trajectory.id, ChunkLabel.drop.is_not(None))
                finished = (Trajectory.n_chunks > 0) & (Trajectory.outcome != "truncated")
                query = select(
                    Trajectory.id,
                    Trajectory.problem_id,
                    Trajectory.value_prefix_id,
                    finished,
                    labelled.correlate(Trajectory).scalar_subquery(),
                ).where(Trajectory.id.in_(batch), *_complete(m))
                heads: Any = db.execute(query.order_by(Trajectory.id))
                for id_, problem_id, first, ends, n in heads:
                    own = tuple(prefixes.get(id_, ()))
                    found.append(RolledOut(id_, problem_id, first, own, bool(ends), n))
        return found


def _is_rolled() -> ColumnElement[bool]:
    """A chunk whose prefix is rolled out: not the last of a finished solution, whose end is graded."""
    return or_(Chunk.idx + 1 < Trajectory.n_chunks, Trajectory.outcome == "truncated")


def _complete(m: int) -> list[ColumnElement[bool]]:
    own = (Chunk.trajectory_id == Trajectory.id,)
    drawn = select(func.count()).where(Rollout.prefix_id == Chunk.prefix_id, Rollout.draw < m)
    open_ = exists().where(*own, _is_rolled(), drawn.correlate(Chunk).scalar_subquery() < m)
    loose = exists().where(*own, _is_rolled(), Chunk.prefix_id.is_(None))
    label = exists().where(
        ChunkLabel.chunk_id == Chunk.id,
        or_(ChunkLabel.after_exact.is_not(None), ChunkLabel.after_n >= m),
    )
    unlabelled = exists().where(*own, ~label.correlate(Chunk))
    first = select(func.count()).where(Rollout.prefix_id == Trajectory.value_prefix_id, Rollout.draw < m)
    sibling = Trajectory.__table__.alias("sibling")
    sampled = exists().where(sibling.c.prefix_id == Trajectory.value_prefix_id)
    return [
        Trajectory.value_prefix_id.is_not(None),
        ~open_.correlate(Trajectory),
        ~loose.correlate(Trajectory),
        ~unlabelled.correlate(Trajectory),
        or_(sampled.correlate(Trajectory), first.correlate(Trajectory).scalar_subquery() >= m),
    ]
