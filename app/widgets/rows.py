"""A table of rows in the page's own DOM: links that open, chips, sparklines, progress. Not charts, not editing.

A dataframe's cells are canvas: no keyboard, no screen reader, no middle click. These rows are real links; text from
models and files is put in as text and never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import streamlit as st

Tone = Literal["good", "bad", "warn", "info", "quiet"]
_HERE = Path(__file__).parent
_ROWS = st.components.v2.component(
    "stepwiser_rows",
    html='<div class="rows"></div>',
    css=(_HERE / "rows.css").read_text(encoding="utf-8"),
    js=(_HERE / "rows.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True)
class Column:
    """``narrow``: what becomes of the cell on a phone ("" half a line, "wide" a line of its own, "named" one that begins
    with the column's title, "hide")."""

    title: str
    kind: Literal["link", "text", "small", "number", "chips", "spark", "progress", "excerpts"] = "text"
    narrow: Literal["", "wide", "named", "hide"] = ""
    help: str = ""


@dataclass(frozen=True)
class Chip:
    text: str
    tone: Tone = "quiet"
    title: str = ""


@dataclass(frozen=True)
class Spark:
    """Q before the first chunk and after each one, in [0, 1]; None where unknown. ``worst``: index of the biggest fall."""

    q: tuple[float | None, ...]
    worst: int | None
    alt: str


@dataclass(frozen=True)
class Progress:
    """``share`` None: how much there is to do is not known. ``bar`` False: only the text."""

    share: float | None
    text: str
    tone: Tone = "info"
    bar: bool = True


@dataclass(frozen=True)
class Excerpt:
    """A piece of text, in parts (text, whether it is marked); ``place`` says where it stands ("": it needs no saying)."""

    parts: Sequence[tuple[str, bool]]
    place: str = ""


Cell = str | Sequence[Chip] | Sequence[Excerpt] | Spark | Progress | None


@dataclass(frozen=True)
class Row:
    """``cells``: one per column; the first is the text of the link. ``label`` says to a screen reader what opens.

    A row whose ``href`` is empty opens nothing.
    """

    id: str
    href: str
    label: str
    cells: Sequence[Cell]


def _plain(cell: Cell) -> Any:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, Spark | Progress):
        return asdict(cell)
    return [asdict(one) for one in cell]


def spark_of(q: Sequence[float | None]) -> Spark | None:
    """The sparkline of a trajectory's values; None where fewer than two neighbours are known."""
    falls = [(a - b, i) for i, (a, b) in enumerate(pairwise(q), 1) if a is not None and b is not None]
    if not falls:
        return None
    fall, where = max(falls, key=lambda pair: (pair[0], -pair[1]))
    said = ", ".join("unknown" if v is None else f"{v:.2f}" for v in q)
    return Spark(tuple(q), where if fall > 0 else None, f"Q from the bare problem on: {said}")


def row_table(columns: Sequence[Column], rows: Sequence[Row], *, label: str, key: str) -> None:
    """Draw the rows; pressing one goes to its ``href``, a path and query of these pages. ``label`` names the table."""
    _ROWS(
        key=key,
        data={
            "label": label,
            "columns": [asdict(column) for column in columns],
            "rows": [
                {
                    "id": row.id,
                    "href": row.href,
                    "label": row.label,
                    "cells": [_plain(cell) for cell in row.cells],
                }
                for row in rows
            ],
        },
    )
