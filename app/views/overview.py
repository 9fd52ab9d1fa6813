"""Overview: what is in the store, which runs are alive, where Q is lost, how labels balance, how far review has come.

Everything comes from the store's kept totals: no scan, however large the store. The pictures of labels are in
``overview_labels``, those of judges and people in ``overview_people``. ``?judge=…&rule=…`` choose what one shows.
"""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from app.views.overview_labels import Totals, balance, counted, said, thresholds, where_lost
from app.views.overview_people import judge_by_position, noise, review
from app.widgets.access import get_store
from app.widgets.charts import CONFIG, Slice, share_bars
from app.widgets.chips import OUTCOMES
from app.widgets.empty import empty_state
from app.widgets.live import live
from app.widgets.rows import Column, Row, row_table
from app.widgets.run_words import ALIVE, RUN_COLUMNS, run_row
from app.widgets.safe_text import escape_line, visible

KNOWN = ("judge", "rule")
_OUTCOME_TONES = {
    "correct": "good",
    "wrong": "bad",
    "unparsed": "warn",
    "truncated": "line",
    "error": "quiet",
}
OUTCOME_SLICES = tuple(Slice(key, OUTCOMES[key][2], tone) for key, tone in _OUTCOME_TONES.items())
DATASET_COLUMNS = (
    Column("Data set", "link"),
    Column("Problems", "number"),
    Column("Trajectories", "number"),
)


def page() -> None:
    """The whole page; an empty store gets what to press instead."""
    st.title("Overview", anchor=False)
    for name in st.query_params:
        if name not in KNOWN:
            st.warning(f"The address has {escape_line(name, limit=40)}=…, which this page does not know.")
    totals = get_store().totals()
    if not totals.get("problems/dataset"):
        _nothing_yet()
        live(_alive, every=5)()
        return
    _counts(totals)
    live(_alive, every=2)()
    left, right = st.columns(2, gap="medium")
    with left:
        where_lost(totals)
        thresholds()
        judge_by_position(totals)
    with right:
        balance(totals)
        _outcomes(totals)
        review(totals)
        noise(totals)
        _datasets(totals)


def _nothing_yet() -> None:
    empty_state(
        "This store is empty",
        "Load the sample, which has problems, rollouts, judgments and reviews: stepwiser sample load. "
        "Or let nano write problems and solve them: start a sample run.",
        page="views/runs.py",
        label="Start a run",
    )


def _sum(totals: Totals, name: str) -> int:
    return sum(counted(totals, name).values())


def _counts(totals: Totals) -> None:
    counts = {
        "Problems": _sum(totals, "problems/dataset"),
        "Trajectories": _sum(totals, "trajectories/outcome"),
        "Chunks": _sum(totals, "chunks"),
        "Rollouts": _sum(totals, "rollouts/outcome"),
        "Judgments": _sum(totals, "judgments/verdict"),
        "Reviewed chunks": counted(totals, "reviewed").get("chunks", 0),
    }
    with st.container(horizontal=True):
        for name, count in counts.items():
            st.metric(name, f"{count:,}", width=128)


def _alive() -> None:
    """Runs that wait, work or have gone silent; refreshed while the page is open."""
    runs = get_store().runs(10, statuses=ALIVE)
    if not runs:
        st.caption(":material/bedtime: No run is alive.")
        return
    st.markdown("**Alive now**")
    row_table(RUN_COLUMNS, [run_row(run) for run in runs], label="Runs alive", key="alive")


def _outcomes(totals: Totals) -> None:
    st.markdown("**Outcomes**")
    bars = {
        "solutions": counted(totals, "trajectories/outcome"),
        "rollouts": counted(totals, "rollouts/outcome"),
    }
    bars = {name: counts for name, counts in bars.items() if counts}
    present = [part for part in OUTCOME_SLICES if any(counts.get(part.key) for counts in bars.values())]
    st.plotly_chart(share_bars(bars, present), key="outcomes", config=CONFIG, alt=said(bars))


def _datasets(totals: Totals) -> None:
    st.markdown("**Data sets**")
    problems, trajectories = counted(totals, "problems/dataset"), counted(totals, "trajectories/dataset")
    rows = [
        Row(
            id=name,
            href="/trajectories?" + urlencode({"dataset": name}),
            label=f"Trajectories of {visible(name)}",
            cells=(visible(name), f"{count:,}", f"{trajectories.get(name, 0):,}"),
        )
        for name, count in sorted(problems.items(), key=lambda item: -item[1])[:50]
    ]
    row_table(DATASET_COLUMNS, rows, label="Data sets", key="datasets")


if __name__ == "__main__":
    page()
