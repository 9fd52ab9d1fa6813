"""A table of counts, rows by columns, in the page's own DOM: every cell that counts something is a link to what it counts.

Not here: what the rows and columns are; their names may be anybody's and are put in as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import streamlit as st

_HERE = Path(__file__).parent
_MATRIX = st.components.v2.component(
    "stepwiser_matrix",
    html='<div class="matrix"></div>',
    css=(_HERE / "matrix.css").read_text(encoding="utf-8"),
    js=(_HERE / "matrix.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True)
class Cell:
    """``mark``: a sign beside the number, so that colour is not alone in telling cells apart. ``said``: what a screen
    reader says of the cell. An empty ``href`` opens nothing; ``chosen``: what it opens is on the page now."""

    n: int
    href: str
    said: str
    tone: Literal["good", "bad", "quiet"] = "quiet"
    mark: str = ""
    chosen: bool = False


def matrix(
    down: str,
    across: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    *,
    label: str,
    key: str,
) -> None:
    """Draw ``cells[row][column]``; ``down`` and ``across`` say what rows and columns are, ``label`` names the table."""
    total = sum(cell.n for line in cells for cell in line)
    _MATRIX(
        key=key,
        data={
            "label": label,
            "down": down,
            "across": across,
            "rows": list(rows),
            "columns": list(columns),
            "total": total,
            "cells": [[asdict(cell) for cell in line] for line in cells],
        },
    )
