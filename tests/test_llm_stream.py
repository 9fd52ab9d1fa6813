"""The contract of every door's stream: many requests at once, laziness, waiting, one stream at a time, errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import LLMError, RecipeError
from engine.llm.base import LLM, Completion, Request
from tests.doors import CONTEXT, SHORT, by_id, door, mixed, prompt

__all__ = ["door"]


def test_hundreds_of_requests_through_few_places(door: LLM) -> None:
    requests = mixed(door, 320)
    answers = by_id(door.stream(requests))
    assert set(answers) == {request.id for request in requests}
    for request in requests:
        completions = answers[request.id]
        assert [c.index for c in completions] == list(range(request.n))
        assert all(c.finish_reason in ("stop", "length") for c in completions)


def test_neither_order_nor_company_changes_a_draw(door: LLM) -> None:
    requests = mixed(door, 40)
    forward = by_id(door.stream(requests))
    assert by_id(door.stream(reversed(requests))) == forward
    alone = by_id(door.stream([requests[7]]))
    assert alone["r7"] == forward["r7"]


def test_request_ids_need_not_be_unique(door: LLM) -> None:
    one = Request("same", prompt(door, 9), 2, 4, SHORT)
    answers = list(door.stream([one, replace(one, seed=40)]))
    assert sorted(len(a) for a in answers) == [2, 2]
    assert {c.request_id for a in answers for c in a} == {"same"}


def test_requests_are_pulled_only_as_places_become_free(door: LLM) -> None:
    pulled = 0

    def source() -> Iterator[Request]:
        nonlocal pulled
        for request in mixed(door, 200):
            pulled += 1
            yield request

    most = 0
    for answered, _ in enumerate(door.stream(source())):
        most = max(most, pulled - answered)
    assert pulled == 200
    # Every unanswered request has at least one unfinished draw, and those are bounded.
    assert door.in_flight // 3 <= most <= door.in_flight


def test_nothing_is_pulled_before_the_first_answer_is_asked_for(door: LLM) -> None:
    def source() -> Iterator[Request]:
        raise AssertionError("pulled")
        yield

    door.stream(source())


def test_no_requests_no_answers(door: LLM) -> None:
    assert list(door.stream([])) == []


# A source with nothing ready


def test_a_request_that_waits_for_an_answer_is_asked_for_again(door: LLM) -> None:
    answered: list[str] = []

    def source() -> Iterator[Request | None]:
        for step, request in enumerate(mixed(door, 12)):
            while len(answered) < step - 1:  # each follows from the answer to the last but one
                yield None
            yield request

    for completions in door.stream(source()):
        answered += {completion.request_id for completion in completions}
    assert sorted(answered) == sorted(f"r{i}" for i in range(12))


def test_nothing_ready_is_told_only_when_nothing_is_in_flight(door: LLM) -> None:
    """An empty list hands the word to who reads the answers; while anything is in flight its answer does."""
    told = answered = 0

    def source() -> Iterator[Request | None]:
        yield from mixed(door, 5)
        while answered < 5:
            yield None
        while told < 3:
            yield None
        yield from mixed(door, 2)

    seen = []
    for completions in door.stream(source()):
        answered += bool(completions)
        told += not completions
        seen.append(bool(completions))
    assert seen == [True] * 5 + [False] * 3 + [True] * 2


def test_a_refused_request_does_not_end_the_wait(door: LLM) -> None:
    answers: list[list[Completion]] = []

    def source() -> Iterator[Request | None]:
        yield Request("long", prompt(door, CONTEXT), 1, 0, SHORT)
        while not answers:
            yield None
        yield Request("fine", prompt(door, 9), 1, 0, SHORT)

    for completions in door.stream(source()):
        answers += [completions] if completions else []
    assert [a[0].request_id for a in answers] == ["long", "fine"]


# Closing early


def test_closing_early_leaves_the_door_as_it_was(door: LLM) -> None:
    requests = mixed(door, 60)
    whole = by_id(door.stream(requests))
    stream = door.stream(requests)
    next(stream)
    stream.close()
    assert by_id(door.stream(requests)) == whole


def test_one_stream_at_a_time(door: LLM) -> None:
    requests = mixed(door, 30)
    first = door.stream(requests)
    next(first)
    with pytest.raises(LLMError, match="a stream is open already"):
        next(door.stream(requests))
    assert len(list(first)) == 29
    assert len(list(door.stream(requests))) == 30


def test_an_error_in_the_source_passes_through(door: LLM) -> None:
    def source() -> Iterator[Request]:
        yield from mixed(door, 10)
        raise RecipeError("the source broke")

    with pytest.raises(RecipeError, match="the source broke"):
        list(door.stream(source()))
    assert len(list(door.stream(mixed(door, 3)))) == 3


@pytest.mark.vllm
def test_vllm_forgets_what_was_aborted(vllm_door: Any) -> None:
    stream = vllm_door.stream(mixed(vllm_door, 60))
    next(stream)
    engine = vllm_door._llm.llm_engine
    assert engine.get_num_unfinished_requests() > 0
    stream.close()
    assert engine.get_num_unfinished_requests() == 0
    assert not engine.output_processor.parent_requests
    assert not engine.output_processor.external_req_ids
    assert engine.engine_core.engine_core.scheduler.get_num_unfinished_requests() == 0
