"""The judge kind of run for a discriminative judge: p(+) and verdict of every chunk, its own verdicts in its history.

A chunk has one judgment, with a score and an empty rationale. Chunks are walked by position over many solutions at
once, so that the door stays full. Generative judges are in ``judging``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from db.rows import NewJudgment
from engine.discriminative import DiscriminativeJudge, describe
from engine.judges import Reading, ToRead, read_solutions
from engine.pipeline.flow import Batch, Pace
from engine.recipes import JudgeRecipe
from engine.runs import RunContext

TRAJECTORIES_A_BATCH = 100


def score_with(ctx: RunContext[JudgeRecipe], judge: DiscriminativeJudge) -> dict[str, Any]:
    """Judge until every selected chunk has its judgment. Returns counts and the rate.

    A solution that was judged in part is read again from its start (its earlier verdicts are the same) and only what
    is missing is stored.
    """
    ctx.facts(judge.facts())
    stage = _Stage(ctx, judge)
    batch = Batch(stage.write)
    for solution, index, reading in read_solutions(
        judge, stage.unread(), k=1, seed=ctx.seed, stopping=lambda: ctx.stopping
    ):
        batch.add([stage.judgment(solution, index, reading)])
    batch.flush()
    return stage.pace.result() | {"judge": stage.name} | stage.verdicts


class _Stage:
    """The judge's row, and the solutions on their way."""

    def __init__(self, ctx: RunContext[JudgeRecipe], judge: DiscriminativeJudge):
        self.ctx, self.judge = ctx, judge
        recipe, prompt, facts = ctx.recipe, judge.turns.prompt, describe(judge)
        self.name = recipe.name or judge.llm.info.name
        self.judge_id = ctx.store.ensure_judge(
            name=self.name,
            kind="discriminative",
            checkpoint=recipe.llm.checkpoint,
            checkpoint_hash=judge.llm.info.content_hash,
            prompt_name=prompt.name,
            prompt_hash=prompt.hash,
            sampling=facts,
            sampling_digest=hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16],
            run_id=ctx.run_id,
        )
        chunks = ctx.store.count_selection(**recipe.select.model_dump())[1]
        self.pace = Pace(ctx, "judgments", 0, chunks)
        self.verdicts = {"positive": 0, "negative": 0, "none": 0}
        self._chunks: dict[str, dict[int, int]] = {}

    def unread(self) -> Iterator[ToRead]:
        """Solutions with a chunk that has no judgment yet."""
        pages = self.ctx.store.iterate_trajectories(
            **self.ctx.recipe.select.model_dump(), batch=TRAJECTORIES_A_BATCH
        )
        for trajectories in pages:
            ids = [chunk.id for trajectory in trajectories for chunk in trajectory.chunks]
            judged = self.ctx.store.judged(self.judge_id, ids)
            for trajectory in trajectories:
                wanted = {i: c.id for i, c in enumerate(trajectory.chunks) if not judged.get(c.id)}
                self.pace.there(len(trajectory.chunks) - len(wanted))
                if wanted:
                    mark = str(trajectory.id)
                    self._chunks[mark] = wanted
                    texts = tuple(chunk.text for chunk in trajectory.chunks)
                    yield ToRead(mark, trajectory.problem, texts, frozenset(wanted))

    def judgment(self, solution: ToRead, index: int, reading: Reading) -> NewJudgment:
        """The row of one chunk; a chunk that could not be read says why in place of a rationale."""
        chunk_id = self._chunks[solution.mark].pop(index)
        if not self._chunks[solution.mark]:
            del self._chunks[solution.mark]
        self.verdicts[reading.verdict or "none"] += 1
        return NewJudgment(
            judge_id=self.judge_id,
            chunk_id=chunk_id,
            draw=0,
            verdict=reading.verdict,
            rationale=reading.error or "",
            n_tokens=reading.tokens,
            finish_reason="error" if reading.error else "stop",  # one token is all that was asked for
            seed=0,
            score=reading.score,
        )

    def write(self, rows: list[NewJudgment]) -> None:
        self.ctx.store.add_judgments(rows, run_id=self.ctx.run_id)
        self.pace.add(len(rows), sum(row.n_tokens for row in rows))
