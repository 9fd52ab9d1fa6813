"""A store of a million rollouts: how long inserting takes, a trajectory's values, and what a run has left to do.

Everything goes through the methods that a run uses. The policy only encodes here; nothing is sampled.
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from app.bench import Bar, conclude
from app.settings import Settings
from app.store import open_or_make_store
from db.rows import NewChunk, NewProblem, NewRollout, NewTrajectory
from db.session import batches
from db.store import Store
from engine.checkpoints import resolve_checkpoint
from engine.llm.base import LLMInfo
from engine.llm.tokens import Tokens
from engine.pipeline.labelling import prefix_values, relabel
from engine.pipeline.prefixes import Prefixes
from engine.pipeline.rolling import Rolling
from engine.policy_prompt import PolicyPrompt
from engine.recipes import RolloutRecipe, Selection
from engine.runs import RunContext

DATASET, M = "bench", 16
SOLUTIONS, CHUNKS = 5, 6
READS = 200
BATCH = 5_000


class Reader:
    """The part of a policy that rollouts need before the first draw: its tokenizer and its identity."""

    def __init__(self, tokens: Tokens):
        self._tokens = tokens
        self.info = LLMInfo(tokens.name, "bench", 4096)

    def encode(self, text: str) -> list[int]:
        return self._tokens.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokens.decode(token_ids)


def store(settings: Settings, rollouts: int, console: Console) -> int:
    """Bars: values of a trajectory in under 5 ms (median), what is left to do of everything in under 10 s."""
    tokens = Tokens.load(resolve_checkpoint("nano", settings.home))
    problems = max(1, rollouts // (M * SOLUTIONS * (CHUNKS - 1)))
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        own = Settings(home=Path(folder), database_url="", actor="bench")
        filled = open_or_make_store(own)
        recipe = RolloutRecipe(select=Selection(dataset=DATASET), m=M)
        run_id = filled.start_run("rollout", recipe.model_dump(mode="json"), "bench", pid=0)
        ctx = RunContext(filled, run_id, 1, recipe, own.home, "bench")
        reader: Any = Reader(tokens)
        ids = _solutions(filled, run_id, problems)
        started = time.perf_counter()
        written = _roll_out(ctx, reader, ids)
        relabel(filled, ids)
        inserted = time.perf_counter() - started
        reads = [_read(filled, one) for one in random.Random(3).choices(ids, k=READS)]
        started = time.perf_counter()
        rolling = Rolling(ctx, reader, PolicyPrompt.load(recipe.prompt))
        left = [item for item in rolling.requests() if item]
        resumed = time.perf_counter() - started
        size = (own.home / "stepwiser.db").stat().st_size
    rows = [
        ("rollouts", f"{written:,} of {written // M:,} prefixes, {len(ids):,} trajectories"),
        ("written a second, prefixes and labels included", f"{written / inserted:,.0f}"),
        ("file, MB", f"{size / 1e6:,.0f}"),
        ("requests left after the resume (one prefix was left open)", str(len(left))),
        ("resident at most, MB", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f}"),
    ]
    bars = [
        Bar("a trajectory's values, ms (median)", 1e3 * median(reads), 5.0, "<="),
        Bar("what a resumed run has left to do, s", resumed, 10.0, "<="),
    ]
    return conclude(console, "store", rows, bars)


def _solutions(filled: Store, run_id: int, problems: int) -> list[int]:
    rows = [NewProblem(DATASET, f"p{i}", f"{i}+{i + 1}", str(2 * i + 1)) for i in range(problems)]
    added = filled.add_problems(rows, run_id=run_id, actor="bench")
    ids: list[int] = []
    for part in batches((_solution(id_, i) for id_ in added.added for i in range(SOLUTIONS)), BATCH):
        ids += [one.id for one in filled.add_trajectories(part, run_id=run_id, actor="bench")]
    return ids


def _solution(problem_id: int, which: int) -> NewTrajectory:
    chunks = [
        NewChunk("<chunk>", f"{which}+{problem_id}+{k}={which + problem_id + k}", "</chunk>\n")
        for k in range(CHUNKS)
    ]
    text = "".join(chunk.lead + chunk.text + chunk.close for chunk in chunks) + "\\boxed{1}"
    return NewTrajectory(problem_id, "bench", text, "\\boxed{1}", tuple(chunks), "tags", "wrong", "1")


def _roll_out(ctx: RunContext[RolloutRecipe], reader: Any, ids: Sequence[int]) -> int:
    """M draws of every prefix but the last draw of the last one, in the batches of a run."""
    prefixes = Prefixes.of(ctx, reader, PolicyPrompt.load(ctx.recipe.prompt))
    open_: list[int] = []
    for page in batches(ids, 100):
        for own in prefixes.store_rows(ctx.store.stage_trajectories(page)):
            open_ += own.values()
    written = 0
    for rows in batches(_draws(list(dict.fromkeys(open_))), BATCH):
        written += ctx.store.add_rollouts(rows, run_id=ctx.run_id)
    return written


def _draws(prefix_ids: Sequence[int]) -> Iterator[NewRollout]:
    dice = random.Random(5)
    for place, prefix_id in enumerate(prefix_ids, start=1):
        for draw in range(M - (place == len(prefix_ids))):
            outcome = dice.choice(("correct", "wrong"))
            yield NewRollout(
                prefix_id, draw, outcome, 40, f"<chunk>{draw}</chunk>\n\\boxed{{1}}", "1", "stop", draw
            )


def _read(filled: Store, trajectory_id: int) -> float:
    started = time.perf_counter()
    (inputs,) = filled.label_inputs([trajectory_id])
    assert len(prefix_values(inputs)) == CHUNKS + 1
    return time.perf_counter() - started
