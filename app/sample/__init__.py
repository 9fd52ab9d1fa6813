"""The sample: what a new store shows. Hand-written problems with reviews, and nano's own work from real runs.

``recipe.yaml`` names the runs, ``nano.jsonl.xz`` is the dump of what they wrote, ``handwritten.jsonl`` is imported
like anybody's solutions. Loading twice adds nothing.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from app.runs import queue_run
from app.settings import Settings
from app.store import open_or_make_store
from app.worker import Worker
from db.snapshot import dump, load
from db.store import Store
from engine.errors import RunError
from engine.pipeline.imports import import_file
from engine.recipes import read_recipe, set_fields

FOLDER = Path(__file__).parent
NANO = FOLDER / "nano.jsonl.xz"
HANDWRITTEN = FOLDER / "handwritten.jsonl"
ACTOR = "sample"


def load_sample(store: Store) -> str:
    """Load both parts. Returns what came in, in words."""
    report = import_file(store, HANDWRITTEN, dataset=None, cutter=None, actor=ACTOR)
    loaded = load(store, NANO)
    counts = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in loaded.added.items() if n)
    return f"handwritten: {report.summary()}\nnano: {counts or 'was there already'}"


def make_sample(settings: Settings, out: Path | None, assignments: list[str]) -> str:
    """Work through ``recipe.yaml`` in a store of its own and dump what it wrote. Raises RunError if a run fails."""
    recipe: dict[str, Any] = set_fields(read_recipe(FOLDER / "recipe.yaml"), assignments)
    target = out or NANO
    with tempfile.TemporaryDirectory(prefix="stepwiser-sample-") as folder:
        own = Settings(home=Path(folder), database_url="", actor=ACTOR)
        store = open_or_make_store(own)
        for data in recipe["runs"]:
            run_id = queue_run(store, data["kind"], data, ACTOR, own)
            worker = Worker(store, own)
            worker.serve(until=partial(_ended, store, run_id, worker))
            run = store.run(run_id)
            print(f"{run.kind}: {run.status}, {run.result}", flush=True)
            if run.status != "done":
                log = (own.logs / f"run-{run_id}.log").read_text(encoding="utf-8")[-2000:]
                raise RunError(f"the sample's {run.kind} run ended as {run.status}: {run.error}\n{log}")
        dump(store, target, datasets=[recipe["dataset"]])
    return f"{target}: {target.stat().st_size / 2**20:.2f} MiB"


def _ended(store: Store, run_id: int, worker: Worker) -> bool:
    return store.run(run_id).ended_at is not None and worker.child is None
