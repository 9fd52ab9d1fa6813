"""Overview: what is in the store, which runs are alive, where Q is lost, how labels balance, how far review has come.

Everything comes from the store's kept totals: no scan, however large the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import streamlit as st

from app.widgets.access import get_store
from app.widgets.charts import CONFIG, Slice, lost_and_gained, share_bars
from app.widgets.chips import OUTCOMES
from app.widgets.empty import empty_state
from app.widgets.live import live
from app.widgets.rows import Column, Row, row_table
from app.widgets.run_words import ALIVE, RUN_COLUMNS, run_row
from app.widgets.safe_text import visible

Totals = Mapping[str, Mapping[str, tuple[int, float]]]
RULES = {"abs_q": "abs-q", "rel_effective": "rel-effective (α = 0.4)", "rel_ratio": "rel-ratio (γ = 0.8)"}
LABELS = (Slice("+", "+", "good"), Slice("-", "−", "bad"), Slice("none", "no label", "quiet"))
_OUTCOME_TONES = {
    "correct": "good",
    "wrong": "bad",
    "unparsed": "warn",
    "truncated": "line",
    "error": "quiet",
}
OUTCOME_SLICES = tuple(Slice(key, OUTCOMES[key][2], tone) for key, tone in _OUTCOME_TONES.items())
POSITIONS = 16
"""Chunk positions drawn one by one; later ones share the last bar."""
DATASET_COLUMNS = (
    Column("Data set", "link"),
    Column("Problems", "number"),
    Column("Trajectories", "number"),
)


def page() -> None:
    """The whole page; an empty store gets what to press instead."""
    st.title("Overview", anchor=False)
    totals = get_store().totals()
    if not totals.get("problems/dataset"):
        _nothing_yet()
        live(_alive, every=5)()
        return
    _counts(totals)
    live(_alive, every=2)()
    left, right = st.columns(2, gap="medium")
    with left:
        _where_lost(totals)
        _outcomes(totals)
    with right:
        _balance(totals)
        _review(totals)
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
    return sum(n for n, _ in totals.get(name, {}).values())


def _counted(totals: Totals, name: str) -> dict[str, int]:
    return {key: n for key, (n, _) in totals.get(name, {}).items()}


def _counts(totals: Totals) -> None:
    counts = {
        "Problems": _sum(totals, "problems/dataset"),
        "Trajectories": _sum(totals, "trajectories/outcome"),
        "Chunks": _sum(totals, "chunks"),
        "Rollouts": _sum(totals, "rollouts/outcome"),
        "Judgments": _sum(totals, "judgments/verdict"),
        "Reviewed chunks": _counted(totals, "reviewed").get("chunks", 0),
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


def _where_lost(totals: Totals) -> None:
    st.markdown("**Where Q is lost**")
    rows = lost_rows(totals)
    if not rows:
        st.caption(
            "No values yet: roll out some trajectories, and the chance of success after each chunk is known."
        )
        return
    st.caption("Mean Q lost and gained over one chunk, by its position; only chunks with both values known.")
    worst = max(rows, key=lambda row: row[1])
    st.plotly_chart(
        lost_and_gained(rows),
        key="lost",
        config=CONFIG,
        alt=f"Most Q is lost at chunk {worst[0]}: {worst[1]:.3f} a chunk over {worst[3]} chunks.",
    )


def lost_rows(totals: Totals) -> list[tuple[str, float, float, int]]:
    """(position, mean lost, mean gained, n), later positions together."""
    lost, gained = totals.get("lost/position", {}), totals.get("gained/position", {})
    sums: dict[int, list[float]] = {}
    for key, (n, amount) in lost.items():
        at = sums.setdefault(min(int(key), POSITIONS), [0, 0.0, 0.0])
        at[0], at[1] = at[0] + n, at[1] + amount
        at[2] += gained.get(key, (0, 0.0))[1]
    return [
        (f"{POSITIONS}+" if place == POSITIONS else str(place), total_lost / n, total_gained / n, int(n))
        for place, (n, total_lost, total_gained) in sorted(sums.items())
        if n
    ]


def _outcomes(totals: Totals) -> None:
    st.markdown("**Outcomes**")
    bars = {
        "solutions": _counted(totals, "trajectories/outcome"),
        "rollouts": _counted(totals, "rollouts/outcome"),
    }
    bars = {name: counts for name, counts in bars.items() if counts}
    present = [part for part in OUTCOME_SLICES if any(counts.get(part.key) for counts in bars.values())]
    st.plotly_chart(share_bars(bars, present), key="outcomes", config=CONFIG, alt=_said(bars))


def _balance(totals: Totals) -> None:
    st.markdown("**Label balance**")
    bars = {title: _counted(totals, f"labels/{rule}") for rule, title in RULES.items()}
    if not any(bars.values()):
        st.caption("No labels yet: they follow from the values that rollouts give.")
        return
    st.caption("Chunks by label under each rule; no label where a value is unknown.")
    st.plotly_chart(share_bars(bars, LABELS), key="balance", config=CONFIG, alt=_said(bars))


def _said(bars: Mapping[str, Mapping[str, int]]) -> str:
    return "; ".join(
        f"{name}: " + ", ".join(f"{n} {key}" for key, n in counts.items()) for name, counts in bars.items()
    )


def _review(totals: Totals) -> None:
    st.markdown("**Review**")
    reviewed = _counted(totals, "reviewed")
    for noun, total in (
        ("chunks", _sum(totals, "chunks")),
        ("trajectories", _sum(totals, "trajectories/outcome")),
    ):
        done = reviewed.get(noun, 0)
        share = min(1.0, done / total) if total else 0.0
        st.progress(share, text=f"{done:,} of {total:,} {noun} reviewed")
    st.page_link(
        "views/trajectories.py",
        label="Review where judges and labels disagree",
        icon=":material/rate_review:",
        query_params={"sort": "disagreement", "reviewed": "no"},
    )


def _datasets(totals: Totals) -> None:
    st.markdown("**Data sets**")
    problems, trajectories = _counted(totals, "problems/dataset"), _counted(totals, "trajectories/dataset")
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
