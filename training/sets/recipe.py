"""The recipe of the build-set kind: labels in the store → a frozen training set."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from engine.checkpoints import resolve_checkpoint
from engine.judge import load_prompt
from engine.labels import parse_rule
from engine.recipes import Recipe, Selection
from training.parts import LabelFilter
from training.sets.frozen import check_set_name


class BuildSetRecipe(Recipe):
    """Freeze a training set: choose labels, split by problem, balance, write files with a manifest."""

    kind: Literal["build-set"] = "build-set"
    name: str | None = Field(
        None, description="Name of the new set, for trainers to use; empty: set-<number of the run>"
    )
    form: Literal["judge", "turns"] = Field(
        "judge",
        description="judge: a prompt a chunk, for judges that write; turns: a conversation a solution, for + / - judges",
    )
    select: Selection = Field(default_factory=lambda: Selection(policy="nano"))
    labels: LabelFilter = Field(default_factory=LabelFilter)
    prompt: str = Field("judge_nano", description="Prompt of the judge, by name (form judge only)")
    tokenizer: str = Field("nano", description="Checkpoint whose tokenizer counts the tokens, by name")
    max_tokens: int = Field(
        400,
        ge=1,
        description="Longer texts are left out and counted by label: a chunk's prompt, or a whole solution as turns",
    )
    clear_of: tuple[str, ...] = Field(
        (),
        description="Data sets that will be evaluated on: the set is refused if a problem to train on is in one of them",
    )

    def check(self, home: Path) -> None:
        if self.name is not None:
            check_set_name(self.name)
        parse_rule(self.labels.rule)
        load_prompt(self.prompt)
        resolve_checkpoint(self.tokenizer, home)
