"""The recipe of the nano base: everything that decides what `train_nano` makes."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.errors import RecipeError
from training.nano.demos import JudgeRates, PolicyRates


class ModelShape(BaseModel):
    """A Llama; `hidden` must be a multiple of `head_dim`."""

    model_config = ConfigDict(extra="forbid")
    layers: int = Field(ge=1)
    hidden: int = Field(ge=32)
    head_dim: int = Field(ge=8)
    feed_forward: int = Field(ge=32)
    context: int = Field(ge=128)


class Stretch(BaseModel):
    """One stretch of training: its own optimizer, warm-up and linear decay to 0."""

    model_config = ConfigDict(extra="forbid")
    steps: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    warmup: int = Field(ge=0, description="steps")


class Stage(Stretch):
    """A stretch of the base's training, and how unsure its judgments are."""

    judge: JudgeRates


class NanoRecipe(BaseModel):
    """A whole training: seed, model, optimizer and the two kinds of demonstration.

    Stage i draws its demonstrations with seed + i.
    """

    model_config = ConfigDict(extra="forbid")
    seed: int
    batch: int = Field(ge=1, description="sequences a step")
    weight_decay: float = Field(ge=0)
    judge_share: float = Field(ge=0, le=1, description="share of the sequences that judge rather than solve")
    lengths: list[int] = Field(min_length=1, description="operations a problem")
    threads: int = Field(ge=1)
    model: ModelShape
    policy: PolicyRates
    stages: list[Stage] = Field(min_length=1)


def load_recipe(path: Path) -> NanoRecipe:
    """The recipe in a YAML file. Raises RecipeError naming the file and the fields that do not fit."""
    try:
        return NanoRecipe.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise RecipeError(
            f"{path}: cannot read this nano recipe ({error.strerror}); give a YAML file"
        ) from error
    except (yaml.YAMLError, ValidationError) as error:
        raise RecipeError(f"{path}: not a nano recipe: {error}") from error
