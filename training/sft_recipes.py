"""The supervised kinds of run: their recipes. Light: the pages build forms from them; how they train is elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from engine.checkpoints import check_name, resolve_checkpoint
from engine.errors import RecipeError
from engine.judge import load_prompt
from engine.labels import parse_rule
from engine.recipes import Part, Recipe, Selection
from training.parts import Hardware, LabelChoice, LabelFilter, Lora, Saving, Sft
from training.sets.frozen import Form, check_prompt, read_manifest


def check_set(home: Path, name: str, form: Form) -> None:
    """Raise TrainingError where there is no frozen set of that name, RecipeError where its form is another."""
    found = read_manifest(home, name).form
    if found != form:
        raise RecipeError(
            f"set: training set {name!r} has the form {found!r}, and this kind of run needs {form!r}"
        )


class SupervisedRecipe(Recipe):
    """What the supervised kinds have in common."""

    name: str | None = Field(
        None, description="Name of the new checkpoint, usable at once; empty: run-<number of the run>"
    )
    base: str = Field("nano", description="Checkpoint that training starts from")
    sft: Sft = Field(default_factory=Sft)
    lora: Lora | None = Field(
        None,
        description="Train additions of low rank (the adapter is kept beside the merged weights); empty: all weights",
    )
    saving: Saving = Field(default_factory=Saving)
    hardware: Hardware = Field(default_factory=Hardware)

    @model_validator(mode="after")
    def _whole_batches(self) -> SupervisedRecipe:
        self.sft.per_device(self.hardware.processes)
        return self

    def check(self, home: Path) -> None:
        resolve_checkpoint(self.base, home)
        if self.name is not None:
            check_name(self.name)


class SftRecipe(SupervisedRecipe):
    """Fine-tune a policy or a segmenter on the completions of a frozen set: chunked solutions, or chosen ones."""

    kind: Literal["train-sft"] = "train-sft"
    set: str | None = Field(
        None,
        description="The frozen training set, by name: one of prompts with completions, as segmenting and selecting "
        "solutions make them. Needed",
    )
    role: Literal["policy", "segmenter"] = Field("policy", description="What the new checkpoint is for")
    prompt: str = Field(
        "policy_nano",
        description="Prompt that the set's prompts were filled from, by name: the checkpoint's card says to use it",
    )
    chat: bool = Field(
        False,
        description="Put each prompt through the tokenizer's chat template, the completion in the assistant's turn; ask "
        "the policy with chat on afterwards. Off: plain text, as a segmenter is asked",
    )
    sft: Sft = Field(default_factory=lambda: Sft(steps=200, batch=32, learning_rate=3e-4))

    def check(self, home: Path) -> None:
        super().check(home)
        load_prompt(self.prompt, needs=("problem",) if self.role == "policy" else ("solution",))
        if self.set is None:
            raise RecipeError("set: name the frozen training set to fine-tune on")
        check_set(home, self.set, "completion")


class DiscriminativeRecipe(SupervisedRecipe):
    """Train a discriminative judge: a conversation in which each chunk is answered by + or -, loss on those only."""

    kind: Literal["train-judge-sft"] = "train-judge-sft"
    prompt: str = Field("judge_turns_nano", description="What stands before the first chunk, by name")
    rendering: Literal["auto", "chat", "plain"] = Field(
        "auto",
        description="chat: turns through the tokenizer's chat template; plain: turns as marked text; auto: chat where "
        "there is a template",
    )
    set: str | None = Field(
        None,
        description="A frozen training set of the form turns, by name; empty: chosen from the store when the run starts",
    )
    select: Selection = Field(default_factory=lambda: Selection(policy="nano"))
    labels: LabelFilter = Field(default_factory=LabelFilter)
    sft: Sft = Field(default_factory=lambda: Sft(steps=200, batch=32, learning_rate=1e-3))
    eval_every: int | None = Field(
        None,
        ge=1,
        description="Measure held-out accuracy every so many steps; the best checkpoint is kept and becomes the judge "
        "(its accuracy flatters a little: it was chosen on these chunks). Empty: before and after only",
    )

    def check(self, home: Path) -> None:
        super().check(home)
        parse_rule(self.labels.rule)
        load_prompt(self.prompt, needs=("problem",))
        if self.set is not None:
            check_set(home, self.set, "turns")

    @model_validator(mode="after")
    def _measurable(self) -> DiscriminativeRecipe:
        if self.eval_every and self.hardware.processes > 1 and self.hardware.sharding != "ddp":
            raise ValueError("eval_every needs whole weights on every device: set hardware.sharding to ddp")
        return self


class Rationales(Part):
    """Where rationales come from, and how many are kept."""

    judge: str | None = Field(
        None,
        description="Take the stored judgments of this judge, by its name; empty: the base writes new ones first",
    )
    samples: int = Field(8, ge=1, le=256, description="Judgments the base writes a chunk")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature of those judgments")
    max_tokens: int = Field(64, ge=1, description="New tokens such a judgment may have")
    keep: int = Field(
        1, ge=1, description="At most this many different rationales with the right verdict are kept a chunk"
    )


class RsftJudgeRecipe(SupervisedRecipe):
    """Train a generative judge without reinforcement: keep rationales with the right verdict, fine-tune on them."""

    kind: Literal["train-judge-rsft"] = "train-judge-rsft"
    prompt: str = Field("judge_nano", description="Prompt of the judge, by name")
    set: str | None = Field(
        None,
        description="A frozen training set of the form judge, by name; empty: chosen from the store when the run starts",
    )
    select: Selection = Field(default_factory=lambda: Selection(policy="nano"))
    labels: LabelChoice = Field(default_factory=LabelChoice)
    rationales: Rationales = Field(default_factory=Rationales)
    sft: Sft = Field(default_factory=lambda: Sft(steps=200, batch=32, learning_rate=3e-4))

    def check(self, home: Path) -> None:
        super().check(home)
        parse_rule(self.labels.rule)
        prompt = load_prompt(self.prompt)
        if self.set is not None:
            check_set(home, self.set, "judge")
            check_prompt(read_manifest(home, self.set), prompt)
