"""Warning signs of reward hacking: what a policy does that is paid and not wanted, and the curves that show it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.views.rewards_group import Group
from app.views.rewards_words import sum_pays_for_chunks
from app.widgets.access import get_store
from app.widgets.charts import CONFIG, curve
from app.widgets.empty import empty_state
from db.rows import MetricRow, RunRow

SIGNS = {
    "Longer answers": "Tokens a solution grow while the pass rate does not: words are paid, not progress.",
    "More chunks": "With **sum** every further chunk adds to the reward, so one thought is cut into many.",
    "Empty or repeated chunks": "A chunk that says nothing new cannot be wrong, and a judge may wave it through.",
    "Judge pleased, answers wrong": "Process reward rises while the outcome stands still: the policy has learned the "
    "judge's blind spots.",
}
CURVES = {
    "rewards/process": "Process reward",
    "rewards/outcome": "Outcome",
    "guards/chunks": "Chunks a solution",
    "guards/empty_chunks": "Empty chunks a solution",
    "guards/repeated_chunks": "Repeated chunks a solution",
    "guards/well_formed": "Share well formed",
    "guards/penalty": "Penalty a solution",
    "completions/mean_length": "Tokens a solution",
}
A_ROW = 4


def warning_signs(group: Group | None) -> None:
    """The signs in words, the group's own numbers where there is one, and the curves of the newest policy run."""
    st.markdown("##### Signs of reward hacking", anchors=False)
    st.caption("A dense reward can be earned without solving anything. Watch these while a policy trains:")
    here = {"More chunks": sum_pays_for_chunks(group) if group is not None else ""}
    st.markdown("\n".join(f"- **{name}.** {why} {here.get(name, '')}" for name, why in SIGNS.items()))
    run, series = newest_policy_run()
    if run is None:
        empty_state(
            "No policy was trained yet",
            "A policy training run draws these as curves: length, chunks, empty chunks, process reward beside outcome.",
            page="views/runs.py",
            label="Train a policy",
            query={"new": "train-policy"},
            icon=":material/monitoring:",
        )
        return
    st.page_link(
        "views/runs.py",
        label=f"The guards of run {run.id}, the newest policy run with curves",
        icon=":material/play_circle:",
        query_params={"run": str(run.id)},
    )
    names = [name for name in CURVES if name in series]
    for start in range(0, len(names), A_ROW):
        for column, name in zip(st.columns(A_ROW), names[start : start + A_ROW], strict=False):
            with column:
                _draw(run, name, series[name])


def newest_policy_run() -> tuple[RunRow | None, dict[str, list[MetricRow]]]:
    """The newest policy run that has drawn any of the curves, with them."""
    store = get_store()
    for run in store.runs(10, kinds=["train-policy"]):
        series = {name: rows for name, rows in store.metrics(run.id, list(CURVES)).items() if rows}
        if series:
            return run, series
    return None, {}


def _draw(run: RunRow, name: str, rows: Sequence[MetricRow]) -> None:
    figure = curve(CURVES[name], [row.step for row in rows], [row.value for row in rows], small=True)
    st.plotly_chart(
        figure,
        key=f"guard-{run.id}-{name}",
        config=CONFIG,
        alt=f"{CURVES[name]}: {rows[0].value} at step {rows[0].step}, {rows[-1].value} at step {rows[-1].step}",
    )
