"""The pages served for a bench, and a browser to open them with. Not: what a bench does with them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.launcher import LaunchError, pages_command, wait_until_healthy
from app.settings import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOST = "127.0.0.1"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
DRAWN_MS = 120_000


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(settings: Settings) -> Iterator[tuple[str, int]]:
    """The pages over the settings' store, written to by the settings' actor: (address, process id)."""
    port = free_port()
    place = {
        "STEPWISER_HOME": str(settings.home),
        "STEPWISER_DATABASE_URL": settings.database_url,
        "STEPWISER_ACTOR": settings.actor,
    }
    process = subprocess.Popen(
        pages_command(HOST, port),
        env=os.environ | place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_healthy(HOST, port, process)
        yield f"http://{HOST}:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium. Raises LaunchError where there is none, or no Playwright."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise LaunchError("this bench opens the pages in a browser: pip install -e '.[dev]'") from error
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        raise LaunchError(
            f"this bench opens the pages in a browser; none of {', '.join(CHROMIUM)} is installed"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def drawn(page: Page) -> None:
    """Wait until the page's script has run and every widget's code is there: before that no key does anything."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=DRAWN_MS)
    page.wait_for_function("!document.querySelector('[data-testid=stSkeleton]')", timeout=DRAWN_MS)
