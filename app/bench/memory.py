"""Resident memory: of the pages' process, after a browser has opened every page on the sample, and of a rollout run.

The run is measured with 1,000 and with 10,000 trajectories queued, one draw a prefix, in one process after another.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
from rich.console import Console

from app.bench import Bar, conclude
from app.bench.pages import chromium, drawn, served
from app.sample import load_sample
from app.settings import Settings
from app.store import open_or_make_store

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
    few, many = (_run(settings, size) for size in SIZES)
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


def _run(settings: Settings, trajectories: int) -> tuple[float, float]:
    """MB before a rollout run and at most during it, measured in a process of its own."""
    code = "import sys; from app.bench.memory import run; run(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(settings.home), str(trajectories)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    before, at_most = json.loads(done.stdout.splitlines()[-1])
    return before, at_most


def run(home: str, trajectories: str) -> None:
    """Sample, then roll out, and print [MB before, MB at most]."""
    from app.bench.rollouts import open_bench
    from engine.pipeline.rolling import roll_out

    problems = int(trajectories) // PER_PROBLEM
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        bench = open_bench(
            Settings(home=Path(home), database_url="", actor="bench"), "nano", Path(folder), 4, 2, 2
        )
        bench.problems, bench.trajectories, bench.m = problems, PER_PROBLEM, 1
        ctx = bench.fresh("memory")
        process, ended = psutil.Process(), threading.Event()
        before = at_most = process.memory_info().rss / 1e6

        def look() -> None:
            nonlocal at_most
            while not ended.wait(LOOK_S):
                at_most = max(at_most, process.memory_info().rss / 1e6)

        watcher = threading.Thread(target=look)
        watcher.start()
        roll_out(ctx, bench.llm)
        ended.set()
        watcher.join()
        bench.llm.close()
    print(json.dumps([before, at_most]))
