"""Kill -9 of a run's process at random moments: no committed rollout lost, none doubled, resumed totals right."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from db.check import check
from db.store import open_store
from engine.pipeline.sampling import sample_with
from tests import little_world as little
from tests.kill_run import DRAWS

ROOT = Path(__file__).resolve().parents[1]


def start(folder: Path, kill_after: int, where: str) -> int:
    command = [sys.executable, "-m", "tests.kill_run", str(folder), str(kill_after), where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, -9), done.stderr[-2000:]
    return done.returncode


def test_five_kills_lose_nothing_and_double_nothing(tmp_path: Path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        store = little.open_little(folder, problems=100)
        sample_with(little.context(store, little.sample_recipe(n=4), folder), little.scripted_policy())
    assert start(whole, 0, "between") == 0
    expected = little.all_rollouts(open_store(f"sqlite:///{whole / 'little.db'}"))
    assert set(Counter(key for key, *_ in expected).values()) == {DRAWS}

    store = open_store(f"sqlite:///{killed / 'little.db'}")
    dice = random.Random(20261129)
    committed: list[tuple] = []
    for attempt in range(5):
        remaining = len(expected) - len(committed)
        code = start(killed, dice.randint(1, max(1, remaining // 3)), ("inside", "between")[attempt % 2])
        assert code == -9, "the run ended before it could be killed: the world is too small for this test"
        now = little.all_rollouts(store)
        assert set(committed) <= set(now), "a committed rollout was lost"
        assert len({row[:2] for row in now}) == len(now), "a draw was stored twice"
        committed = now
    assert 0 < len(committed) < len(expected)
    assert start(killed, 0, "between") == 0
    assert little.all_rollouts(store) == expected
    assert check(store) == []
