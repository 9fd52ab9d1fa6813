"""The judge kind of run: a judge reads every chunk of every selected trajectory k times; rationale and verdict kept.

Which sort of judge a checkpoint is, its card says: discriminative ones are read in ``scoring``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from db.rows import NewJudgment, StageTrajectory
from engine.checkpoints import PACKAGED, read_card, resolve_checkpoint
from engine.discriminative import DiscriminativeJudge
from engine.judge import JudgePrompt, fill, load_prompt, parse_verdict
from engine.judges import DISCRIMINATIVE
from engine.llm.base import LLM, Completion, Request
from engine.pipeline.flow import Batch, Pace, open_door
from engine.pipeline.scoring import score_with
from engine.pipeline.selecting import check_selection
from engine.policy_prompt import asked, turn_sampling
from engine.recipes import JudgeRecipe
from engine.rollouts import base_seed, prefix_key
from engine.runs import RunContext

TRAJECTORIES_A_BATCH = 100
PROMPTED = "prompted"


def is_prompted(checkpoint: str, home: Path) -> bool:
    """Whether a judge's checkpoint is an LLM off the shelf: no run here trained it to judge, and it is not nano.

    Raises CheckpointError.
    """
    if checkpoint in PACKAGED:
        return False
    return read_card(resolve_checkpoint(checkpoint, home)).get("role") != "judge"


def run(ctx: RunContext[JudgeRecipe]) -> dict[str, Any]:
    """Judge until every chunk has k judgments (a discriminative judge gives one). Returns counts and the rate.

    Raises InputError where nothing is selected.
    """
    check_selection(ctx.store, ctx.recipe.select)
    path = resolve_checkpoint(ctx.recipe.llm.checkpoint, ctx.home)
    with open_door(ctx, ctx.recipe.llm) as llm:
        if read_card(path).get("role") == DISCRIMINATIVE:
            return score_with(ctx, DiscriminativeJudge.load(llm, path))
        return judge_with(ctx, llm)


def judge_with(ctx: RunContext[JudgeRecipe], llm: LLM) -> dict[str, Any]:
    """``run`` for a generative judge, through a door that is open already."""
    prompt = load_prompt(ctx.recipe.prompt)
    ctx.facts({prompt.name: prompt.hash})
    stage = _Stage(ctx, llm, prompt)
    batch = Batch(stage.write)
    for completions in llm.stream(stage.requests()):
        batch.add(stage.judgments(completions))
        if ctx.stopping:
            break
    batch.flush()
    return stage.pace.result() | {"judge": stage.name} | stage.verdicts


class _Stage:
    """What the stream's two ends share: the judge's row and the draws on their way."""

    def __init__(self, ctx: RunContext[JudgeRecipe], llm: LLM, prompt: JudgePrompt):
        self.ctx, self.llm, self.prompt = ctx, llm, prompt
        recipe = ctx.recipe
        self.sampling = turn_sampling(recipe.draws.sampling(), recipe.chat)
        asked_in = " · chat" if recipe.chat else ""
        self.name = recipe.name or f"{llm.info.name} · {prompt.name}{asked_in}"
        self.judge_id = ctx.store.ensure_judge(
            name=self.name,
            kind=PROMPTED if is_prompted(recipe.llm.checkpoint, ctx.home) else "generative",
            checkpoint=recipe.llm.checkpoint,
            checkpoint_hash=llm.info.content_hash,
            prompt_name=prompt.name,
            prompt_hash=prompt.hash,
            sampling=recipe.draws.model_dump(mode="json") | ({"ends_turn": True} if recipe.chat else {}),
            sampling_digest=self.sampling.digest(),
            run_id=ctx.run_id,
        )
        chunks = ctx.store.count_selection(**recipe.select.model_dump())[1]
        self.pace = Pace(ctx, "judgments", 0, chunks * recipe.k)
        self.verdicts = {"positive": 0, "negative": 0, "none": 0}
        self._asked: dict[str, tuple[int, int, Request]] = {}

    def requests(self) -> Iterator[Request]:
        """One request a chunk for the judgments it still lacks."""
        k = self.ctx.recipe.k
        pages = self.ctx.store.iterate_trajectories(
            **self.ctx.recipe.select.model_dump(), batch=TRAJECTORIES_A_BATCH
        )
        for trajectories in pages:
            chunk_ids = [chunk.id for trajectory in trajectories for chunk in trajectory.chunks]
            judged = self.ctx.store.judged(self.judge_id, chunk_ids)
            for trajectory in trajectories:
                for index, chunk in enumerate(trajectory.chunks):
                    have = judged.get(chunk.id, 0)
                    self.pace.there(min(have, k))
                    if have < k:
                        yield self._request(trajectory, index, have)

    def _request(self, trajectory: StageTrajectory, index: int, have: int) -> Request:
        chunk = trajectory.chunks[index]
        text = fill(self.prompt, trajectory.problem, [c.text for c in trajectory.chunks[:index]], chunk.text)
        ids = asked(self.llm, text, self.ctx.recipe.chat)
        # Siblings may hold the same chunk under the same history: the draw number keeps their judgments apart, or
        # the solution's own where it was not drawn here.
        mark = trajectory.draw if trajectory.draw is not None else f"given {trajectory.id}"
        key = f"{prefix_key(ids, self.llm.info.content_hash, self.sampling)}:{mark}:{index}"
        seed = base_seed(self.ctx.seed, key) + have
        request = Request(str(chunk.id), ids, self.ctx.recipe.k - have, seed, self.sampling)
        self._asked[request.id] = (chunk.id, have, request)
        return request

    def judgments(self, completions: list[Completion]) -> Iterator[NewJudgment]:
        """Rows of one chunk. Without a verdict, or with a prompt that is too long, the row says so: verdict None."""
        chunk_id, have, request = self._asked.pop(completions[0].request_id)
        for completion in completions:
            verdict = parse_verdict(completion.text) if completion.finish_reason != "error" else None
            self.verdicts[verdict or "none"] += 1
            yield NewJudgment(
                judge_id=self.judge_id,
                chunk_id=chunk_id,
                draw=have + completion.index,
                verdict=verdict,
                rationale=completion.error or completion.text,
                n_tokens=len(completion.token_ids),
                finish_reason=completion.finish_reason,
                seed=request.seed + completion.index,
            )

    def write(self, rows: list[NewJudgment]) -> None:
        self.ctx.store.add_judgments(rows, run_id=self.ctx.run_id)
        self.pace.add(len(rows), sum(row.n_tokens for row in rows))
