"""What the stages read: which trajectories a run works on, and the counts their labels follow from.

Not: how a label follows from counts (engine.labels), or the pages' reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import Select, bindparam, case, func, select, update

from db.blind import all_hidden, hidden, hidden_chunks, hidden_query, is_blind, not_hidden
from db.rows import StageTrajectory
from db.session import batches, one_opinion_at_a_time
from db.stages_store import StagesStore, count_outcomes
from db.stops_store import Stop, StopsStore, find_stops
from db.tables import Chunk, Judgment, Problem, Rollout, Trajectory


@dataclass(frozen=True)
class ChunkInputs:
    """One chunk's inputs: outcome counts of the prefix that ends with it, and its stop, if a thrifty run left one."""

    chunk_id: int
    idx: int
    prefix_id: int | None
    counts: dict[str, int]
    stop: Stop | None = None


@dataclass(frozen=True)
class LabelInputs:
    """Everything a trajectory's values follow from.

    ``sample_counts``: outcomes of the solutions sampled from its prefix 0, itself counted if ``is_own_sample``;
    ``first_counts``: outcomes of rollouts of prefix 0, ``first_stop`` its stop.
    """

    trajectory_id: int
    outcome: str
    is_own_sample: bool
    sample_counts: dict[str, int]
    first_counts: dict[str, int]
    chunks: tuple[ChunkInputs, ...]
    first_stop: Stop | None = None


@dataclass(frozen=True)
class LeftOut:
    """How many solutions, of how many chunks, a viewer's export goes without, because blind queues hide them.

    ``siblings``: other solutions of their problems are left out and counted too.
    """

    trajectories: int
    chunks: int
    siblings: bool = True

    def __bool__(self) -> bool:
        return self.trajectories > 0

    @property
    def words(self) -> str:
        """What is left out and why, for whom it is hidden from."""
        which = "of problems that you are" if self.siblings else "that you are"
        solutions = "1 solution" if self.trajectories == 1 else f"{self.trajectories:,} solutions"
        return f"Left out of the file: {solutions} with {self.chunks:,} chunks, {which} still to review blind"

    def line(self, *, filtered: bool = False) -> dict[str, Any]:
        """The last line of an export that goes without something. ``filtered``: the export has a filter, which
        the count does not know, for it would tell what is hidden."""
        which = "of problems that" if self.siblings else "that"
        over = "; counted over the whole store, whether they fit the filter or not" if filtered else ""
        why = f"solutions {which} the exporting person is still to review blind{over}"
        return {"left_out": {"trajectories": self.trajectories, "chunks": self.chunks, "why": why}}


class SelectionStore(StagesStore, StopsStore):
    """Reads in batches: memory holds the ids of a selection and one batch of it.

    A selection leaves out what a blind queue hides from the viewer; a run's reads have no viewer.
    """

    def problem_ids(self, dataset: str) -> list[int]:
        """Ids of a data set's problems, ascending."""
        with self.read() as db:
            return list(db.scalars(select(Problem.id).where(Problem.dataset == dataset).order_by(Problem.id)))

    def set_value_prefixes(self, pairs: Iterable[tuple[int, int]]) -> None:
        """(trajectory id, prefix 0 under the policy whose rollouts give its values)."""
        values = [{"which": trajectory_id, "prefix": prefix_id} for trajectory_id, prefix_id in pairs]
        if values:
            with self.write() as db:
                statement = update(Trajectory).where(Trajectory.id == bindparam("which"))
                db.execute(statement.values(value_prefix_id=bindparam("prefix")), values)

    def link_prefixes(self, chunks: Iterable[tuple[int, int]], firsts: Iterable[tuple[int, int]]) -> None:
        """(chunk id, prefix that ends with it) and (trajectory id, prefix 0 of its values), all or none of them."""
        ends = [{"which": chunk_id, "prefix": prefix_id} for chunk_id, prefix_id in chunks]
        starts = [{"which": trajectory_id, "prefix": prefix_id} for trajectory_id, prefix_id in firsts]
        with self.write() as db:
            one_opinion_at_a_time(db)
            if ends:
                statement = update(Chunk).where(Chunk.id == bindparam("which"))
                db.execute(statement.values(prefix_id=bindparam("prefix")), ends)
            if starts:
                of_trajectory = update(Trajectory).where(Trajectory.id == bindparam("which"))
                db.execute(of_trajectory.values(value_prefix_id=bindparam("prefix")), starts)

    def count_selection(self, **where: Any) -> tuple[int, int]:
        """(trajectories, chunks) of a selection (the fields of ``engine.recipes.Selection``)."""
        chosen = _selected(**where).subquery()
        query = select(func.count(), func.coalesce(func.sum(Trajectory.n_chunks), 0)).where(
            Trajectory.id.in_(select(chosen.c.id))
        )
        with self.read() as db:
            query = query.where(*not_hidden(db, self.viewer, Trajectory.id))
            trajectories, chunks = db.execute(query).one()
            return int(trajectories), int(chunks)

    def count_prefixes(self, **where: Any) -> tuple[int, int]:
        """What a rollout run over a selection draws from, counted for each solution by itself: prefixes behind a chunk
        (all but the graded end of a finished one), and bare problems of solutions that were not sampled."""
        behind = case(
            (Trajectory.outcome == "truncated", Trajectory.n_chunks),
            (Trajectory.n_chunks > 0, Trajectory.n_chunks - 1),
            else_=0,
        )
        bare = case((Trajectory.draw.is_(None), 1), else_=0)
        chosen = _selected(**where).subquery()
        sums = [func.coalesce(func.sum(one), 0) for one in (behind, bare)]
        query = select(*sums).where(Trajectory.id.in_(select(chosen.c.id)))
        with self.read() as db:
            ends, starts = db.execute(query.where(*not_hidden(db, self.viewer, Trajectory.id))).one()
            return int(ends), int(starts)

    def hidden_now(self) -> str:
        """A key of what blind queues hide from the viewer at this moment; empty where they hide nothing.

        For whoever keeps what was read: kept under another key it is not to be shown.
        """
        with self.read() as db:
            away = all_hidden(db, self.viewer)
        return sha256(" ".join(map(str, sorted(away))).encode()).hexdigest() if away else ""

    def left_out(self, dataset: str | None = None, *, siblings: bool = True) -> LeftOut:
        """What an export leaves out for the viewer: solutions that a blind queue hides, and, where their problems'
        reference would be in it (``stage_trajectories``), their ``siblings``. Only by data set: any other filter could
        tell what is hidden."""
        with self.read() as db:
            if self.viewer is None or not is_blind(db, self.viewer):
                return LeftOut(0, 0, siblings)
            fits = Trajectory.id.in_(hidden_query(self.viewer, from_queues=True))
            if siblings:
                fits = Trajectory.problem_id.in_(select(Trajectory.problem_id).where(fits))
            query = select(func.count(), func.coalesce(func.sum(Trajectory.n_chunks), 0)).where(fits)
            if dataset is not None:
                inside = Problem.id == Trajectory.problem_id
                # concat: from what is hidden on, not by the index of the data set's problems
                query = query.join(Problem, inside).where(Problem.dataset.concat("") == dataset)
            trajectories, chunks = db.execute(query).one()
            return LeftOut(int(trajectories), int(chunks), siblings)

    def selection_ids(self, **where: Any) -> list[tuple[int, int]]:
        """(trajectory id, problem id) of a selection, ascending: its texts stay in the store."""
        chosen = _selected(**where).subquery()
        query = select(Trajectory.id, Trajectory.problem_id).join(chosen, chosen.c.id == Trajectory.id)
        with self.read() as db:
            query = query.where(*not_hidden(db, self.viewer, Trajectory.id)).order_by(Trajectory.id)
            return [(row.id, row.problem_id) for row in db.execute(query)]

    def iterate_trajectories(self, *, batch: int, **where: Any) -> Iterator[list[StageTrajectory]]:
        """Whole trajectories of a selection, ascending by id, ``batch`` at a time; no session stays open between."""
        with self.read() as db:
            ids = list(
                db.scalars(_selected(**where))
            )  # chosen once: what is written meanwhile does not move it
        for start in range(0, len(ids), batch):
            if found := self.stage_trajectories(ids[start : start + batch]):
                yield found

    def label_inputs(self, trajectory_ids: Sequence[int]) -> list[LabelInputs]:
        """Inputs of these trajectories, in their order; a few hundred at a time. Unknown and hidden ids are left out."""
        heads: dict[int, Any] = {}
        chunks: dict[int, list[Any]] = defaultdict(list)
        with self.read() as db:
            for batch in batches(trajectory_ids):
                part = set(batch) - hidden(db, self.viewer, batch)
                first = func.coalesce(Trajectory.value_prefix_id, Trajectory.prefix_id).label("first")
                query = select(
                    Trajectory.id, Trajectory.outcome, Trajectory.prefix_id, Trajectory.draw, first
                )
                heads |= {row.id: row for row in db.execute(query.where(Trajectory.id.in_(part)))}
                parts = select(Chunk.id, Chunk.trajectory_id, Chunk.idx, Chunk.prefix_id)
                for row in db.execute(parts.where(Chunk.trajectory_id.in_(part)).order_by(Chunk.idx)):
                    chunks[row.trajectory_id].append(row)
            firsts = {row.first for row in heads.values() if row.first is not None}
            wanted = firsts | {c.prefix_id for cs in chunks.values() for c in cs if c.prefix_id}
            counts = count_outcomes(db, self.viewer, Rollout, wanted)
            stops = find_stops(db, self.viewer, wanted)
            samples = count_outcomes(db, self.viewer, Trajectory, firsts)
        return [
            LabelInputs(
                trajectory_id=i,
                outcome=heads[i].outcome,
                is_own_sample=_counts_itself(heads[i], samples),
                sample_counts=samples.get(heads[i].first, {}),
                first_counts=counts.get(heads[i].first, {}),
                chunks=tuple(
                    ChunkInputs(c.id, c.idx, c.prefix_id, counts.get(c.prefix_id, {}), stops.get(c.prefix_id))
                    for c in chunks[i]
                ),
                first_stop=stops.get(heads[i].first),
            )
            for i in trajectory_ids
            if i in heads
        ]

    def verdicts(self, chunk_ids: Iterable[int]) -> dict[int, dict[int, list[str | None]]]:
        """{chunk id: {judge id: verdicts in draw order}}."""
        found: dict[int, dict[int, list[str | None]]] = {}
        with self.read() as db:
            for batch in batches(chunk_ids):
                part = set(batch) - hidden_chunks(db, self.viewer, batch)
                query = select(Judgment.chunk_id, Judgment.judge_id, Judgment.verdict)
                for chunk_id, judge_id, verdict in db.execute(
                    query.where(Judgment.chunk_id.in_(part)).order_by(Judgment.draw)
                ):
                    found.setdefault(chunk_id, {}).setdefault(judge_id, []).append(verdict)
        return found


def _counts_itself(head: Any, samples: dict[int, dict[str, int]]) -> bool:
    """Its own draw is one of those that count: without a gap below it, and from the prefix its values start from."""
    if head.first is None or head.first != head.prefix_id:
        return False
    return head.draw < sum(samples.get(head.first, {}).values())


def _selected(
    *,
    dataset: str | None = None,
    policy: str | None = None,
    from_run: int | None = None,
    trajectory_ids: Sequence[int] = (),
    mixed_only: bool = False,
    per_problem: int | None = None,
    limit: int | None = None,
) -> Select[Any]:
    """Ids of the selected trajectories, ascending."""
    query = select(Trajectory.id)
    if dataset is not None:
        query = query.where(Trajectory.problem_id.in_(select(Problem.id).where(Problem.dataset == dataset)))
    if policy is not None:
        query = query.where(Trajectory.policy == policy)
    if from_run is not None:
        query = query.where(Trajectory.run_id == from_run)
    if trajectory_ids:
        query = query.where(Trajectory.id.in_(trajectory_ids))
    if mixed_only:
        right = func.sum(case((Trajectory.outcome == "correct", 1), else_=0))
        graded = func.sum(case((Trajectory.outcome != "error", 1), else_=0))
        mixed = (
            select(Trajectory.prefix_id)
            .where(Trajectory.prefix_id.is_not(None))
            .group_by(Trajectory.prefix_id)
            .having(right > 0, right < graded)
        )
        query = query.where(Trajectory.prefix_id.in_(mixed))
    if per_problem is not None:
        place = func.row_number().over(partition_by=Trajectory.problem_id, order_by=Trajectory.id)
        ranked = query.add_columns(place.label("place")).subquery()
        query = select(ranked.c.id).where(ranked.c.place <= per_problem)
        return query.order_by(ranked.c.id).limit(limit)
    return query.order_by(Trajectory.id).limit(limit)
