"""Recipes: the YAML that a run is started from, as checked models with defaults. Not how a stage uses them.

A recipe is resolved (every field has its value) before it is stored with the run, so a run can be read and
repeated from its row alone. ``training.recipes`` adds the training kinds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engine.checkpoints import resolve_checkpoint
from engine.errors import RecipeError
from engine.judge import load_prompt
from engine.labels import parse_rule
from engine.llm import LLMSpec
from engine.llm.base import Sampling
from engine.policy_prompt import CHAT, JUDGE_CHAT, PolicyPrompt, check_chat

R = TypeVar("R", bound=BaseModel)


class Part(BaseModel):
    """A part of a recipe: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Draws(Part):
    """How completions are drawn."""

    temperature: float = Field(1.0, ge=0, description="Sampling temperature (paper: 1.0)")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling: keep this share of the probability")
    max_tokens: int = Field(8192, ge=1, description="Most new tokens a completion may have (paper: 8,192)")

    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens)


class Generate(Part):
    """New problems from a generator."""

    world: Literal["nano"] = Field("nano", description="Which generator writes the problems")
    count: int = Field(20, ge=1, le=100_000, description="How many problems")
    seed: int = Field(0, ge=0, description="The generator's seed: the same seed writes the same problems")
    kinds: tuple[Literal["arithmetic", "word"], ...] = Field(
        ("arithmetic", "word"), description="Arithmetic chains, templated word problems, or both"
    )


class Selection(Part):
    """Which stored trajectories a run works on. Empty fields do not filter."""

    dataset: str | None = Field(None, description="Only problems of this data set")
    policy: str | None = Field(None, description="Only trajectories of this policy")
    from_run: int | None = Field(None, description="Only trajectories that this run wrote")
    trajectory_ids: tuple[int, ...] = Field((), description="Only these trajectories")
    mixed_only: bool = Field(
        False, description="Set aside problems whose sampled solutions are all right or all wrong"
    )
    per_problem: int | None = Field(None, ge=1, description="At most this many trajectories a problem")
    limit: int | None = Field(None, ge=1, description="At most this many trajectories in all")


class Recipe(Part):
    """What every recipe has."""

    kind: str
    seed: int = Field(0, ge=0, description="Seed of the run")

    def check(self, home: Path) -> None:
        """Refuse, before anything is queued, names that lead nowhere. Raises StepWiserError."""


class SampleRecipe(Recipe):
    """Sample N solutions a problem (design: N = 16, temperature 1.0)."""

    kind: Literal["sample"] = "sample"
    dataset: str = Field("nano", description="Data set whose problems are sampled; new problems join it")
    generate: Generate | None = Field(None, description="Write new problems first, and sample only those")
    limit: int | None = Field(None, ge=1, description="At most this many problems")
    n: int = Field(16, ge=1, le=4096, description="Solutions a problem")
    llm: LLMSpec = Field(default_factory=lambda: LLMSpec(checkpoint="nano"))
    prompt: str = Field("policy_nano", description="Prompt of the policy, by name")
    chat: bool = Field(False, description=CHAT)
    draws: Draws = Field(default_factory=lambda: Draws(max_tokens=256))

    def check(self, home: Path) -> None:
        PolicyPrompt.check(self.prompt, self.chat, resolve_checkpoint(self.llm.checkpoint, home))


class RolloutRecipe(Recipe):
    """Roll out every prefix of the selected trajectories M times (design: M = 16)."""

    kind: Literal["rollout"] = "rollout"
    select: Selection = Field(default_factory=Selection)
    m: int = Field(16, ge=1, le=4096, description="Rollouts a prefix; more than are stored tops them up")
    rules: tuple[str, ...] = Field(
        (),
        description="Thrift: stop at a prefix once its labels under these rules (rel-ratio:gamma=0.8) can no longer "
        "change; other rules then give no label there; empty: draw all",
    )
    places: Literal["all", "first-error"] = Field(
        "all",
        description="Every prefix, or only those of a binary search for the first chunk from which no rollout succeeds",
    )
    llm: LLMSpec = Field(default_factory=lambda: LLMSpec(checkpoint="nano"))
    prompt: str = Field("policy_nano", description="Prompt of the policy, by name")
    chat: bool = Field(False, description=CHAT)
    draws: Draws = Field(default_factory=lambda: Draws(max_tokens=256))

    @model_validator(mode="after")
    def _rules_are_rules(self) -> Self:
        try:
            names = {parse_rule(rule).name for rule in self.rules}
        except RecipeError as error:
            raise ValueError(str(error)) from error
        if self.places == "first-error" and names - {"abs-q"}:
            raise ValueError(
                "places first-error asks whether any rollout succeeds: the only rule it can have is abs-q"
            )
        return self

    def check(self, home: Path) -> None:
        PolicyPrompt.check(self.prompt, self.chat, resolve_checkpoint(self.llm.checkpoint, home))


class JudgeRecipe(Recipe):
    """Let a judge read every chunk of the selected trajectories k times."""

    kind: Literal["judge"] = "judge"
    select: Selection = Field(default_factory=Selection)
    name: str | None = Field(None, description="Name of the judge; empty: checkpoint and prompt")
    k: int = Field(
        4,
        ge=1,
        le=256,
        description="Judgments a chunk; their majority is the vote. A discriminative judge gives one",
    )
    llm: LLMSpec = Field(default_factory=lambda: LLMSpec(checkpoint="nano"))
    prompt: str = Field(
        "judge_nano",
        description="Prompt of the judge, by name; a discriminative judge has its own, which its checkpoint names",
    )
    chat: bool = Field(False, description=JUDGE_CHAT)
    draws: Draws = Field(default_factory=lambda: Draws(max_tokens=128))

    def check(self, home: Path) -> None:
        check_chat(self.chat, resolve_checkpoint(self.llm.checkpoint, home))
        load_prompt(self.prompt)


def read_recipe(path: Path) -> dict[str, Any]:
    """The YAML mapping in ``path``. Raises RecipeError naming file and line."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path}: not YAML: {error}") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of fields, this is {type(data).__name__}")
    return data


def set_fields(data: dict[str, Any], assignments: list[str]) -> dict[str, Any]:
    """``data`` with each ``dotted.key=value`` (value read as YAML) put in. Raises RecipeError."""
    result = yaml.safe_load(yaml.safe_dump(data)) or {}
    for assignment in assignments:
        key, sign, value = assignment.partition("=")
        if not sign or not key:
            raise RecipeError(f"--set {assignment!r}: write key=value, such as --set draws.temperature=0.7")
        node = result
        *parents, last = key.strip().split(".")
        for parent in parents:
            if node.get(parent) is None:
                node[parent] = {}
            node = node[parent]
            if not isinstance(node, dict):
                raise RecipeError(f"--set {assignment!r}: {parent} is a value, it has no fields")
        try:
            node[last] = yaml.safe_load(value)
        # a date that is none, 2026-13-01; brackets without end
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise RecipeError(f"--set {assignment!r}: the value is not YAML: {error}") from error
    return result


def resolve(model: type[R], data: dict[str, Any]) -> R:
    """A checked recipe of the given kind. Raises RecipeError that names every wrong field."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = [f"  {'.'.join(str(p) for p in e['loc']) or 'recipe'}: {e['msg']}" for e in error.errors()]
        raise RecipeError("the recipe cannot be used:\n" + "\n".join(lines)) from error
