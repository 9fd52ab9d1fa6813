"""M = 16, then 32 in another process, over the real vLLM: no draw repeated, the first 16 untouched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from db.check import check
from db.store import open_store
from tests.little_world import all_rollouts

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]
ROOT = Path(__file__).resolve().parents[1]


def run(home: Path, kind: str, *fields: str) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("STEPWISER_")} | {
        "STEPWISER_HOME": str(home)
    }
    sets = [part for field in fields for part in ("--set", field)]
    command = [sys.executable, "-m", "app.cli", "run", kind, *sets]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_topping_up_in_another_process_repeats_no_draw(tmp_path: Path):
    run(tmp_path, "sample", "generate.count=4", "n=2", "seed=11")
    run(tmp_path, "rollout", "m=16", "seed=11")
    store = open_store(f"sqlite:///{tmp_path / 'stepwiser.db'}")
    first = all_rollouts(store)
    run(tmp_path, "rollout", "m=32", "seed=12")
    both = all_rollouts(store)
    assert first and set(first) <= set(both), "one of the first 16 was touched"
    draws, seeds, texts = defaultdict(list), defaultdict(list), defaultdict(list)
    for key, draw, _outcome, seed, text in both:
        draws[key].append(draw)
        seeds[key].append(seed)
        texts[key].append(text)
    assert all(sorted(numbers) == list(range(32)) for numbers in draws.values())
    everywhere = [seed for of_prefix in seeds.values() for seed in of_prefix]
    assert len(set(everywhere)) == len(everywhere), "two draws had the same seed"
    varied = [key for key in texts if len(set(texts[key][:16])) > 2]
    assert varied and all(texts[key][:16] != texts[key][16:] for key in varied), (
        "the second 16 repeat the first"
    )
    assert check(store) == []
