"""Runs: the list, one run (``?run=``), the form that starts one (``?new=``), checkpoints and comparison (``?view=``).

The address says which.
"""

from __future__ import annotations

import streamlit as st

from app.machine import GIB
from app.views import runs_forecast
from app.views.runs_checkpoints import show_checkpoints
from app.views.runs_compare import show_compare
from app.views.runs_detail import show_run
from app.views.runs_new import STARTED, show_new
from app.widgets.access import get_store
from app.widgets.empty import empty_state
from app.widgets.here import go_here, here_button
from app.widgets.live import live
from app.widgets.rows import row_table
from app.widgets.run_words import RUN_COLUMNS, run_row
from app.widgets.safe_text import escape_line

PAGE = 25
KNOWN = ("run", "new", "like", "recipe", "set", "before", "parts", "view", "runs", "checkpoint")
VIEWS = {"": "Runs", "checkpoints": "Checkpoints", "compare": "Compare"}


def page() -> None:
    """Which of the views the address asks for."""
    query = st.query_params
    for name in query:
        if name not in KNOWN:
            st.warning(f"The address has {escape_line(name, limit=40)}=…, which this page does not know.")
    if "run" in query:
        st.session_state.pop(STARTED, None)
        show_run(query["run"])
    elif "new" in query:
        show_new(query["new"])
    else:
        _front(query.get("view", ""))


def _front(view: str) -> None:
    """Title, the three views, and the one that is asked for."""
    if view not in VIEWS:
        st.error(
            f"There is no view {escape_line(view, limit=40)} here; there are {', '.join(v for v in VIEWS if v)}.",
            icon=":material/link_off:",
        )
        view = ""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title("Runs", anchor=False, width="content")
        here_button("Start a run", {"new": "sample"}, key="start-a-run", icon=":material/add:", primary=True)
    st.session_state["runs-view"] = view
    st.segmented_control(
        "View",
        list(VIEWS),
        format_func=VIEWS.__getitem__,
        key="runs-view",
        required=True,
        on_change=_choose_view,
        label_visibility="collapsed",
    )
    if view == "checkpoints":
        show_checkpoints(st.query_params.get("checkpoint"))
    elif view == "compare":
        show_compare(st.query_params.get("runs"))
    else:
        _list(st.query_params.get("before"))


def _choose_view() -> None:
    view = st.session_state["runs-view"]
    go_here({"view": view} if view else {})


def _list(before: str | None) -> None:
    cursor = int(before) if before is not None and before.isdecimal() and len(before) < 19 else None
    if before is not None and cursor is None:
        st.error(
            f"before={escape_line(before, limit=40)} is not the number of a run; this is the newest page.",
            icon=":material/link_off:",
        )
    with st.container(width="content", gap="xxsmall"):
        live(_worker, every=5)()
        live(_devices, every=10)()
    live(_rows, every=2)(cursor, "parts" in st.query_params)


def _worker() -> None:
    worker = get_store().worker()
    if worker is not None and get_store().worker_alive():
        st.markdown(
            f":green-badge[:material/check: worker alive] process {worker.pid} on {escape_line(worker.host, limit=60)}"
        )
    else:
        st.markdown(
            ":orange-badge[:material/warning: no worker is running] queued runs wait; start one: `stepwiser worker`"
        )


def _devices() -> None:
    """What is attached to the machine of the pages (the worker's, unless it was started elsewhere)."""
    machine = runs_forecast.machine()
    st.caption(
        f":material/memory: {machine.cores} CPU cores · {machine.memory_free / GIB:.1f} of "
        f"{machine.memory_total / GIB:.1f} GiB memory free · "
        + (
            " · ".join(
                f":material/developer_board: {escape_line(str(gpu), limit=80)}" for gpu in machine.gpus
            )
            or "no GPU attached"
        )
    )


def _rows(cursor: int | None, parts: bool) -> None:
    """A page of runs, newest first; refreshed while it is on screen, and it stays the page that it is.

    Runs that are parts of others stand on their parent's page: a loop of a hundred runs is one row here.
    """
    runs = get_store().runs(PAGE + 1, cursor, parts=parts)
    if not runs and cursor is None:
        empty_state(
            "No runs yet",
            "A run samples solutions, rolls them out, judges them or trains a judge. Start one with the button above, "
            "or load the sample: stepwiser sample load",
        )
        return
    row_table(RUN_COLUMNS, [run_row(run) for run in runs[:PAGE]], label="Runs", key="runs")
    kept = {"parts": "1"} if parts else {}
    with st.container(horizontal=True):
        if cursor is not None:
            here_button("Newest", kept, key="newest", icon=":material/first_page:")
        if len(runs) > PAGE:
            older = kept | {"before": str(runs[PAGE - 1].id)}
            here_button("Older", older, key="older", icon=":material/chevron_right:", icon_position="right")
        if parts:
            here_button("Without parts of other runs", {}, key="parts", icon=":material/unfold_less:")
        else:
            here_button(
                "Also parts of other runs",
                {"parts": "1"},
                key="parts",
                icon=":material/unfold_more:",
                help="The rounds of a loop, the cells of a laboratory plan: otherwise they stand on their parent's page",
            )


if __name__ == "__main__":
    page()
