"""Parts that the recipes of the training kinds share. Light: the pages build forms from them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from engine.recipes import Part


class LabelFilter(Part):
    """Which labels become examples, and which problems are kept to measure on."""

    rule: str = Field("rel-ratio:gamma=0.8", description="Label rule with its parameters")
    min_confidence: float = Field(
        0.8,
        ge=0,
        le=1,
        description="Leave out labels less certain than this (a person's label is never left out)",
    )
    reviews: bool = Field(True, description="A person's label overrides the rule's")
    agree_with: str | None = Field(
        None,
        description="Keep only labels that the majority vote of this judge repeats (a person's label is never left out)",
    )
    agree_on: Literal["chunk", "first-error"] = Field(
        "chunk",
        description="What agree_with asks: chunk: the same label of each; first-error: of each solution the same first "
        "negative chunk, or none in both; what comes after it is left out (the consensus of Qwen's PRM lessons)",
    )
    voted_by: str | None = Field(
        None,
        description="Take the majority vote of this judge, such as a prompted LLM, as the label in place of the rule's, "
        "which needs no rollouts; a person's label overrides it, and min_confidence asks nothing of it",
    )
    until_first_negative: bool = Field(
        False,
        description="Leave out what follows a solution's first negative label: a sound chunk after an error is neither "
        "clearly right nor wrong (PRM800K stops there)",
    )
    balance: bool = Field(
        True, description="Down-sample the majority class to 1:1 (paper: without it 60.5 → 47.9)"
    )
    held_out: float = Field(
        0.2, ge=0, lt=1, description="Share of the problems kept from training to measure on"
    )
    held_out_chunks: int = Field(
        200, ge=2, description="At most this many held-out chunks are measured, balanced"
    )
    near_duplicates: float = Field(
        0.8,
        ge=0,
        le=1,
        description="Problems with the same numbers and operators, worded this alike (share of common word triples), "
        "stay on one side of the split; 1: only case, spaces and stops may differ; 0: off",
    )

    @model_validator(mode="after")
    def _one_judge(self) -> LabelFilter:
        if self.voted_by is not None and self.agree_with is not None:
            raise ValueError(
                "voted_by and agree_with are both set: name the judge in voted_by to take its votes as the labels, or in "
                "agree_with to keep the rule's labels that it repeats"
            )
        return self

    @property
    def judge(self) -> str | None:
        """The judge whose votes are read, by name."""
        return self.voted_by or self.agree_with


class LabelChoice(LabelFilter):
    """What a judge's trainer asks of the labels, and how its accuracy is measured."""

    held_out_k: int = Field(
        8, ge=1, description="Judgments sampled a held-out chunk, before and after training"
    )


class Lora(Part):
    """Train low-rank additions instead of all weights: less memory, and an adapter of a few megabytes."""

    r: int = Field(16, ge=1, le=512, description="Rank of the additions")
    alpha: int = Field(32, ge=1, description="Scale of the additions: alpha / r")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on the additions' inputs")
    target: str = Field(
        "all-linear", description="Which layers: all-linear, or names with commas such as q_proj,v_proj"
    )


class Hardware(Part):
    """What the training runs on. The same code everywhere; only these fields differ."""

    threads: int = Field(
        1,
        ge=1,
        description="CPU threads, where there is no GPU; a second one pays from some 64 completions a step on",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Arithmetic of the steps; weights stay float32. auto: bfloat16 on a GPU"
    )
    gradient_checkpointing: bool | None = Field(
        None, description="Less memory, a third more time; empty: on a GPU only"
    )
    vllm: Literal["auto", "off"] = Field(
        "auto", description="auto: on a GPU vLLM generates in the same process; off: transformers generate"
    )
    vllm_memory: float = Field(0.3, gt=0, lt=1, description="Share of a GPU's memory that vLLM takes")
    processes: int = Field(1, ge=1, description="Processes, one a GPU, started by accelerate")
    sharding: Literal["ddp", "fsdp", "deepspeed"] = Field(
        "ddp", description="With several processes: whole copies (ddp), or weights cut up (fsdp, deepspeed)"
    )


class Saving(Part):
    """When a trainer saves what it needs to go on, and what is kept of it."""

    every: int = Field(20, ge=1, description="Steps between saves: what a kill can cost")
    keep: int = Field(2, ge=1, description="Newest saves kept while training")


class Sft(Part):
    """Supervised fine-tuning: the loss of given answers."""

    steps: int = Field(200, ge=1, description="Optimizer steps")
    batch: int = Field(32, ge=1, description="Examples a step; with packing: packed sequences a step")
    micro_batch: int | None = Field(
        None,
        ge=1,
        description="Examples that go through the model at once on a device: less memory, the same result; "
        "empty: all of a step",
    )
    learning_rate: float = Field(1e-5, gt=0, description="AdamW learning rate, after the warm-up")
    warmup: int = Field(10, ge=0, description="Steps until the learning rate is reached")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="The learning rate afterwards: it stays, or falls to 0 at the last step"
    )
    max_tokens: int = Field(
        512, ge=8, description="Longer examples are left out and counted; the length of a packed sequence"
    )
    packing: bool = Field(
        False, description="Put several examples into one sequence of max_tokens (GPUs gain much)"
    )

    def per_device(self, processes: int) -> int:
        """Examples that go through the model at once on one of ``processes`` devices.

        Raises ValueError where a step cannot be cut evenly.
        """
        size = self.micro_batch or self.batch // processes
        if not size or self.batch % (size * processes):
            raise ValueError(
                f"{self.batch} examples a step cannot be cut over {processes} processes"
                + (f" with micro_batch = {self.micro_batch}" if self.micro_batch else "")
            )
        return size
