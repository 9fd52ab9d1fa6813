"""Our rollout stage, database and grading included, against the same requests given straight to the same vLLM.

And against the way of a script: one trajectory at a time, one call per prefix. Interleaved, with the prefix cache
emptied before each, so that neither lives off the other; ratios, since seconds on a shared machine are noise.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from app.bench import Bar, conclude
from app.settings import Settings
from app.store import open_or_make_store
from engine.checkpoints import resolve_checkpoint
from engine.llm import LLMSpec, open_llm
from engine.llm.base import Request
from engine.llm.vllm import VLLMDoor
from engine.pipeline.rolling import Rolling, roll_out
from engine.pipeline.sampling import sample_with
from engine.policy_prompt import PolicyPrompt
from engine.recipes import Draws, Generate, Recipe, RolloutRecipe, SampleRecipe, Selection
from engine.runs import RunContext

DATASET = "bench"


@dataclass
class Bench:
    """One opened policy, its solutions, and fresh stores to roll them out in."""

    llm: VLLMDoor
    folder: Path
    problems: int
    trajectories: int
    m: int

    def _context(self, name: str, recipe: Recipe) -> RunContext[Any]:
        settings = Settings(home=self.folder / name, actor="bench")
        settings.home.mkdir(exist_ok=True)
        store = open_or_make_store(settings)
        run_id = store.start_run(recipe.kind, recipe.model_dump(mode="json"), "bench", pid=0)
        return RunContext(store, run_id, 1, recipe, settings.home, "bench")

    def fresh(self, name: str) -> RunContext[RolloutRecipe]:
        """A store with the sampled solutions and no rollout, and the context of a rollout run in it."""
        draws = Draws(max_tokens=256)
        self.sample(name, draws)
        recipe = RolloutRecipe(
            select=Selection(dataset=DATASET, per_problem=self.trajectories), m=self.m, draws=draws
        )
        return self._context(name, recipe)

    def sample(self, name: str, draws: Draws) -> None:
        generate = Generate(count=self.problems, seed=77)
        recipe = SampleRecipe(dataset=DATASET, generate=generate, n=self.trajectories, draws=draws)
        sample_with(self._context(name, recipe), self.llm)

    def requests(self) -> list[Request]:
        """Exactly what the stage asks the door for."""
        ctx = self.fresh("requests")
        return [
            item[0]
            for item in Rolling(ctx, self.llm, PolicyPrompt.load(ctx.recipe.prompt)).requests()
            if item
        ]

    def empty_cache(self) -> None:
        self.llm.vllm.reset_prefix_cache()


def _ours(bench: Bench, name: str) -> tuple[int, float]:
    ctx = bench.fresh(name)
    bench.empty_cache()
    started = time.perf_counter()
    result = roll_out(ctx, bench.llm)
    return int(result["tokens"]), time.perf_counter() - started


def _straight(bench: Bench, calls: list[list[Request]]) -> tuple[int, float]:
    """The same requests with the same seeds to ``vllm.LLM.generate``, in the given calls."""
    from vllm import SamplingParams

    bench.empty_cache()
    started, tokens = time.perf_counter(), 0
    for requests in calls:
        outputs = bench.llm.vllm.generate(
            [{"prompt_token_ids": list(r.prompt_token_ids)} for r in requests],
            [
                SamplingParams(
                    n=r.n,
                    seed=r.seed,
                    temperature=r.sampling.temperature,
                    top_p=r.sampling.top_p,
                    max_tokens=min(r.sampling.max_tokens, bench.llm.info.context - len(r.prompt_token_ids)),
                )
                for r in requests
            ],
            use_tqdm=False,
        )
        tokens += sum(len(draw.token_ids) for output in outputs for draw in output.outputs)
    return tokens, time.perf_counter() - started


def open_bench(
    settings: Settings, policy: str, folder: Path, problems: int, trajectories: int, m: int
) -> Bench:
    """Open the policy and warm it up."""
    path = resolve_checkpoint(policy, settings.home)
    llm = open_llm(LLMSpec(checkpoint=str(path), name=policy))
    assert isinstance(llm, VLLMDoor)
    bench = Bench(llm, folder, problems, trajectories, m)
    _straight(bench, [bench.requests()[:8]])
    return bench


def rollouts(settings: Settings, policy: str, pairs: int, console: Console) -> int:
    """Bars: at least 0.7 of straight vLLM's tokens per second, at least 1.3 times one call per prefix."""
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        bench = open_bench(settings, policy, Path(folder), problems=60, trajectories=2, m=16)
        requests = bench.requests()
        ours: list[float] = []
        straight: list[float] = []
        looped: list[float] = []
        for pair in range(pairs):
            for rates, measure in (
                (ours, lambda pair=pair: _ours(bench, f"pair-{pair}")),
                (straight, lambda: _straight(bench, [requests])),
                (looped, lambda: _straight(bench, [[request] for request in requests])),
            ):
                tokens, seconds = measure()
                rates.append(tokens / seconds)
        bench.llm.close()
    rows = [("prefixes × draws", f"{len(requests)} × {bench.m}"), ("interleaved pairs", str(pairs))]
    for name, rates in (("our stage", ours), ("straight to vLLM", straight), ("one call per prefix", looped)):
        rows.append((f"{name}, tokens/s", "  ".join(f"{rate:,.0f}" for rate in rates)))
    against_vllm = median(a / b for a, b in zip(ours, straight, strict=True))
    against_loop = median(a / b for a, b in zip(ours, looped, strict=True))
    bars = [
        Bar("against straight vLLM", against_vllm, 0.7),
        Bar("against one call per prefix", against_loop, 1.3),
    ]
    return conclude(console, "rollouts", rows, bars)


def annotate(settings: Settings, policy: str, console: Console) -> int:
    """Bar: 20 problems × 2 trajectories annotated with M = 16 in under 30 seconds, once the LLM is loaded."""
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        bench = open_bench(settings, policy, Path(folder), problems=20, trajectories=2, m=16)
        ctx = bench.fresh("annotate")
        bench.empty_cache()
        started = time.perf_counter()
        result = roll_out(ctx, bench.llm)
        seconds = time.perf_counter() - started
        bench.llm.close()
    rows = [
        (name, str(result[name]))
        for name in ("trajectories", "prefixes", "done", "tokens_per_s", "labelled_chunks")
    ]
    return conclude(console, "annotate", rows, [Bar("seconds", seconds, 30.0, "<=")])
