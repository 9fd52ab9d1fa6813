"""Rejection-sampling fine-tuning: which rationales are kept, where they come from, resuming, and a real short run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from db.rows import NewJudgment
from engine.checkpoints import CARD
from engine.errors import RecipeError, TrainingError
from engine.judge import load_prompt, parse_verdict
from engine.llm.scripted import ScriptedLLM
from engine.recipes import read_recipe, resolve
from engine.runs import RunContext
from tests.labelled_store import store_with
from tests.run_context import Context
from tests.tiny_llama import make_tiny_llama
from training import rsft_judge
from training.rsft_judge import Rationale, draw, keep_right, rationale_counts, run
from training.sets import Example, TrainingSet, write_set
from training.sft import arguments
from training.sft_recipes import RsftJudgeRecipe

RECIPES = Path(__file__).parents[1] / "training" / "recipes"
ON_ONE_CPU = {"bf16": False, "use_cpu": True, "ddp_backend": None}


def example(i: int, label: str) -> Example:
    return Example(i, i, f"<new>{i % 10}</new>\n", label)


def right(label: str, words: str = "ok") -> str:
    return f"{words} \\boxed{{{'Positive' if label == '+' else 'Negative'}}}"


def rationale(i: int, text: str) -> Rationale:
    return Rationale(i, text, parse_verdict(text))


# Which are kept


def test_only_right_verdicts_are_kept_each_text_once_and_at_most_so_many() -> None:
    examples = [example(0, "+"), example(1, "-")]
    drawn = [
        rationale(0, right("-")),
        rationale(0, "no box"),
        rationale(0, right("+", "a")),
        rationale(0, right("+", "a")),
        rationale(0, right("+", "b")),
        rationale(0, right("+", "c")),
        rationale(1, right("-", "d")),
        rationale(1, right("-", "e")),
    ]
    kept = keep_right(drawn, examples, most=2, balance=True, seed=0)
    assert sorted(r.text for r in kept) == [
        right("+", "a"),
        right("+", "b"),
        right("-", "d"),
        right("-", "e"),
    ]
    assert [r.text for r in kept] == [r.text for r in keep_right(drawn, examples, 2, True, seed=0)]
    assert rationale_counts(drawn, kept, examples) == {
        "rationales": 8,
        "rationales_right": 6,
        "rationales_right_positive": 4,
        "rationales_right_negative": 2,
        "rationales_kept": 4,
        "chunks_with_rationale": 2,
    }


def test_balance_drops_second_rationales_before_chunks() -> None:
    examples = [example(i, "+" if i < 6 else "-") for i in range(8)]
    drawn = [rationale(i, right(examples[i].label, w)) for i in range(8) for w in ("a", "b", "c")]
    kept = keep_right(drawn, examples, most=3, balance=True, seed=0)
    labels = [examples[r.example].label for r in kept]
    assert labels.count("+") == labels.count("-") == 6
    assert {r.example for r in kept} == set(range(8)), "every chunk keeps one: six first ones fit"
    unbalanced = keep_right(drawn, examples, most=3, balance=False, seed=0)
    assert len(unbalanced) == 24
    assert [r.example for r in unbalanced] != sorted(r.example for r in unbalanced), "in a seeded order"


# Where they come from


def recipe(**fields: Any) -> RsftJudgeRecipe:
    data = {
        "base": "tiny",
        "name": "kept",
        "select": {},
        "labels": {"min_confidence": 0, "held_out_k": 2},
        "rationales": {"samples": 4, "max_tokens": 40},
        "sft": {"steps": 4, "batch": 4, "learning_rate": 1e-3, "warmup": 0, "max_tokens": 256},
        "saving": {"every": 2},
    }
    return resolve(RsftJudgeRecipe, {**data, **fields})


def test_the_base_draws_so_many_a_chunk_and_only_whole_ones_count() -> None:
    examples = [example(i, "+-"[i % 2]) for i in range(6)]

    def script(prompt: str, seed: int) -> str:
        return right("+-"[seed % 2], str(seed)) if seed % 3 else "z" * 60  # the last kind is cut off

    def drawn() -> dict[int, list[str]]:
        return dict(draw(ScriptedLLM(script, in_flight=4), examples, [1, 4], recipe(), seed=5))

    found = drawn()
    assert set(found) == {1, 4} and found == drawn()
    assert all(0 < len(texts) < 4 and not any("z" in text for text in texts) for texts in found.values())


def context(home: Path, **fields: Any) -> Context:
    """A run whose examples are chosen already."""
    (home / "checkpoints").mkdir(exist_ok=True)
    if not (home / "checkpoints" / "tiny").exists():
        make_tiny_llama(home / "checkpoints" / "tiny", chat=False)
    folder = home / "runs" / "1"
    folder.mkdir(parents=True)
    (folder / "run").write_text("uid-1")
    rows = [example(i, "+-"[i % 2]) for i in range(12)]
    write_set(TrainingSet(tuple(rows[:8]), tuple(rows[8:]), {"train": 8}), folder / "examples.jsonl")
    return Context(recipe(**fields), home)


class Writing:
    """In place of the door: writes judgments by a script, and notes which chunks it was asked for."""

    def __init__(self, ctx: Context, stop_after: int = 10**9):
        self.ctx, self.stop_after, self.asked = ctx, stop_after, []

    def __call__(self, spec: Any) -> ScriptedLLM:
        def script(prompt: str, seed: int) -> str:
            self.asked.append(prompt)
            self.ctx.stopping = self.ctx.stopping or len(set(self.asked)) >= self.stop_after
            return right(random.Random(seed).choice("+-"), f"seed {seed}")

        return ScriptedLLM(script, in_flight=4)


def test_a_run_stopped_while_writing_goes_on_and_trains_on_the_same_rationales(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    whole = context(tmp_path / "whole")
    monkeypatch.setattr(rsft_judge, "open_llm", Writing(whole))
    expected = run(whole)  # type: ignore[arg-type]
    assert expected["steps"] == 4 and expected["set"]["rationales"] == 32

    halves = context(tmp_path)
    writing = Writing(halves, stop_after=3)
    monkeypatch.setattr(rsft_judge, "open_llm", writing)
    assert run(halves) == {"set": {"train": 8}}  # type: ignore[arg-type]
    before = set(writing.asked)
    kept = tmp_path / "runs" / "1" / "rationales.jsonl"
    kept.write_bytes(kept.read_bytes() + b'{"example": 7, "te')  # a kill cut a line off
    halves.stopping = False
    monkeypatch.setattr(rsft_judge, "open_llm", again := Writing(halves))
    result = run(halves)  # type: ignore[arg-type]
    assert not before & set(again.asked), "what was written is not written again"
    assert result == expected
    assert halves.curve("loss") == whole.curve("loss")
    card = json.loads((tmp_path / "checkpoints" / "kept" / CARD).read_text())
    assert (
        card["role"] == "judge" and card["prompt"] == "judge_nano" and card["set"]["counts"] == result["set"]
    )
    assert set(result["held_out_after"]) == {"chunks", "k", "single", "majority", "none", "split"}
    assert result["held_out_after"]["k"] == 2 and result["held_out_before"] is not None


def test_accuracy_is_measured_as_for_grpo_however_warm_the_rationales_were_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(rsft_judge, "measure", lambda *_, **how: asked.update(how))
    ctx = Context(recipe(rationales={"temperature": 1.4}), tmp_path)
    assert rsft_judge._measured(ctx, tmp_path, TrainingSet((), (), {}), 0) == {}  # type: ignore[arg-type]
    assert asked["temperature"] == 1.0


def test_a_base_that_never_boxes_the_right_word_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = context(tmp_path)
    monkeypatch.setattr(rsft_judge, "open_llm", lambda spec: ScriptedLLM(lambda prompt, seed: right("+")))
    with pytest.raises(
        TrainingError, match=r"of 32 judgments 16 have the right verdict, 16 of \+ and 0 of -"
    ):
        run(ctx)  # type: ignore[arg-type]


def judged(folder: Path, prompt_hash: str | None = None, chunks: int | None = None) -> Any:
    """A store whose judge ``ada's`` wrote two judgments of each chunk, one right for + and one for -."""
    store, ids = store_with(folder, [(16, 2), (1, 12), (15, 1), (2, 13)] * 3)
    prompt = load_prompt("judge_nano")
    run_id = store.start_run("judge", {"kind": "judge"}, "ada", pid=1)
    judge = store.ensure_judge(
        name="ada's",
        kind="generative",
        checkpoint="tiny",
        checkpoint_hash="c0ffee",
        prompt_name="judge_nano",
        prompt_hash=prompt_hash or prompt.hash,
        sampling={},
        sampling_digest="d",
    )
    rows = [
        NewJudgment(
            judge, chunk, draw, "positive" if sign == "+" else "negative", right(sign, f"c{chunk}"), 5, end, 0
        )
        for chunk in ids[:chunks]
        for draw, (sign, end) in enumerate((("+", "stop"), ("-", "stop"), ("+", "length")))
    ]
    store.add_judgments(rows, run_id=run_id)
    return store


def stored(store: Any, home: Path, **fields: Any) -> RunContext[RsftJudgeRecipe]:
    (home / "checkpoints").mkdir(exist_ok=True)
    if not (home / "checkpoints" / "tiny").exists():
        make_tiny_llama(home / "checkpoints" / "tiny", chat=False)
    chosen = recipe(rationales={"judge": "ada's", "max_tokens": 40}, **fields)
    run_id = store.start_run("train-judge-rsft", chosen.model_dump(mode="json"), "ada", pid=1)
    return RunContext(store, run_id, 1, chosen, home, "ada")


def test_stored_judgments_of_a_judge_are_trained_on(tmp_path: Path) -> None:
    ctx = stored(judged(tmp_path), tmp_path)
    result = run(ctx)
    train = result["set"]["train"]
    assert result["set"]["rationales"] == 2 * train, "one that was cut off does not count"
    assert result["set"]["rationales_right"] == result["set"]["rationales_kept"] == train > 0
    kept = [json.loads(line) for line in (tmp_path / "runs" / str(ctx.run_id) / "rationales.jsonl").open()]
    assert len(kept) == train and all(len(row["texts"]) == 2 for row in kept)
    assert result["steps"] == 4 and list(ctx.store.run(ctx.run_id).prompt_hashes) == ["judge_nano"]


def test_judgments_that_do_not_fit_are_named(tmp_path: Path) -> None:
    for name in ("other-prompt", "nothing"):
        (tmp_path / name).mkdir()
    with pytest.raises(
        TrainingError, match=r"\"ada's\" is generative and read the prompt 'judge_nano' \(beef"
    ):
        run(stored(judged(tmp_path / "other-prompt", prompt_hash="beef" * 16), tmp_path))
    with pytest.raises(TrainingError, match='"ada\'s" has judged none of the'):
        run(stored(judged(tmp_path / "nothing", chunks=0), tmp_path))


def test_a_recipe_that_cannot_work_is_refused_before_it_is_queued(tmp_path: Path) -> None:
    context(tmp_path)
    recipe().check(tmp_path)
    with pytest.raises(RecipeError, match="gamma"):
        recipe(labels={"rule": "rel-ratio:gamma=x"}).check(tmp_path)
    with pytest.raises(TrainingError, match="there is no training set 'gone'"):
        recipe(set="gone").check(tmp_path)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("rsft-*.yaml")), ids=lambda p: p.stem)
def test_dry_run_of_shipped_recipes_gives_arguments_that_trl_knows(path: Path, tmp_path: Path) -> None:
    from trl import SFTConfig

    shipped = resolve(RsftJudgeRecipe, read_recipe(path))
    config = SFTConfig(**(arguments(shipped, tmp_path) | ON_ONE_CPU))
    assert config.max_steps == shipped.sft.steps
    assert shipped.rationales.max_tokens < shipped.sft.max_tokens, "there is room for a prompt"
