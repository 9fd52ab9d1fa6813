"""What a page shows where there is nothing yet, or not what the address asked for."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app.widgets.safe_text import escape_line


def empty_state(
    title: str,
    advice: str,
    *,
    page: str | None = None,
    label: str = "",
    icon: str = ":material/inbox:",
    query: Mapping[str, str | list[str]] | None = None,
) -> None:
    """A calm box with what is missing (``title``), what to do (``advice``) and, if given, a link to ``page``.

    ``page`` is a view such as ``views/runs.py``, ``query`` its query parameters. All words are ours.
    """
    with st.container(border=True, horizontal_alignment="center", gap="xsmall"):
        st.markdown(f"{icon} **{title}**", text_alignment="center")
        st.caption(advice, text_alignment="center")
        if page:
            st.page_link(page, label=label, icon=":material/arrow_forward:", query_params=query)


def no_such(thing: str, given: str, *, page: str | None = None, label: str = "") -> None:
    """The named error for an unknown id in the address, and a link to another ``page`` if there is one.

    ``given`` may be anything and is escaped.
    """
    st.error(
        f"There is no {thing} {escape_line(given, limit=80)} in this store. "
        "It may have been made in another store, or the address was cut short.",
        icon=":material/link_off:",
    )
    if page:
        st.page_link(page, label=label, icon=":material/arrow_back:")
