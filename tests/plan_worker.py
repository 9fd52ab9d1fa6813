"""A worker whose sample runs are naps, whose judge runs fail at first, and whose rollout runs are plans of two naps.

For tests of plans: ``python -m tests.plan_worker``. ``seed`` is how long a part naps (thirds of a second).
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import app.kinds
import app.processes
import app.worker
from app.plans import Part, Results, execute
from engine.errors import RecipeError


def parts_in_a_row(naps: int) -> list[Part]:
    def one_more(results: Results) -> dict[str, Any]:
        return {"seed": results["first"].result["slept"] + 1}

    return [
        Part("first", "sample", lambda _: {"seed": naps}),
        Part("second", "sample", one_more, needs=("first",)),
    ]


def plan(ctx: Any) -> dict[str, Any]:
    return {"done": sorted(execute(ctx, parts_in_a_row(ctx.seed)))}


def fail_at_first(ctx: Any) -> dict[str, Any]:
    if ctx.attempt == 1:
        raise RecipeError("not before the second try")
    return {}


FUNCTIONS = {
    "sample": "tests.slow_worker:sleep",
    "judge": "tests.plan_worker:fail_at_first",
    "rollout": "tests.plan_worker:plan",
}


def main() -> int:
    for name, function in FUNCTIONS.items():
        kind = app.kinds.KINDS[name]
        app.kinds.KINDS[name] = dataclasses.replace(kind, function=function)
    app.processes.MODULE = "tests.plan_worker"
    return app.worker.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
