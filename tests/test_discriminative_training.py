"""Discriminative judges trained for real: what one learns, its scores, stopping and resuming, shipped recipes.
Not: conversations, thresholds and the store's judgments (test_discriminative).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoints import CARD
from engine.discriminative import (
    DiscriminativeJudge,
    Turns,
)
from engine.errors import LLMError
from engine.judges import Step
from engine.llm.tokens import Tokens
from engine.recipes import read_recipe, resolve
from engine.runs import RunContext
from tests.labelled_store import store_with
from tests.run_context import Context
from tests.tiny_llama import make_tiny_llama
from tests.turns import PLAIN, chatty, judging
from training.discriminative import Solution, measure, run
from training.scorer import ModelScorer
from training.sets import freeze
from training.sft import arguments
from training.sft_recipes import DiscriminativeRecipe

__all__ = ["chatty"]

RECIPES = Path(__file__).parents[1] / "training" / "recipes"
ON_ONE_CPU = {"bf16": False, "use_cpu": True, "ddp_backend": None}


def digit_solutions(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Chunks are digits: + below 5, - from 5 on; one chunk in four is unlabelled, one in four only history."""
    rows = []
    for i in range(first, first + count):
        digits = [(3 * i + 7 * k + i // 4) % 10 for k in range(3)]
        rows.append(
            {
                "trajectory_id": i,
                "problem_id": i,
                "problem": f"p{i % 10}",
                "chunks": [str(d) for d in digits],
                "labels": [None if (i + k) % 4 == 0 else "+" if d < 5 else "-" for k, d in enumerate(digits)],
                "loss": [(i + k) % 4 != 1 for k in range(3)],
            }
        )
    return rows


def context(home: Path, base: Path, run_id: int = 1, name: str | None = None, **fields: Any) -> Context:
    (home / "checkpoints").mkdir(exist_ok=True)
    if not (home / "checkpoints" / "tiny").exists():
        (home / "checkpoints" / "tiny").symlink_to(base)
    if not (home / "sets" / "digits").exists():
        parts = {"train": digit_solutions(64), "held_out": digit_solutions(20, first=100)}
        freeze(home, "digits", "turns", parts, run="uid-0", recipe={}, counts={"train": 64, "held_out": 20})
    sft = {"steps": 10, "batch": 8, "learning_rate": 1e-2, "warmup": 2, "max_tokens": 128}
    data = {
        "base": "tiny",
        "name": name,
        "set": "digits",
        "saving": {"every": 5},
        "prompt": "judge_turns_nano",
    }
    return Context(resolve(DiscriminativeRecipe, {**data, "sft": sft, **fields}), home, run_id)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, chatty: Tokens) -> tuple[Path, Context, dict[str, Any]]:
    """A home with a judge of digits that was trained for real."""
    home = tmp_path_factory.mktemp("trained")
    base = make_tiny_llama(home / "base", chat=False)
    sft = {"steps": 60, "batch": 16, "learning_rate": 1e-2, "warmup": 4, "max_tokens": 128}
    ctx = context(home, base, name="digits", sft=sft, eval_every=20)
    return home, ctx, run(ctx)  # type: ignore[arg-type]


def test_a_discriminative_judge_learns_its_labels(trained: tuple[Path, Context, dict[str, Any]]) -> None:
    home, ctx, result = trained
    assert result["steps"] == 60 and result["rendering"] == "plain" and result["checkpoint"] == "digits"
    counted = sum(
        use and label is not None
        for row in digit_solutions(64)
        for use, label in zip(row["loss"], row["labels"], strict=True)
    )
    assert result["set"]["loss_tokens"] == counted
    before, after = result["held_out_before"], result["held_out_after"]
    assert set(after) == {"chunks", "k", "single", "majority", "none", "split"} and after["k"] == 1
    assert before["single"] < 0.75 < 0.85 < after["single"] and after["none"] == 0
    curve = ctx.curve("held_out/accuracy")
    assert len(curve) == 4 and curve[0] == before["single"], "before, and every 20 steps"
    best = result.get("best_step", 60)
    assert ctx.values["held_out/accuracy", best] == max(curve[1:]), "the best checkpoint became the judge"
    assert ctx.curve("loss")[-1] < 0.5 * ctx.curve("loss")[0]
    card = json.loads((home / "checkpoints" / "digits" / CARD).read_text())
    assert card["role"] == "discriminative-judge" and card["threshold"] == result["threshold"]
    assert card["rendering"] == "plain" and card["prompt_hash"] == PLAIN.hash
    assert card["set"]["name"] == "digits" and card["metrics"]["held_out_after"] == after


def test_measuring_again_gives_the_same(trained: tuple[Path, Context, dict[str, Any]]) -> None:
    home, _, result = trained
    path = home / "checkpoints" / "digits"
    turns = Turns.of(Tokens.load(path), PLAIN, "plain", "digits")
    held_out = [Solution.of(row) for row in digit_solutions(20, first=100)]
    again = measure(path, turns, held_out)
    assert again.threshold == result["threshold"] and again.accuracy.__dict__ == result["held_out_after"]


def test_a_scorer_scores_the_same_whatever_the_batch_and_serves_nothing_else(
    chatty: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    scorer = ModelScorer(
        AutoModelForCausalLM.from_pretrained(chatty.tokenizer.name_or_path), chatty, in_flight=4
    )
    judge = DiscriminativeJudge(scorer, Turns.of(scorer, PLAIN, "plain", "chatty"), 0.5)
    requests = [judge.ask(str(i), Step("", "1" * i, (), "a" * (1 + i % 3)), 1, 0) for i in range(10)]

    def scores() -> dict[str, tuple[float, ...]]:
        return {answer.request_id: answer.scores for (answer,) in scorer.stream(requests)}

    together = scores()
    monkeypatch.setattr("training.scorer.BATCH_TOKENS", 1)
    alone = scores()
    assert together.keys() == alone.keys() == {str(i) for i in range(10)}
    assert all(together[key] == pytest.approx(alone[key], abs=1e-4) for key in alone)
    with torch.inference_mode():
        logits = scorer.model(torch.tensor([requests[7].prompt_token_ids])).logits[0, -1].log_softmax(-1)
    assert alone["7"] == pytest.approx(logits[list(requests[7].scored)].tolist(), abs=1e-4)
    told = list(scorer.stream([None, *requests[:3], None, *requests[3:], None]))
    assert told[0] == [], "the word goes back where nothing is ready"
    again = {answer.request_id: answer.scores for answers in told for answer in answers}
    assert again.keys() == alone.keys()
    assert all(again[key] == pytest.approx(alone[key], abs=1e-4) for key in alone)
    ((long,),) = scorer.stream([replace(requests[0], prompt_token_ids=(5,) * 600)])
    assert long.too_long and long.finish_reason == "error"
    with pytest.raises(LLMError, match="only scores of one greedy token"):
        next(scorer.stream([replace(requests[0], scored=())]))


@pytest.mark.vllm
def test_the_store_is_judged_through_vllm_by_the_checkpoints_name(
    trained: tuple[Path, Context, dict[str, Any]], tmp_path: Path
) -> None:
    """JudgeRecipe names the checkpoint, the card's role does the rest; scores equal transformers' to 1e-3."""
    pytest.importorskip("vllm")
    from engine.pipeline.judging import run as judge_run

    home, _, _ = trained
    store, chunks = store_with(tmp_path, [(16, 2), (1, 12)])
    ctx = judging(store, home, llm={"checkpoint": "digits", "dtype": "float32", "max_num_seqs": 8})
    result = judge_run(ctx)
    assert result["done"] == 6 and result["judge"] == "digits"
    with store.read() as db:
        stored = db.exec_driver_sql("SELECT score FROM judgments ORDER BY chunk_id").scalars().all()
    import torch

    scorer = ModelScorer.load(home / "checkpoints" / "digits")
    scorer.model = scorer.model.to(torch.float32)
    judge = DiscriminativeJudge.load(scorer, home / "checkpoints" / "digits")
    for place, chunk in enumerate(chunks):
        solution = place // 3
        texts = tuple(f"step {k} of {solution}" for k in range(3))
        earlier = tuple(store.judgments_of(c)[0].verdict for c in chunks[3 * solution : place])
        step = Step("", f"Problem {solution}?", texts[: place % 3], texts[place % 3], earlier)  # type: ignore[arg-type]
        ((answer,),) = scorer.stream([judge.ask("0", step, 1, 0)])
        assert stored[place] == pytest.approx(judge.read([answer]).score, abs=1e-3)
        assert store.judgments_of(chunk)[0].verdict == judge.verdict(stored[place])


def test_stopped_and_resumed_is_the_run_that_never_stopped(tmp_path: Path, chatty: Tokens) -> None:
    base = make_tiny_llama(tmp_path / "base")
    whole = context(tmp_path, base, run_id=1, name="whole")
    expected = run(whole)  # type: ignore[arg-type]
    assert expected["rendering"] == "chat", "auto: the base has a template"
    halves = context(tmp_path, base, run_id=2, name="halves")
    halves.stop_at = 4
    assert "checkpoint" not in run(halves)  # type: ignore[arg-type]
    halves.stop_at, halves.stopping = 10**9, False
    assert run(halves) == {**expected, "checkpoint": "halves"}  # type: ignore[arg-type]
    assert halves.curve("loss") == whole.curve("loss")


def test_a_judge_is_trained_from_the_stores_labels(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    make_tiny_llama(tmp_path / "checkpoints" / "tiny", chat=False)
    store, _ = store_with(tmp_path, [(16, 2), (1, 12), (15, 1), (2, 13)] * 3)
    sft = {"steps": 2, "batch": 4, "learning_rate": 1e-3, "warmup": 0, "max_tokens": 128}
    data = {"base": "tiny", "name": "from-store", "select": {}, "labels": {"min_confidence": 0}, "sft": sft}
    recipe = resolve(DiscriminativeRecipe, data)
    run_id = store.start_run("train-judge-sft", recipe.model_dump(mode="json"), "ada", pid=1)
    result = run(RunContext(store, run_id, 1, recipe, tmp_path, "ada"))
    assert result["set"]["chunks"] == 36 and result["set"]["loss_tokens"] == result["set"]["train"] > 0
    assert result["held_out_after"]["chunks"] == result["set"]["held_out"]
    assert list(store.run(run_id).prompt_hashes) == ["judge_turns_nano"]


@pytest.mark.parametrize("path", sorted(RECIPES.glob("discriminative-*.yaml")), ids=lambda p: p.stem)
def test_dry_run_of_shipped_recipes_gives_arguments_that_trl_knows(path: Path, tmp_path: Path) -> None:
    from trl import SFTConfig

    recipe = resolve(DiscriminativeRecipe, read_recipe(path))
    config = SFTConfig(**(arguments(recipe, tmp_path) | ON_ONE_CPU))
    assert config.max_steps == recipe.sft.steps
    if path.stem != "discriminative-nano":
        assert (recipe.sft.learning_rate, recipe.sft.batch, recipe.sft.max_tokens) == (1e-5, 32, 8192), (
            "the paper's"
        )
        assert recipe.sft.packing and config.padding_free and recipe.rendering != "plain"
