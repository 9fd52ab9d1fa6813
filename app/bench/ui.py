"""``stepwiser bench ui``: how long the pages take over a store of 200,000 trajectories, in a real browser.

Measured from the press to the text on screen, on an otherwise quiet machine; the store is made anew in a folder that is
deleted afterwards, or kept with ``--store`` and used again. Not: the store's content (``ui_store``).
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from app.bench import Bar, conclude
from app.bench.pages import chromium, drawn, served
from app.bench.ui_store import COMMON, NEEDLE, Made, make_store
from app.bench.ui_writers import review_writes
from app.settings import Settings
from app.store import open_or_make_store
from db.chunk_filter import ChunkFilter
from db.queues_store import NewQueue
from db.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Page

ITEMS = 60
READING_MS = 400
"""Between a card and the next press: a press right after a card's appearance is meant for the card before it."""
ROW = """() => [...document.querySelectorAll("*")].some(node =>
    node.shadowRoot?.querySelector('a[aria-label^="Trajectory "], a[aria-label^="Chunk "]'))"""
LONG_CHUNK = "() => document.body.textContent.includes('in step 251 of plan')"
PLOT = "() => document.querySelector('.js-plotly-plot') !== null"
ROUNDS = 3
"""Openings of every list, one list after the other in each: the bar is on the median, the first is said beside it
because a machine that never read this store yet fetches it from its disk."""
EVERY_MS = 10
"""Playwright's own waits look again after up to half a second, which would be measured too."""


def ui(scale: float, kept: Path | None, console: Console) -> int:
    """Bars of the pages at ``scale`` 1. ``kept``: a folder whose store is used, or made there and left there."""
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        own = Settings(home=kept or Path(folder), database_url="", actor="bench")
        own.home.mkdir(parents=True, exist_ok=True)
        store = open_or_make_store(own)
        made = _made(store, own.home, scale, console)
        rows = [(noun, f"{count:,}") for noun, count in store.counts().items()]
        with served(own) as (url, _), chromium() as browser:
            page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
            beside, bars = _pages(page, url, made)
            bars += _queue(page, url, store)
            bars.append(_overview(page, url))
        bars += review_writes(store, made)
        store.close()
    return conclude(console, "ui", rows + beside, bars)


def _made(store: Store, home: Path, scale: float, console: Console) -> Made:
    """The store's content: what an earlier bench left in this folder, or made now."""
    note = home / "bench-ui.json"
    if note.exists():
        return Made(**json.loads(note.read_text(encoding="utf-8")))
    start = time.perf_counter()
    made = make_store(
        store, scale, lambda said: console.print(f"{time.perf_counter() - start:7.0f} s  {said}")
    )
    note.write_text(json.dumps({"long": made.long, "judge": made.judge}), encoding="utf-8")
    return made


def _opened(page: Page, address: str, ready: str) -> tuple[float, int]:
    """(seconds until what the page is opened for is there, bytes over the WebSocket until it was drawn).

    ``ready``: JavaScript that is true once it is there.
    """
    sizes: list[int] = []

    def listen(socket: object) -> None:
        socket.on("framereceived", lambda data: sizes.append(len(data)))  # type: ignore[attr-defined]

    page.on("websocket", listen)
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_function(ready, polling=EVERY_MS)
    seconds = time.perf_counter() - start
    drawn(page)
    page.remove_listener("websocket", listen)
    return seconds, sum(sizes)


def _pages(page: Page, url: str, made: Made) -> tuple[list[tuple[str, str]], list[Bar]]:
    """What is said beside the bars, and the bars."""
    page.goto(url)  # the browser's and the server's first page is not what is measured
    drawn(page)
    lists = {
        "list of solutions": "trajectories",
        "list of solutions, by drop": "trajectories?sort=drop&outcome=wrong",
        "list of chunks": "trajectories?show=chunks",
        "list of chunks, filtered and by drop": "trajectories?show=chunks&sort=drop&label=-&against=yes&outcome=correct",
        "search: a rare word": f"trajectories?show=chunks&search={NEEDLE}",
        "search: a common word": f"trajectories?show=chunks&search={COMMON}",
        "search: problems": f"trajectories?q={NEEDLE}",
    }
    rounds = [
        {name: _opened(page, f"{url}/{address}", ROW) for name, address in lists.items()}
        for _ in range(ROUNDS)
    ]
    bars = []
    for name in lists:
        times, sizes = zip(*(opened[name] for opened in rounds), strict=True)
        bars.append(Bar(f"{name}, s", statistics.median(times), 1.0, "<="))
        bars.append(Bar(f"{name}, MB", max(sizes) / 1e6, 1.0, "<="))
    slowest = max(lists, key=lambda name: rounds[0][name][0])
    first = (f"slowest first opening, s ({slowest})", f"{rounds[0][slowest][0]:.3g}")
    long = f"{url}/trajectory?traj={made.long}&chunk=250"
    seconds, _ = _opened(page, long, LONG_CHUNK)
    return [first], [*bars, Bar("trajectory of 500 chunks, s", seconds, 3.0, "<=")]


def _overview(page: Page, url: str) -> Bar:
    seconds, _ = _opened(page, url, PLOT)
    return Bar("Overview, s", seconds, 2.0, "<=")


def _queue(page: Page, url: str, store: Store) -> list[Bar]:
    """From the key to the next chunk's text on screen, over ``ITEMS`` items."""
    name = f"bench {time.time_ns()}"
    where = ChunkFilter(drop_min=0.1)
    queue = store.make_queue(NewQueue(name, order="biggest-drop", where=where, limit=ITEMS + 1), "bench")
    page.goto(f"{url}/queue?queue={queue}&work=1")
    chunk = page.locator(".st-key-item-chunk")
    chunk.wait_for()
    drawn(page)
    seconds = []
    for number in range(ITEMS):
        page.wait_for_timeout(READING_MS)
        before = chunk.inner_text()
        start = time.perf_counter()
        page.keyboard.press("1" if number % 3 else "3")
        page.wait_for_function(
            "before => { const now = document.querySelector('.st-key-item-chunk')?.innerText; return now && now !== before; }",
            arg=before,
            polling=EVERY_MS,
        )
        seconds.append(time.perf_counter() - start)
        drawn(page)
    return [Bar("key to next item, p95 s", percentile(seconds, 95), 0.4, "<=")]


def percentile(values: list[float], which: int) -> float:
    """The ``which``-th percentile, with the values in between."""
    return statistics.quantiles(values, n=100, method="inclusive")[which - 1]
