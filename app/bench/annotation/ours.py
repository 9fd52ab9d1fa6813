"""This workbench's side: its own commands and pages, started as its users start them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from app.bench.annotation.side import READING_MS, seen, timed
from app.bench.annotation.tasks import ASKED, Task
from app.bench.pages import drawn, served
from app.launcher import LaunchError
from app.settings import Settings
from app.store import open_or_make_store
from db.chunk_filter import ChunkFilter
from db.queues_store import NewQueue

if TYPE_CHECKING:
    from playwright.sync_api import Page

QUEUE = "side by side"
MARK = re.compile(r"item-\d{5}")
ROW = """() => [...document.querySelectorAll("*")].some(node =>
    node.shadowRoot?.querySelector('a[aria-label^="Trajectory "]'))"""
SOLUTION = "() => /stamps|added/.test(document.querySelector('.st-key-selected-text')?.textContent)"
NEXT = """before => {
    const now = document.querySelector('.st-key-item-chunk')?.textContent.match(/item-\\d{5}/);
    return now && now[0] !== before; }"""


class Workbench:
    """A store of its own in ``folder``; import and export are commands, their start-up included."""

    name = "StepWiser Studio"

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(home=folder, database_url="", actor="bench")
        self.open = ExitStack()
        self.url = ""

    def start(self) -> None:
        self.settings.home.mkdir(parents=True, exist_ok=True)
        self.store = open_or_make_store(self.settings)
        self.open.callback(self.store.close)
        self.url, _ = self.open.enter_context(served(self.settings))

    def load(self, tasks: Sequence[Task]) -> float:
        path = self.settings.home / "tasks.jsonl"
        with path.open("w", encoding="utf-8") as out:
            for task in tasks:
                row = {
                    "problem": task.problem,
                    "answer": task.answer,
                    "solutions": [{"steps": list(task.chunks)}],
                }
                out.write(json.dumps(row) + "\n")
        seconds = timed(lambda: self._command("import", str(path)))
        where = ChunkFilter(position_min=ASKED, position_max=ASKED)
        self.queue = self.store.make_queue(
            NewQueue(QUEUE, order="reading", where=where, limit=len(tasks)), "bench"
        )
        return seconds

    def _command(self, *arguments: str) -> None:
        place = {"STEPWISER_HOME": str(self.settings.home), "STEPWISER_DATABASE_URL": ""}
        done = subprocess.run(
            [sys.executable, "-m", "app.cli", *arguments],
            env=os.environ | place,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise LaunchError(f"stepwiser {arguments[0]} failed:\n{(done.stdout + done.stderr)[-1500:]}")

    def ready(self, page: Page) -> None:
        self.show_list(page)
        self.open_item(page)

    def show_list(self, page: Page) -> float:
        def show() -> None:
            page.goto(f"{self.url}/trajectories")
            seen(page, ROW)

        return timed(show)

    def open_item(self, page: Page) -> float:
        def show() -> None:
            page.get_by_role("link", name=re.compile(r"^Trajectory \d+")).nth(3).click()
            seen(page, SOLUTION)

        return timed(show)

    def answer(self, page: Page, count: int) -> list[float]:
        page.goto(f"{self.url}/queue?queue={self.queue}&work=1")
        chunk = page.locator(".st-key-item-chunk")
        chunk.get_by_text(MARK).wait_for()
        drawn(page)
        seconds = []
        for number in range(count):
            page.wait_for_timeout(READING_MS)
            before = MARK.findall(chunk.inner_text())[0]

            def go(key: str = "1" if number % 2 else "3", before: str = before) -> None:
                page.keyboard.press(key)
                seen(page, NEXT, before)

            seconds.append(timed(go))
            drawn(page)
        return seconds

    def export(self) -> tuple[float, int]:
        out = self.settings.home / "labels.jsonl"
        seconds = timed(lambda: self._command("export", str(out)))
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        return seconds, sum(row.get("source") == "review" for row in rows)

    def stop(self) -> None:
        self.open.close()
