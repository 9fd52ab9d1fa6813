"""Recipes of the policies' kinds of run: choosing solutions to fine-tune on, and GRPO with process rewards. Light."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from engine.checkpoints import check_name, resolve_checkpoint
from engine.judge import load_prompt
from engine.judges import JudgeChoice
from engine.llm import LLMSpec
from engine.recipes import Generate, Part, Recipe, Selection
from engine.selection import How
from training.grpo_parts import Grpo
from training.guards import Guards
from training.parts import Hardware, Lora, Saving
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


class ProcessReward(Part):
    """What a solution is rewarded for: what the judge says of its chunks, and whether its answer is right."""

    level: Literal["trajectory", "chunk"] = Field(
        "trajectory",
        description="trajectory: one reward a solution, all its tokens share it; chunk: the tokens of each chunk get "
        "that chunk's own advantage",
    )
    aggregation: Literal["sum", "mean", "min"] = Field(
        "mean",
        description="At trajectory level, and on the reward curve: what the chunk scores become. sum grows with the "
        "number of chunks, min is the worst chunk",
    )
    outcome_weight: float = Field(
        0.5,
        ge=0,
        le=1,
        description="w in (1 − w)·process + w·outcome; 1: the outcome alone (sparse), and no judge is loaded",
    )
    baseline: Literal["group", "position"] = Field(
        "group",
        description="At chunk level, what is taken off a chunk's reward: the mean over all chunks of the group, or "
        "over its chunks at the same place",
    )

    @property
    def judged(self) -> bool:
        """Whether a judge is needed at all."""
        return self.outcome_weight < 1


def _policy_grpo() -> Grpo:
    return Grpo(steps=80, prompts_per_batch=8, generations=8, learning_rate=2e-5, max_tokens=256)


class TrainPolicyRecipe(Recipe):
    """Train a policy by GRPO: rewarded by a judge for its chunks and by the grader for its answer."""

    kind: Literal["train-policy"] = "train-policy"
    name: str | None = Field(
        None,
        description="Name of the new checkpoint, usable as a policy at once; empty: run-<number of the run>",
    )
    base: str = Field("nano", description="Checkpoint that training starts from")
    prompt: str = Field("policy_nano", description="Prompt of the policy, by name")
    dataset: str = Field("nano", description="Data set whose problems are practised on")
    generate: Generate | None = Field(
        None, description="Write new problems into the data set first, and practise only on those"
    )
    limit: int | None = Field(None, ge=1, description="At most this many problems")
    judge: JudgeChoice = Field(
        default_factory=lambda: JudgeChoice(llm=LLMSpec(checkpoint="nano", gpu_memory_utilization=0.2)),
        description="Who scores the chunks: the share of positive verdicts of k, or p(+)",
    )
    reward: ProcessReward = Field(default_factory=ProcessReward)
    guards: Guards = Field(default_factory=Guards)
    grpo: Grpo = Field(default_factory=_policy_grpo)
    lora: Lora | None = Field(None, description="Train additions of low rank; empty: all weights")
    saving: Saving = Field(default_factory=Saving)
    hardware: Hardware = Field(default_factory=Hardware)

    @model_validator(mode="after")
    def _fits_together(self) -> TrainPolicyRecipe:
        if self.hardware.processes > 1 and (self.reward.judged or self.reward.level == "chunk"):
            raise ValueError(
                "the judge's door and the groups of a chunk level reward lie in one process: set hardware.processes to "
                "1, or reward.outcome_weight to 1 with reward.level trajectory"
            )
        if self.reward.level == "chunk" and self.grpo.scale == "batch":
            raise ValueError(
                "advantages of chunks are scaled by group or not at all: set grpo.scale to group or none"
            )
        self.grpo.per_device(self.hardware.processes)
        return self

    def check(self, home: Path) -> None:
        resolve_checkpoint(self.base, home)
        if self.name is not None:
            check_name(self.name)
        load_prompt(self.prompt, needs=("problem",))
        if self.reward.judged:
            self.judge.check(home)
