"""Resident memory of the pages' process, after a browser has opened every page on the sample."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psutil
from rich.console import Console

from app.bench import Bar, conclude
from app.launcher import LaunchError, pages_command, wait_until_healthy
from app.sample import load_sample
from app.settings import Settings
from app.store import open_or_make_store

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
PAGES = ("", "trajectories", "trajectory?traj=1", "runs")


def memory(settings: Settings, console: Console) -> int:
    """Bar: under 400 MB resident."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise LaunchError("this bench opens the pages in a browser: pip install -e '.[dev]'") from error
    chromium = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if chromium is None:
        raise LaunchError(
            f"this bench opens the pages in a browser; none of {', '.join(CHROMIUM)} is installed"
        )
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        own = Settings(home=Path(folder), actor="bench")
        load_sample(open_or_make_store(own))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        env = os.environ | {"STEPWISER_HOME": str(own.home)}
        process = subprocess.Popen(
            pages_command("127.0.0.1", port), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until_healthy("127.0.0.1", port, process)
            start = psutil.Process(process.pid).memory_info().rss / 1e6
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
                page = browser.new_page()
                for name in PAGES * 2:
                    page.goto(f"http://127.0.0.1:{port}/{name}")
                    page.wait_for_selector(
                        "[data-testid=stApp][data-test-script-state=notRunning]", timeout=60_000
                    )
                browser.close()
            after = psutil.Process(process.pid).memory_info().rss / 1e6
        finally:
            process.terminate()
            process.wait()
    rows = [("at the start, MB", f"{start:.0f}"), ("pages opened", str(len(PAGES) * 2))]
    return conclude(console, "memory", rows, [Bar("resident MB of the pages' process", after, 400.0, "<=")])
