"""What surrounds every page: whose name reviews carry, on what terms, and what the role allows. The store enforces it."""

from __future__ import annotations

import streamlit as st

from app.widgets.access import actor, get_store, signing_in
from app.widgets.safe_text import escape_line
from db.tables.people import ROLES


def reviewing_as() -> None:
    """Says whose name writes carry; nothing to whoever may not write."""
    if get_store().role(actor()) == "reader":
        return
    terms = "" if signing_in() else " (names on localhost are an honour system)"
    st.caption(f":material/person: reviewing as **{escape_line(actor(), limit=60)}**{terms}")


def allowed(role: str, doing: str) -> bool:
    """Whether whoever is in front of the page may do what takes ``role``; if not, says why. ``doing``: our words."""
    has = get_store().role(actor())
    if ROLES.index(has) >= ROLES.index(role):
        return True
    one = {"reader": "a reader", "annotator": "an annotator", "owner": "an owner"}
    st.caption(
        f":material/lock: {doing} takes {one[role]}, and you are {one[has]}. "
        "An owner sets roles on the People page."
    )
    return False
