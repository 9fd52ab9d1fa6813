"""The evaluating kinds of run: a judge on held-out chunks, a policy on problems.

What was chosen and every answer lie as JSON lines in the run's folder; a resumed run reads what is there and asks
only for the rest. The figures are ``engine.evaluate``'s.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.answers import Grader, Reference
from engine.checkpoints import read_card, resolve_checkpoint
from engine.errors import InputError
from engine.evaluate.policy import Form, Solved, form_of, policy_figures
from engine.evaluate.recipes import EvaluateJudgeRecipe, EvaluatePolicyRecipe, held_out_file
from engine.evaluate.stepwise import Judged, stepwise_accuracy
from engine.judges import Judge, ToRead, open_judge, read_solutions
from engine.labels import Rule, confidence, label, parse_rule
from engine.llm.base import LLM, Request
from engine.pipeline.flow import Batch, Graded, Pace, open_door, stream_graded
from engine.pipeline.kept import Kept, once, own_folder
from engine.pipeline.labelling import chunk_values
from engine.pipeline.sampling import problem_ids
from engine.pipeline.selecting import check_problems
from engine.policy_prompt import PolicyPrompt
from engine.rollouts import base_seed, prefix_key
from engine.runs import RunContext
from engine.values import Value

TRAJECTORIES_A_BATCH = 100
PROBLEMS_A_BATCH = 64


def judge(ctx: RunContext[EvaluateJudgeRecipe]) -> dict[str, Any]:
    """Judge held-out chunks and score the verdicts.

    Raises InputError where no chunk can be scored, or where the judge was trained on their problems.
    """
    chunks = _held_out(ctx)
    path = resolve_checkpoint(ctx.recipe.judge.llm.checkpoint, ctx.home)
    check_not_trained_on(ctx, path, chunks)
    with open_door(ctx, ctx.recipe.judge.llm) as llm:
        return judge_with(ctx, open_judge(llm, path, ctx.recipe.judge), chunks)


def judge_with(
    ctx: RunContext[EvaluateJudgeRecipe], reader: Judge, chunks: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """``judge`` with a judge that is open already. Returns a measure for each rule (or the set)."""
    recipe = ctx.recipe
    chunks = _held_out(ctx) if chunks is None else chunks
    ctx.facts(reader.facts())
    kept = Kept(own_folder(ctx) / "verdicts.jsonl")
    done = {row["chunk_id"] for row in kept.rows}
    k = 1 if reader.sequential else recipe.judge.k
    pace = Pace(ctx, "judgments", k * len(done), k * len(chunks))
    batch = Batch(kept.add)
    ids = {(row["trajectory_id"], row["idx"]): row["chunk_id"] for row in chunks}
    asked = _to_read(ctx, [row for row in chunks if row["chunk_id"] not in done])
    for solution, index, reading in read_solutions(
        reader, asked, k=k, seed=ctx.seed, stopping=lambda: ctx.stopping
    ):
        row = {"chunk_id": ids[int(solution.mark), index], "verdicts": reading.verdicts}
        batch.add([row | {"score": reading.score, "tokens": reading.tokens, "error": reading.error}])
        pace.add(k, reading.tokens)
    batch.flush()
    result = pace.result() | {"judge": reader.llm.info.name, "k": k}
    return result | {"measures": _measures(ctx, chunks, kept.rows)}


def check_not_trained_on(
    ctx: RunContext[EvaluateJudgeRecipe], judge_path: Path, chunks: list[dict[str, Any]]
) -> None:
    """Raises InputError if a chunk's problem is in the frozen set that the judge's card says it was trained on.

    A judge whose run chose its own examples names no set: that is logged, and nothing can be compared.
    """
    recipe = read_card(judge_path).get("recipe")
    name = recipe.get("set") if isinstance(recipe, dict) else None
    trained = ctx.home / "sets" / str(name) / "train.jsonl"
    if name is None or not trained.is_file():
        ctx.log("the judge names no frozen set that it was trained on: not compared with these chunks")
        return
    with trained.open(encoding="utf-8") as lines:
        seen = {json.loads(line)["problem_id"] for line in lines}
    if leaked := sorted(seen & {row["problem_id"] for row in chunks}):
        raise InputError(
            f"judge {ctx.recipe.judge.llm.checkpoint!r} was trained on set {name!r}, which holds {len(leaked)} of the "
            f"problems of these chunks (numbers {', '.join(map(str, leaked[:5]))}{', …' if len(leaked) > 5 else ''}); "
            "its accuracy on them would say nothing. Select other problems, or the set's own held-out chunks"
        )


def _measures(
    ctx: RunContext[EvaluateJudgeRecipe], chunks: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """Stepwise accuracy of what has been judged so far, under each rule or for the set."""
    verdicts = {row["chunk_id"]: tuple(row["verdicts"]) for row in rows}
    judged: dict[str, list[Judged]] = defaultdict(list)
    for row in chunks:
        if row["chunk_id"] in verdicts:
            for name, sign in row["labels"].items():
                judged[name].append(Judged(row["problem_id"], row["idx"], sign, verdicts[row["chunk_id"]]))
    found = {}
    for name, some in judged.items():
        found[name] = stepwise_accuracy(some, resamples=ctx.recipe.resamples, seed=ctx.seed)
        ctx.log(f"{name}: accuracy of one judgment {found[name]['accuracy']:.3f} on {len(some)} chunks")
    return found


def _held_out(ctx: RunContext[EvaluateJudgeRecipe]) -> list[dict[str, Any]]:
    """The chunks of this run, chosen once: {chunk_id, trajectory_id, idx, problem_id, labels: {measure: + or -}}."""
    return once(own_folder(ctx) / "chunks.jsonl", lambda: _chosen(ctx))


def _chosen(ctx: RunContext[EvaluateJudgeRecipe]) -> list[dict[str, Any]]:
    """Raises InputError where there is none, before that is kept: a resumed run looks again."""
    chunks = _of_selection(ctx) if ctx.recipe.set is None else _of_set(ctx)
    if not chunks:
        asked = f"set {ctx.recipe.set!r}" if ctx.recipe.set else f"select ({ctx.recipe.select!r})"
        raise InputError(
            f"no chunk of {asked} has a label to compare with; roll out prefixes first, lower min_confidence, or "
            "switch balance off where there is only one label"
        )
    return chunks


def _of_set(ctx: RunContext[EvaluateJudgeRecipe]) -> list[dict[str, Any]]:
    """Held-out chunks of a frozen set, one row a chunk (form ``judge``) or a solution (form ``turns``)."""
    name = ctx.recipe.set or ""
    found = []
    lines = held_out_file(ctx.home, name).read_bytes().splitlines()  # a text's splits at U+2028 as well
    for number, line in enumerate(lines, 1):
        try:
            found += _set_chunks(ctx, name, json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"not a held-out row of a judge's set ({error!r}); build the set again",
                file=f"sets/{name}/held_out.jsonl",
                line=number,
            ) from error
    return _limited(found, name, ctx.recipe.limit, ctx.seed, balance=False)


def _set_chunks(ctx: RunContext[EvaluateJudgeRecipe], name: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    if "labels" in row:
        (trajectory,) = ctx.store.stage_trajectories([row["trajectory_id"]])
        pairs = zip(trajectory.chunks, row["labels"], strict=True)
        return [
            _row(chunk.id, trajectory.id, chunk.idx, row["problem_id"], {name: sign})
            for chunk, sign in pairs
            if sign
        ]
    trajectory_id, idx = ctx.store.chunk_place(row["chunk_id"])
    return [_row(row["chunk_id"], trajectory_id, idx, row["problem_id"], {name: row["label"]})]


def _row(chunk_id: int, trajectory_id: int, idx: int, problem_id: int, labels: Any) -> dict[str, Any]:
    return {
        "chunk_id": chunk_id,
        "trajectory_id": trajectory_id,
        "idx": idx,
        "problem_id": problem_id,
        "labels": labels,
    }


def _of_selection(ctx: RunContext[EvaluateJudgeRecipe]) -> list[dict[str, Any]]:
    """Chunks of the selected trajectories with their labels under each rule; a chunk stays if one rule takes it."""
    recipe = ctx.recipe
    rules = {str(rule): rule for rule in map(parse_rule, recipe.rules)}
    labelled: dict[int, dict[str, Any]] = {}
    for trajectories in ctx.store.iterate_trajectories(
        **recipe.select.model_dump(), batch=TRAJECTORIES_A_BATCH
    ):
        inputs = ctx.store.label_inputs([trajectory.id for trajectory in trajectories])
        for trajectory, counts in zip(trajectories, inputs, strict=True):
            open_rules = dict(rules)
            for chunk, (before, after) in zip(trajectory.chunks, chunk_values(counts), strict=True):
                labels = _labels(open_rules, before, after, recipe.min_confidence)
                labelled[chunk.id] = _row(chunk.id, trajectory.id, chunk.idx, trajectory.problem_id, labels)
                if recipe.until_first_negative:
                    open_rules = {name: r for name, r in open_rules.items() if labels.get(name) != "-"}
    kept: dict[int, dict[str, Any]] = {}
    for name in rules:
        having = [row for row in labelled.values() if name in row["labels"]]
        for row in _limited(having, name, recipe.limit, ctx.seed, balance=recipe.balance):
            own = kept.setdefault(row["chunk_id"], row | {"labels": {}})
            own["labels"][name] = row["labels"][name]
    return sorted(kept.values(), key=lambda row: row["chunk_id"])


def _labels(rules: dict[str, Rule], before: Value, after: Value, min_confidence: float) -> dict[str, str]:
    """The label under each rule that gives one, and is sure enough of it."""
    found: dict[str, str] = {}
    for name, rule in rules.items():
        sign = label(rule, before, after)
        if sign and (confidence(rule, before, after) or 0.0) >= min_confidence:
            found[name] = sign
    return found


def _limited(
    rows: list[dict[str, Any]], name: str, limit: int | None, seed: int, *, balance: bool
) -> list[dict[str, Any]]:
    """At most ``limit`` rows in an order that the seed shuffles; balanced: as many of one label as of the other."""

    def place(row: dict[str, Any]) -> bytes:
        return hashlib.sha256(f"{seed}/{row['chunk_id']}".encode()).digest()

    rows = sorted(rows, key=place)
    if not balance:
        return rows[:limit]
    signs = [[row for row in rows if row["labels"][name] == sign] for sign in "+-"]
    each = min(len(signs[0]), len(signs[1]), len(rows) if limit is None else limit // 2)
    return signs[0][:each] + signs[1][:each]


def _to_read(ctx: RunContext[EvaluateJudgeRecipe], chunks: list[dict[str, Any]]) -> Iterator[ToRead]:
    """The solutions that hold these chunks, read from the store as the judge asks for more."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for row in chunks:
        wanted[row["trajectory_id"]].add(row["idx"])
    ids = list(wanted)
    for start in range(0, len(ids), TRAJECTORIES_A_BATCH):
        for trajectory in ctx.store.stage_trajectories(ids[start : start + TRAJECTORIES_A_BATCH]):
            texts = tuple(chunk.text for chunk in trajectory.chunks)
            yield ToRead(str(trajectory.id), trajectory.problem, texts, frozenset(wanted[trajectory.id]))


def policy(ctx: RunContext[EvaluatePolicyRecipe]) -> dict[str, Any]:
    """Draw and grade solutions and describe them. Returns ``engine.evaluate.policy.policy_figures``.

    Raises InputError where the data set has no problem.
    """
    check_problems(ctx.store, ctx.recipe.dataset, generated=ctx.recipe.generate is not None)
    with open_door(ctx, ctx.recipe.llm) as llm:
        return policy_with(ctx, llm)


def policy_with(ctx: RunContext[EvaluatePolicyRecipe], llm: LLM) -> dict[str, Any]:
    """``policy`` through a door that is open already."""
    stage = _Solving(ctx, llm)
    batch = Batch(stage.write)
    with Grader(cache=ctx.store.grades) as grader:
        for graded in stream_graded(llm, stage.requests(), grader, lambda: ctx.stopping):
            batch.add(stage.rows(graded))
        batch.flush()
    solutions = [
        Solved(
            problem["problem_id"],
            row["outcome"],
            row["tokens"],
            Form(row["chunks"], row["blank_line_chunks"], row["well_formed"]),
        )
        for problem in stage.kept.rows
        for row in problem["solutions"]
    ]
    figures = policy_figures(solutions, resamples=ctx.recipe.resamples, seed=ctx.seed)
    return stage.pace.result() | {"policy": llm.info.name} | figures


class _Solving:
    """What the stream's two ends share: which problem a request is about."""

    def __init__(self, ctx: RunContext[EvaluatePolicyRecipe], llm: LLM):
        self.ctx, self.llm = ctx, llm
        self.prompt = PolicyPrompt.load(ctx.recipe.prompt, ctx.recipe.chat)
        ctx.facts(self.prompt.facts())
        folder = own_folder(ctx)
        chosen = once(folder / "problems.jsonl", lambda: [{"problem_id": i} for i in problem_ids(ctx)])
        self.kept = Kept(folder / "solutions.jsonl")
        done = {row["problem_id"] for row in self.kept.rows}
        self.problem_ids, self.done = [row["problem_id"] for row in chosen], done
        self.pace = Pace(ctx, "solutions", len(done) * ctx.recipe.n, len(chosen) * ctx.recipe.n)

    def requests(self) -> Iterator[tuple[Request, Reference]]:
        sampling = self.prompt.sampling(self.ctx.recipe.draws.sampling())
        prompts: set[str] = set()
        for start in range(0, len(self.problem_ids), PROBLEMS_A_BATCH):
            for problem in self.ctx.store.problems(ids=self.problem_ids[start : start + PROBLEMS_A_BATCH]):
                ids = self.prompt.start(self.llm, problem.text)
                key = prefix_key(ids, self.llm.info.content_hash, sampling)
                own = f"{key}\0problem {problem.id}" if key in prompts else key  # draws of its own for a twin
                prompts.add(key)
                if problem.id in self.done:
                    continue
                seed = base_seed(self.ctx.seed, own)
                request = Request(str(problem.id), ids, self.ctx.recipe.n, seed, sampling)
                yield request, Reference.of(problem.answer, problem.meta)

    def rows(self, graded: Graded) -> list[dict[str, Any]]:
        """One problem's solutions in one row: a problem is kept whole or not at all."""
        solutions = []
        for completion, grade in zip(graded.completions, graded.grades, strict=True):
            form = form_of(completion.text, truncated=completion.finish_reason == "length")
            solutions.append(
                {
                    "draw": completion.index,
                    "outcome": grade.outcome,
                    "answer": grade.answer,
                    "tokens": len(completion.token_ids),
                    "chunks": form.chunks,
                    "blank_line_chunks": form.blank_line,
                    "well_formed": form.well_formed,
                    "text": completion.text,
                    "note": completion.error,
                }
            )
        return [{"problem_id": int(graded.request_id), "solutions": solutions}]

    def write(self, rows: list[dict[str, Any]]) -> None:
        self.kept.add(rows)
        solutions = [solution for row in rows for solution in row["solutions"]]
        self.pace.add(len(solutions), sum(solution["tokens"] for solution in solutions))
