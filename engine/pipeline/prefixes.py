"""Trajectories to plans: their prefixes as rows of the store, with what was drawn from them before.

Which places of a trajectory are rolled out, and what the others' values are: the bare problem's from its sampled
solutions where there are any, the end's from its grade.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from db.rows import NewPrefix, PrefixRow, StageTrajectory
from db.stops_store import Stop
from db.store import Store
from engine.llm.base import LLM
from engine.pipeline.labelling import sampled_value
from engine.pipeline.schedule import OpenPrefix, Plan
from engine.policy_prompt import Begun, PolicyPrompt
from engine.recipes import Draws as DrawsRecipe
from engine.recipes import RolloutRecipe, SampleRecipe
from engine.rollouts import base_seed, prefix_key
from engine.runs import RunContext
from engine.thrift import Draws, Place
from engine.values import UNKNOWN, terminal_value


def rolled_out(trajectory: StageTrajectory) -> range:
    """The k of the prefixes that are rolled out: 1..H-1, H too where the trajectory never finished."""
    return range(1, len(trajectory.chunks) + (trajectory.outcome == "truncated"))


@dataclass(frozen=True)
class Stored:
    """What the store holds of some prefixes, by id."""

    rows: Mapping[int, PrefixRow]
    counts: Mapping[int, Mapping[str, int]]
    samples: Mapping[int, Mapping[str, int]]
    stops: Mapping[int, Stop]


class Prefixes:
    """Prefix rows of one policy under one prompt and one way of drawing."""

    def __init__(
        self, store: Store, run_id: int, seed: int, llm: LLM, prompt: PolicyPrompt, draws: DrawsRecipe
    ):
        self.store, self.run_id, self.seed, self.llm, self.prompt = store, run_id, seed, llm, prompt
        self.sampling = prompt.sampling(draws.sampling())
        self._settings = prompt.settings(draws)

    @classmethod
    def of(
        cls, ctx: RunContext[RolloutRecipe] | RunContext[SampleRecipe], llm: LLM, prompt: PolicyPrompt
    ) -> Prefixes:
        """Those of a run that draws from them."""
        return cls(ctx.store, ctx.run_id, ctx.seed, llm, prompt, ctx.recipe.draws)

    def firsts(self, problems: Mapping[int, str]) -> dict[int, PrefixRow]:
        """{problem id: its prefix 0, stored} from {problem id: text}.

        A problem with the same prompt as one that was there before it has prefixes of its own: it has N solutions too,
        and another reference may grade them.
        """
        starts = {id_: self.prompt.start(self.llm, text) for id_, text in problems.items()}
        stored = self._ensure({id_: self._row(id_, ids) for id_, ids in starts.items()})
        again = [id_ for id_, row in stored.items() if row.problem_id != id_]
        return stored | self._ensure({id_: self._row(id_, starts[id_], _own(id_)) for id_ in again})

    def _ensure(self, rows: Mapping[int, NewPrefix]) -> dict[int, PrefixRow]:
        ids = self.store.ensure_prefixes(list(rows.values()), run_id=self.run_id)
        stored = self._fitting(self.store.prefixes(ids.values()))
        return {problem: stored[ids[row.key]] for problem, row in rows.items()}

    def store_rows(self, trajectories: Sequence[StageTrajectory]) -> list[dict[int, int]]:
        """Store the prefixes of each trajectory and which chunk each ends with. Returns {k: prefix id}; 0 is among
        them."""
        faults: dict[str, str] = {}
        firsts = self.firsts({trajectory.problem_id: trajectory.problem for trajectory in trajectories})
        rows = [self._rows(trajectory, firsts[trajectory.problem_id], faults) for trajectory in trajectories]
        new = {row.key: row for own in rows for row in own.values()}
        ids = self.store.ensure_prefixes(list(new.values()), run_id=self.run_id)
        places = [
            {0: firsts[t.problem_id].id} | {k: ids[row.key] for k, row in own.items()}
            for t, own in zip(trajectories, rows, strict=True)
        ]
        both = list(zip(trajectories, places, strict=True))
        linked = [
            (t.chunks[k - 1].id, id_)
            for t, own in both
            for k, id_ in own.items()
            if k and t.chunks[k - 1].prefix_id != id_
        ]
        self.store.link_prefixes(linked, [(t.id, own[0]) for t, own in both])
        self.store.set_prefix_errors([(ids[key], fault) for key, fault in faults.items()])
        return places

    def stored(self, places: Sequence[Mapping[int, int]]) -> Stored:
        """What the store holds of these trajectories' prefixes."""
        ids = list(dict.fromkeys(id_ for own in places for id_ in own.values()))
        return Stored(
            self._fitting(self.store.prefixes(ids)),
            self.store.outcome_counts(ids),
            self.store.sample_counts(list(dict.fromkeys(own[0] for own in places))),
            self.store.stops(ids),
        )

    def _fitting(self, rows: dict[int, PrefixRow]) -> dict[int, PrefixRow]:
        """The rows; of those that were too long for a smaller context and fit into this one the error is taken back."""
        fit = [
            row.id
            for row in rows.values()
            if row.error is not None
            and len(row.token_ids) < self.llm.info.context
            and row.key in (self._key(row.token_ids), self._key(row.token_ids, _own(row.problem_id)))
        ]
        if not fit:
            return rows
        self.store.set_prefix_errors([(id_, None) for id_ in fit])
        return rows | self.store.prefixes(fit)

    def _rows(
        self, trajectory: StageTrajectory, first: PrefixRow, faults: dict[str, str]
    ) -> dict[int, NewPrefix]:
        """Prefix rows by k, from 1 on."""
        start, rows = first.token_ids, {}
        apart = "" if first.key == self._key(start) else _own(trajectory.problem_id)
        places, text = rolled_out(trajectory), ""
        own = trajectory.token_ids is not None and trajectory.checkpoint_hash == self.llm.info.content_hash
        for k, chunk in enumerate(trajectory.chunks, start=1):
            text += chunk.lead + chunk.text + chunk.close
            if k not in places:
                continue
            if own and chunk.token_end is not None and trajectory.token_ids is not None:
                begun = Begun(start + trajectory.token_ids[: chunk.token_end])
            else:
                begun = self.prompt.begun(self.llm, trajectory.problem, text)
            # Tokens that do not say their own text may be those of another text, which can be rolled out.
            unwritten = f"\0{text}" if begun.fault else ""
            rows[k] = self._row(trajectory.problem_id, begun.token_ids, apart + unwritten)
            if begun.fault:
                faults[rows[k].key] = begun.fault
        return rows

    def _key(self, ids: tuple[int, ...], apart: str = "") -> str:
        return prefix_key(ids, self.llm.info.content_hash + apart, self.sampling)

    def _row(self, problem_id: int, ids: tuple[int, ...], apart: str = "") -> NewPrefix:
        key = self._key(ids, apart)
        return NewPrefix(
            key=key,
            problem_id=problem_id,
            policy=self.llm.info.name,
            checkpoint_hash=self.llm.info.content_hash,
            sampling=self._settings,
            token_ids=ids,
            base_seed=base_seed(self.seed, key),
        )


def _own(problem_id: int) -> str:
    """What keeps the prefixes of a problem apart from those of another with the same prompt."""
    return f"\0problem {problem_id}"


def open_prefix(row: PrefixRow, counts: Mapping[str, int], m: int) -> OpenPrefix:
    """A prefix with what was drawn from it before."""
    draws = Draws(m, closed=row.error is not None)
    for outcome, count in counts.items():
        draws.add([outcome] * count)
    return OpenPrefix(row.id, row.key, row.token_ids, row.base_seed, draws)


def plan_of(
    trajectory: StageTrajectory, own: Mapping[int, int], opened: Mapping[int, OpenPrefix], stored: Stored
) -> Plan:
    """A trajectory's plan over the prefixes that are open; those it has not (a sampled prefix 0) are fixed values."""
    samples = stored.samples.get(own[0], {})
    if samples:
        drawn = trajectory.draw if trajectory.prefix_id == own[0] else None
        itself = drawn is not None and drawn < sum(samples.values())
        first: Place = sampled_value(samples, trajectory.outcome if itself else None)
    else:
        first = opened[own[0]].draws if own[0] in opened else UNKNOWN
    places: list[Place] = [first, *(opened[own[k]].draws for k in rolled_out(trajectory))]
    if trajectory.chunks and trajectory.outcome != "truncated":
        places.append(terminal_value(trajectory.outcome))
    prefixes = {k: opened[id_] for k, id_ in own.items() if isinstance(places[k], Draws)}
    return Plan(trajectory, places, prefixes)
