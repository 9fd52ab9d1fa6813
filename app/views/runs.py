"""Runs: the list, one run (``?run=``), or the form that starts one (``?new=``). The address says which."""

from __future__ import annotations

import psutil
import streamlit as st

from app.doctor import attached_gpus
from app.views.runs_detail import show_run
from app.views.runs_new import STARTED, show_new
from app.widgets.access import get_store
from app.widgets.empty import empty_state
from app.widgets.here import here_button
from app.widgets.live import live
from app.widgets.rows import row_table
from app.widgets.run_words import RUN_COLUMNS, run_row
from app.widgets.safe_text import escape_line

PAGE = 25
KNOWN = ("run", "new", "like", "set", "before")


def page() -> None:
    """Which of the three views the address asks for."""
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
        _list(query.get("before"))


def _list(before: str | None) -> None:
    st.title("Runs", anchor=False)
    cursor = int(before) if before is not None and before.isdecimal() and len(before) < 19 else None
    if before is not None and cursor is None:
        st.error(
            f"before={escape_line(before, limit=40)} is not the number of a run; this is the newest page.",
            icon=":material/link_off:",
        )
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        with st.container(width="content", gap="xxsmall"):
            live(_worker, every=5)()
            _devices()
        here_button("Start a run", {"new": "sample"}, key="start-a-run", icon=":material/add:", primary=True)
    live(_rows, every=2)(cursor)


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


@st.cache_data(ttl=10, show_spinner=False)
def _gpus() -> list[str]:
    return attached_gpus()


def _devices() -> None:
    """What is attached to the machine of the pages (the worker's, unless it was started elsewhere)."""
    memory = psutil.virtual_memory()
    gpus = _gpus()
    st.caption(
        f":material/memory: {psutil.cpu_count()} CPU cores · {memory.available / 2**30:.1f} of "
        f"{memory.total / 2**30:.1f} GiB memory free · "
        + (" · ".join(escape_line(gpu, limit=80) for gpu in gpus) if gpus else "no GPU attached")
    )


def _rows(cursor: int | None) -> None:
    """A page of runs, newest first; refreshed while it is on screen, and it stays the page that it is."""
    runs = get_store().runs(PAGE + 1, cursor)
    if not runs and cursor is None:
        empty_state(
            "No runs yet",
            "A run samples solutions, rolls them out, judges them or trains a judge. Start one with the button above, "
            "or load the sample: stepwiser sample load",
        )
        return
    row_table(RUN_COLUMNS, [run_row(run) for run in runs[:PAGE]], label="Runs", key="runs")
    with st.container(horizontal=True):
        if cursor is not None:
            here_button("Newest", {}, key="newest", icon=":material/first_page:")
        if len(runs) > PAGE:
            older = {"before": str(runs[PAGE - 1].id)}
            here_button("Older", older, key="older", icon=":material/chevron_right:", icon_position="right")


if __name__ == "__main__":
    page()
