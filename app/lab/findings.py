"""What the finished runs say: every figure is read from a run's stored result, none is kept anywhere else.

Not: how intervals are made (``intervals``) or how findings are told (``report``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.lab.cells import RULES, Cell
from app.lab.intervals import Arm, Counts, Estimate, difference, estimate
from app.lab.run import Standing
from db.rows import RunRow
from engine.labels import parse_rule

UNTRAINED = ("base", "search base", "select base")
"""Cells without a seed of their own."""

Read = Callable[[dict[str, Any]], Counts | None]


@dataclass(frozen=True)
class Comparison:
    """Two things that the paper compares. ``expected``: the sign of first less second that the paper found."""

    what: str
    first: str
    second: str
    gap: Estimate | None
    paper: str
    expected: int = 1

    @property
    def verdict(self) -> str:
        return "not finished" if self.gap is None else self.gap.direction(self.expected)


def judged(rule: str, *, votes: bool = False) -> Read:
    """Right judgments (or right votes of all k) on held-out chunks under a rule, by problem."""
    name = str(parse_rule(RULES[rule]))

    def read(result: dict[str, Any]) -> Counts | None:
        rows = result["measures"].get(name, {}).get("by_problem")
        return rows and {p: (row[2] if votes else row[1], row[0]) for p, row in rows.items()}

    return read


def searched(arm: str) -> Read:
    """Right answers of ``chunk-reset`` or ``plain``, by problem."""

    def read(result: dict[str, Any]) -> Counts | None:
        rows = result.get(arm, {}).get("by_problem")
        return rows and {p: (right, n) for p, (n, right) in rows.items()}

    return read


def solved(result: dict[str, Any]) -> Counts | None:
    """Right answers of a policy, by problem."""
    return {p: (right, n) for p, (n, right) in result["by_problem"].items()}


class Findings:
    """Figures of the cells by key, as far as they are finished."""

    def __init__(self, found: Standing):
        self.found = found

    def has(self, key: str) -> bool:
        """Whether the laboratory's recipe asks for the cell at all."""
        return key in self.found.lab.cells

    def cell(self, key: str) -> Cell:
        return self.found.lab.cells[key]

    def rows(self, key: str) -> list[RunRow]:
        """The finished runs that measure the cell."""
        measured = self.found.lab.cells[key].measured if self.has(key) else ()
        return [self.found.state.done[name] for name in measured if name in self.found.state.done]

    def arm(self, key: str, read: Read) -> Arm | None:
        """What the cell's finished runs counted; None before the first."""
        counts = [counts for row in self.rows(key) if (counts := read(row.result))]
        return Arm(tuple(counts), trained=key not in UNTRAINED) if counts else None

    def estimate(self, key: str, read: Read) -> Estimate | None:
        arm = self.arm(key, read)
        return None if arm is None else estimate(arm)

    def gap(
        self, first: str, second: str, read: Read, other: Read | None = None, *, same_runs: bool = False
    ) -> Estimate | None:
        """First less second; ``other`` reads the second where it is another figure."""
        a, b = self.arm(first, read), self.arm(second, other or read)
        return None if a is None or b is None else difference(a, b, same_runs=same_runs)
