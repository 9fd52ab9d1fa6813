"""The rollout kind of run: M continuations from every prefix of every selected trajectory, in one stream.

There is no loop over trajectories around the door: prefixes of all of them share it, and prefixes that trajectories
have in common are drawn once. Labels are made as soon as a trajectory's last prefix is in the store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from db.rows import NewPrefix, NewRollout, StageTrajectory
from engine.answers import Grader, Reference
from engine.judge import JudgePrompt, load_prompt, render
from engine.llm.base import LLM, Request
from engine.pipeline.flow import Batch, Graded, Pace, open_door, stream_graded
from engine.pipeline.labelling import relabel
from engine.recipes import RolloutRecipe
from engine.rollouts import base_seed, prefix_key, requests_for
from engine.runs import RunContext

TRAJECTORIES_A_BATCH = 100


def run(ctx: RunContext[RolloutRecipe]) -> dict[str, Any]:
    """Roll out until every prefix has M draws, then label. Returns counts and the rate."""
    with open_door(ctx, ctx.recipe.llm) as llm:
        return roll_out(ctx, llm)


def roll_out(ctx: RunContext[RolloutRecipe], llm: LLM) -> dict[str, Any]:
    """``run`` through a door that is open already."""
    prompt = load_prompt(ctx.recipe.prompt, needs=("problem",))
    ctx.facts({prompt.name: prompt.hash})
    with Grader(cache=ctx.store.grades) as grader:
        stage = Rolling(ctx, llm, prompt)
        batch = Batch(stage.write)
        for graded in stream_graded(llm, stage.requests(), grader, lambda: ctx.stopping):
            batch.add(stage.rollouts(graded))
        batch.flush()
        stage.label_finished()
    return stage.pace.result() | stage.counts


@dataclass(frozen=True)
class _Asked:
    """A request on its way: the stored prefix and the first draw that it asks for."""

    prefix_id: int
    first_draw: int
    request: Request


class Rolling:
    """What the stream's two ends share: which draws are on their way, which trajectories wait for which prefix."""

    def __init__(self, ctx: RunContext[RolloutRecipe], llm: LLM, prompt: JudgePrompt):
        self.ctx, self.llm, self.prompt = ctx, llm, prompt
        self.sampling = ctx.recipe.draws.sampling()
        trajectories, chunks = ctx.store.count_selection(**ctx.recipe.select.model_dump())
        self.expected = max(0, chunks - trajectories) * ctx.recipe.m
        self.pace = Pace(ctx, "rollouts", 0, self.expected)
        self.counts = {
            "trajectories": 0,
            "prefixes": 0,
            "shared_prefixes": 0,
            "too_long": 0,
            "labelled_chunks": 0,
        }
        self._seen: set[int] = set()
        self._asked: dict[str, _Asked] = {}
        self._waiting: dict[int, set[int]] = defaultdict(set)
        self._missing: dict[int, int] = {}
        self._finished: list[int] = []

    def requests(self) -> Iterator[tuple[Request, Reference]]:
        """(request, reference) for what each prefix still lacks, read from the store as the door asks for more."""
        pages = self.ctx.store.iterate_trajectories(
            **self.ctx.recipe.select.model_dump(), batch=TRAJECTORIES_A_BATCH
        )
        for trajectories in pages:
            self.counts["trajectories"] += len(trajectories)
            yield from self._requests_of(trajectories)

    def _places(self, trajectory: StageTrajectory) -> list[int]:
        """The k of the prefixes that are rolled out: 1..H-1, H too where the trajectory never finished."""
        last = len(trajectory.chunks) + (trajectory.outcome == "truncated")
        return list(range(1, last))

    def _requests_of(self, trajectories: list[StageTrajectory]) -> Iterator[tuple[Request, Reference]]:
        prefixes: dict[str, NewPrefix] = {}
        keys: dict[int, dict[int, str]] = {}
        for trajectory in trajectories:
            rows = self._prefixes(trajectory)
            keys[trajectory.id] = {k: row.key for k, row in rows.items()}
            prefixes |= {row.key: row for row in rows.values()}
        ids = self.ctx.store.ensure_prefixes(list(prefixes.values()), run_id=self.ctx.run_id)
        self._link(trajectories, keys, ids)
        drawn = self.ctx.store.draws_done(list(ids.values()))
        sampled = self.ctx.store.sample_counts([ids[k[0]] for k in keys.values()])
        stored = self.ctx.store.prefixes(ids.values())
        for trajectory in trajectories:
            yield from self._ask(trajectory, keys[trajectory.id], ids, stored, drawn, sampled)
            if not self._missing.get(trajectory.id):
                self._finished.append(trajectory.id)
        self.pace.total = self.expected

    def _prefixes(self, trajectory: StageTrajectory) -> dict[int, NewPrefix]:
        """Prefix rows by k; 0 (the bare problem) is always among them, for its value."""
        prompt = render(self.prompt, problem=trajectory.problem)
        start = tuple(self.llm.encode(prompt))
        rows = {0: self._prefix(trajectory, start)}
        text = ""
        for k, chunk in enumerate(trajectory.chunks, start=1):
            text += chunk.lead + chunk.text + chunk.close
            if k in self._places(trajectory):
                own = (
                    trajectory.token_ids is not None
                    and trajectory.checkpoint_hash == self.llm.info.content_hash
                )
                if own and chunk.token_end is not None and trajectory.token_ids is not None:
                    ids = start + trajectory.token_ids[: chunk.token_end]
                else:
                    ids = tuple(self.llm.encode(prompt + text))
                rows[k] = self._prefix(trajectory, ids)
        return rows

    def _prefix(self, trajectory: StageTrajectory, ids: tuple[int, ...]) -> NewPrefix:
        key = prefix_key(ids, self.llm.info.content_hash, self.sampling)
        return NewPrefix(
            key=key,
            problem_id=trajectory.problem_id,
            policy=self.llm.info.name,
            checkpoint_hash=self.llm.info.content_hash,
            sampling=self.ctx.recipe.draws.model_dump(mode="json"),
            token_ids=ids,
            base_seed=base_seed(self.ctx.seed, key),
        )

    def _link(
        self, trajectories: list[StageTrajectory], keys: dict[int, dict[int, str]], ids: dict[str, int]
    ) -> None:
        """Write which prefix ends with which chunk, and whose pass rate is the trajectory's q_{-1}."""
        chunks, firsts = [], []
        for trajectory in trajectories:
            own = keys[trajectory.id]
            firsts.append((trajectory.id, ids[own[0]]))
            chunks += [(trajectory.chunks[k - 1].id, ids[key]) for k, key in own.items() if k]
        self.ctx.store.set_chunk_prefixes(chunks)
        self.ctx.store.set_value_prefixes(firsts)

    def _ask(
        self,
        trajectory: StageTrajectory,
        keys: dict[int, str],
        ids: dict[str, int],
        stored: dict[int, Any],
        drawn: dict[int, int],
        sampled: dict[int, dict[str, int]],
    ) -> Iterator[tuple[Request, Reference]]:
        m = self.ctx.recipe.m
        self.expected += m * (len(self._places(trajectory)) - max(0, len(trajectory.chunks) - 1))
        for k, key in keys.items():
            prefix = stored[ids[key]]
            if k == 0 and sampled.get(prefix.id):
                continue
            self.expected += m * (k == 0)
            if prefix.error or prefix.id in self._seen:
                self.expected -= m
                self.counts["shared_prefixes"] += prefix.id in self._seen
                if prefix.id in self._waiting:
                    self._wait(trajectory.id, prefix.id)
                continue
            self._seen.add(prefix.id)
            have = drawn.get(prefix.id, 0)
            request = requests_for(key, prefix.token_ids, prefix.base_seed, have, m, self.sampling)
            self.pace.total = self.expected
            self.pace.add(min(have, m), 0)
            if request is None:
                continue
            self.counts["prefixes"] += 1
            self._asked[key] = _Asked(prefix.id, have, request)
            self._wait(trajectory.id, prefix.id)
            before = "".join(chunk.lead + chunk.text + chunk.close for chunk in trajectory.chunks[:k])
            yield request, Reference(trajectory.reference, trajectory.verifier, before)

    def _wait(self, trajectory_id: int, prefix_id: int) -> None:
        if trajectory_id not in self._waiting[prefix_id]:
            self._waiting[prefix_id].add(trajectory_id)
            self._missing[trajectory_id] = self._missing.get(trajectory_id, 0) + 1

    def rollouts(self, graded: Graded) -> Iterator[NewRollout]:
        """Rows of one prefix's new draws; a prefix that does not fit the context is marked instead."""
        asked = self._asked.pop(graded.request_id)
        if graded.completions[0].too_long:
            self.counts["too_long"] += 1
            self.ctx.store.set_prefix_errors([(asked.prefix_id, graded.completions[0].error or "too long")])
            self.ctx.log(f"prefix {asked.prefix_id}: {graded.completions[0].error}")
            self._settle(asked.prefix_id)
            return
        for completion, grade in zip(graded.completions, graded.grades, strict=True):
            yield NewRollout(
                prefix_id=asked.prefix_id,
                draw=asked.first_draw + completion.index,
                outcome=grade.outcome,
                n_tokens=len(completion.token_ids),
                text=completion.text,
                answer=grade.answer,
                finish_reason=completion.finish_reason,
                seed=asked.request.seed + completion.index,
                note=completion.error,
            )

    def write(self, rows: list[NewRollout]) -> None:
        """Commit a batch; then label the trajectories that have all they wait for."""
        self.ctx.store.add_rollouts(rows, run_id=self.ctx.run_id)
        self.pace.add(len(rows), sum(row.n_tokens for row in rows))
        for prefix_id in {row.prefix_id for row in rows}:
            self._settle(prefix_id)
        self.label_finished()

    def _settle(self, prefix_id: int) -> None:
        for trajectory_id in self._waiting.pop(prefix_id, ()):
            self._missing[trajectory_id] -= 1
            if not self._missing[trajectory_id]:
                self._finished.append(trajectory_id)

    def label_finished(self) -> None:
        """Label what is complete so far."""
        finished, self._finished = self._finished, []
        self.counts["labelled_chunks"] += relabel(self.ctx.store, finished)
