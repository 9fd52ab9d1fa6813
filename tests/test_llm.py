"""The contract of a door, over every door there is: text, stop strings, seeds, counts, finish reasons, scores, refusals.
Not: many requests at once (test_llm_stream).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from engine.errors import LLMError, RecipeError
from engine.llm import LLMSpec
from engine.llm.base import LLM, Request, Sampling
from tests.doors import CONTEXT, SHORT, ask, by_id, door, mixed, prompt, texts

__all__ = ["door"]

# What a door says of itself, and its tokenizer


def test_a_door_is_an_llm_and_says_what_it_is(door: LLM) -> None:
    assert isinstance(door, LLM)
    assert door.info.context == CONTEXT
    assert door.in_flight == 16
    assert len(door.info.content_hash) == 64
    assert door.info.name and door.info.versions


def test_text_survives_encoding_and_decoding(door: LLM) -> None:
    text = "ab=12\n\n<chunk>鸡+兔</chunk>\\{3}"
    ids = door.encode(text)
    assert door.decode(ids) == text
    assert door.decode(ids[1:]) == text, "the first token is the begin token, which has no text"
    assert len(ids) == 14, "tags and longer pieces are one token each"


def test_a_chat_prompt_ends_where_the_assistant_begins(door: LLM) -> None:
    chat = [{"role": "user", "content": "1+1=?"}]
    assert door.decode(door.encode_chat(chat)).endswith("user: 1+1=?\nassistant: ")


# What a completion is


def test_counts_text_and_finish_reasons_agree(door: LLM) -> None:
    seen = set()
    for completion in ask(door, 64, 5):
        ids = completion.token_ids
        assert completion.text == door.decode(ids)
        assert completion.error is None and not completion.too_long
        if completion.finish_reason == "stop":
            assert door.decode(ids[:-1]) == completion.text, "an end token has no text"
        else:
            assert completion.finish_reason == "length"
            assert len(ids) == SHORT.max_tokens
        seen.add(completion.finish_reason)
    assert seen == {"stop", "length"}


def test_empty_output_is_a_completion_like_any_other(door: LLM) -> None:
    requests = [Request(str(i), prompt(door, 12, salt=i), 8, 8 * i, SHORT) for i in range(64)]
    draws = [c for answer in door.stream(requests) for c in answer]
    empty = [c for c in draws if len(c.token_ids) == 1]
    assert empty
    assert all(c.text == "" and c.finish_reason == "stop" and c.error is None for c in empty)


def test_stop_strings_stay_in_the_text_and_end_it(door: LLM) -> None:
    stops = ("b", "\n", "</chunk>")
    last_pieces = set()
    for completion in ask(door, 256, 9, Sampling(max_tokens=60, stop=stops)):
        before = door.decode(completion.token_ids[:-1])
        assert completion.text == door.decode(completion.token_ids)
        assert not any(stop in before for stop in stops), "nothing is drawn after a stop string"
        if any(stop in completion.text for stop in stops):
            assert completion.finish_reason == "stop"
            last_pieces.add(completion.text[len(before) :])
        elif completion.finish_reason == "stop":
            assert before == completion.text, "an end token has no text"
    # A token that runs past the stop string is kept whole, so that text and tokens agree: "\n\n" for "\n".
    assert last_pieces == {"b", "ab", "\n", "\n\n", "</chunk>"}


# Seeds


def test_n_draws_are_the_single_draws_of_the_seeds_that_follow(door: LLM) -> None:
    together = texts(ask(door, 4, 1000))
    singles = [Request(str(seed), prompt(door, 12), 1, seed, SHORT) for seed in range(1000, 1004)]
    answers = by_id(door.stream(singles))
    assert [texts(answers[str(seed)])[0] for seed in range(1000, 1004)] == together


def test_the_same_seed_repeats_exactly_and_another_does_not(door: LLM) -> None:
    large = 2**53 - 17  # seeds are hashes up to 2**53
    first = texts(ask(door, 16, large))
    assert texts(ask(door, 16, large)) == first
    assert not set(texts(ask(door, 16, large + 16))) & {draw for draw in first if len(draw[1]) > 6}


def test_draws_of_one_request_differ(door: LLM) -> None:
    long_ones = [draw for draw in texts(ask(door, 32, 3)) if len(draw[1]) > 6]
    assert len(set(long_ones)) == len(long_ones) > 8


def test_topping_up_continues_the_draws(door: LLM) -> None:
    assert texts(ask(door, 8, 500)) + texts(ask(door, 8, 508)) == texts(ask(door, 16, 500))


def test_greedy_draws_are_all_the_same(door: LLM) -> None:
    greedy = Sampling(temperature=0.0, max_tokens=12)
    completions = ask(door, 3, 1, greedy)
    assert [c.index for c in completions] == [0, 1, 2]
    assert len(set(texts(completions))) == 1
    assert texts(ask(door, 1, 999, greedy)) == texts(completions)[:1]


# Scores of tokens


def test_scores_are_log_probabilities_of_the_tokens_asked_for_in_that_order(door: LLM) -> None:
    ids = tuple(door.encode("cdefghijk+-")[1:])
    requests = [Request(str(i), prompt(door, 12, salt=i), 1 + i % 3, i, SHORT, ids) for i in range(40)]
    answers = by_id(door.stream(requests))
    for request in requests:
        for completion in answers[request.id]:
            assert len(completion.scores) == len(ids)
            assert all(score <= 0 for score in completion.scores)
            assert sum(math.exp(score) for score in completion.scores) <= 1 + 1e-6
            assert completion.scores == answers[request.id][0].scores, "they do not depend on the draw"
    back = by_id(door.stream([replace(r, scored=ids[::-1], n=1) for r in requests[::-1]]))
    for request in requests:
        assert back[request.id][0].scores[::-1] == pytest.approx(answers[request.id][0].scores, abs=2e-2)


def test_asking_for_scores_changes_no_draw_and_others_get_none(door: LLM) -> None:
    ids = tuple(door.encode("+-")[1:])
    plain = mixed(door, 40)
    some = [replace(r, scored=ids) if i % 2 else r for i, r in enumerate(plain)]
    answers = by_id(door.stream(some))
    assert {key: texts(a) for key, a in answers.items()} == {
        key: texts(a) for key, a in by_id(door.stream(plain)).items()
    }
    assert [len(answers[r.id][0].scores) for r in some[:4]] == [0, 2, 0, 2]


def test_tokens_that_cannot_be_scored_are_named(door: LLM) -> None:
    one = Request("odd", prompt(door, 9), 2, 4, SHORT, (5, 10**7))
    many = Request("many", prompt(door, 9), 1, 4, SHORT, tuple(range(5)) * 26)
    answers = by_id(door.stream([one, many]))
    assert all("token id 10000000 is outside" in (c.error or "") for c in answers["odd"])
    assert "130 scored tokens; ask for 128" in (answers["many"][0].error or "")


@pytest.mark.vllm
def test_vllm_scores_are_what_transformers_computes(vllm_door: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(vllm_door._llm.model_config.model, dtype=torch.bfloat16)
    plus, minus = vllm_door.encode("+-")[1:]
    for salt in range(12):
        ids = prompt(vllm_door, 12 + 3 * salt, salt=salt)
        request = Request("one", ids, 1, 0, Sampling(temperature=0, max_tokens=1), (plus, minus))
        ((answer,),) = vllm_door.stream([request])
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, -1].float()
        wanted = logits.log_softmax(-1)[[plus, minus]]
        # Both round logits to bfloat16, in different places: a float32 door is held to 1e-3 in test_discriminative.
        assert list(answer.scores) == pytest.approx(wanted.tolist(), abs=0.1)


# What cannot be served


def test_a_prompt_without_room_for_an_answer_is_an_error_and_the_rest_goes_on(door: LLM) -> None:
    fine = [Request(f"fine {i}", prompt(door, 20, salt=i), 2, i, SHORT) for i in range(6)]
    long = Request("too long", prompt(door, CONTEXT), 3, 1, SHORT)
    answers = by_id(door.stream([*fine[:3], long, *fine[3:]]))
    assert len(answers) == 7
    assert [c.index for c in answers["too long"]] == [0, 1, 2]
    for completion in answers["too long"]:
        assert completion.finish_reason == "error"
        assert completion.too_long
        assert completion.text == "" and completion.token_ids == ()
        assert completion.error is not None
        assert "'too long'" in completion.error and "512 tokens" in completion.error
    assert all(c.finish_reason != "error" for r in fine for c in answers[r.id])


def test_the_longest_prompt_that_fits_gets_one_token(door: LLM) -> None:
    for completion in ask(door, 4, 2, SHORT, tokens=CONTEXT - 1):
        assert len(completion.token_ids) == 1


def test_a_limit_beyond_the_context_ends_at_the_context(door: LLM) -> None:
    completions = ask(door, 32, 2, Sampling(max_tokens=100_000), tokens=CONTEXT - 5)
    assert all(len(c.token_ids) <= 5 for c in completions)
    cut = [c for c in completions if c.finish_reason == "length"]
    assert cut
    assert all(len(c.token_ids) == 5 for c in cut)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ((), "the prompt is empty"),
        ((1, -4), "token id -4 is outside"),
        ((1, 10**7), "token id 10000000 is outside"),
    ],
)
def test_impossible_prompts_are_named(door: LLM, ids: tuple[int, ...], said: str) -> None:
    answers = by_id(
        door.stream([Request("bad", ids, 2, 0, SHORT), Request("good", prompt(door, 9), 1, 0, SHORT)])
    )
    assert [c.finish_reason for c in answers["bad"]] == ["error", "error"]
    assert all(said in (c.error or "") and "'bad'" in (c.error or "") for c in answers["bad"])
    assert not any(c.too_long for c in answers["bad"])
    assert answers["good"][0].finish_reason != "error"


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_k": -2},
        {"max_tokens": 0},
        {"stop": ("a", "")},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=next(iter(wrong)).split("_")[0]):
        Sampling(**wrong)


@pytest.mark.parametrize("wrong", [{"n": 0}, {"seed": -1}, {"seed": 2**63}])
def test_impossible_requests_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(LLMError, match="'odd'"):
        Request(**({"id": "odd", "prompt_token_ids": (1,), "n": 1, "seed": 0, "sampling": SHORT} | wrong))


def test_the_digest_of_settings_names_every_setting() -> None:
    changes = ({"temperature": 0.5}, {"top_p": 0.5}, {"top_k": 5}, {"max_tokens": 5}, {"stop": ("x",)})
    assert len({SHORT.digest(), *(replace(SHORT, **change).digest() for change in changes)}) == 6
    assert Sampling(max_tokens=24).digest() == SHORT.digest()


# The recipe's part


@pytest.mark.parametrize(
    "wrong",
    [
        {"door": "scripted"},
        {"trust_remote_code": True},
        {"max_num_seqs": 0},
        {"kv_cache_gib": 0},
        {"checkpoint": ""},
    ],
)
def test_a_recipe_can_name_only_what_there_is(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LLMSpec.model_validate({"checkpoint": "somewhere"} | wrong)
