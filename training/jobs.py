"""The training kinds of run: their recipes and entry points. How a trainer works is in the file named after it.

Importing this module is light (the pages build forms from the recipes); trl and torch come in with the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from engine.checkpoints import check_name, resolve_checkpoint
from engine.judge import load_prompt
from engine.labels import parse_rule
from engine.recipes import Part, Recipe, Selection
from training.parts import LabelChoice

if TYPE_CHECKING:
    from engine.runs import RunContext


class Grpo(Part):
    """GRPO settings (paper: 4 generations, 1,024 prompts a batch in mini-batches of 256, lr 1e-6, clip 0.2/0.28).

    The defaults suit nano: small batches need larger groups and a low rate, or the judge drifts to one verdict.
    """

    steps: int = Field(160, ge=1, description="Optimizer steps")
    prompts_per_batch: int = Field(16, ge=1, description="Prompts a generation batch")
    generations: int = Field(8, ge=2, description="Verdicts sampled a prompt: the group (paper: 4)")
    steps_per_batch: int = Field(
        4,
        ge=1,
        description="Optimizer steps a generation batch; with 1 the ratio is 1 and clipping does nothing",
    )
    learning_rate: float = Field(6e-5, gt=0, description="AdamW learning rate (paper: 1e-6 at 1.5B and 7B)")
    epsilon: float = Field(0.2, gt=0, description="Lower clip")
    epsilon_high: float = Field(0.28, gt=0, description="Upper clip (clip-higher keeps the entropy up)")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature of the group")
    max_prompt_tokens: int = Field(400, ge=1, description="Longer prompts are left out and counted")
    max_tokens: int = Field(64, ge=1, description="New tokens a judgment may have")
    save_every: int = Field(
        20, ge=1, description="Steps between checkpoints, rounded up to whole batches: what a kill can cost"
    )

    @model_validator(mode="after")
    def _whole_steps(self) -> Grpo:
        completions = self.prompts_per_batch * self.generations
        if completions % self.steps_per_batch:
            raise ValueError(
                f"{self.prompts_per_batch} prompts × {self.generations} generations = {completions} completions "
                f"cannot be cut into steps_per_batch = {self.steps_per_batch} equal steps"
            )
        return self


class TrainJudgeRecipe(Recipe):
    """Train a generative judge by GRPO: reward 1 where its verdict equals the label."""

    kind: Literal["train-judge"] = "train-judge"
    name: str | None = Field(
        None,
        description="Name of the new checkpoint, usable as a judge at once; empty: run-<number of the run>",
    )
    base: str = Field("nano", description="Checkpoint that training starts from")
    prompt: str = Field("judge_nano", description="Prompt of the judge, by name")
    select: Selection = Field(default_factory=lambda: Selection(policy="nano"))
    labels: LabelChoice = Field(default_factory=LabelChoice)
    grpo: Grpo = Field(default_factory=Grpo)
    threads: int = Field(
        1,
        ge=1,
        description="CPU threads, where there is no GPU; a small model waits for a second more than it gains",
    )

    def check(self, home: Path) -> None:
        resolve_checkpoint(self.base, home)
        if self.name is not None:
            check_name(self.name)
        parse_rule(self.labels.rule)
        load_prompt(self.prompt)


def train_judge(ctx: RunContext[TrainJudgeRecipe]) -> dict[str, object]:
    """GRPO on the store's labels (StepWiser §3.3). Returns the run's result; resumes from its last checkpoint."""
    from training.grpo_judge import train

    return train(ctx)
