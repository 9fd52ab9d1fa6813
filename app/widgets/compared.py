"""Two solutions piece by piece, one above the other, from where they part; the words that differ are marked.

Not here: how they are compared (``engine.parting``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from app.widgets.safe_text import show_text
from engine.parting import Row, Span, parting

MOST_ROWS = 40
Name = Callable[[int], str]
"""What stands before a piece, by its index: a few words of ours in markdown."""


def show_compared(rows: Sequence[Row], here: Name, there: Name, *, raw: bool) -> None:
    """The rows from the last one that is the same on; how many came before it is said."""
    same = parting(rows)
    if same == len(rows):
        st.caption("The same, word for word.")
        same = 1
    if same > 1:
        st.caption(f"The same up to here: {same - 1} piece{'s' if same > 2 else ''} not shown.")
    first = max(0, same - 1)
    for row in rows[first : first + MOST_ROWS]:
        if row.same and row.here and row.there:
            _piece(":gray[:small[both]]", row.here[1], (), raw=raw)
            continue
        with st.container(border=True, gap="xxsmall"):
            if row.here:
                _piece(here(row.here[0]), row.here[1], row.marks_here, raw=raw)
            if row.there:
                _piece(there(row.there[0]), row.there[1], row.marks_there, raw=raw)
    if len(rows) > first + MOST_ROWS:
        st.caption(f"… and {len(rows) - first - MOST_ROWS} more pieces.")


def _piece(name: str, text: str, marks: Sequence[Span], *, raw: bool) -> None:
    whole = tuple(marks) == ((0, len(text)),)
    with st.container(horizontal=True, wrap=False, gap="small", vertical_alignment="top"):
        st.markdown(f"{name} :small[:gray[only here]]" if whole else name, width=128)
        with st.container(gap=None):
            show_text(text, raw=raw, marks=() if whole else marks)
