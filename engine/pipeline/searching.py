"""The search kind of run: problems solved by chunk-reset search and by plain sampling, graded, kept, compared.

Every solution lies as a JSON line in the run's folder; a resumed run solves only what is not there. The algorithm is
``engine.search``'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from engine.answers import Grade, Grader, Reference
from engine.checkpoints import resolve_checkpoint
from engine.evaluate.intervals import Counts, difference, measure
from engine.judges import Judge, open_judge
from engine.llm.base import LLM
from engine.pipeline.flow import Batch, Pace, open_door
from engine.pipeline.kept import Kept, once, own_folder
from engine.pipeline.sampling import problem_ids
from engine.pipeline.selecting import check_problems
from engine.policy_prompt import PolicyPrompt
from engine.runs import RunContext
from engine.search import Drawing, Found, Search, Task
from engine.search.chunk_reset import ChunkReset
from engine.search.recipes import SearchRecipe

PROBLEMS_A_BATCH = 64
PLAIN, CHUNK_RESET = "plain", "chunk-reset"


def run(ctx: RunContext[SearchRecipe]) -> dict[str, Any]:
    """Search with policy and judge behind their doors (one door where both are the same checkpoint and settings).

    Raises InputError where the data set has no problem.
    """
    recipe = ctx.recipe
    check_problems(ctx.store, recipe.dataset, generated=recipe.generate is not None)
    with ExitStack() as doors:
        policy = doors.enter_context(open_door(ctx, recipe.llm))
        same = recipe.judge.llm == recipe.llm
        reader = policy if same else doors.enter_context(open_door(ctx, recipe.judge.llm))
        path = resolve_checkpoint(recipe.judge.llm.checkpoint, ctx.home)
        return search_with(ctx, policy, open_judge(reader, path, recipe.judge))


def search_with(ctx: RunContext[SearchRecipe], policy: LLM, judge: Judge) -> dict[str, Any]:
    """``run`` with doors that are open already. Returns accuracy and tokens of either way, and the gain."""
    recipe = ctx.recipe
    stage = _Stage(ctx, policy)
    ctx.facts(stage.prompt.facts() | judge.facts())
    drawing = Drawing(
        stage.prompt.sampling(recipe.draws.sampling()), recipe.judge.k, ctx.seed, lambda: ctx.stopping
    )
    search = ChunkReset(recipe.attempts)
    if recipe.plain:
        stage.solve(PLAIN, search, None, drawing)
    if not ctx.stopping:
        stage.solve(CHUNK_RESET, search, judge, drawing)
    arms = {name: rows for name in (CHUNK_RESET, PLAIN) if (rows := stage.rows_of(name))}
    result = stage.pace.result() | {"policy": policy.info.name, "judge": judge.llm.info.name}
    result |= {
        name: _figures(rows, recipe.resamples, ctx.seed, judged=name != PLAIN) for name, rows in arms.items()
    }
    if len(arms) == 2:
        counts = [_counts(arms[name]) for name in (CHUNK_RESET, PLAIN)]
        result["gain"] = difference(*counts, resamples=recipe.resamples, seed=ctx.seed)
    return result


class _Stage:
    """The run's problems, what is solved already, and how a solution is graded and kept."""

    def __init__(self, ctx: RunContext[SearchRecipe], policy: LLM):
        self.ctx, self.policy = ctx, policy
        self.prompt = PolicyPrompt.load(ctx.recipe.prompt, ctx.recipe.chat)
        folder = own_folder(ctx)
        chosen = once(folder / "problems.jsonl", lambda: [{"problem_id": i} for i in problem_ids(ctx)])
        self.problem_ids = [row["problem_id"] for row in chosen]
        self.kept = Kept(folder / "search.jsonl")
        total = len(self.problem_ids) * ctx.recipe.n * (2 if ctx.recipe.plain else 1)
        self.pace = Pace(ctx, "solutions", len(self.kept.rows), total)
        self._references: dict[int, Reference] = {}

    def rows_of(self, arm: str) -> list[dict[str, Any]]:
        return [row for row in self.kept.rows if row["search"] == arm]

    def solve(self, arm: str, search: Search, judge: Judge | None, drawing: Drawing) -> None:
        """Solve what this arm still lacks."""
        batch = Batch(self.write)
        with Grader(cache=self.ctx.store.grades) as grader:
            found: dict[Any, Found] = {}
            for one in search.search(self._tasks(arm), self.policy, judge, drawing):
                key = (one.task.problem_id, one.task.draw)
                found[key] = one
                grader.submit(key, one.text, self._references[one.task.problem_id], one.finish_reason)
                batch.add(_rows(arm, grader.results(), found))
            batch.add(_rows(arm, grader.drain(), found))
            batch.flush()

    def _tasks(self, arm: str) -> Iterator[Task]:
        done = {(row["problem_id"], row["draw"]) for row in self.rows_of(arm)}
        for start in range(0, len(self.problem_ids), PROBLEMS_A_BATCH):
            for problem in self.ctx.store.problems(ids=self.problem_ids[start : start + PROBLEMS_A_BATCH]):
                self._references[problem.id] = Reference.of(problem.answer, problem.meta)
                ids = self.prompt.start(self.policy, problem.text)
                for draw in range(self.ctx.recipe.n):
                    if (problem.id, draw) not in done:
                        yield Task(problem.id, draw, problem.text, ids)

    def write(self, rows: list[dict[str, Any]]) -> None:
        self.kept.add(rows)
        self.pace.add(len(rows), sum(row["accepted_tokens"] + row["rejected_tokens"] for row in rows))


def _rows(arm: str, grades: Iterable[tuple[Any, Grade]], found: dict[Any, Found]) -> Iterator[dict[str, Any]]:
    """A row for each solution that the grader is done with."""
    for key, grade in grades:
        one = found.pop(key)
        yield {
            "search": arm,
            "problem_id": one.task.problem_id,
            "draw": one.task.draw,
            "outcome": grade.outcome,
            "answer": grade.answer,
            "text": one.text,
            "accepted_tokens": len(one.token_ids),
            "rejected_tokens": one.rejected_tokens,
            "judge_tokens": one.judge_tokens,
            "tried": [vars(tried) for tried in one.tried],
            "note": one.error,
        }


def _counts(rows: Iterable[dict[str, Any]]) -> Counts:
    counts: dict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for row in rows:
        right, n = counts[row["problem_id"]]
        counts[row["problem_id"]] = (right + (row["outcome"] == "correct"), n + 1)
    return counts


def _figures(rows: list[dict[str, Any]], resamples: int, seed: int, *, judged: bool) -> dict[str, Any]:
    """Accuracy with its interval; tokens, chunks and rejections, means a solution."""
    counts, tried = _counts(rows), [one for row in rows for one in row["tried"]]

    def mean(name: str) -> float:
        return sum(row[name] for row in rows) / len(rows)

    figures = measure(counts, resamples=resamples, seed=seed) | {
        "accepted_tokens": mean("accepted_tokens"),
        "rejected_tokens": mean("rejected_tokens"),
        "judge_tokens": mean("judge_tokens"),
        "chunks": sum(one["kept"] for one in tried) / len(rows),
        "rejected_chunks": sum(not one["kept"] for one in tried) / len(rows),
        "by_problem": {str(problem): [n, right] for problem, (right, n) in sorted(counts.items())},
    }
    if judged:  # plain sampling asks for no verdict
        figures["chunks_without_verdict"] = sum(one["verdict"] is None for one in tried) / len(rows)
    return figures
