"""How long a pool of engines waits for one that is well, and what an engine forgets. No Ray and no LLM is needed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.errors import LLMError
from engine.llm.base import Request, Sampling
from engine.llm.ray_engine import Engine, _Dropped
from engine.llm.ray_pool import Pool


def given_up_after(states: list[str], monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Seconds of which every engine is in one state, over and over; None: patience lasts for a day."""
    now = 0.0
    monkeypatch.setattr("engine.llm.ray_pool.time.monotonic", lambda: now)
    pool: Any = object.__new__(Pool)
    pool.name, pool._patience_s, pool._last_good, pool._looked = "x", 300.0, 0.0, 0.0
    pool._nobody = lambda what: what
    for second in range(86_400):
        now = float(second)
        pool.members = [SimpleNamespace(state=states[second // 20 % len(states)])]
        try:
            pool._lose_patience()
        except LLMError:
            return second
    return None


def test_loading_takes_the_time_that_it_takes_but_engines_that_never_come_up_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert given_up_after(["placing"], monkeypatch) == 301
    assert given_up_after(["loading"], monkeypatch) is None
    assert given_up_after(["loading", "up"], monkeypatch) is None
    again = given_up_after(["resting", "loading"], monkeypatch)
    assert again is not None and 580 < again < 640


def test_draws_dropped_twice_before_the_door_looks_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_serve", lambda self, spec: None)
    engine: Any = Engine(cast(Any, None), ahead=4)
    source, request = engine._source(), Request("a", (1,), 2, 7, Sampling())
    engine.add([(1, request)])
    assert next(source) == replace(request, id="1")
    engine.drop(1)
    engine.drop(2)
    engine.add([(2, request)])  # overtaken by the call that dropped it
    with pytest.raises(_Dropped):
        next(source)
    assert next(engine._source()) is None
    assert engine.take().taken == 4
