"""``stepwiser bench …``: two things timed in one run and their ratio, or a size against its bar.

Each prints a table and, last, one line of JSON with name, value, bar and holds, and returns 1 where a bar is missed.
"""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Bar:
    """A measured value and what it must reach (``>=``) or stay under (``<=``)."""

    name: str
    value: float
    bar: float
    sense: str = ">="

    @property
    def holds(self) -> bool:
        return {">=": operator.ge, "<=": operator.le}[self.sense](self.value, self.bar)


def conclude(console: Console, name: str, rows: list[tuple[str, str]], bars: list[Bar]) -> int:
    """Print the table and the JSON line. Returns the exit code."""
    table = Table("", name, box=None, pad_edge=False)
    for what, value in rows:
        table.add_row(what, value)
    for bar in bars:
        table.add_row(
            bar.name, f"{bar.value:.3g}  (bar {bar.sense} {bar.bar:g}: {'holds' if bar.holds else 'MISSED'})"
        )
    console.print(table)
    first = bars[0]
    line = {
        "name": name,
        "value": round(first.value, 4),
        "bar": first.bar,
        "holds": all(bar.holds for bar in bars),
        "parts": [{"name": b.name, "value": round(b.value, 4), "bar": b.bar, "holds": b.holds} for b in bars],
    }
    print(json.dumps(line), flush=True)
    return 0 if line["holds"] else 1
