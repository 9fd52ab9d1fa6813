"""Resident memory: of the pages' process, after a browser has opened every page on the sample, and of a rollout run.

The run is measured with 1,000 and with 10,000 trajectories queued, one draw a prefix, one after the other in one
process: what two starts of vLLM take differs by more than the bar. A run of 1,000 before both lets vLLM touch what it
set aside at its start.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.console import Console

from app.bench import Bar, conclude
from app.bench.pages import chromium, drawn, served
from app.sample import load_sample
from app.settings import Settings
from app.store import open_or_make_store

if TYPE_CHECKING:
    from app.bench.rollouts import Bench

PAGES = (
    "",
    "trajectories",
    "trajectories?show=chunks",
    "trajectory?traj=1",
    "queue",
    "adjudication",
    "judges",
    "runs",
    "data",
    "rewards",
    "people",
)


SIZES = (1_000, 10_000)
PER_PROBLEM = 16
LOOK_S = 0.1


def memory(settings: Settings, console: Console) -> int:
    """Bars: the pages under 400 MB resident; the run grows by under 100 MB from 1,000 to 10,000 trajectories."""
    start, after = _pages()
    _, few, many = _runs(settings, SIZES[:1] + SIZES)
    rows = [("pages at the start, MB", f"{start:.0f}"), ("pages opened", str(len(PAGES) * 2))]
    rows += [
        (f"run with {size:,} trajectories, MB", f"{at_most:.0f}, before it {before:.0f}")
        for size, (before, at_most) in zip(SIZES, (few, many), strict=True)
    ]
    bars = [
        Bar("resident MB of the pages' process", after, 400.0, "<="),
        Bar(f"MB more with {SIZES[1]:,} trajectories than with {SIZES[0]:,}", many[1] - few[1], 100.0, "<="),
    ]
    return conclude(console, "memory", rows, bars)


def _pages() -> tuple[float, float]:
    """MB at the start, and after every page was opened twice."""
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        own = Settings(home=Path(folder), database_url="", actor="bench")
        load_sample(open_or_make_store(own))
        with served(own) as (url, process), chromium() as browser:
            start = psutil.Process(process).memory_info().rss / 1e6
            page = browser.new_page()
            for name in PAGES * 2:
                page.goto(f"{url}/{name}")
                drawn(page)
            return start, psutil.Process(process).memory_info().rss / 1e6


def _runs(settings: Settings, sizes: Sequence[int]) -> list[tuple[float, float]]:
    """Per size: MB before a rollout run and at most during it, all in one process of their own."""
    code = "import sys; from app.bench.memory import run; run(sys.argv[1], *map(int, sys.argv[2:]))"
    command = [sys.executable, "-c", code, str(settings.home), *map(str, sizes)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [(before, at_most) for before, at_most in json.loads(done.stdout.splitlines()[-1])]


def run(home: str, *sizes: int) -> None:
    """Sample, then roll out, for each number of trajectories; print [[MB before, MB at most], …]."""
    from app.bench.rollouts import open_bench

    own = Settings(home=Path(home), database_url="", actor="bench")
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        bench = open_bench(own, "nano", Path(folder), 4, 2, 2)
        bench.trajectories, bench.m = PER_PROBLEM, 1
        found = []
        for place, size in enumerate(sizes):
            bench.problems = size // PER_PROBLEM
            found.append(_watched(bench, f"memory-{place}"))
        bench.llm.close()
    print(json.dumps(found))


def _watched(bench: Bench, name: str) -> tuple[float, float]:
    """Resident MB of this process before the rollouts of a fresh store, and at most during them."""
    from engine.pipeline.rolling import roll_out

    ctx = bench.fresh(name)
    process, ended = psutil.Process(), threading.Event()
    before = at_most = process.memory_info().rss / 1e6

    def look() -> None:
        nonlocal at_most
        while not ended.wait(LOOK_S):
            at_most = max(at_most, process.memory_info().rss / 1e6)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        roll_out(ctx, bench.llm)
    finally:
        ended.set()
        watcher.join()
    return before, at_most
