"""The recipe of the segment kind: a teacher cuts stored correct solutions into chunks. Light: pages build its form."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from engine.checkpoints import resolve_checkpoint
from engine.judge import load_prompt
from engine.llm import LLMSpec
from engine.recipes import Draws, Recipe, Selection
from engine.segmentation import segment_prompt
from training.sets.frozen import check_set_name


class SegmentRecipe(Recipe):
    """Let a teacher put chunk tags into correct solutions; what it changed nothing else in becomes a training set."""

    kind: Literal["segment"] = "segment"
    name: str | None = Field(
        None, description="Name of the new set, for fine-tuning the policy; empty: set-<number of the run>"
    )
    select: Selection = Field(
        default_factory=lambda: Selection(policy="nano-plain"),
        description="Whose solutions are cut; only correct ones that have no tags yet are taken",
    )
    solutions_per_problem: int | None = Field(
        4, ge=1, description="At most this many correct solutions a problem; empty: all of them"
    )
    llm: LLMSpec = Field(
        default_factory=lambda: LLMSpec(checkpoint="nano-teacher"), description="The teacher"
    )
    prompt: str = Field("segment_nano", description="Prompt of the teacher, by name")
    policy_prompt: str = Field(
        "policy_nano", description="Prompt of the policy that will be fine-tuned on the set, by name"
    )
    tries: int = Field(
        8,
        ge=1,
        le=1024,
        description="Most answers drawn a solution; the first that changes no character is kept (paper: 8)",
    )
    held_out: float = Field(0.1, ge=0, lt=1, description="Share of the problems kept from training")
    draws: Draws = Field(default_factory=lambda: Draws(temperature=0.7, max_tokens=400))

    def check(self, home: Path) -> None:
        if self.name is not None:
            check_set_name(self.name)
        resolve_checkpoint(self.llm.checkpoint, home)
        segment_prompt(self.prompt)
        load_prompt(self.policy_prompt, needs=("problem",))
