"""A world for pipeline tests: problems "a+b+c", and a scripted policy and judge whose draws follow from their seeds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from db.rows import NewProblem
from db.store import Store
from engine.llm.base import Completion
from engine.llm.scripted import ScriptedLLM, oldest_first
from engine.recipes import Draws, JudgeRecipe, Recipe, RolloutRecipe, SampleRecipe, Selection
from engine.runs import RunContext
from tests.store_world import new_store

DATASET = "little"


def open_little(folder: Path, problems: int = 3) -> Store:
    """A store with problems ``1+2+3`` and so on."""
    store = new_store(folder / "little.db")
    rows = [
        NewProblem(DATASET, f"p{i}", f"{i}+{i + 1}+{i + 2}", str(3 * i + 3)) for i in range(1, problems + 1)
    ]
    store.add_problems(rows, run_id=None, actor="test")
    return store


def _random(prompt: str, seed: int, n: int) -> int:
    digest = hashlib.sha256(f"{seed}|{prompt}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % n


def policy(prompt: str, seed: int) -> str:
    """Adds number after number, a chunk each; now and then a sum is one too many, and it is never noticed."""
    numbers = [int(n) for n in re.search(r"<solve>([\d+]+)", prompt).group(1).split("+")]
    said = re.findall(r"<chunk>.*?=(\d+)</chunk>", prompt)
    total = int(said[-1]) if said else numbers[0]
    text = "\n" if said else ""
    for place in range(len(said) + 1, len(numbers)):
        slip = _random(prompt + text, seed, 4) == 0
        right = total + numbers[place]
        text += f"<chunk>{total}+{numbers[place]}={right + slip}</chunk>\n"
        total = right + slip
    return text + f"\\boxed{{{total}}}"


def judge(prompt: str, seed: int) -> str:
    """Recomputes the new chunk; errs in one case of five, and in one of five never boxes a verdict."""
    a, b, c = re.search(r"<new>(\d+)\+(\d+)=(\d+)</new>", prompt).groups()
    mood = _random(prompt, seed, 5)
    if mood == 0:
        return "I cannot say."
    right = (int(a) + int(b) == int(c)) != (mood == 1)
    return f"I get {int(a) + int(b)}. \\boxed{{{'Positive' if right else 'Negative'}}}"


def scripted_policy(**options: Any) -> ScriptedLLM:
    return ScriptedLLM(policy, name="little-policy", **({"order": oldest_first} | options))


def stop_after(llm: ScriptedLLM, ctx: RunContext[Any], answers: int) -> None:
    """Ask the run to stop when so many requests have been answered."""
    served = llm.stream

    def stream(requests: Any) -> Iterator[list[Completion]]:
        for count, completions in enumerate(served(requests), start=1):
            if count == answers:
                ctx.stop()
            yield completions

    llm.stream = stream  # type: ignore[method-assign]


def context(store: Store, recipe: Recipe, home: Path) -> RunContext[Any]:
    run_id = store.start_run(recipe.kind, recipe.model_dump(mode="json"), "test", pid=0)
    return RunContext(store, run_id, 1, recipe, home, "test")


def sample_recipe(n: int = 6, **fields: Any) -> SampleRecipe:
    return SampleRecipe(dataset=DATASET, n=n, draws=Draws(max_tokens=200), **fields)


def rollout_recipe(m: int = 8, **fields: Any) -> RolloutRecipe:
    return RolloutRecipe(
        m=m, draws=Draws(max_tokens=200), **({"select": Selection(dataset=DATASET)} | fields)
    )


def judge_recipe(k: int = 4, **fields: Any) -> JudgeRecipe:
    return JudgeRecipe(k=k, select=Selection(dataset=DATASET), draws=Draws(max_tokens=100), **fields)


def all_rollouts(store: Store) -> list[tuple[Any, ...]]:
    """(prefix key, draw, outcome, seed, text) of every stored rollout, in order: what must not depend on luck."""
    with store.read() as db:
        return [
            tuple(row)
            for row in db.exec_driver_sql(
                "SELECT p.key, r.draw, r.outcome, t.seed, t.text FROM rollouts r JOIN prefixes p ON p.id = r.prefix_id "
                "JOIN rollout_texts t ON t.rollout_id = r.id ORDER BY p.key, r.draw"
            )
        ]


def all_labels(store: Store) -> list[tuple[Any, ...]]:
    with store.read() as db:
        return [
            tuple(row)
            for row in db.exec_driver_sql(
                "SELECT t.prefix_id, t.draw, c.idx, l.before_k, l.before_n, l.after_k, l.after_n, l.after_exact, l.abs_q, "
                "l.rel_effective, l.rel_ratio FROM chunk_labels l JOIN chunks c ON c.id = l.chunk_id "
                "JOIN trajectories t ON t.id = c.trajectory_id ORDER BY 1, 2, 3"
            )
        ]
