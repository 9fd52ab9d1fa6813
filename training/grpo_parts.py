"""The GRPO part of a recipe, for judges and policies alike. Light: the pages build forms from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from engine.recipes import Part


class Grpo(Part):
    """GRPO settings (paper: 4 generations, 1,024 prompts a batch in mini-batches of 256, lr 1e-6, clip 0.2/0.28).

    The defaults suit nano: small batches need larger groups and a low rate, or the judge drifts to one verdict.
    """

    steps: int = Field(160, ge=1, description="Optimizer steps")
    prompts_per_batch: int = Field(16, ge=1, description="Prompts a generation batch")
    generations: int = Field(8, ge=2, description="Completions sampled a prompt: the group (paper: 4)")
    steps_per_batch: int = Field(
        4,
        ge=1,
        description="Optimizer steps a generation batch; with 1 the ratio is 1 and clipping does nothing",
    )
    micro_batch: int | None = Field(
        None,
        ge=1,
        description="Completions that go through the model at once on a device: less memory, more time; "
        "empty: all of a step",
    )
    learning_rate: float = Field(6e-5, gt=0, description="AdamW learning rate (paper: 1e-6 at 1.5B and 7B)")
    warmup: int = Field(0, ge=0, description="Steps until the learning rate is reached")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="The learning rate afterwards: it stays, or falls to 0 at the last step"
    )
    epsilon: float = Field(0.2, gt=0, description="Lower clip")
    epsilon_high: float = Field(0.28, gt=0, description="Upper clip (clip-higher keeps the entropy up)")
    beta: float = Field(
        0.0,
        ge=0,
        description="Weight of the divergence from the base (KL); above 0 a copy of the base is held",
    )
    entropy_coef: float = Field(0.0, ge=0, description="Reward for staying undecided: keeps the entropy up")
    loss: Literal["dapo", "grpo", "dr_grpo", "bnpo"] = Field(
        "dapo",
        description="How token losses are averaged: dapo over all tokens, grpo first within a completion",
    )
    scale: Literal["group", "batch", "none"] = Field(
        "group",
        description="Advantages are divided by the spread of rewards in the group, in the batch, or not",
    )
    temperature: float = Field(
        1.0,
        gt=0,
        description="Sampling temperature of the group; above 1 the completions of a group differ for longer",
    )
    max_prompt_tokens: int = Field(400, ge=1, description="Longer prompts are left out and counted")
    max_tokens: int = Field(64, ge=1, description="New tokens a completion may have")
    samples_every: int = Field(
        20,
        ge=1,
        description="Steps between completions that are kept for reading, rounded up to whole batches",
    )

    @property
    def completions(self) -> int:
        """Completions a generation batch."""
        return self.prompts_per_batch * self.generations

    @property
    def step_completions(self) -> int:
        """Completions an optimizer step, over all devices."""
        return self.completions // self.steps_per_batch

    @model_validator(mode="after")
    def _whole_steps(self) -> Grpo:
        if self.completions % self.steps_per_batch:
            raise ValueError(
                f"{self.prompts_per_batch} prompts × {self.generations} generations = {self.completions} completions "
                f"cannot be cut into steps_per_batch = {self.steps_per_batch} equal steps"
            )
        if self.micro_batch and self.step_completions % self.micro_batch:
            raise ValueError(
                f"{self.step_completions} completions a step cannot be cut into micro_batch = {self.micro_batch}"
            )
        return self

    def per_device(self, processes: int) -> int:
        """Completions that go through the model at once on one of ``processes`` devices.

        Raises ValueError where a step cannot be cut evenly.
        """
        size = self.micro_batch or self.step_completions // processes
        if not size or self.step_completions % (size * processes):
            raise ValueError(
                f"{self.step_completions} completions a step cannot be cut over {processes} processes"
                + (f" with micro_batch = {self.micro_batch}" if self.micro_batch else "")
            )
        return size
