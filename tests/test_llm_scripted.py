"""The scripted stand-in for an LLM: its orders, its cuts, failures and crashes on demand. Not: the contract of
all doors (test_llm)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import LLMError
from engine.llm.base import Sampling
from engine.llm.scripted import ScriptedLLM, newest_first, shuffled
from tests.doors import ask, by_id, mixed, scripted


@pytest.mark.parametrize("order", [newest_first, shuffled(1), shuffled(2)])
def test_finishing_in_another_order_changes_no_completion(order: Callable[..., int]) -> None:
    in_turn, odd = scripted(), scripted(order=order)
    requests = mixed(in_turn, 50)
    expected = by_id(in_turn.stream(requests))
    assert by_id(odd.stream(requests)) == expected
    assert odd.served != in_turn.served


@settings(deadline=None, max_examples=50)
@given(
    text=st.text(alphabet="ab12\n<chunk>/ 鸡", max_size=40),
    stop=st.sampled_from(["a", "b", "\n", "</chunk>", "12"]),
    limit=st.integers(1, 30),
)
def test_a_scripted_text_is_cut_at_the_first_stop_or_the_limit(text: str, stop: str, limit: int) -> None:
    door = ScriptedLLM(lambda prompt, seed: text)
    (completion,) = ask(door, 1, 0, Sampling(max_tokens=limit, stop=(stop,)))
    assert text.startswith(completion.text)
    assert completion.text == door.decode(completion.token_ids)
    assert len(completion.token_ids) <= limit
    if completion.finish_reason == "length":
        assert stop not in completion.text and len(completion.token_ids) == limit
    elif stop not in text:
        assert completion.text == text


def test_failures_on_demand() -> None:
    door = scripted(fail=lambda request: "no luck" if request.seed == 300 else None)
    answers = by_id(door.stream(mixed(door, 6)))
    assert [c.error for c in answers["r3"]] == ["no luck"] * answers["r3"].__len__()
    assert all(c.error is None for key, a in answers.items() if key != "r3" for c in a)


def test_a_crash_on_demand() -> None:
    door = scripted(crash_after=4)
    answers = []
    with pytest.raises(LLMError, match="crashed after 4 requests"):
        for completions in door.stream(mixed(door, 20)):
            answers.append(completions)
    assert len(answers) == 4
    assert door.aborted


def test_a_closed_stand_in_says_so() -> None:
    with scripted() as door:
        pass
    with pytest.raises(LLMError, match="the door is closed"):
        door.stream([])
