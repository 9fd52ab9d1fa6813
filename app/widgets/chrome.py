"""What surrounds every page: whose name reviews carry, and on what terms."""

from __future__ import annotations

import streamlit as st

from app.widgets.access import actor
from app.widgets.safe_text import escape_line


def reviewing_as() -> None:
    """Says whose name writes carry."""
    st.caption(
        f":material/person: reviewing as **{escape_line(actor(), limit=40)}** "
        "(names on localhost are an honour system)"
    )
