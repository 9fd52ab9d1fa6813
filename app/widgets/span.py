"""Marking characters of a text, with the mouse or with arrow keys. Not here: what the mark means, where it is kept.

The text is cut into words here, so that a mark is given in characters of the text as it is stored, whatever the
browser makes of it; it is drawn as text and never read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import streamlit as st

from app.widgets.safe_text import LONGEST, visible

_HERE = Path(__file__).parent
_SPAN = st.components.v2.component(
    "stepwiser_span",
    html='<div class="span"></div>',
    css=(_HERE / "span.css").read_text(encoding="utf-8"),
    js=(_HERE / "span.js").read_text(encoding="utf-8"),
)
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


def words_of(text: str) -> list[tuple[int, int, str]]:
    """(start, end, what is shown) of each word, sign and space of the text's first ``LONGEST`` characters."""
    return [(match.start(), match.end(), visible(match[0])) for match in _WORD.finditer(text[:LONGEST])]


def mark_span(text: str, span: tuple[int, int] | None, *, key: str, on_picked: Callable[[], None]) -> None:
    """Draw the text to be marked, its present mark being ``span``. Callback ``on_picked`` reads ``picked(key, …)``."""
    _SPAN(
        key=key,
        data={"words": words_of(text), "span": list(span) if span else None},
        on_picked_change=on_picked,
    )


def picked(key: str, length: int) -> tuple[int, int] | Literal["none", "leave"]:
    """What was picked: [start, end) within ``length`` characters, ``none`` (no mark) or ``leave`` (as it was)."""
    given = st.session_state[key].picked
    if isinstance(given, list) and len(given) == 2 and all(type(at) is int for at in given):
        start, end = given
        if 0 <= start < end <= length:
            return start, end
    return "none" if given == "none" else "leave"
