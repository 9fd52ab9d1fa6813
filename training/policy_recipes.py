"""Recipes of the policies' kinds of run: choosing solutions to fine-tune on, and GRPO with process rewards. Light."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from engine.judge import load_prompt
from engine.recipes import Recipe, Selection
from engine.selection import How
from training.sets.frozen import check_set_name


class SelectRecipe(Recipe):
    """Of each problem's correct solutions choose one, and freeze them as a training set for the policy."""

    kind: Literal["select-solutions"] = "select-solutions"
    name: str | None = Field(
        None, description="Name of the new set, for fine-tuning the policy; empty: set-<number of the run>"
    )
    select: Selection = Field(
        default_factory=lambda: Selection(policy="nano"), description="Solutions to choose from"
    )
    how: How = Field(
        "stepwise",
        description="stepwise: the highest mean chunk score by the judge; outcome: any correct one (the baseline)",
    )
    judge: str | None = Field(
        None,
        description="Name of the judge whose stored judgments score the chunks: the share of positive verdicts, or a "
        "discriminative judge's p(+). Judge the solutions first",
    )
    same_problems: bool = Field(
        True,
        description="Only problems with at least two different correct solutions that the judge has read: there is "
        "something to choose, and sets chosen in either way hold the same problems",
    )
    prompt: str = Field("policy_nano", description="Prompt of the policy that will be fine-tuned, by name")
    held_out: float = Field(0.1, ge=0, lt=1, description="Share of the problems kept from training")

    @model_validator(mode="after")
    def _scored(self) -> SelectRecipe:
        if self.judge is None and (self.how == "stepwise" or self.same_problems):
            raise ValueError(
                "name the judge whose judgments score the chunks; only how: outcome with same_problems: false needs none"
            )
        return self

    def check(self, home: Path) -> None:
        if self.name is not None:
            check_set_name(self.name)
        load_prompt(self.prompt, needs=("problem",))
