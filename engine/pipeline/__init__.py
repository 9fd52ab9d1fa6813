"""Per stage: read rows, call the stage, write rows, skip what is done. One module a kind of run.

``flow`` is the one stream that all of them share: requests to the door, completions to the grader, rows to the store
in small batches. Whatever is stored is not asked for again, so a run that was stopped or killed goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.recipes import JudgeRecipe, RolloutRecipe, SampleRecipe
    from engine.runs import RunContext


def sample(ctx: RunContext[SampleRecipe]) -> dict[str, Any]:
    """The sample kind of run: see ``engine.pipeline.sampling``."""
    from engine.pipeline.sampling import run

    return run(ctx)


def rollout(ctx: RunContext[RolloutRecipe]) -> dict[str, Any]:
    """The rollout kind of run: see ``engine.pipeline.rolling``."""
    from engine.pipeline.rolling import run

    return run(ctx)


def judge(ctx: RunContext[JudgeRecipe]) -> dict[str, Any]:
    """The judge kind of run: see ``engine.pipeline.judging``."""
    from engine.pipeline.judging import run

    return run(ctx)
