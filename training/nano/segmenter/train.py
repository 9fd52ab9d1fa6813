"""Trains nano-plain and nano-teacher from the nano base: a minute or two each on one core.

Both see solutions of training problems with nano's own slips. The recipe stops the teacher early, while its copies
still go wrong at times: a teacher that never fails would leave the exact-rejoin filter nothing to do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from engine.judge import load_prompt, render
from engine.segmentation import segment_prompt
from engine.worlds.nano import draw
from training.nano.demos import solve
from training.nano.recipe import NanoRecipe, Stretch, load_recipe
from training.nano.segmenter.plain import plain_solution, tagged_solution
from training.nano.train import KINDS, POLICY_PROMPT, padded, run_stage, save

Role = Literal["plain", "teacher"]
TEACHER_PROMPT = "segment_nano"
HERE = Path(__file__).resolve().parent
CHECKPOINTS: dict[Role, Path] = {role: HERE / f"{role}_checkpoint" for role in ("plain", "teacher")}


class SegmenterRecipe(BaseModel):
    """How the two checkpoints are made from the base; solutions slip as the base's recipe says."""

    model_config = ConfigDict(extra="forbid")
    seed: int
    batch: int = Field(ge=1, description="sequences a step")
    weight_decay: float = Field(ge=0)
    threads: int = Field(ge=1)
    plain: list[Stretch] = Field(min_length=1, description="one after the other, each with new solutions")
    teacher: list[Stretch] = Field(min_length=1)


def read_segmenter_recipe(path: Path = HERE / "recipe.yaml") -> SegmenterRecipe:
    """The recipe in a YAML file."""
    return SegmenterRecipe.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def examples(role: Role, nano: NanoRecipe, seed: int) -> Iterator[tuple[str, str]]:
    """Endless (prompt, completion) pairs from training problems, the same for the same seed."""
    rng = random.Random(f"nano-{role}/{seed}")
    solving, segmenting = load_prompt(POLICY_PROMPT, needs=("problem",)), segment_prompt(TEACHER_PROMPT)
    while True:
        demo = solve(draw(rng, KINDS, "train", nano.lengths), nano.policy, rng)
        if role == "plain":
            yield render(solving, problem=demo.problem.text), plain_solution(demo)
        else:
            yield render(segmenting, solution=plain_solution(demo)), tagged_solution(demo)


def train_segmenter(
    role: Role,
    recipe: SegmenterRecipe,
    base: Path,
    out_dir: Path,
    progress: Callable[[int, dict[str, float]], None] | None = None,
) -> dict[str, Any]:
    """Train one of the two from ``base`` and save it to ``out_dir``; returns the log's summary.

    ``progress(step, {"loss": …, "seconds": …})`` is called every 50 steps; an exception from it ends the training.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    log: list[dict[str, float]] = []
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        log.append({"step": step, "loss": loss, "seconds": round(time.monotonic() - started, 1)})
        if progress:
            progress(step, log[-1])

    nano, done = load_recipe(HERE.parent / "recipe.yaml"), 0
    for number, stretch in enumerate(recipe.plain if role == "plain" else recipe.teacher):
        seed = recipe.seed + number
        source = padded(examples(role, nano, seed), recipe.batch, tokenizer, seed)
        run_stage(model, stretch, recipe.weight_decay, source, done, report)
        done += stretch.steps
    return save(recipe, model, tokenizer, log, out_dir)
