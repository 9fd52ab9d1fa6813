"""What surrounds every page: whose name reviews carry, and on what terms."""

from __future__ import annotations

import streamlit as st

from app.widgets.access import actor, signing_in
from app.widgets.safe_text import escape_line


def reviewing_as() -> None:
    """Says whose name writes carry."""
    terms = "" if signing_in() else " (names on localhost are an honour system)"
    st.caption(f":material/person: reviewing as **{escape_line(actor(), limit=60)}**{terms}")
