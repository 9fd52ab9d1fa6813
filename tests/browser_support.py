"""Fixtures of the browser tests: the real server over a filled store, and a fresh Chromium context for each test.

``live_app`` and ``page`` come in through conftest.py. Tests skip where no Chromium is installed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from db.store import Store, open_store
from tests.browser_setup import find_chromium
from tests.filled_store import Filled, filled_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
ACTOR = "rosa"
READY = """() => {
    if (document.querySelector('[data-testid=stSkeleton]')) return false
    const names = [...document.querySelectorAll("[class*='-keys']")]
        .flatMap(node => [...node.classList]).filter(name => /^st-key-.*-keys$/.test(name))
    return names.every(name => window.stepwiserKeys?.sets.get(name.slice(7))?.host.isConnected)
}"""
"""Every widget's code is there, and the keys that the page binds are bound."""
TIMEOUT_MS = 120_000
"""Only a hang should end a test: the machine may be busy with something else."""
READ_MS = 400
"""A card takes no key in its first 200 ms: wait this long before the first press, as a reader would."""
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class LiveApp:
    """The pages at ``url`` over ``store``; ``filled`` has the ids of what is in it. Writes are by ``ACTOR``."""

    url: str
    store: Store
    filled: Filled
    home: Path
    environment: dict[str, str] = field(repr=False)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_server(
    environment: dict[str, str], log: Path, script: Path = ROOT / "app" / "serve.py"
) -> tuple[subprocess.Popen[bytes], str]:
    """Start the pages on a free port and wait until they answer. The caller ends the process."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(script),
        "--server.port",
        str(port),
        "--server.headless",
        "true",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=log.parent, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/_stcore/health", timeout=2).status_code == 200:
                return process, url
        except httpx.HTTPError:
            time.sleep(0.2)
    process.kill()
    raise RuntimeError(f"the pages did not start:\n{log.read_text(errors='replace')[-3000:]}")


@pytest.fixture(scope="session")
def live_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    """One server over one filled store for the whole session: tests that write use chunks of their own."""
    home = tmp_path_factory.mktemp("live")
    store_url, filled = filled_store(home)
    environment = os.environ | {
        "STEPWISER_HOME": str(home),
        "STEPWISER_DATABASE_URL": store_url,
        "STEPWISER_ACTOR": ACTOR,
    }
    process, url = start_server(environment, home / "server.log")
    store = open_store(store_url)
    try:
        yield LiveApp(url, store, filled, home, environment)
    finally:
        store.close()
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    from playwright.sync_api import expect, sync_playwright

    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_ARGS)
        yield instance
        instance.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a fresh context: no cookies, no history, 1440 × 900."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(TIMEOUT_MS)
    yield context.new_page()
    context.close()


def settled(page: Page, timeout_ms: float = TIMEOUT_MS) -> None:
    """Wait until the page's script has run and nothing on it is being redrawn."""
    page.wait_for_timeout(120)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=timeout_ms)
    page.wait_for_timeout(120)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=timeout_ms)
    # Widgets whose code is still on its way stand as skeletons, and keys do nothing yet.
    page.wait_for_function(READY, timeout=timeout_ms)


def open_page(page: Page, url: str) -> None:
    """Go to ``url`` and wait until it is drawn."""
    page.goto(url)
    page.wait_for_selector("[data-testid=stAppViewContainer]")
    settled(page)
