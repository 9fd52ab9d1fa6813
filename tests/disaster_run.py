"""A rollout run in a process of its own that meets a disaster: ``python -m tests.disaster_run FOLDER RUN ATTEMPT WHAT``.

WHAT is ``small-files`` (no file may grow beyond what the store needs plus a little: RLIMIT_FSIZE) or ``stuck`` (after
a number of draws the LLM hangs, and says so). Prints what the log of a run would hold, and last its status.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

import engine.runs
from db.store import open_store
from engine.pipeline.rolling import roll_out
from engine.runs import RunContext, execute
from tests import little_world as little

DRAWS = 16
SPACE = 300_000
STUCK_AFTER = 1500


def main(folder: Path, run_id: int, attempt: int, what: str) -> None:
    file = folder / "little.db"
    store = open_store(f"sqlite:///{file}")
    llm = little.scripted_policy(in_flight=64)
    script, drawn = llm._script, 0

    def hang(prompt: str, seed: int) -> str:
        nonlocal drawn
        drawn += 1
        if drawn == STUCK_AFTER:
            print("the LLM hangs", flush=True)
            while True:
                time.sleep(1)
        return script(prompt, seed)

    if what == "small-files":
        engine.runs.END_PATIENCE_S = 0.5
        resource.setrlimit(resource.RLIMIT_FSIZE, (SPACE, resource.RLIM_INFINITY))
    else:
        llm._script = hang
    ctx: RunContext[Any] = RunContext(
        store, run_id, attempt, little.rollout_recipe(m=DRAWS), folder, "test", resumed=attempt > 1
    )
    print(execute(ctx, lambda ctx: roll_out(ctx, llm)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
