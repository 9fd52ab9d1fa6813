"""Discriminative judges: conversations token by token, masks, thresholds, the store's judgments. Not: real training
(test_discriminative_training).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoints import CARD
from engine.discriminative import (
    DiscriminativeJudge,
    Turns,
    balanced_accuracy,
    choose_threshold,
    describe,
    probability,
)
from engine.errors import CheckpointError, LLMError
from engine.judge import load_prompt
from engine.judges import Step
from engine.llm.base import Completion
from engine.llm.scripted import ScriptedLLM
from engine.llm.tokens import Tokens
from engine.pipeline.scoring import score_with
from tests.labelled_store import store_with
from tests.turns import PLAIN, chatty, judging
from training.discriminative import Solution, turn_row
from training.sft import IGNORED

__all__ = ["chatty"]
CHAT = load_prompt("judge_turns", needs=("problem",))


@pytest.fixture(scope="session")
def nano() -> Tokens:
    """Nano's tokenizer, without a chat template."""
    from training.nano.tokenizer import build_tokenizer

    return Tokens(build_tokenizer(), "nano")


def text_of(tokens: Tokens, ids: Any) -> str:
    return "".join(tokens.tokenizer.convert_ids_to_tokens(list(ids)))


# Rendering


def test_plain_turns_are_marked_text_with_a_verdict_token_behind_each_chunk(nano: Tokens) -> None:
    turns = Turns.of(nano, PLAIN, "plain", "nano")
    assert (turns.plus, turns.minus) == tuple(nano.tokenizer.convert_tokens_to_ids(["+", "-"]))
    marked = turns.marked("1+2-1", ["1+2=3.", "3-1=2."], ["+", "-"])
    assert text_of(nano, marked.ids) == ("<judge>1+2-1\n<new>1+2=3.</new>\n+\n<new>3-1=2.</new>\n-")
    assert [marked.ids[place] for place in marked.places] == [turns.plus, turns.minus]


@pytest.mark.parametrize("rendering", ["plain", "chat"])
def test_what_is_asked_is_what_was_trained_up_to_the_verdict(
    rendering: Any, nano: Tokens, chatty: Tokens
) -> None:
    tokens, prompt = (nano, PLAIN) if rendering == "plain" else (chatty, CHAT)
    turns = Turns.of(tokens, prompt, rendering, "x")
    chunks, marks = ["a=1", "b=2", "\n", "c"], ["+", "?", "-", "+"]
    marked = turns.marked("12", chunks, marks)
    for index, place in enumerate(marked.places):
        assert turns.ask("12", chunks[: index + 1], marks[:index]) == marked.ids[:place]


def test_chat_turns_go_through_the_template(chatty: Tokens) -> None:
    turns = Turns.of(chatty, PLAIN, "chat", "chatty")
    marked = turns.marked("12", ["a", "b"], ["-", "+"])
    assert text_of(chatty, marked.ids).endswith("12\n\na\nassistant: -\nuser: b\nassistant: +")
    assert [marked.ids[place] for place in marked.places] == [turns.minus, turns.plus]


def test_a_verdict_never_merges_with_its_neighbours() -> None:
    """Where a tokenizer has a token for '+' and the line break, or none for '+' alone, the difference is seen."""

    class Merging:
        def __init__(self, *pieces: str):
            self.pieces = sorted(pieces, key=len, reverse=True)

        def encode(self, text: str) -> list[int]:
            ids = [1]
            while text:
                piece = next((p for p in self.pieces if text.startswith(p)), text[0])
                ids.append(100 + self.pieces.index(piece) if piece in self.pieces else ord(piece))
                text = text[len(piece) :]
            return ids

        def encode_chat(self, messages: Any) -> list[int]:
            return self.encode("".join(f"{m['role']}>{m['content']}\n" for m in messages) + "assistant>")

    turns = Turns.of(Merging("+\n", "\n+", "\n-"), PLAIN, "plain", "merging")
    marked = turns.marked("p", ["a", "b"], ["+", "-"])
    assert [marked.ids[place] for place in marked.places] == [ord("+"), ord("-")]
    with pytest.raises(
        CheckpointError, match=r"'merging': in its chat template '\+' and '-' are not one token each"
    ):
        Turns.of(Merging("+\n"), CHAT, "chat", "merging")

    class Split(Merging):
        def encode(self, text: str) -> list[int]:
            return [i for id_ in super().encode(text) for i in ((7, 8) if id_ == ord("+") else (id_,))]

    with pytest.raises(CheckpointError, match=r"no single tokens for '\+' and '-'"):
        Turns.of(Split(), PLAIN, "plain", "split")

    class Forgetful(Merging):
        def encode_chat(self, messages: Any) -> list[int]:
            return [len(messages), *super().encode_chat(messages)]

    with pytest.raises(CheckpointError, match="changes earlier turns when a turn is added"):
        Turns.of(Forgetful(), CHAT, "chat", "forgetful")


def test_chat_without_a_template_is_named(nano: Tokens) -> None:
    with pytest.raises(LLMError, match="no chat template"):
        Turns.of(nano, CHAT, "chat", "nano")


# Masks


@pytest.mark.parametrize("rendering", ["plain", "chat"])
def test_the_loss_counts_verdicts_of_counted_chunks_and_nothing_else(
    rendering: Any, nano: Tokens, chatty: Tokens
) -> None:
    tokens, prompt = (nano, PLAIN) if rendering == "plain" else (chatty, CHAT)
    turns = Turns.of(tokens, prompt, rendering, "x")
    solution = Solution.of(
        {
            "trajectory_id": 1,
            "problem_id": 1,
            "problem": "1+1",
            "chunks": ["a", "b", "c", "+"],
            "labels": ["+", None, "-", "+"],
            "loss": [True, False, False, True],
        }
    )
    row = turn_row(turns, solution)
    places = turns.marked("1+1", solution.chunks, ["+", "?", "-", "+"]).places
    counted = {place: label for place, label in enumerate(row.labels) if label != IGNORED}
    assert counted == {places[0]: turns.plus, places[3]: turns.plus}
    assert row.ids[places[2]] == turns.minus, "a label whose loss is masked stands in the history"
    assert tokens.tokenizer.convert_ids_to_tokens(row.ids[places[1]]) == "?"
    without = Solution.of({**solution.__dict__, "labels": ["+", None, "-", "+"]} | {"loss": [True] * 4})
    assert without.counted == (True, False, True, True), "a chunk without a label is never counted"


# Thresholds


def test_the_threshold_is_the_best_balanced_accuracy_nearest_to_a_half() -> None:
    scores, labels = [0.1, 0.2, 0.7, 0.8, 0.95], ["-", "-", "-", "+", "+"]
    assert choose_threshold(scores, labels) == pytest.approx(0.75)
    assert choose_threshold([0.2, 0.4, 0.6, 0.8], ["-", "-", "+", "+"]) == 0.5
    assert choose_threshold([0.3, 0.9], ["+", "+"]) == 0.5, "one class chooses nothing"
    assert choose_threshold([], []) == 0.5
    # nine + for one -: plain accuracy would call everything +
    assert choose_threshold([0.9] * 9 + [0.89], ["+"] * 9 + ["-"]) == pytest.approx(0.895)
    assert balanced_accuracy([0.4, 0.6], [0.3, 0.7], 0.5) == 0.5
    assert balanced_accuracy([0.5], [0.4], 0.5) == 1.0, "a score at the threshold is +"


def test_a_probability_is_renormalised_over_the_two() -> None:
    assert probability((math.log(0.2), math.log(0.05))) == pytest.approx(0.8)
    assert probability((0.0, -2000.0)) == 1.0 and probability((-2000.0, 0.0)) == pytest.approx(0.0)
    assert probability((-math.inf, -1.0)) == pytest.approx(0.0)


# Judging


def scripted_scorer(seen: list[str] | None = None, **options: Any) -> ScriptedLLM:
    """p(+) is 0.9 for the first chunk, and then 0.2 after a '+' and 0.8 after a '-'."""

    def score(prompt: str, token: str) -> float:
        if seen is not None and token == "+":
            seen.append(prompt)
        history = prompt.rsplit("</new>\n", 2)
        plus = 0.9 if prompt.count("<new>") == 1 else 0.2 if history[1].startswith("+") else 0.8
        return math.log(plus / 4 if token == "+" else (1 - plus) / 4)

    return ScriptedLLM(lambda prompt, seed: "x", name="scorer", score=score, **options)


def judge_of(llm: ScriptedLLM, threshold: float = 0.5) -> DiscriminativeJudge:
    return DiscriminativeJudge(llm, Turns.of(llm, PLAIN, "plain", "scorer"), threshold)


def test_the_judges_own_verdicts_stand_in_its_history(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, [(16, 2)] * 5)
    result = score_with(judging(store, tmp_path), judge_of(scripted_scorer(in_flight=2)))
    assert result["judge"] == "scorer" and result["done"] == 15
    assert (result["positive"], result["negative"], result["none"]) == (10, 5, 0)
    (judge,) = store.judges()
    assert judge.kind == "discriminative" and judge.sampling == {"threshold": 0.5, "rendering": "plain"}
    rows = [store.judgments_of(chunk)[0] for chunk in chunks[:3]]
    assert [row.verdict for row in rows] == ["positive", "negative", "positive"]
    assert all(row.rationale == "" and row.n_tokens == 1 and row.finish_reason == "stop" for row in rows)
    with store.read() as db:
        scores = db.exec_driver_sql("SELECT score FROM judgments ORDER BY chunk_id").scalars().all()
    assert scores[:3] == pytest.approx([0.9, 0.2, 0.8])


def test_the_threshold_decides_and_makes_another_judge(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, [(16, 2)])
    score_with(judging(store, tmp_path), judge_of(scripted_scorer()))
    score_with(judging(store, tmp_path), judge_of(scripted_scorer(), threshold=0.95))
    assert len(store.judges()) == 2
    verdicts = [[row.verdict for row in store.judgments_of(chunk)] for chunk in chunks]
    # at 0.95 the first is negative, so that the next ones stand after '-': 0.8, never above
    assert verdicts == [["positive", "negative"], ["negative", "negative"], ["positive", "negative"]]


def test_a_stopped_judge_goes_on_and_judges_nothing_twice(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, [(16, 2)] * 6)
    ctx = judging(store, tmp_path)
    prompts: list[str] = []

    def stop_after(request: Any) -> None:
        if len(prompts) >= 8:
            ctx.stop()

    score_with(ctx, judge_of(scripted_scorer(prompts, in_flight=4, fail=stop_after)))
    stored = sum(bool(store.judgments_of(chunk)) for chunk in chunks)
    assert 0 < stored < 18
    result = score_with(judging(store, tmp_path), judge_of(scripted_scorer()))
    assert result["done"] == 18
    assert [len(store.judgments_of(chunk)) for chunk in chunks] == [1] * 18
    again = score_with(judging(store, tmp_path), judge_of(scripted_scorer(prompts := [])))
    assert not prompts and again["done"] == 18


def test_a_chunk_that_does_not_fit_the_context_says_so_and_has_no_verdict(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, [(16, 2)])
    score_with(judging(store, tmp_path), judge_of(scripted_scorer(context=80)))
    rows = [store.judgments_of(chunk)[0] for chunk in chunks]
    assert [row.verdict for row in rows] == ["positive", "negative", None]
    assert rows[2].finish_reason == "error" and "the context holds 80" in rows[2].rationale


def test_a_card_that_is_no_discriminative_judges_is_refused(tmp_path: Path) -> None:
    llm = scripted_scorer()
    card = {
        "role": "discriminative-judge",
        "threshold": 0.6,
        "rendering": "plain",
        "prompt": PLAIN.name,
        "prompt_hash": PLAIN.hash,
    }

    def load(**changes: Any) -> DiscriminativeJudge:
        (tmp_path / CARD).write_text(json.dumps(card | changes))
        return DiscriminativeJudge.load(llm, tmp_path)

    judge = load()
    assert describe(judge) == {"threshold": 0.6, "rendering": "plain"} and judge.sequential
    with pytest.raises(CheckpointError, match=r"role 'judge', threshold 0\.6"):
        load(role="judge")
    with pytest.raises(CheckpointError, match="threshold None"):
        load(threshold=None)
    with pytest.raises(CheckpointError, match="another text of the prompt 'judge_turns_nano'"):
        load(prompt_hash="0" * 64)


def test_reading_needs_one_token_and_gives_one_verdict() -> None:
    judge = judge_of(scripted_scorer(), threshold=0.59)
    request = judge.ask("7", Step("m", "p", ("a",), "b", ("positive",)), k=8, seed=3)
    assert (
        request.n == 1
        and request.sampling.max_tokens == 1
        and request.scored == (judge.turns.plus, judge.turns.minus)
    )
    reading = judge.read([Completion("7", 0, "x", (1,), "length", scores=(math.log(0.3), math.log(0.2)))])
    assert reading.verdicts == ("positive",) and reading.score == pytest.approx(0.6) and reading.tokens == 1
    error = judge.read([Completion("7", 0, "", (), "error", "too long")])
    assert error.verdicts == (None,) and error.score is None and error.error == "too long"
