"""GRPO on nano: how long steps take, and the share of that in our callback, rewards and writes to the store.

The trainer is the one that a run uses, with a real store; its data are judge prompts over demonstrations of the nano
world, labelled by arithmetic, so nothing has to be rolled out first. What the judge learns is not looked at: nano's
rationales are some 20 tokens long, and are made to go on to the length of a larger judge's.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from app.bench import Bar, conclude
from app.settings import Settings
from app.store import open_or_make_store
from engine.checkpoints import resolve_checkpoint
from engine.judge import fill, load_prompt
from engine.recipes import resolve
from engine.runs import RunContext
from engine.worlds.nano import generate
from training.jobs import TrainJudgeRecipe
from training.sets import Example, TrainingSet

SETTINGS = {"prompts_per_batch": 32, "generations": 8, "steps_per_batch": 4}
"""256 completions a generation batch, 64 an optimizer step."""


class Stopwatch:
    """Seconds spent inside the functions that it watches; one inside another counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.inside = False

    def watch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return function(*args, **kwargs)
            self.inside, start = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.inside, self.seconds = False, self.seconds + time.perf_counter() - start

        return watched


def grpo(settings: Settings, base: str, steps: int, least_tokens: int, threads: int, console: Console) -> int:
    """Train ``base`` for ``steps`` optimizer steps of 64 completions; print the shares. Returns an exit code.

    ``least_tokens``: no completion ends before. ``threads``: CPU cores that the training takes.
    """
    from training import core
    from training.grpo_judge import build_trainer

    fields = {
        "base": base,
        "grpo": SETTINGS | {"steps": steps},
        "saving": {"every": 10**6},
        "hardware": {"threads": threads},
    }
    recipe = resolve(TrainJudgeRecipe, fields)
    with tempfile.TemporaryDirectory() as folder:
        place = Settings(home=Path(folder), database_url="", actor="bench")
        store = open_or_make_store(place)
        run_id = store.start_run(recipe.kind, recipe.model_dump(mode="json"), "bench", pid=0)
        ctx: RunContext[Any] = RunContext(store, run_id, 1, recipe, place.home, "bench")
        core.prepare(recipe.hardware)
        path = resolve_checkpoint(base, settings.home)
        trainer = build_trainer(ctx, path, _examples(recipe.prompt), place.home / "run" / "trainer")
        trainer.generation_config.min_new_tokens = least_tokens or None
        watch = _watched(trainer)
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
        lengths = [row.value for row in store.metrics(run_id)["completions/mean_length"] if row.value]
        store.close()
    rows = [
        ("steps", f"{steps} of 64 completions, {sum(lengths) / len(lengths):.1f} tokens each"),
        ("seconds a step", f"{seconds / steps:.2f} on {threads} CPU threads"),
        ("ours a step", f"{watch.seconds / steps * 1000:.1f} ms"),
    ]
    bars = [Bar("share of ours", watch.seconds / seconds, 0.05, "<=")]
    bars.append(Bar("seconds for 100 steps", 100 * seconds / steps, 300.0, "<="))
    return conclude(console, "grpo", rows, bars)


def _watched(trainer: Any) -> Stopwatch:
    """A stopwatch over everything of ours that the trainer calls: the callback's events and the reward."""
    watch = Stopwatch()
    ours = next(c for c in trainer.callback_handler.callbacks if type(c).__name__ == "RunCallback")
    for event in ("on_train_begin", "on_log", "on_step_end", "on_train_end"):
        setattr(ours, event, watch.watch(getattr(ours, event)))
    trainer.reward_funcs = [watch.watch(function) for function in trainer.reward_funcs]
    return watch


def _examples(prompt_name: str, problems: int = 100) -> TrainingSet:
    """Judge prompts over demonstrations of the nano world; the label says whether the chunk's calculation is right."""
    from training import nano
    from training.nano.demos import solve
    from training.nano.recipe import load_recipe

    prompt = load_prompt(prompt_name)
    rates = load_recipe(Path(nano.__file__).with_name("recipe.yaml")).policy
    rng = random.Random(5)
    rows: list[Example] = []
    for number, problem in enumerate(generate(problems, seed=5)):
        chunks = solve(problem, rates, rng).chunks
        texts = [chunk.text for chunk in chunks]
        for i, chunk in enumerate(chunks):
            text = fill(prompt, problem.text, texts[:i], chunk.text)
            rows.append(Example(len(rows), number, text, "+" if chunk.right else "-"))
    return TrainingSet(tuple(rows), (), {})
