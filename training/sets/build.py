"""The build-set kind of run: the store's labels → a frozen set. What is chosen: ``choosing``; the files: ``frozen``."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints import resolve_checkpoint
from engine.judge import load_prompt
from training.sets.examples import CountTokens
from training.sets.frozen import Manifest, freeze, made_by
from training.sets.leaks import check_no_leak, problems_of
from training.sets.recipe import BuildSetRecipe
from training.sets.rows import choose_rows, row_maker

if TYPE_CHECKING:
    from engine.runs import RunContext

PROGRESS_EVERY = 500
"""Chunks between two reports of progress."""


def run(ctx: RunContext[BuildSetRecipe]) -> dict[str, Any]:
    """Build and freeze the set; returns its name, hash and counts. A resumed run builds anew what it had not frozen.

    Raises TrainingError (nothing to train on, one class only, a leak, the name is taken), RecipeError (rule),
    CheckpointError (tokenizer) and InputError (prompt).
    """
    uid = ctx.store.run(ctx.run_id).uid
    name = ctx.recipe.name or f"set-{ctx.run_id}"
    manifest = made_by(ctx.home, name, uid)
    if manifest is None:
        manifest = _build(ctx, name, uid)
    if manifest is None:
        return {}
    counts = ", ".join(f"{what.replace('_', ' ')} {n}" for what, n in manifest.counts.items())
    ctx.log(f"training set {name} is frozen: {counts}")
    return {
        "set": name,
        "hash": manifest.hash,
        "counts": manifest.counts,
        "problems": manifest.problems,
        "from_people": manifest.from_people,
    }


def tokens_of(checkpoint: Path) -> CountTokens:
    """Lengths of texts under a checkpoint's tokenizer, special tokens included."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    return lambda texts: [len(ids) for ids in tokenizer(list(texts), verbose=False)["input_ids"]]


def _build(ctx: RunContext[BuildSetRecipe], name: str, uid: str) -> Manifest | None:
    """The frozen set; None where the run was asked to stop before it was written."""
    recipe, store = ctx.recipe, ctx.store
    evaluated = {dataset: problems_of(store, dataset) for dataset in recipe.clear_of}
    prompt = load_prompt(recipe.prompt)
    ctx.facts({prompt.name: prompt.hash})
    total = store.count_selection(**recipe.select.model_dump())[1]
    numbers = count(1)

    def seen() -> None:
        done = next(numbers)
        if done % PROGRESS_EVERY == 0 or done == total:
            ctx.progress(done, total, "chunks", "reading labels and texts")

    data, known, facts = choose_rows(
        store,
        recipe,
        recipe.form,
        count_tokens=tokens_of(resolve_checkpoint(recipe.tokenizer, ctx.home)),
        max_tokens=recipe.max_tokens,
        seen=seen,
    )
    trained = {example.problem_id for example in data.train}
    for dataset, problems in evaluated.items():
        what = f"training set {name!r} and data set {dataset!r}"
        check_no_leak(store, trained, problems, what=what)
    if ctx.stopping:
        return None
    rows = row_maker(store, recipe.form, known, recipe.seed)
    return freeze(
        ctx.home,
        name,
        recipe.form,
        {"train": rows(data.train), "held_out": rows(data.held_out)},
        run=uid,
        run_id=ctx.run_id,
        recipe=recipe.model_dump(mode="json"),
        prompt_hash=prompt.hash if recipe.form == "judge" else None,
        **facts,
    )
