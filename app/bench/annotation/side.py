"""What one side of the comparison does, timed. Not: how the two are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from app.bench.annotation.tasks import Task

if TYPE_CHECKING:
    from playwright.sync_api import Page

READING_MS = 400
"""Between an item's appearance and the key that answers it, on both sides: nobody reads faster, and neither tool
needs to take a key any sooner. Not part of any time."""


class Side(Protocol):
    """A labelling tool that runs on this machine. Times are wall seconds.

    A page counts as there when what was asked for can be read in it, not when the browser says that it has loaded.
    """

    name: str

    def start(self) -> None:
        """Bring the tool up, empty. Not timed."""

    def load(self, tasks: Sequence[Task]) -> float:
        """Import the tasks."""

    def ready(self, page: Page) -> None:
        """Sign in and see the tool once, so that its files are in the browser's cache. Not timed."""

    def show_list(self, page: Page) -> float:
        """Open the list of solutions by its address, until its first row can be read."""

    def open_item(self, page: Page) -> float:
        """From the list, press a row, until the solution can be read."""

    def answer(self, page: Page, count: int) -> list[float]:
        """Answer ``count`` items by keyboard; each from the key until the next item can be read."""

    def export(self) -> tuple[float, int]:
        """(seconds to write everything to a file, answers that the file holds)."""

    def stop(self) -> None:
        """End its processes."""


EVERY_MS = 10
"""Playwright's own waits look again after up to half a second, which would be measured too."""


def seen(page: Page, script: str, before: str | None = None) -> None:
    """Wait until ``script``, JavaScript given ``before``, is true."""
    page.wait_for_function(script, arg=before, polling=EVERY_MS)


def timed(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start
