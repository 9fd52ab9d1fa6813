"""Both sides at the same work in one run, and the table of it. Not: how either side does it."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

from rich.console import Console

from app.bench.annotation.label_studio import LabelStudio, install
from app.bench.annotation.ours import Workbench
from app.bench.annotation.side import Side
from app.bench.annotation.tasks import COUNT_CHUNKS, make_tasks
from app.bench.pages import DRAWN_MS, chromium
from app.machine import GIB, this_machine
from app.settings import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TIMES = 5
"""Openings of the list and of an item, whose median counts."""


@dataclass(frozen=True)
class Line:
    """One kind of work: seconds of ours and of the other's."""

    what: str
    ours: float
    theirs: float

    @property
    def row(self) -> str:
        ratio = self.theirs / self.ours
        ahead = "ahead" if ratio > 1 else "**behind**"
        return f"| {self.what} | {self.ours:.2f} s | {self.theirs:.2f} s | {ratio:.1f} × | {ahead} |"


def compare(
    settings: Settings,
    trajectories: int,
    items: int,
    program: Path | None,
    out: Path | None,
    console: Console,
) -> int:
    """Run both sides; print the table and write it to ``out``. ``program``: an installed label-studio; None: it is
    installed below the home. Returns 0, or 1 where a side lost an answer."""
    label_studio = program or install(settings.home / "peers" / "label-studio")
    with tempfile.TemporaryDirectory(prefix="stepwiser-annotation-") as folder, chromium() as browser:
        sides: list[Side] = [
            Workbench(Path(folder) / "ours"),
            LabelStudio(label_studio, Path(folder) / "theirs"),
        ]
        tasks = make_tasks(trajectories)
        seconds: list[dict[str, float]] = []
        lost = 0
        for side in sides:
            console.print(f"{side.name}: starting …")
            try:
                side.start()
                console.print(f"{side.name}: importing {len(tasks):,} …")
                times = {IMPORT: side.load(tasks)} | _pages(side, browser, items, console)
                times[EXPORT], kept = side.export()
            finally:
                side.stop()
            lost += items - kept
            seconds.append(times)
            console.print(
                f"{side.name}: {', '.join(f'{name} {value:.2f} s' for name, value in times.items())}"
            )
        lines = [Line(what, seconds[0][what], seconds[1][what]) for what in seconds[0]]
        text = _table(lines, sides, trajectories, items)
    console.print(text, markup=False)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if lost:
        console.print(f"{lost} of {2 * items} answers are not in the exported files")
    return 1 if lost else 0


IMPORT, EXPORT = "import", "export everything to a file"


def _pages(side: Side, browser: Browser, items: int, console: Console) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(DRAWN_MS)
    page = context.new_page()
    side.ready(page)

    def often(do: Callable[[], float]) -> float:
        return median(do() for _ in range(TIMES))

    def open_item() -> float:
        side.show_list(page)
        return side.open_item(page)

    console.print(f"{side.name}: list, item, {items} answers …")
    found = {
        "list page, first row readable (median of 5)": often(lambda: side.show_list(page)),
        "a row opened from the list (median of 5)": often(open_item),
    }
    answers = side.answer(page, items)
    found["answer → next item readable, median"] = median(answers)
    found["answer → next item readable, 95th percentile"] = quantiles(answers, n=20)[-1]
    context.close()
    return found


def _table(lines: list[Line], sides: list[Side], trajectories: int, items: int) -> str:
    here = this_machine()
    return "\n".join(
        [
            "# Beside Label Studio",
            "",
            f"The same {trajectories:,} solutions of {COUNT_CHUNKS} chunks in both, one chunk of each to be reviewed; the same browser, "
            f"one after the other in one run; {items} answers by keyboard. Import and export of this workbench are commands, "
            "their start-up included; Label Studio's are requests to its running server.",
            "",
            f"Made by `stepwiser bench label-studio` on {datetime.now(UTC):%Y-%m-%d}, {here.cores} cores, "
            f"{here.memory_total / GIB:.0f} GiB, Python {platform.python_version()}, {sides[1].name}.",
            "",
            f"| work | {sides[0].name} | {sides[1].name} | ratio | |",
            "| --- | --- | --- | --- | --- |",
            *(line.row for line in lines),
            "",
        ]
    )
