"""Recipes of the evaluating kinds of run. Light: the pages build forms from them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from engine.checkpoints import resolve_checkpoint
from engine.errors import RecipeError
from engine.judges import JudgeChoice
from engine.labels import parse_rule
from engine.llm import LLMSpec
from engine.policy_prompt import CHAT, PolicyPrompt
from engine.recipes import Draws, Generate, Recipe, Selection


def held_out_file(home: Path, name: str) -> Path:
    """The held-out rows of the frozen training set ``name``. Raises RecipeError if there are none."""
    path = home / "sets" / name / "held_out.jsonl"
    if Path(name).name != name or not path.is_file():
        raise RecipeError(f"there is no frozen training set {name!r} with held-out rows in {home / 'sets'}")
    return path


class EvaluateJudgeRecipe(Recipe):
    """How often is a judge right about chunks that it was not trained on?"""

    kind: Literal["evaluate-judge"] = "evaluate-judge"
    judge: JudgeChoice = Field(default_factory=lambda: JudgeChoice(k=8))
    set: str | None = Field(
        None, description="Read the held-out chunks of this frozen training set; empty: select and rules"
    )
    select: Selection = Field(
        default_factory=Selection, description="Without a set: chunks of these trajectories"
    )
    rules: tuple[str, ...] = Field(
        ("rel-ratio:gamma=0.8",),
        min_length=1,
        description="Without a set: label rules; chunks are judged once and scored under each rule",
    )
    min_confidence: float = Field(
        0.0, ge=0, le=1, description="Without a set: leave out labels less certain than this"
    )
    until_first_negative: bool = Field(
        False,
        description="Without a set: leave out what follows a solution's first negative label, as PRM800K does",
    )
    balance: bool = Field(True, description="Without a set: as many + as -, so that chance is one half")
    limit: int | None = Field(
        400, ge=2, description="At most this many chunks a rule (of a set: in all), drawn with the seed"
    )
    resamples: int = Field(
        1000, ge=100, le=100_000, description="Draws of problems behind each 95 % interval"
    )

    def check(self, home: Path) -> None:
        self.judge.check(home)
        for rule in self.rules:
            parse_rule(rule)
        if self.set is not None:
            held_out_file(home, self.set)


class EvaluatePolicyRecipe(Recipe):
    """How often does a policy solve problems, and how does it cut its solutions?"""

    kind: Literal["evaluate-policy"] = "evaluate-policy"
    dataset: str = Field("nano", description="Data set whose problems are solved")
    generate: Generate | None = Field(
        None, description="Write new problems into the data set first, and solve only those"
    )
    limit: int | None = Field(None, ge=1, description="At most this many problems")
    n: int = Field(4, ge=1, le=4096, description="Solutions a problem")
    llm: LLMSpec = Field(default_factory=lambda: LLMSpec(checkpoint="nano"))
    prompt: str = Field("policy_nano", description="Prompt of the policy, by name")
    chat: bool = Field(False, description=CHAT)
    draws: Draws = Field(default_factory=lambda: Draws(max_tokens=256))
    resamples: int = Field(
        1000, ge=100, le=100_000, description="Draws of problems behind each 95 % interval"
    )

    def check(self, home: Path) -> None:
        PolicyPrompt.check(self.prompt, self.chat, resolve_checkpoint(self.llm.checkpoint, home))
