"""The GRPO judge's kind of run: its recipe and entry point. How it trains is in ``grpo_judge``.

Importing this module is light (the pages build forms from the recipes); trl and torch come in with the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from engine.checkpoints import check_name, resolve_checkpoint
from engine.errors import TrainingError
from engine.judge import load_prompt
from engine.labels import parse_rule
from engine.recipes import Part, Recipe, Selection
from training.grpo_parts import Grpo
from training.parts import Hardware, LabelChoice, Lora, Saving
from training.sets.frozen import check_prompt, read_manifest

if TYPE_CHECKING:
    from engine.runs import RunContext


class Rewards(Part):
    """What a completion is rewarded for: the sum of weight × value; a weight of 0 switches a reward off."""

    verdict: float = Field(
        1.0, ge=0, description="Weight of the verdict: 1 where it equals the label, else 0"
    )
    format: float = Field(
        0.0,
        ge=0,
        description="Weight of the form: −1 where there is no verdict in the form asked for (paper, verdict only: 1)",
    )
    length: float = Field(
        0.0,
        ge=0,
        description="Weight of the length: 0 up to half of grpo.max_tokens, falling to −1 at the limit",
    )

    @model_validator(mode="after")
    def _something(self) -> Rewards:
        if not (self.verdict or self.format or self.length):
            raise ValueError("every reward is switched off; set verdict to 1")
        return self


class WarmStart(Part):
    """A few steps of fine-tuning on prompt → boxed verdict, so that a base that only knows analyses knows the form."""

    steps: int = Field(60, ge=1, description="Optimizer steps before GRPO begins")
    batch: int = Field(32, ge=1, description="Examples a step")
    learning_rate: float = Field(3e-4, gt=0, description="AdamW learning rate of these steps")
    verdicts: Literal["coin", "labels"] = Field(
        "coin",
        description="What stands in the box: coin: Positive or Negative at random, so that only the form is taught; "
        "labels: the training labels, so that GRPO sharpens a classifier",
    )


class TrainJudgeRecipe(Recipe):
    """Train a generative judge by GRPO: rewarded where its verdict equals the label."""

    kind: Literal["train-judge"] = "train-judge"
    name: str | None = Field(
        None,
        description="Name of the new checkpoint, usable as a judge at once; empty: run-<number of the run>",
    )
    base: str = Field("nano", description="Checkpoint that training starts from")
    prompt: str = Field("judge_nano", description="Prompt of the judge, by name")
    answer: Literal["analysis", "verdict"] = Field(
        "analysis",
        description="analysis: reasons, then the boxed verdict; verdict: the box and nothing else (no chain of thought)",
    )
    set: str | None = Field(
        None, description="A frozen training set, by name; empty: chosen from the store when the run starts"
    )
    select: Selection = Field(default_factory=lambda: Selection(policy="nano"))
    labels: LabelChoice = Field(default_factory=lambda: LabelChoice(until_first_negative=True))
    warm_start: WarmStart | None = Field(
        None, description="Fine-tuning on the form before GRPO; only with answer: verdict"
    )
    grpo: Grpo = Field(default_factory=lambda: Grpo(learning_rate=7e-5, schedule="linear", temperature=1.3))
    rewards: Rewards = Field(default_factory=Rewards)
    eval_every: int | None = Field(
        None,
        ge=1,
        description="Measure held-out accuracy every so many steps; the best checkpoint is kept and becomes the judge "
        "(its accuracy flatters a little: it was chosen on these chunks). Empty: before and after only",
    )
    lora: Lora | None = Field(None, description="Train additions of low rank; empty: all weights")
    saving: Saving = Field(default_factory=Saving)
    hardware: Hardware = Field(default_factory=lambda: Hardware(precision="bfloat16"))

    @model_validator(mode="after")
    def _fits_together(self) -> TrainJudgeRecipe:
        if self.warm_start and self.answer != "verdict":
            raise ValueError(
                "warm_start teaches the box alone: set answer to verdict, or name a checkpoint that was fine-tuned "
                "on analyses as base"
            )
        if self.eval_every and self.hardware.processes > 1 and self.hardware.sharding != "ddp":
            raise ValueError("eval_every needs whole weights on every device: set hardware.sharding to ddp")
        self.grpo.per_device(self.hardware.processes)
        return self

    def check(self, home: Path) -> None:
        resolve_checkpoint(self.base, home)
        if self.name is not None:
            check_name(self.name)
        parse_rule(self.labels.rule)
        prompt = load_prompt(self.prompt)
        if self.set is not None:
            manifest = read_manifest(home, self.set)
            if manifest.form != "judge":
                raise TrainingError(
                    f"training set {self.set!r} has the form {manifest.form!r}; GRPO needs one of form 'judge'"
                )
            check_prompt(manifest, prompt)


def train_judge(ctx: RunContext[TrainJudgeRecipe]) -> dict[str, object]:
    """GRPO on the store's labels (StepWiser §3.3). Returns the run's result; resumes from its last checkpoint."""
    from training.grpo_judge import train

    return train(ctx)
