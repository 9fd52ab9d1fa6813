"""How long a pool of engines waits for one that is well. No Ray is needed: only the clock and the engines' states."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import LLMError
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
