"""The address of the Rewards page: ``?problem=…&scores=…&solution=…&level=…&how=…&w=…``, checked.

Not here: whether the problem, the judge and the solution exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import streamlit as st

from app.widgets.safe_text import escape_line
from training.process_rewards import Aggregation

KNOWN = ("problem", "scores", "solution", "level", "how", "w")
LEVELS = {"chunk": "Each chunk", "solution": "Whole solution"}
HOWS = {"mean": "mean", "min": "min", "sum": "sum"}
DEFAULT_W = 0.0


@dataclass(frozen=True)
class Asked:
    """What the address asks for, checked. ``wrong`` says what it asks for that cannot be."""

    problem: int | None = None
    scores: str | None = None
    solution: int | None = None
    level: str = "chunk"
    how: Aggregation = "mean"
    w: float = DEFAULT_W
    wrong: list[str] = field(default_factory=list)


def read_asked() -> Asked:
    """Reads and checks the address: a value that cannot be is named, never replaced by a default."""
    query, wrong = st.query_params, []

    def refuse(name: str, why: str) -> None:
        wrong.append(f"{name}={escape_line(query[name], limit=60)}: {why}")

    for name in query:
        if name not in KNOWN:
            refuse(name, f"this page knows {', '.join(KNOWN)}")
    numbers = {}
    for name in ("problem", "solution"):
        if name in query:
            good = query[name].isascii() and query[name].isdigit() and len(query[name]) <= 18
            if good:
                numbers[name] = int(query[name])
            else:
                refuse(name, "a whole number was expected")
    for name, options in (("level", LEVELS), ("how", HOWS)):
        if name in query and query[name] not in options:
            refuse(name, f"it can be {', '.join(options)}")
    w = _weight(query.get("w"))
    if w is None:
        refuse("w", "a number from 0 to 1 was expected")
    return Asked(
        problem=numbers.get("problem"),
        scores=query.get("scores"),
        solution=numbers.get("solution"),
        level=query.get("level", "chunk"),
        how=cast(Aggregation, query.get("how", "mean")),
        w=w if w is not None else DEFAULT_W,
        wrong=wrong,
    )


def _weight(given: str | None) -> float | None:
    if given is None:
        return DEFAULT_W
    try:
        number = float(given)
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None


def address(**changed: str | None) -> dict[str, str]:
    """The address with these values; None takes one out."""
    kept = {name: value for name, value in st.query_params.items() if name in KNOWN and name not in changed}
    return kept | {name: value for name, value in changed.items() if value is not None}
