"""Judges: side by side, how raters agree, and two of them compared. The address says which part (``?view=``)."""

from __future__ import annotations

import streamlit as st

from app.views.judges_address import VIEWS, read_asked
from app.views.judges_agreement import show_agreement
from app.views.judges_compare import show_comparison
from app.views.judges_raters import known_raters
from app.views.judges_table import show_judges
from app.widgets.access import get_store
from app.widgets.here import go_here, here_button


def page() -> None:
    """The part that the address asks for."""
    st.title("Judges", anchor=False)
    known = known_raters(st.query_params.get(name, "") for name in ("a", "b"))
    queues = {queue.id: queue.name for queue in get_store().queues()}
    asked = read_asked(known.titles, queues)
    if asked.wrong:
        for wrong in asked.wrong:
            st.error(wrong, icon=":material/link_off:")
        here_button("Start over", {}, key="start-over", icon=":material/restart_alt:")
        return
    st.session_state["judges-view"] = asked.view
    st.segmented_control(
        "Part of the page",
        list(VIEWS),
        format_func=lambda key: f"{VIEWS[key][1]} {VIEWS[key][0]}",
        key="judges-view",
        required=True,
        on_change=_turn,
        label_visibility="collapsed",
    )
    if asked.view == "agreement":
        show_agreement(asked, known, queues)
    elif asked.view == "compare":
        show_comparison(asked, known, queues)
    else:
        show_judges(asked, known)


def _turn() -> None:
    view = st.session_state["judges-view"]
    go_here({} if view == "judges" else {"view": view})


if __name__ == "__main__":
    page()
