"""Find solutions, or chunks: which of the two lists the address asks for. The lists are trajectories_solutions and
trajectories_chunks."""

from __future__ import annotations

import streamlit as st

from app.views.trajectories_actions import go_where_asked, saved_searches
from app.views.trajectories_address import (
    SHOW,
    as_chunks,
    as_solutions,
    filter_query,
    read_chunks,
    read_solutions,
)
from app.views.trajectories_chunks import show_chunks
from app.views.trajectories_solutions import show_solutions
from app.widgets.access import get_store
from app.widgets.empty import empty_state
from app.widgets.here import go_here
from app.widgets.safe_text import escape_line
from db.reads_list import TrajectoryFilter


def page() -> None:
    """The list that the address asks for."""
    go_where_asked()
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title("Trajectories", anchor=False, width="content")
        if not get_store().is_empty():
            saved_searches()
    if get_store().is_empty():
        empty_state(
            "No trajectories yet",
            "Start a sample run on the Runs page, or load the sample: stepwiser sample load",
            page="views/runs.py",
            label="Go to Runs",
        )
        return
    show = st.query_params.get("show", "solutions")
    if show not in SHOW:
        st.error(
            f"show={escape_line(show, limit=60)}: it can be {', '.join(SHOW)}", icon=":material/link_off:"
        )
        show = "solutions"
    _switch(show)
    if show == "chunks":
        show_chunks(read_chunks(st.query_params.to_dict()))
    else:
        show_solutions(read_solutions({n: v for n, v in st.query_params.items() if n != "show"}))


def _switch(show: str) -> None:
    st.session_state["list-show"] = show
    st.segmented_control(
        "List",
        SHOW,
        format_func=lambda name: {
            "solutions": ":material/list_alt: Solutions",
            "chunks": ":material/segment: Chunks",
        }[name],
        key="list-show",
        required=True,
        on_change=_switched,
        label_visibility="collapsed",
    )


def _switched() -> None:
    """The other list, with the filters that both have."""
    query = st.query_params.to_dict()
    if st.session_state["list-show"] == "chunks":
        asked = read_solutions({n: v for n, v in query.items() if n != "show"})
        assert isinstance(asked.where, TrajectoryFilter)
        go_here({"show": "chunks", **({} if asked.problems else filter_query(as_chunks(asked.where)))})
    else:
        go_here(as_solutions(query))


if __name__ == "__main__":
    page()
