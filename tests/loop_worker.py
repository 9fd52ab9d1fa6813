"""A worker whose runs report at once what a loop reads of them. ``python -m tests.loop_worker run ID ATTEMPT``."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import app.kinds
import app.processes
import app.worker


def report(ctx: Any) -> dict[str, Any]:
    return figures(ctx.recipe.kind, ctx.run_id)


def figures(kind: str, run_id: int) -> dict[str, Any]:
    """What a run of the kind reports: numbers that follow from its id."""
    measured = {"held_out_before": {"single": 0.5}, "held_out_after": {"single": 0.5 + run_id / 1000}}
    return {
        "sample": {"pass_rate": run_id / 1000},
        "train-judge": {"checkpoint": f"run-{run_id}"} | measured,
        "train-policy": {"checkpoint": f"run-{run_id}"},
        "train-sft": {"checkpoint": f"run-{run_id}"},
        "judge": {"judge": f"judge {run_id}"},
        "select-solutions": {"set": f"set-{run_id}"},
        "evaluate-policy": {"accuracy": run_id / 1000, "interval": [0.0, 1.0]},
    }.get(kind, {})


def main() -> int:
    for name in ("sample", "rollout", "train-judge", "evaluate-policy"):
        kind = app.kinds.KINDS[name]
        app.kinds.KINDS[name] = dataclasses.replace(kind, function="tests.loop_worker:report")
    app.processes.MODULE = "tests.loop_worker"
    return app.worker.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
