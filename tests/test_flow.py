"""The one stream: a source that waits for grades is asked again, and what waits for the grader is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.answers import Grade, Reference
from engine.llm.base import Request, Sampling
from engine.llm.scripted import ScriptedLLM
from engine.pipeline import flow
from engine.pipeline.clock import GRADER, LLM, OWN, Clock
from engine.pipeline.flow import stream_graded


class SlowGrader:
    """Gives out one grade at every ``patience``-th look, and all of them when it is drained."""

    def __init__(self, patience: int):
        self.patience, self.looks = patience, 0
        self.held: list[Any] = []
        self.most = 0

    def submit_many(self, items: Any) -> None:
        self.held += [key for key, *_ in items]
        self.most = max(self.most, len(self.held))

    def results(self) -> list[tuple[Any, Grade]]:
        self.looks += 1
        if self.held and self.looks % self.patience == 0:
            return [(self.held.pop(0), Grade("correct", "1"))]
        return []

    def drain(self) -> list[tuple[Any, Grade]]:
        held, self.held = self.held, []
        return [(key, Grade("correct", "1")) for key in held]


def door() -> ScriptedLLM:
    return ScriptedLLM(lambda prompt, seed: "a", in_flight=4)


def request(i: int, n: int = 1) -> tuple[Request, Reference]:
    return Request(str(i), (5,), n, i, Sampling(max_tokens=4)), Reference("1")


def test_a_request_that_follows_from_grades_is_made_when_they_are_there() -> None:
    graded: list[str] = []

    def source() -> Iterator[tuple[Request, Reference] | None]:
        for i in range(6):
            while len(graded) < i:
                yield None
            yield request(i)

    grader: Any = SlowGrader(patience=3)
    clock = Clock()
    for one in stream_graded(door(), source(), grader, lambda: False, clock):
        graded.append(one.request_id)
    assert graded == [str(i) for i in range(6)]
    assert clock.seconds[GRADER] > 0 and clock.seconds[LLM] > 0


def test_no_more_is_asked_of_the_door_than_may_wait_for_the_grader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "MOST_UNGRADED", 10)
    monkeypatch.setattr(flow, "GRADER_S", 0.0)
    grader: Any = SlowGrader(patience=5)
    whole = list(stream_graded(door(), (request(i, 2) for i in range(40)), grader, lambda: False))
    assert len(whole) == 40
    assert grader.most <= 10 + 4 + 2


def test_a_second_counts_once_for_what_lies_innermost() -> None:
    clock = Clock()
    with clock.at(LLM):
        with clock.at(OWN):
            clock.turn()
        clock.turn()
    total = sum(clock.seconds.values())
    clock.turn()
    assert set(clock.seconds) == {LLM, OWN} and sum(clock.seconds.values()) >= total
