"""A worker, and its runs, whose kinds do something that shows: sleep, fail, break, not stop. ``python -m tests.slow_worker``."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

import app.kinds
import app.processes
import app.worker
from engine.errors import RecipeError


def sleep(ctx: Any) -> dict[str, Any]:
    """``seed`` steps of a third of a second; a resumed one goes on where the store says it was."""
    ctx.facts({"none": "0"})
    first = ctx.store.run(ctx.run_id).done
    for done in range(first, ctx.seed + 1):
        ctx.progress(done, ctx.seed, "naps")
        ctx.beat()
        if ctx.stopping or done == ctx.seed:
            return {"slept": done}
        time.sleep(0.33)
    return {"slept": first}


def fail(ctx: Any) -> dict[str, Any]:
    raise RecipeError("this recipe cannot work: ask for less")


def broken(ctx: Any) -> dict[str, Any]:
    return {"never": 1 / 0}


def stubborn(ctx: Any) -> dict[str, Any]:
    """Its batch in hand takes ten minutes."""
    ctx.progress(1, 2, "naps")
    time.sleep(600)
    return {}


FUNCTIONS = {
    "sample": "sleep",
    "rollout": "sleep",
    "judge": "fail",
    "train-judge": "broken",
    "search": "stubborn",
}


def main() -> int:
    for name, function in FUNCTIONS.items():
        kind = app.kinds.KINDS[name]
        app.kinds.KINDS[name] = dataclasses.replace(kind, function=f"tests.slow_worker:{function}")
    app.processes.MODULE = "tests.slow_worker"
    return app.worker.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
