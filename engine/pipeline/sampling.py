"""The sample kind of run: N solutions a problem, graded, cut into chunks, stored with their token ids.

Prefix 0 (the bare problem) is keyed like any other, so that its pass rate is the value q_{-1} at no further cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from db.rows import NewChunk, NewProblem, NewTrajectory
from engine.answers import Grade, Grader, Reference
from engine.chunks import cut_best, token_ends
from engine.llm.base import LLM, Completion, Request
from engine.pipeline.flow import Batch, Graded, Pace, open_door, stream_graded
from engine.pipeline.labelling import relabel_beside
from engine.pipeline.prefixes import Prefixes
from engine.pipeline.selecting import check_problems
from engine.policy_prompt import PolicyPrompt
from engine.recipes import Generate, SampleRecipe
from engine.rollouts import requests_for
from engine.runs import RunContext

PROBLEMS_A_BATCH = 64


def run(ctx: RunContext[SampleRecipe]) -> dict[str, Any]:
    """Sample until every problem has N solutions. Returns counts, the rate and what would be set aside.

    Raises InputError where the data set has no problem.
    """
    check_problems(ctx.store, ctx.recipe.dataset, generated=ctx.recipe.generate is not None)
    with open_door(ctx, ctx.recipe.llm) as llm:
        return sample_with(ctx, llm)


def sample_with(ctx: RunContext[SampleRecipe], llm: LLM) -> dict[str, Any]:
    """``run`` through a door that is open already."""
    prompt = PolicyPrompt.load(ctx.recipe.prompt, ctx.recipe.chat)
    ctx.facts(prompt.facts())
    chosen = problem_ids(ctx)
    with Grader(cache=ctx.store.grades) as grader:
        stage = _Stage(ctx, llm, prompt, Pace(ctx, "solutions", 0, len(chosen) * ctx.recipe.n))
        batch = Batch(stage.write)
        for graded in stream_graded(llm, stage.requests(chosen), grader, lambda: ctx.stopping):
            batch.add(stage.trajectories(graded))
        batch.flush()
    relabel_beside(ctx.store, ctx.run_id)
    return stage.pace.result() | _mixed(ctx, stage.prefix_ids)


def problem_ids(ctx: RunContext[Any]) -> list[int]:
    """Ids of the problems that a recipe with ``dataset``, ``generate`` and ``limit`` names; new ones are stored first."""
    recipe = ctx.recipe
    if recipe.generate is None:
        ids = ctx.store.problem_ids(recipe.dataset)
    else:
        rows = [
            NewProblem(
                recipe.dataset, p.key, p.text, p.answer, meta={"world": recipe.generate.world, "kind": p.kind}
            )
            for p in generate_problems(recipe.generate)
        ]
        added = ctx.store.add_problems(rows, run_id=ctx.run_id, actor=ctx.actor)
        ids = [added.ids[recipe.dataset, row.key] for row in rows]
        ctx.log(f"{len(added.added)} new problems, {len(added.existing)} were there")
    return ids[: recipe.limit] if recipe.limit else ids


def generate_problems(generate: Generate) -> list[Any]:
    """Problems of the generator that the recipe names."""
    from engine.worlds import nano

    return nano.generate(generate.count, generate.seed, kinds=generate.kinds)


class _Stage:
    """What the stream's two ends share: which prefix 0 belongs to which problem."""

    def __init__(self, ctx: RunContext[SampleRecipe], llm: LLM, prompt: PolicyPrompt, pace: Pace):
        self.ctx, self.llm, self.prompt, self.pace = ctx, llm, prompt, pace
        self.prefixes = Prefixes.of(ctx, llm, prompt)
        self.prefix_ids: list[int] = []
        self._asked: dict[str, tuple[int, int, Request]] = {}

    def requests(self, problem_ids: list[int]) -> Iterator[tuple[Request, Reference]]:
        """(request, reference) for what each problem still lacks, made as the door asks for it."""
        for start in range(0, len(problem_ids), PROBLEMS_A_BATCH):
            problems = self.ctx.store.problems(ids=problem_ids[start : start + PROBLEMS_A_BATCH])
            firsts = self.prefixes.firsts({problem.id: problem.text for problem in problems})
            ids = [prefix.id for prefix in firsts.values()]
            self.prefix_ids += ids
            drawn = self.ctx.store.sample_draws_done(ids)
            for problem in problems:
                prefix = firsts[problem.id]
                have = drawn.get(prefix.id, 0)
                self.pace.there(min(have, self.ctx.recipe.n))
                request = requests_for(
                    prefix.key,
                    prefix.token_ids,
                    prefix.base_seed,
                    have,
                    self.ctx.recipe.n,
                    self.prefixes.sampling,
                )
                if request is not None:
                    self._asked[request.id] = (problem.id, prefix.id, request)
                    yield request, Reference.of(problem.answer, problem.meta)

    def trajectories(self, graded: Graded) -> Iterator[NewTrajectory]:
        """Rows of one problem's new solutions; a prompt that cannot be served is marked, not stored as solutions."""
        problem_id, prefix_id, request = self._asked.pop(graded.request_id)
        if graded.completions[0].too_long:
            self.ctx.store.set_prefix_errors([(prefix_id, graded.completions[0].error or "too long")])
            self.ctx.log(f"problem {problem_id}: {graded.completions[0].error}")
            return
        first_draw = self.ctx.recipe.n - request.n
        for completion, grade in zip(graded.completions, graded.grades, strict=True):
            yield self._trajectory(problem_id, prefix_id, first_draw, request.seed, completion, grade)

    def _trajectory(
        self,
        problem_id: int,
        prefix_id: int,
        first_draw: int,
        seed: int,
        completion: Completion,
        grade: Grade,
    ) -> NewTrajectory:
        cut, note = cut_best(completion.text, truncated=completion.finish_reason != "stop")
        ends = token_ends(cut, completion.token_ids, self.llm.decode)
        return NewTrajectory(
            problem_id=problem_id,
            policy=self.llm.info.name,
            checkpoint_hash=self.llm.info.content_hash,
            prefix_id=prefix_id,
            draw=first_draw + completion.index,
            seed=seed + completion.index,
            text=completion.text,
            tail=cut.tail,
            token_ids=completion.token_ids,
            finish_reason=completion.finish_reason,
            outcome=grade.outcome,
            answer=grade.answer,
            cutter=cut.cutter,
            note=completion.error or note,
            chunks=tuple(
                NewChunk(c.lead, c.text, c.close, end) for c, end in zip(cut.chunks, ends, strict=True)
            ),
        )

    def write(self, rows: list[NewTrajectory]) -> None:
        self.ctx.store.add_trajectories(rows, run_id=self.ctx.run_id, actor=self.ctx.actor)
        self.pace.add(len(rows), sum(len(row.token_ids or ()) for row in rows))


def _mixed(ctx: RunContext[SampleRecipe], prefix_ids: Iterable[int]) -> dict[str, Any]:
    """Problems with right and wrong solutions; the others are set aside by ``select.mixed_only``, not deleted. A
    solution whose grading failed is neither."""
    counts = ctx.store.sample_counts(list(prefix_ids)).values()
    graded = [Counter(c) - Counter(error=c.get("error", 0)) for c in counts]
    drawn = [c for c in graded if c]  # of a problem whose prompt is too long, and after a stop, there is none
    right = [c["correct"] for c in drawn]
    total = [c.total() for c in drawn]
    mixed = sum(0 < k < n for k, n in zip(right, total, strict=True))
    return {
        "problems": len(counts),
        "mixed_problems": mixed,
        "all_right": sum(k == n for k, n in zip(right, total, strict=True)),
        "none_right": sum(k == 0 for k in right),
        "pass_rate": round(sum(right) / max(1, sum(total)), 4),
    }
