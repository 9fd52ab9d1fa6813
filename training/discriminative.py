"""The train-judge-sft kind of run: a discriminative judge, the baseline of StepWiser (multi-turn ``+`` / ``-`` SFT).

Each solution is one conversation; the loss counts the verdict tokens of labelled chunks and nothing else. Chunks
without a label, and those that the balance drops, stay in the text with their loss masked. How a solution is
rendered, and how such a judge reads: ``engine.discriminative``. Trained by ``sft``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints import resolve_checkpoint
from engine.discriminative import DiscriminativeJudge, Rendering, Turns, choose_threshold
from engine.judge import load_prompt
from engine.judges import DISCRIMINATIVE, ToRead, read_solutions
from engine.llm.tokens import Tokens
from engine.pipeline.kept import own_folder
from training import core
from training.callbacks import Evaluate, step_of
from training.held_out import Accuracy
from training.scorer import ModelScorer
from training.sets import rows_for
from training.sets.build import tokens_of as count_tokens
from training.sft import IGNORED, Row, finish, fitting, kept, saved_aside, tokens_of, trained
from training.workspace import free_target

if TYPE_CHECKING:
    from engine.runs import RunContext
    from training.sft_recipes import DiscriminativeRecipe

UNKNOWN = "?"


@dataclass(frozen=True)
class Solution:
    """A solution with what is known of its chunks: ``labels`` has ``+``, ``-`` or None for each, and stands in the
    history of later chunks; ``counted`` says which of them the loss, or the measurement, counts."""

    trajectory_id: int
    problem_id: int
    problem: str
    chunks: tuple[str, ...]
    labels: tuple[str | None, ...]
    counted: tuple[bool, ...]

    @classmethod
    def of(cls, row: dict[str, Any]) -> Solution:
        """From a row of a set of the form turns; without ``loss`` every labelled chunk counts."""
        labels = tuple(row["labels"])
        loss = row.get("loss", [True] * len(labels))
        counted = tuple(bool(use) and label is not None for use, label in zip(loss, labels, strict=True))
        return cls(
            row["trajectory_id"], row["problem_id"], row["problem"], tuple(row["chunks"]), labels, counted
        )


def run(ctx: RunContext[DiscriminativeRecipe]) -> dict[str, Any]:
    """Train the judge, choose its threshold, measure it; returns counts, accuracy before and after, threshold, name.

    Stops and resumes as ``sft.run`` does, and raises what it raises; CheckpointError also where ``+`` and ``-`` are
    not one token each in an assistant turn.
    """
    recipe, uid = ctx.recipe, ctx.store.run(ctx.run_id).uid
    target = free_target(ctx, uid)
    base = resolve_checkpoint(recipe.base, ctx.home)
    core.prepare(recipe.hardware)
    tokens = tokens_of(base)
    turns = turns_for(tokens, recipe)
    ctx.facts({turns.prompt.name: turns.prompt.hash})
    with core.first_process_first():
        folder = own_folder(ctx)
        train, held_out, counts = _solutions(ctx, base, folder)
    rows, left_out = fitting([turn_row(turns, solution) for solution in train], recipe.sft.max_tokens)
    counts |= {"solutions_too_long": left_out, "loss_tokens": sum(row.counted for row in rows)}
    ctx.log("examples: " + ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in counts.items()))
    result: dict[str, Any] = {"set": counts, "rendering": turns.rendering}
    if ctx.main:
        before = kept(folder / "before.json", lambda: _before(ctx, turns, base, held_out))
        result["held_out_before"] = before or None
    if core.stop_everywhere(ctx):
        return result

    last = trained(
        ctx,
        base,
        [row for row in rows if row.counted],
        folder,
        evaluate=_evaluation(turns, tokens, held_out),
        evaluate_every=recipe.eval_every,
    )
    result["steps"] = step_of(last)
    if last is None or step_of(last) < recipe.sft.steps or not ctx.main:
        return result
    chosen = core.best_checkpoint(last) if recipe.eval_every else last
    if chosen != last:
        ctx.log(f"{chosen.name} was best on the held-out chunks: it becomes the judge")
        result["best_step"] = step_of(chosen)
    aside = saved_aside(chosen, base, folder / "final")
    measured = measure(aside, turns, held_out)
    if measured.accuracy:
        _log(ctx, "after", measured, recipe.sft.steps)
    result |= {
        "threshold": measured.threshold,
        "held_out_after": asdict(measured.accuracy) if measured.accuracy else None,
        "checkpoint": target.name,
    }
    names = ("steps", "held_out_before", "held_out_after")
    card = {
        "role": DISCRIMINATIVE,
        "prompt_hash": turns.prompt.hash,
        "threshold": measured.threshold,
        "rendering": turns.rendering,
        "set": counts,
        "metrics": {name: result.get(name) for name in names},
    }
    finish(ctx, aside, target, card, chosen)
    return result


def turns_for(tokens: Tokens, recipe: DiscriminativeRecipe) -> Turns:
    """How this base reads solutions under this recipe. Raises CheckpointError and LLMError as ``Turns.of`` does."""
    rendering: Rendering
    if recipe.rendering == "auto":
        rendering = "chat" if tokens.has_template else "plain"
    else:
        rendering = recipe.rendering
    return Turns.of(tokens, load_prompt(recipe.prompt, needs=("problem",)), rendering, recipe.base)


def turn_row(turns: Turns, solution: Solution) -> Row:
    """A solution as a row: the loss counts the verdict tokens of counted chunks; each is predicted from what stands
    before it, the earlier labels included."""
    marked = turns.marked(solution.problem, solution.chunks, [label or UNKNOWN for label in solution.labels])
    labels = [IGNORED] * len(marked.ids)
    for place, use in zip(marked.places, solution.counted, strict=True):
        if use:
            labels[place] = marked.ids[place]
    return Row(marked.ids, tuple(labels))


def _solutions(
    ctx: RunContext[DiscriminativeRecipe], base: Path, folder: Path
) -> tuple[list[Solution], list[Solution], dict[str, int]]:
    """(train, held out, counts): the frozen set's, or chosen from the store once and kept beside the run."""
    path = folder / "solutions.json"
    if path.is_file():
        data = json.loads(path.read_text(encoding="utf-8"))
    else:
        rows = rows_for(
            ctx.store,
            ctx.home,
            ctx.recipe,
            "turns",
            count_tokens=count_tokens(base),
            max_tokens=ctx.recipe.sft.max_tokens,
        )
        data = {"train": rows.train, "held_out": rows.held_out, "counts": rows.facts["counts"]}
        aside = path.with_suffix(".writing")
        aside.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
        os.replace(aside, path)
    train, held_out = ([Solution.of(row) for row in data[part]] for part in ("train", "held_out"))
    return train, held_out, dict(data["counts"])


@dataclass(frozen=True)
class Measured:
    """What a discriminative judge does on held-out chunks: its threshold, and accuracy with it (None: no chunks)."""

    threshold: float
    accuracy: Accuracy | None


def measure(checkpoint: Path, turns: Turns, held_out: Sequence[Solution]) -> Measured:
    """Choose the threshold on the held-out chunks, and measure it on chunks that did not choose it.

    The solutions are read once at 0.5. The threshold is the best on all of them. The accuracy is that of two others:
    each half of the problems is read again at the threshold that the other half chose.
    """
    scorer = ModelScorer.load(checkpoint)
    scores = counted_scores(scorer, turns, held_out, 0.5)
    threshold = choose_threshold(*_pooled(scores, held_out))
    halves = _halves(held_out)
    if not all(halves):
        return Measured(threshold, accuracy(scores, held_out, threshold))
    right: list[tuple[float | None, str, float]] = []
    for half, other in (halves, halves[::-1]):
        chosen = choose_threshold(*_pooled([scores[i] for i in other], [held_out[i] for i in other]))
        solutions = [held_out[i] for i in half]
        again = counted_scores(scorer, turns, solutions, chosen)
        right += [(p, label, chosen) for p, label in _pairs(again, solutions)]
    return Measured(threshold, _accuracy(right))


def counted_scores(
    scorer: ModelScorer, turns: Turns, solutions: Sequence[Solution], threshold: float
) -> list[dict[int, float | None]]:
    """p(+) of every counted chunk of every solution, the judge's own verdicts at ``threshold`` in its history."""
    read = Turns.of(scorer, turns.prompt, turns.rendering, scorer.info.name)
    judge = DiscriminativeJudge(scorer, read, threshold)
    found: list[dict[int, float | None]] = [{} for _ in solutions]
    asked = (
        ToRead(str(i), s.problem, s.chunks, frozenset(k for k, use in enumerate(s.counted) if use))
        for i, s in enumerate(solutions)
    )
    for solution, index, reading in read_solutions(judge, asked, k=1, seed=0):
        found[int(solution.mark)][index] = reading.score
    return found


def accuracy(
    scores: Sequence[dict[int, float | None]], solutions: Sequence[Solution], threshold: float
) -> Accuracy | None:
    """Accuracy of ``scores`` at one threshold; None without chunks."""
    return _accuracy([(p, label, threshold) for p, label in _pairs(scores, solutions)])


def _accuracy(found: Sequence[tuple[float | None, str, float]]) -> Accuracy | None:
    """From (p(+), label, threshold) of each chunk; a chunk that could not be read is a miss."""
    if not found:
        return None
    right = sum(p is not None and (p >= threshold) == (label == "+") for p, label, threshold in found)
    share, none = right / len(found), sum(p is None for p, _, _ in found) / len(found)
    return Accuracy(chunks=len(found), k=1, single=share, majority=share, none=none, split=0.0)


def _pairs(
    scores: Sequence[dict[int, float | None]], solutions: Sequence[Solution]
) -> list[tuple[float | None, str]]:
    return [
        (p, str(solution.labels[index]))
        for found, solution in zip(scores, solutions, strict=True)
        for index, p in sorted(found.items())
    ]


def _pooled(
    scores: Sequence[dict[int, float | None]], solutions: Sequence[Solution]
) -> tuple[list[float], list[str]]:
    pairs = [(p, label) for p, label in _pairs(scores, solutions) if p is not None]
    return [p for p, _ in pairs], [label for _, label in pairs]


def _halves(solutions: Sequence[Solution]) -> tuple[list[int], list[int]]:
    """Indices of the solutions of every other problem, and of the problems between."""
    place = {problem: i for i, problem in enumerate(sorted({s.problem_id for s in solutions}))}
    sides = [place[s.problem_id] % 2 for s in solutions]
    return [i for i, side in enumerate(sides) if not side], [i for i, side in enumerate(sides) if side]


def _evaluation(turns: Turns, tokens: Tokens, held_out: Sequence[Solution]) -> Evaluate | None:
    """Accuracy of the model in training at the best threshold of the moment; None without held-out chunks."""
    if not held_out:
        return None

    def evaluate(model: Any) -> dict[str, float]:
        was_training = model.training
        scores = counted_scores(ModelScorer(model, tokens), turns, held_out, 0.5)
        model.train(was_training)
        found = accuracy(scores, held_out, choose_threshold(*_pooled(scores, held_out)))
        return {"held_out/accuracy": found.single} if found else {}

    return evaluate


def _before(
    ctx: RunContext[DiscriminativeRecipe], turns: Turns, base: Path, held_out: Sequence[Solution]
) -> dict[str, Any]:
    """Accuracy of the untrained base at 0.5: it has not seen the form yet."""
    ctx.progress(0, ctx.recipe.sft.steps, "steps", "measuring the base on held-out chunks")
    found = accuracy(counted_scores(ModelScorer.load(base), turns, held_out, 0.5), held_out, 0.5)
    if found:
        _log(ctx, "before", Measured(0.5, found), 0)
    return asdict(found) if found else {}


def _log(ctx: RunContext[DiscriminativeRecipe], when: str, measured: Measured, step: int) -> None:
    found = measured.accuracy
    assert found is not None
    ctx.metrics(step, {"held_out/accuracy": found.single})
    ctx.log(
        f"held-out accuracy {when} training: {found.single:.3f} ({found.chunks} balanced chunks, {found.none:.1%} not "
        f"read), threshold {measured.threshold:.3f}"
    )
