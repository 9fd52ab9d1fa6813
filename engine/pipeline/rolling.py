"""The rollout kind of run: M continuations from every prefix of every selected trajectory, in one stream.

There is no loop over trajectories around the door: prefixes of all of them share it, and prefixes that trajectories
have in common are drawn once. With ``rules`` a prefix is drawn only until their labels are decided (engine.thrift),
with ``places: first-error`` only where the search looks (engine.first_error). Labels are made as soon as a
trajectory's last draw is in the store; a killed run goes on from the draws that are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from db.rows import NewRollout, StageTrajectory
from engine import first_error, thrift
from engine.answers import Grader, Reference
from engine.labels import parse_rule
from engine.llm.base import LLM, Request, Spread
from engine.pipeline.clock import STORE, Clock, Meter
from engine.pipeline.flow import Batch, Graded, Pace, open_door, stream_graded
from engine.pipeline.labelling import relabel, relabel_beside
from engine.pipeline.prefixes import Prefixes, Stored, open_prefix, plan_of, rolled_out
from engine.pipeline.savings import Savings
from engine.pipeline.schedule import Ask, OpenPrefix, Schedule, Wanted, everything
from engine.pipeline.selecting import check_selection
from engine.policy_prompt import PolicyPrompt
from engine.recipes import RolloutRecipe
from engine.rollouts import requests_for
from engine.runs import RunContext

TRAJECTORIES_A_BATCH = 100


def run(ctx: RunContext[RolloutRecipe]) -> dict[str, Any]:
    """Roll out until every prefix has M draws (or all that is asked for is decided), then label.

    Raises InputError where nothing is selected.
    """
    check_selection(ctx.store, ctx.recipe.select)
    with open_door(ctx, ctx.recipe.llm) as llm:
        return roll_out(ctx, llm)


def roll_out(ctx: RunContext[RolloutRecipe], llm: LLM) -> dict[str, Any]:
    """``run`` through a door that is open already. Returns counts, what was spared, the rate, and who drew what."""
    prompt = PolicyPrompt.load(ctx.recipe.prompt, ctx.recipe.chat)
    ctx.facts(prompt.facts())
    with Grader(cache=ctx.store.grades) as grader:
        stage = Rolling(ctx, llm, prompt)
        for graded in stream_graded(llm, stage.requests(), grader, lambda: ctx.stopping, stage.clock):
            stage.take(graded)
        stage.settle()
        with stage.clock.at(STORE):
            relabel_beside(ctx.store, ctx.run_id, stage.settled)
        stage.meter.tick(last=True)
    return stage.result() | ({"served_by": llm.members()} if isinstance(llm, Spread) else {})


def wanted_by(recipe: RolloutRecipe) -> Wanted:
    """What a recipe wants of a trajectory's places."""
    if recipe.places == "first-error":
        return partial(first_error.wanted, stop_at_success=bool(recipe.rules))
    if recipe.rules:
        return partial(thrift.wanted, [parse_rule(rule) for rule in recipe.rules])
    return everything


class Rolling:
    """What the stream's two ends share: the schedule, the prefixes under way, and what waits to be labelled."""

    def __init__(self, ctx: RunContext[RolloutRecipe], llm: LLM, prompt: PolicyPrompt):
        self.ctx, self.recipe = ctx, ctx.recipe
        self.rules = [str(parse_rule(rule)) for rule in self.recipe.rules]
        self.search = self.recipe.places == "first-error"
        self.prefixes = Prefixes.of(ctx, llm, prompt)
        self._follow_ups = bool(self.rules) or self.search
        self.schedule = Schedule(wanted_by(self.recipe))
        self.savings = Savings(self.recipe.m)
        self.clock = Clock()
        self.meter = Meter(ctx, self.clock)
        self.batch = Batch(self._write)
        trajectories, chunks = ctx.store.count_selection(**self.recipe.select.model_dump())
        self._unseen = max(0, chunks - trajectories) * self.recipe.m
        self.pace = Pace(ctx, "rollouts", 0, self._unseen)
        self._open: dict[int, OpenPrefix] = {}
        self._seen: set[int] = set()
        self.settled: set[int] = set()
        self._stopped: set[int] = set()
        self._drawn = 0
        self._asked: dict[str, tuple[Ask, Request]] = {}

    # ---- requests

    def requests(self) -> Iterator[tuple[Request, Reference] | None]:
        """(request, reference) for what is wanted, read from the store as the door asks for more; None: not now."""
        for trajectories in self._pages():
            with self.clock.at(STORE):
                self.settle()
                self._plan(trajectories)
            while ask := self.schedule.next():
                yield self._request(ask)
        while (ask := self.schedule.next()) or (self._follow_ups and self.schedule.flying):
            yield self._request(ask) if ask else None

    def _pages(self) -> Iterator[list[StageTrajectory]]:
        """The selection, problem by problem, so that beginnings that are alike come together."""
        chosen = self.ctx.store.selection_ids(**self.recipe.select.model_dump())
        ids = [trajectory_id for trajectory_id, _ in sorted(chosen, key=lambda row: (row[1], row[0]))]
        if not self.search:
            with self.clock.at(STORE):
                done = self._pass_over(ids)
            ids = [id_ for id_ in ids if id_ not in done]
        for start in range(0, len(ids), TRAJECTORIES_A_BATCH):
            page = self.ctx.store.stage_trajectories(ids[start : start + TRAJECTORIES_A_BATCH])
            if self.search:
                page = [t for t in page if t.outcome not in ("correct", "error")]
            yield sorted(page, key=lambda t: (t.problem_id, t.text, t.id))

    def _pass_over(self, ids: Sequence[int]) -> set[int]:
        """Trajectories that have all their draws and labels under this policy, counted without being read."""
        rows = self.ctx.store.rolled_out(ids, self.recipe.m)
        problems = sorted({row.problem_id for row in rows})
        firsts: dict[int, int] = {}
        for start in range(0, len(problems), TRAJECTORIES_A_BATCH):
            batch = self.ctx.store.problems(ids=problems[start : start + TRAJECTORIES_A_BATCH])
            found = self.prefixes.firsts({problem.id: problem.text for problem in batch})
            firsts |= {id_: prefix.id for id_, prefix in found.items()}
        samples = self.ctx.store.sample_counts(firsts.values())
        done: set[int] = set()
        for row in rows:
            if row.first != firsts[row.problem_id]:
                continue
            done.add(row.trajectory_id)
            self._count(row.finished, len(row.prefixes))
            self.savings.labelled_chunks += row.labelled
            if sampled := bool(samples.get(row.first)):
                self._sampled(row.first)
            for id_ in row.prefixes if sampled else (row.first, *row.prefixes):
                if self._is_first(id_):
                    self.savings.wanted += self.recipe.m
                    self.pace.there(self.recipe.m)
        self._progress(0, 0)
        return done

    def _count(self, finished: bool, rolled: int) -> None:
        self._unseen -= self.recipe.m * (rolled if finished else max(0, rolled - 1))
        self.savings.trajectories += 1
        self.savings.graded_ends += finished

    def _is_first(self, prefix_id: int) -> bool:
        """Whether this run comes by the prefix for the first time; else it is shared."""
        first = prefix_id not in self._seen
        self._seen.add(prefix_id)
        self.savings.shared_prefixes += not first
        return first

    def _sampled(self, first: int) -> None:
        """The bare problem's value comes from sampled solutions: no rollouts of it, counted once."""
        self.savings.sampled_starts += first not in self._seen
        self._seen.add(first)

    def _plan(self, trajectories: Sequence[StageTrajectory]) -> None:
        """Store a page's prefixes, look up what was drawn from them, and give the plans to the schedule."""
        places = self.prefixes.store_rows(trajectories)
        self._relabel_moved(trajectories, places)
        stored = self.prefixes.stored(places)
        for trajectory, own in zip(trajectories, places, strict=True):
            sampled = bool(stored.samples.get(own[0]))
            for k, id_ in own.items():
                if k or not (sampled or self.search):
                    self._use(id_, stored)
                elif sampled:
                    self._sampled(id_)
            finished = bool(trajectory.chunks) and trajectory.outcome != "truncated"
            self._count(finished, len(rolled_out(trajectory)))
            self.schedule.add(plan_of(trajectory, own, self._open, stored))
        self._mark_begun(stored)
        self._progress(0, 0)

    def _relabel_moved(
        self, trajectories: Sequence[StageTrajectory], places: Sequence[Mapping[int, int]]
    ) -> None:
        """Labels that rest on other prefixes than these (another policy's, another prompt's) go at once: a run that
        ends early would leave them beside values that they do not follow from, and the next would pass them over."""
        moved = [
            trajectory
            for trajectory, own in zip(trajectories, places, strict=True)
            if len(own) == 1  # only prefix 0, which may be another as well
            or any(k and trajectory.chunks[k - 1].prefix_id != id_ for k, id_ in own.items())
        ]
        held = self.ctx.store.labels(chunk.id for trajectory in moved for chunk in trajectory.chunks)
        relabel(self.ctx.store, (t.id for t in moved if any(chunk.id in held for chunk in t.chunks)))

    def _use(self, id_: int, stored: Stored) -> None:
        """Open a prefix, or count it as shared."""
        first = self._is_first(id_)
        if id_ in self._open:
            return
        prefix = self._open[id_] = open_prefix(stored.rows[id_], stored.counts.get(id_, {}), self.recipe.m)
        self.savings.opened(prefix)
        if first and not prefix.draws.closed:
            self.savings.wanted += self.recipe.m
            self.pace.there(min(prefix.draws.made, self.recipe.m))

    def _mark_begun(self, stored: Stored) -> None:
        """Say in the store which prefixes are drawn towards M in parts, before their first draw.

        Without rules that is so only for prefixes that an earlier run stopped on the way to another M.
        """
        begun = []
        for id_, row in stored.rows.items():
            prefix, stop = self._open.get(id_), stored.stops.get(id_)
            if prefix is None or not prefix.draws.left or row.error:
                continue
            other = stop is not None and prefix.draws.made < stop.m != self.recipe.m
            if self.search:
                if self.rules or other:  # begun where the search looks, in _request
                    self._stopped.add(id_)
            elif self.rules or other:
                begun.append(id_)
        self._begin(begun)

    def _begin(self, ids: Sequence[int]) -> None:
        if ids:
            self.ctx.store.put_stops(ids, self.recipe.m, (), run_id=self.ctx.run_id)

    def _request(self, ask: Ask) -> tuple[Request, Reference]:
        prefix, made = ask.prefix, ask.prefix.draws.made
        if not prefix.began:
            prefix.began = True
            self.savings.prefixes += 1
            if prefix.id in self._stopped:
                with self.clock.at(STORE):
                    self._begin([prefix.id])
        request = requests_for(
            prefix.key, prefix.token_ids, prefix.base_seed, made, made + ask.count, self.prefixes.sampling
        )
        assert request is not None
        self._asked[request.id] = ask, request
        trajectory = ask.plan.trajectory
        before = "".join(chunk.lead + chunk.text + chunk.close for chunk in trajectory.chunks[: ask.at])
        return request, Reference(trajectory.reference, trajectory.verifier, before)

    # ---- answers

    def take(self, graded: Graded) -> None:
        """Rows of one prefix's new draws on their way to the store, and what follows from them."""
        ask, request = self._asked.pop(graded.request_id)
        self.batch.add(self._rows(graded, ask, request))
        self.meter.tick()

    def _rows(self, graded: Graded, ask: Ask, request: Request) -> Iterator[NewRollout]:
        """A prefix that does not fit the context is marked instead."""
        prefix, first = ask.prefix, ask.prefix.draws.made
        if graded.completions[0].too_long:
            self._too_long(prefix, graded.completions[0].error or "too long")
            return
        for completion, grade in zip(graded.completions, graded.grades, strict=True):
            yield NewRollout(
                prefix_id=prefix.id,
                draw=first + completion.index,
                outcome=grade.outcome,
                n_tokens=len(completion.token_ids),
                text=completion.text,
                answer=grade.answer,
                finish_reason=completion.finish_reason,
                seed=request.seed + completion.index,
                note=completion.error,
            )
        self.schedule.drawn(prefix, [grade.outcome for grade in graded.grades])
        self.meter.prefixes += not prefix.draws.left or not prefix.plans

    def _too_long(self, prefix: OpenPrefix, why: str) -> None:
        self.savings.too_long += 1
        self.savings.wanted -= prefix.draws.left
        self.ctx.store.set_prefix_errors([(prefix.id, why)])
        self.ctx.log(f"prefix {prefix.id}: {why}")
        prefix.draws.closed = True
        self.schedule.drawn(prefix, [])

    def _write(self, rows: list[NewRollout]) -> None:
        """Commit a batch; then label the trajectories that have all they wait for."""
        with self.clock.at(STORE):
            self.ctx.store.add_rollouts(rows, run_id=self.ctx.run_id)
            tokens = sum(row.n_tokens for row in rows)
            self._drawn += len(rows)
            self.meter.tokens += tokens
            self._label()
            self._progress(len(rows), tokens)

    def settle(self) -> None:
        """Commit what is held and label what is complete: everything graded so far is in the store then."""
        self.batch.flush()
        with self.clock.at(STORE):
            self._label()

    def _label(self) -> None:
        """Label what is finished, and let go of it. Every draw that it waits for is in the store."""
        finished, self.schedule.finished = self.schedule.finished, []
        if self.rules:
            stopped = {
                prefix.id
                for plan in finished
                for prefix in plan.prefixes.values()
                if prefix.draws.left and (prefix.draws.made or not self.search)
            }
            if stopped:
                self.ctx.store.put_stops(sorted(stopped), self.recipe.m, self.rules, run_id=self.ctx.run_id)
        ids = [plan.trajectory.id for plan in finished]
        self.savings.labelled_chunks += relabel(self.ctx.store, ids)
        if not self._follow_ups:  # else a later trajectory may draw on where this one stopped
            self.settled.update(ids)
        idle, self.schedule.idle = self.schedule.idle, {}
        for prefix in idle.values():
            if prefix.id in self._open and not prefix.plans and not prefix.asked:
                del self._open[prefix.id]
                self.savings.closed(prefix)

    def _progress(self, rows: int, tokens: int) -> None:
        self.pace.total = max(
            self.pace.done + rows, max(0, self._unseen) + self.savings.wanted - self.savings.spared
        )
        self.pace.add(rows, tokens)

    def result(self) -> dict[str, Any]:
        """What the run reports; the log says what was spared."""
        if not self.ctx.stopping:
            self._unseen = 0
        self._progress(0, 0)
        found = self.savings.result(rules=bool(self.rules), search=self.search)
        self.ctx.log(", ".join(f"{name.replace('_', ' ')}: {n:,}" for name, n in found.items()))
        return self.pace.result() | {"rollouts": self._drawn} | found
