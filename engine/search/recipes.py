"""Recipe of the search kind of run. Light: the pages build forms from it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from engine.checkpoints import resolve_checkpoint
from engine.judges import JudgeChoice
from engine.llm import LLMSpec
from engine.policy_prompt import CHAT, PolicyPrompt
from engine.recipes import Draws, Generate, Recipe


def _half_a_gpu() -> LLMSpec:
    """nano, on a GPU with room for a second door beside it."""
    return LLMSpec(checkpoint="nano", gpu_memory_utilization=0.45)


class SearchRecipe(Recipe):
    """Solve problems by chunk-reset search, and beside it by plain sampling with the same draws."""

    kind: Literal["search"] = "search"
    dataset: str = Field("nano", description="Data set whose problems are solved")
    generate: Generate | None = Field(
        None, description="Write new problems into the data set first, and solve only those"
    )
    limit: int | None = Field(None, ge=1, description="At most this many problems")
    n: int = Field(4, ge=1, le=4096, description="Solutions a problem")
    llm: LLMSpec = Field(default_factory=_half_a_gpu, description="The policy")
    prompt: str = Field("policy_nano", description="Prompt of the policy, by name")
    chat: bool = Field(False, description=CHAT)
    draws: Draws = Field(default_factory=lambda: Draws(max_tokens=256))
    judge: JudgeChoice = Field(default_factory=lambda: JudgeChoice(llm=_half_a_gpu()))
    attempts: int = Field(
        5, ge=1, description="How often a chunk is written at most; the last one stands (paper: 5)"
    )
    plain: bool = Field(
        True,
        description="Also draw plain solutions, from the same seeds: the gain is measured on the same draws",
    )
    resamples: int = Field(
        1000, ge=100, le=100_000, description="Draws of problems behind each 95 % interval"
    )

    @field_validator("draws")
    @classmethod
    def _drawn(cls, draws: Draws) -> Draws:
        if draws.temperature == 0:
            raise ValueError("temperature is 0: a rejected chunk would be written again word for word")
        return draws

    def check(self, home: Path) -> None:
        PolicyPrompt.check(self.prompt, self.chat, resolve_checkpoint(self.llm.checkpoint, home))
        self.judge.check(home)
