"""Resident memory of the pages' process, after a browser has opened every page on the sample."""

from __future__ import annotations

import tempfile
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


def memory(console: Console) -> int:
    """Bar: under 400 MB resident."""
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        own = Settings(home=Path(folder), database_url="", actor="bench")
        load_sample(open_or_make_store(own))
        with served(own) as (url, process), chromium() as browser:
            start = psutil.Process(process).memory_info().rss / 1e6
            page = browser.new_page()
            for name in PAGES * 2:
                page.goto(f"{url}/{name}")
                drawn(page)
            after = psutil.Process(process).memory_info().rss / 1e6
    rows = [("at the start, MB", f"{start:.0f}"), ("pages opened", str(len(PAGES) * 2))]
    return conclude(console, "memory", rows, [Bar("resident MB of the pages' process", after, 400.0, "<=")])
