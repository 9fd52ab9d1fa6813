"""What a run drew, over its own rows by their index: counted for its report, and whose labels follow from it. Not for a
page that is drawn often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, union

from db.blind import hidden_query, is_blind
from db.session import StoreBase
from db.tables import Chunk, ChunkLabel, PrefixStop, Rollout, Trajectory


@dataclass(frozen=True)
class RunOutcomes:
    """``counts``: {outcome: (rollouts, their tokens)}. ``partial``: those of solutions that a blind queue hides from the
    viewer are left out."""

    counts: dict[str, tuple[int, int]]
    partial: bool


class RunRollouts(StoreBase):
    """Counts of one run's rollouts, of all its attempts."""

    def run_outcomes(self, run_id: int) -> RunOutcomes:
        """An unknown run has drawn nothing."""
        query = select(Rollout.outcome, func.count(), func.coalesce(func.sum(Rollout.n_tokens), 0))
        query = query.where(Rollout.run_id == run_id).group_by(Rollout.outcome)
        with self.read() as db:
            partial = self.viewer is not None and is_blind(db, self.viewer)
            if partial and self.viewer is not None:
                query = query.where(Rollout.prefix_id.not_in(_hidden_prefixes(self.viewer)))
            counts = {outcome: (int(n), int(tokens)) for outcome, n, tokens in db.execute(query)}
        return RunOutcomes(counts, partial)

    def labelled_on(self, run_id: int) -> list[int]:
        """Ids, ascending, of trajectories with labels that rest on a prefix from which this run drew rollouts or
        sampled solutions, or which it was the last to stop: its own, and others that share a beginning with them."""
        rolled = select(Rollout.prefix_id).where(Rollout.run_id == run_id)
        sampled = select(Trajectory.prefix_id).where(
            Trajectory.run_id == run_id, Trajectory.prefix_id.is_not(None)
        )
        stopped = select(PrefixStop.prefix_id).where(PrefixStop.run_id == run_id)
        prefixes = union(rolled, sampled, stopped).subquery()
        ways = union(
            select(Chunk.trajectory_id).join(prefixes, prefixes.c.prefix_id == Chunk.prefix_id),
            select(Trajectory.id).join(prefixes, prefixes.c.prefix_id == Trajectory.value_prefix_id),
        ).subquery()
        labelled = select(Chunk.trajectory_id).join(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
        query = select(ways.c.trajectory_id).where(
            labelled.where(Chunk.trajectory_id == ways.c.trajectory_id).exists()
        )
        with self.read() as db:
            return list(db.scalars(query.order_by(ways.c.trajectory_id)))


def _hidden_prefixes(viewer: str) -> Any:
    away = hidden_query(viewer, from_queues=True)
    ways: tuple[tuple[Any, Any], ...] = (
        (Chunk.prefix_id, Chunk.trajectory_id),
        (Trajectory.prefix_id, Trajectory.id),
        (Trajectory.value_prefix_id, Trajectory.id),
    )
    return union(*(select(key).where(key.is_not(None), owner.in_(away)) for key, owner in ways))
