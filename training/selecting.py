"""The select-solutions kind of run: stored correct solutions and stored judgments → a frozen set of form completion.

Nothing is drawn here. How one is chosen: ``engine.selection``; fine-tuning on the set: the SFT trainer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import TrainingError
from engine.judge import load_prompt, render
from engine.selection import Candidate, select_solutions
from training.sets.choosing import split_by_problem
from training.sets.frozen import freeze, made_by

if TYPE_CHECKING:
    from db.rows import StageTrajectory
    from engine.runs import RunContext
    from training.policy_recipes import SelectRecipe

TRAJECTORIES_A_BATCH = 200


@dataclass(frozen=True)
class _Row:
    """One row of the set: the policy's prompt, and what it should write."""

    problem_id: int
    trajectory_id: int
    prompt: str
    completion: str
    score: float | None


def run(ctx: RunContext[SelectRecipe]) -> dict[str, Any]:
    """Choose and freeze. Returns counts and the mean chunk score of what was chosen and of what there was.

    Raises TrainingError for an unknown judge, a taken name, or when nothing can be chosen.
    """
    recipe, uid = ctx.recipe, ctx.store.run(ctx.run_id).uid
    name = recipe.name or f"set-{ctx.run_id}"
    made_by(ctx.home, name, uid)
    prompt = load_prompt(recipe.prompt, needs=("problem",))
    ctx.facts({prompt.name: prompt.hash})
    candidates, counts = _candidates(ctx)
    chosen = select_solutions(candidates, recipe.how, ctx.seed)
    if not chosen:
        raise TrainingError(
            f"there is nothing to choose from ({', '.join(f'{what} {n}' for what, n in counts.items())}); sample "
            f"several solutions a problem and let the judge {recipe.judge!r} read them, or set same_problems to false"
        )
    rows = _rows(ctx, chosen)
    train, held_out = split_by_problem(rows, recipe.held_out, ctx.seed)
    counts |= {"chosen": len(chosen), "train": len(train), "held_out": len(held_out)}
    measures = {"score_chosen": _mean(chosen), "score_all": _mean(candidates)}
    measures = {what: value for what, value in measures.items() if value is not None}
    freeze(
        ctx.home,
        name,
        "completion",
        {"train": map(vars, train), "held_out": map(vars, held_out)},
        run=uid,
        run_id=ctx.run_id,
        recipe=recipe.model_dump(mode="json"),
        counts=dict(counts),
        problems={"train": len(train), "held_out": len(held_out)},
        measures=measures,
    )
    ctx.progress(len(chosen), len(chosen), "solutions")
    ctx.log(f"froze set {name}: {len(train)} solutions to train on, {len(held_out)} held out")
    return {"set": name, **counts, **measures}


def _candidates(ctx: RunContext[SelectRecipe]) -> tuple[list[Candidate], Counter[str]]:
    """The correct solutions of the selection, the same text once a problem (one that was judged, if any was), with
    what was left out."""
    recipe, counts = ctx.recipe, Counter[str]()
    judge_id = None if recipe.judge is None else _judge_id(ctx, recipe.judge)
    texts: defaultdict[int, dict[str, Candidate]] = defaultdict(dict)
    for trajectories in ctx.store.iterate_trajectories(
        **recipe.select.model_dump(), batch=TRAJECTORIES_A_BATCH
    ):
        scores = {} if judge_id is None else ctx.store.chunk_scores(judge_id, _chunk_ids(trajectories))
        for trajectory in trajectories:
            if trajectory.outcome != "correct":
                counts["not_correct"] += 1
                continue
            own = tuple(scores.get(chunk.id) for chunk in trajectory.chunks)
            one = Candidate(trajectory.id, trajectory.problem_id, own)
            kept = texts[trajectory.problem_id].setdefault(trajectory.text, one)
            if kept is not one:
                counts["same_text"] += 1
                if kept.mean_score is None and one.mean_score is not None:
                    texts[trajectory.problem_id][trajectory.text] = one
    found = [candidate for own_texts in texts.values() for candidate in own_texts.values()]
    counts["correct"] = len(found)
    if not recipe.same_problems:
        return found, counts
    scored = [candidate for candidate in found if candidate.mean_score is not None]
    several = {problem for problem, n in Counter(c.problem_id for c in scored).items() if n > 1}
    counts["not_judged"] = len(found) - len(scored)
    choosable = [candidate for candidate in scored if candidate.problem_id in several]
    counts["nothing_to_choose"] = len(scored) - len(choosable)
    return choosable, counts


def _judge_id(ctx: RunContext[SelectRecipe], name: str) -> int:
    judges = {judge.name: judge.id for judge in ctx.store.judges()}
    if name not in judges:
        raise TrainingError(
            f"no judge {name!r} has judged anything here; there are {', '.join(judges) or 'none'}"
        )
    return judges[name]


def _chunk_ids(trajectories: list[StageTrajectory]) -> list[int]:
    return [chunk.id for trajectory in trajectories for chunk in trajectory.chunks]


def _rows(ctx: RunContext[SelectRecipe], chosen: list[Candidate]) -> list[_Row]:
    prompt = load_prompt(ctx.recipe.prompt, needs=("problem",))
    scores = {candidate.trajectory_id: candidate.mean_score for candidate in chosen}
    return [
        _Row(
            trajectory.problem_id,
            trajectory.id,
            render(prompt, problem=trajectory.problem),
            trajectory.text,
            scores[trajectory.id],
        )
        for start in range(0, len(chosen), TRAJECTORIES_A_BATCH)
        for trajectory in ctx.store.stage_trajectories(
            [candidate.trajectory_id for candidate in chosen[start : start + TRAJECTORIES_A_BATCH]]
        )
    ]


def _mean(candidates: list[Candidate]) -> float | None:
    known = [c.mean_score for c in candidates if c.mean_score is not None]
    return sum(known) / len(known) if known else None
