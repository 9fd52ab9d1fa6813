"""Our rollout stage, database and grading included, against the same requests given straight to the same vLLM.

``peers``: against the way of a script, one problem after another and one call per prefix. Interleaved, with the prefix
cache emptied before each, so that neither lives off the other; ratios, since seconds on a shared machine are noise.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
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
from engine.llm.base import LLM, Request
from engine.llm.vllm import VLLMDoor
from engine.pipeline.rolling import Rolling, roll_out
from engine.pipeline.sampling import sample_with
from engine.policy_prompt import PolicyPrompt
from engine.recipes import Draws, Generate, Recipe, RolloutRecipe, SampleRecipe, Selection
from engine.runs import RunContext

DATASET = "bench"


@dataclass(frozen=True)
class Load:
    """How much is rolled out, under which prompt, and the least share of straight vLLM's tokens per second."""

    problems: int
    m: int
    prompt: str
    max_tokens: int
    bar: float


NANO = Load(60, 16, "policy_nano", 256, 0.8)
LOADS = {"smollm2": Load(6, 8, "policy_smollm2", 128, 0.9)}
"""By checkpoint; any other is measured as nano is."""


@dataclass
class Bench:
    """One opened policy, its solutions, and fresh stores to roll them out in."""

    llm: LLM
    folder: Path
    problems: int
    trajectories: int
    m: int
    prompt: str = NANO.prompt
    max_tokens: int = NANO.max_tokens

    def _context(self, name: str, recipe: Recipe) -> RunContext[Any]:
        settings = Settings(home=self.folder / name, actor="bench")
        settings.home.mkdir(exist_ok=True)
        store = open_or_make_store(settings)
        run_id = store.start_run(recipe.kind, recipe.model_dump(mode="json"), "bench", pid=0)
        return RunContext(store, run_id, 1, recipe, settings.home, "bench")

    def fresh(self, name: str) -> RunContext[RolloutRecipe]:
        """A store with the sampled solutions and no rollout, and the context of a rollout run in it."""
        draws = Draws(max_tokens=self.max_tokens)
        self.sample(name, draws)
        select = Selection(dataset=DATASET, per_problem=self.trajectories)
        recipe = RolloutRecipe(select=select, m=self.m, draws=draws, prompt=self.prompt)
        return self._context(name, recipe)

    def sample(self, name: str, draws: Draws) -> None:
        generate = Generate(count=self.problems, seed=77)
        recipe = SampleRecipe(
            dataset=DATASET, generate=generate, n=self.trajectories, draws=draws, prompt=self.prompt
        )
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
        """Forget what was served before; a door of servers keeps its own."""
        if isinstance(self.llm, VLLMDoor):
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

    assert isinstance(bench.llm, VLLMDoor)
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
    load = LOADS.get(policy, NANO)
    path = resolve_checkpoint(policy, settings.home)
    llm = open_llm(LLMSpec(checkpoint=str(path), name=policy))
    assert isinstance(llm, VLLMDoor)
    bench = Bench(llm, folder, problems, trajectories, m, load.prompt, load.max_tokens)
    _straight(bench, [bench.requests()[:8]])
    return bench


def rollouts(settings: Settings, policy: str, pairs: int, console: Console) -> int:
    """Bar: at least 0.8 of straight vLLM's tokens per second with nano, 0.9 with SmolLM2."""
    load = LOADS.get(policy, NANO)
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        bench = open_bench(settings, policy, Path(folder), load.problems, trajectories=2, m=load.m)
        requests = bench.requests()
        found = _against(bench, pairs, "straight to vLLM", lambda: _straight(bench, [requests]))
        bench.llm.close()
    return conclude(console, "rollouts", found[0], [Bar("against straight vLLM", found[1], load.bar)])


def peers(settings: Settings, policy: str, pairs: int, console: Console) -> int:
    """Bar: at least 1.5 times the tokens per second of one call per prefix."""
    load = LOADS.get(policy, NANO)
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        bench = open_bench(settings, policy, Path(folder), load.problems, trajectories=2, m=load.m)
        calls = [[request] for request in bench.requests()]
        found = _against(bench, pairs, "one call per prefix", lambda: _straight(bench, calls))
        bench.llm.close()
    return conclude(console, "peers", found[0], [Bar("against one call per prefix", found[1], 1.5)])


def _against(
    bench: Bench, pairs: int, name: str, other: Callable[[], tuple[int, float]]
) -> tuple[list[tuple[str, str]], float]:
    """(rows of the table, median of the ratios) of interleaved pairs: ours, then the other."""
    ours: list[float] = []
    others: list[float] = []
    for pair in range(pairs):
        for rates, (tokens, seconds) in ((ours, _ours(bench, f"pair-{pair}")), (others, other())):
            rates.append(tokens / seconds)
    rows = [
        ("policy, draws a prefix", f"{bench.llm.info.name}, {bench.m}"),
        ("interleaved pairs", str(pairs)),
    ]
    for what, rates in (("our stage", ours), (name, others)):
        rows.append((f"{what}, tokens/s", "  ".join(f"{rate:,.0f}" for rate in rates)))
    return rows, median(a / b for a, b in zip(ours, others, strict=True))


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
