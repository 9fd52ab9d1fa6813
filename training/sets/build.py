"""The build-set kind of run: the store's labels → a frozen set. Which chunk is chosen: ``choosing``; the files: ``frozen``."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.checkpoints import resolve_checkpoint
from engine.judge import load_prompt
from training.sets.choosing import choose
from training.sets.examples import CountTokens, Example, Labelled, TrainingSet
from training.sets.frozen import Balance, Manifest, freeze, made_by
from training.sets.leaks import check_no_leak
from training.sets.preview import by_position, problem_counts
from training.sets.recipe import BuildSetRecipe
from training.sets.stored import (
    TRAJECTORIES_A_BATCH,
    TextOf,
    alike_problems,
    check_selection,
    judge_text,
    stored_chunks,
)

if TYPE_CHECKING:
    from db.rows import StageTrajectory
    from db.store import Store
    from engine.runs import RunContext


def run(ctx: RunContext[BuildSetRecipe]) -> dict[str, Any]:
    """Build and freeze the set; returns its name, hash and counts. A resumed run builds anew what it had not frozen.

    Raises TrainingError (nothing to train on, one class only, a leak, the name is taken), RecipeError (rule),
    CheckpointError (tokenizer) and InputError (prompt).
    """
    recipe = ctx.recipe
    uid = ctx.store.run(ctx.run_id).uid
    name = recipe.name or f"set-{ctx.run_id}"
    manifest = made_by(ctx.home, name, uid)
    if manifest is None:
        count = tokens_of(resolve_checkpoint(recipe.tokenizer, ctx.home))
        manifest = _build(ctx, name, uid, count)
    if manifest is None:
        return {}
    ctx.log(
        f"training set {name}: " + ", ".join(f"{k.replace('_', ' ')} {n}" for k, n in manifest.counts.items())
    )
    return {
        "set": name,
        "hash": manifest.hash,
        "counts": manifest.counts,
        "problems": manifest.problems,
        "from_people": manifest.from_people,
    }


def tokens_of(checkpoint: Any) -> CountTokens:
    """Lengths of texts under a checkpoint's tokenizer, special tokens included."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    return lambda texts: [len(ids) for ids in tokenizer(list(texts), verbose=False)["input_ids"]]


def _build(
    ctx: RunContext[BuildSetRecipe], name: str, uid: str, count_tokens: CountTokens
) -> Manifest | None:
    """The frozen set; None where the run was asked to stop before it was written."""
    recipe, store = ctx.recipe, ctx.store
    check_selection(store, recipe.select)
    prompt = load_prompt(recipe.prompt)
    ctx.facts({prompt.name: prompt.hash})
    origin = _Origin(judge_text(recipe.prompt) if recipe.form == "judge" else turns_text)
    chunks = stored_chunks(store, recipe, text_of=origin.text, agree_with=recipe.labels.agree_with)
    alike = alike_problems(store, recipe.select, recipe.labels)
    data = choose(
        _reported(ctx, chunks),
        recipe.labels,
        seed=recipe.seed,
        max_prompt_tokens=recipe.max_tokens,
        count_tokens=count_tokens,
        alike=alike,
    )
    for dataset in recipe.clear_of:
        what = f"training set {name!r} and data set {dataset!r}"
        check_no_leak(store, {e.problem_id for e in data.train}, store.problem_ids(dataset), what=what)
    if ctx.stopping:
        return None
    rows = judge_rows if recipe.form == "judge" else turns_rows
    both = {"train": data.train, "held_out": data.held_out}
    return freeze(
        ctx.home,
        name,
        recipe.form,
        {part: rows(store, examples, recipe.seed) for part, examples in both.items()},
        run=uid,
        run_id=ctx.run_id,
        recipe=recipe.model_dump(mode="json"),
        prompt_hash=prompt.hash if recipe.form == "judge" else None,
        **facts(data, alike),
        **origin.counts((*data.train, *data.held_out)),
    )


def _reported(ctx: RunContext[BuildSetRecipe], chunks: Iterator[Labelled]) -> Iterator[Labelled]:
    total = ctx.store.count_selection(**ctx.recipe.select.model_dump())[1]
    for done, chunk in enumerate(chunks, start=1):
        if done % 1000 == 0 or done == total:
            ctx.progress(done, total, "chunks", "reading labels and texts")
        yield chunk


class _Origin:
    """Remembers where texts came from while they are read, so that nothing is read twice."""

    def __init__(self, text_of: TextOf):
        self._text_of = text_of
        self._seen: dict[int, tuple[str, str]] = {}

    def text(self, trajectory: StageTrajectory, place: int) -> str:
        self._seen[trajectory.id] = (trajectory.dataset, trajectory.policy)
        return self._text_of(trajectory, place)

    def counts(self, examples: Sequence[Example]) -> dict[str, dict[str, int]]:
        datasets = Counter(self._seen[e.trajectory_id][0] for e in examples)
        policies = Counter(self._seen[e.trajectory_id][1] for e in examples)
        return {"datasets": dict(datasets), "policies": dict(policies)}


def facts(data: TrainingSet, alike: dict[int, int]) -> dict[str, Any]:
    """The manifest's counts of a chosen set."""
    parts = {"train": data.train, "held_out": data.held_out}
    people = sum(e.source == "reviewed" for examples in parts.values() for e in examples)
    return {
        "counts": data.counts,
        "classes": {
            part: Balance(
                positive=sum(e.label == "+" for e in examples), negative=sum(e.label == "-" for e in examples)
            )
            for part, examples in parts.items()
        },
        "positions": {part: list(by_position(examples)) for part, examples in parts.items()},
        "from_people": people,
        "from_rule": len(data.train) + len(data.held_out) - people,
        "problems": problem_counts(data.train, data.held_out, alike),
    }


def judge_rows(store: Store, examples: Sequence[Example], seed: int) -> Iterator[dict[str, Any]]:
    """One row an example, in their order."""
    for e in examples:
        yield {
            "chunk_id": e.chunk_id,
            "trajectory_id": e.trajectory_id,
            "problem_id": e.problem_id,
            "position": e.position,
            "prompt": e.prompt,
            "label": e.label,
            "source": e.source,
            "confidence": e.confidence,
        }


def turns_text(trajectory: StageTrajectory, place: int) -> str:
    """A whole solution as its turns, for the count of tokens: problem, then chunk and label by turns."""
    return "\n".join([trajectory.problem, *(f"{chunk.text}\n+" for chunk in trajectory.chunks)])


def turns_rows(store: Store, examples: Sequence[Example], seed: int) -> Iterator[dict[str, Any]]:
    """One row a trajectory with the labels of its examples; null where a chunk is none. Solutions in a seeded order."""
    signs = {e.chunk_id: e.label for e in examples}
    ids = sorted({e.trajectory_id for e in examples})
    random.Random(seed).shuffle(ids)
    for start in range(0, len(ids), TRAJECTORIES_A_BATCH):
        for trajectory in store.stage_trajectories(ids[start : start + TRAJECTORIES_A_BATCH]):
            yield {
                "trajectory_id": trajectory.id,
                "problem_id": trajectory.problem_id,
                "problem": trajectory.problem,
                "chunks": [chunk.text for chunk in trajectory.chunks],
                "labels": [signs.get(chunk.id) for chunk in trajectory.chunks],
            }
