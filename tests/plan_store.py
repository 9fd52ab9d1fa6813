"""A store in which a plan's parts are done without any process: for tests of what a plan asks and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.plans import Part, Plan
from db.rows import RunRow
from db.store import Store


def finish_parts(
    store: Store,
    parent: int,
    parts: Sequence[Part],
    result_of: Callable[[Part, int], dict[str, Any]],
    skip: str = "nothing",
) -> dict[str, RunRow]:
    """Store a done run, with the result given, for every part whose turn comes and whose name lacks ``skip``."""
    plan = Plan(parts)
    while ready := {n: r for n, r in plan.look(store, [parent]).ready.items() if skip not in n}:
        for name, recipe in ready.items():
            part, data = plan.parts[name], recipe.model_dump(mode="json")
            run_id = store.create_run(part.kind, data, "test", parent_id=parent, name=name)
            store.claim_child(run_id, pid=0)
            store.finish_run(run_id, "done", result=result_of(part, run_id))
    return plan.look(store, [parent]).done
