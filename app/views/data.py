"""Data: training sets, label thresholds, export and import. The address says which (``?tab=``), or one set (``?set=``)."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.views.data_export import show_export
from app.views.data_import import show_import
from app.views.data_set import show_set
from app.views.data_sets import show_sets
from app.views.data_thresholds import show_thresholds
from app.widgets.here import go_here
from app.widgets.safe_text import escape_line

TABS: dict[str, tuple[str, str, Callable[[], None]]] = {
    "sets": ("Training sets", ":material/dataset:", show_sets),
    "thresholds": ("Thresholds", ":material/tune:", show_thresholds),
    "export": ("Export", ":material/download:", show_export),
    "import": ("Import", ":material/upload:", show_import),
}
KNOWN = ("tab", "set", "rule")


def page() -> None:
    """The part that the address asks for."""
    query = st.query_params
    for name in query:
        if name not in KNOWN:
            st.warning(f"The address has {escape_line(name, limit=40)}=…, which this page does not know.")
    if "set" in query and query.get("tab", "sets") == "sets":
        show_set(query["set"])
        return
    tab = query.get("tab", "sets")
    st.title("Data", anchor=False)
    if tab not in TABS:
        st.error(
            f"tab={escape_line(tab, limit=60)}: this page has {', '.join(TABS)}.", icon=":material/link_off:"
        )
        tab = "sets"
    st.session_state["data-tab"] = tab
    st.segmented_control(
        "Part of the page",
        list(TABS),
        format_func=lambda key: f"{TABS[key][1]} {TABS[key][0]}",
        key="data-tab",
        required=True,
        on_change=_turn,
        label_visibility="collapsed",
    )
    TABS[tab][2]()


def _turn() -> None:
    go_here({"tab": st.session_state["data-tab"]})


if __name__ == "__main__":
    page()
