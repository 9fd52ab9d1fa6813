"""``stepwiser nano segmenter`` and ``self-segment``: nano-plain and nano-teacher anew, and the chain that uses them.

Only queueing and printing; the work is in ``training.nano.segmenter`` and in the kinds of run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from app.settings import Settings, get_settings
from engine.checkpoints import resolve_checkpoint
from engine.errors import RunError
from engine.recipes import read_recipe, set_fields

console = Console(highlight=False)
RECIPES = Path(__file__).resolve().parents[1] / "training" / "recipes"
MEASURED = ("accuracy", "interval", "n", "chunks", "blank_line_chunks", "well_formed")


def make(
    out: Annotated[
        Path | None, typer.Option(help="Where both go, one folder each; home/checkpoints by default")
    ] = None,
) -> None:
    """Train nano-plain and nano-teacher from nano, as the packaged ones were; names end in -new."""
    from training.nano.segmenter.train import read_segmenter_recipe, train_segmenter

    settings = get_settings()
    folder, base = out or settings.checkpoints, resolve_checkpoint("nano", settings.home)
    for role in ("plain", "teacher"):
        target = folder / f"nano-{role}-new"
        result = train_segmenter(
            role,
            read_segmenter_recipe(),
            base,
            target,
            progress=lambda step, facts: console.print(f"step {step}: loss {facts['loss']:.3g}"),
        )
        console.print(f"{target.name}: {result}", markup=False)


def chain() -> None:
    """Self-segmentation from end to end: sample, segment, measure, fine-tune, measure again. Each step is a run."""
    from app.store import open_or_make_store

    settings = get_settings()
    store = open_or_make_store(settings)
    _run(store, settings, "sample-plain-nano")
    cut = _run(store, settings, "segment-nano", "name=null")
    before = _run(store, settings, "evaluate-policy-nano", "llm.checkpoint=nano-plain")
    tuned = _run(store, settings, "sft-segment-nano", f"set={cut['set']}", "name=null")
    after = _run(store, settings, "evaluate-policy-nano", f"llm.checkpoint={tuned['checkpoint']}")
    console.print(
        f"teacher: {cut['acceptance']:.1%} of solutions cut, {cut['first_try']:.1%} at the first try"
    )
    console.print(
        f"those solutions: {cut['blank_line_chunks']} pieces on blank lines, {cut['chunks']} chunks"
    )
    for when, result in (("before", before), ("after", after)):
        shown = {key: result[key] for key in MEASURED if result.get(key) is not None}
        console.print(f"{when}: {shown}", markup=False)
    console.print(f"the policy is checkpoint {tuned['checkpoint']}", markup=False)


def _run(store: Any, settings: Settings, name: str, *assignments: str) -> dict[str, Any]:
    """One run of a shipped recipe, followed to its end; its result. Raises RunError if it does not end well."""
    from app.runs import follow, queue_run

    data = set_fields(read_recipe(RECIPES / f"{name}.yaml"), list(assignments))
    run_id = queue_run(store, data["kind"], data, settings.actor, settings)
    if follow(store, settings, run_id, console):
        raise RunError(f"run {run_id} ({name}) did not finish; `stepwiser resume {run_id}` goes on with it")
    return store.run(run_id).result
