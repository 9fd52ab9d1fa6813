"""Runs that are parts of another run (a loop's rounds, a plan's cells): beneath their parent, with their progress."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from app.widgets.access import get_store
from app.widgets.here import here_button
from app.widgets.rows import row_table
from app.widgets.run_words import PART_COLUMNS, part_row, shown_status
from db.rows import RunRow

ORDER = ("running", "stalled", "failed", "queued", "stopped", "done")
OPEN_UP_TO = 12
"""With more parts than this, those that are done are folded."""


def show_parent(run: RunRow) -> None:
    """The way from a part to the run that made it, which also stops and resumes it."""
    if run.parent_id is None:
        return
    here_button(
        f"Part of run {run.parent_id}",
        {"run": str(run.parent_id)},
        key="parent",
        icon=":material/account_tree:",
        help="That run starts, stops and resumes this one",
    )


def show_parts(run: RunRow) -> None:
    """The parts of a run: how many are where, and a row each; many that are done stay folded."""
    parts = get_store().children(run.id)
    if not parts:
        return
    counts = Counter(shown_status(part) for part in parts)
    said = ", ".join(f"{counts[status]} {status}" for status in ORDER if counts[status])
    st.markdown(f"**Its parts**: {len(parts)} runs, {said}")
    st.progress(counts["done"] / len(parts))
    current = parts if len(parts) <= OPEN_UP_TO else [part for part in parts if part.status != "done"]
    if current:
        _table(current, f"parts-{run.id}", "Parts of this run")
    if done := [part for part in parts if part not in current]:
        folded = st.expander(f"{len(done)} more that are done", key=f"parts-done-{run.id}", on_change="rerun")
        if folded.open:
            with folded:
                _table(done, f"parts-done-table-{run.id}", "Parts that are done")


def _table(parts: list[RunRow], key: str, label: str) -> None:
    row_table(PART_COLUMNS, [part_row(part) for part in parts], label=label, key=key)
