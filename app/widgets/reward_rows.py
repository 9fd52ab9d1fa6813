"""Rewards of solutions chunk by chunk, drawn as bars in the page's own DOM: strips of all, or one read line by line.

Every bar has its number and a mark beside its colour (▲ up, ▼ down and hatched, ● nothing). Text of chunks goes in
as text and is never read as markup. Not: where the rewards come from (``training.process_rewards``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import streamlit as st

_HERE = Path(__file__).parent
_REWARDS = st.components.v2.component(
    "stepwiser_rewards",
    html='<div class="rewards"></div>',
    css=(_HERE / "reward_rows.css").read_text(encoding="utf-8"),
    js=(_HERE / "reward_rows.js").read_text(encoding="utf-8"),
)
NOTHING = 0.005
"""Advantages nearer to 0 than this are drawn as nothing: they round to 0.00."""


@dataclass(frozen=True)
class Bar:
    """One value and, for whoever points at it, ``title``. ``below``: a few signs under the bar, such as the score."""

    value: float | None
    title: str = ""
    below: str = ""


@dataclass(frozen=True)
class Strip:
    """A solution, one bar a chunk; ``href`` shows it line by line."""

    id: str
    name: str
    href: str
    outcome: str
    right: bool
    bars: Sequence[Bar]
    chosen: bool = False


@dataclass(frozen=True)
class Line:
    """A chunk: its number, its text (untrusted), its score in words, ``+``, ``-`` or empty, and a bar a column."""

    idx: int
    text: str
    score: str
    sign: str
    bars: Sequence[Bar]


def signed(value: float | None, digits: int = 2) -> str:
    """A number with its sign: +0.87, −1.02, 0; a dash where there is none."""
    if value is None:
        return "–"
    rounded = round(value, digits)
    if not rounded:
        return "0"
    return f"{'+' if rounded > 0 else '−'}{abs(rounded):.{digits}f}"


def mark(value: float | None) -> str:
    """The mark that says what the colour says."""
    if value is None:
        return ""
    return "●" if abs(value) < NOTHING else "▲" if value > 0 else "▼"


def _bar(bar: Bar, most: float) -> dict[str, object]:
    value = bar.value
    share = 0.0 if value is None or most <= 0 else min(1.0, abs(value) / most)
    tone = "none" if value is None else "nothing" if abs(value) < NOTHING else "up" if value > 0 else "down"
    text = f"{mark(value)} {signed(value)}".strip()
    return {"share": share, "tone": tone, "text": text, "title": bar.title, "below": bar.below}


def reward_strips(strips: Sequence[Strip], *, label: str, most: float, key: str) -> None:
    """A row of bars for each solution, one a chunk; ``most``: the value of a full bar, the same in every picture."""
    rows = [asdict(strip) | {"bars": [_bar(bar, most) for bar in strip.bars]} for strip in strips]
    _REWARDS(key=key, data={"mode": "strips", "label": label, "rows": rows})


def reward_lines(columns: Sequence[str], lines: Sequence[Line], *, label: str, most: float, key: str) -> None:
    """One solution's chunks as lines: text, score, and a bar under each of ``columns``."""
    rows = [asdict(line) | {"bars": [_bar(bar, most) for bar in line.bars]} for line in lines]
    _REWARDS(key=key, data={"mode": "lines", "label": label, "columns": list(columns), "rows": rows})
