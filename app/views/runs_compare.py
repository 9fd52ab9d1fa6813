"""Runs of one kind beside each other: curves laid over one another, the recipe's fields that differ, the results.

The address holds the runs (``?view=compare&runs=3,7``), so that a comparison can be sent to somebody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.kinds import KINDS
from app.views.runs_results import found_measures, measure_text, result_facts
from app.widgets.access import get_store
from app.widgets.charts import CONFIG, Line, curves
from app.widgets.curve_words import Panel, panels, readable
from app.widgets.empty import empty_state
from app.widgets.here import go_here
from app.widgets.plain_table import flat, plain_table, value_text
from app.widgets.run_words import amount_text, kind_title, shown_status
from app.widgets.safe_text import escape_line
from app.widgets.when import ago
from db.errors import NotFoundError
from db.rows import MetricRow, RunRow

MOST = 6
"""Runs on one figure: more cannot be told apart."""
RECENT = 50
COLUMNS = 2
UNINTERESTING = ("kind", "name", "seed")
"""Recipe fields that are named apart and make no two runs different in what they do."""


def show_compare(given: str | None) -> None:
    """The comparison that the address names; the choice above it writes the address."""
    chosen = _read(given)
    kind = chosen[0].kind if chosen else _choose_kind()
    if kind is None:
        empty_state(
            "Nothing to compare yet",
            "Two runs of one kind can be compared once they have started.",
            icon=":material/compare_arrows:",
        )
        return
    chosen = [run for run in chosen if run.kind == kind]
    _choice(kind, chosen)
    if len(chosen) < 2:
        st.caption(f"Choose a second run of the kind “{kind_title(kind).lower()}” to see them side by side.")
        return
    _curves(chosen)
    _recipes(chosen)
    _results(chosen)


def _read(given: str | None) -> list[RunRow]:
    """The runs that the address names; says which of them cannot be shown here, and why."""
    runs: list[RunRow] = []
    for text in dict.fromkeys(part.strip() for part in (given or "").split(",") if part.strip()):
        try:
            if not text.isdecimal() or len(text) > 18:
                raise NotFoundError(text)
            run = get_store().run(int(text))
        except NotFoundError:
            st.error(
                f"There is no run {escape_line(text, limit=40)} in this store.", icon=":material/link_off:"
            )
            continue
        if runs and run.kind != runs[0].kind:
            st.warning(
                f"Run {run.id} is of kind {run.kind} and run {runs[0].id} of kind {runs[0].kind}: only runs of one kind "
                "can be compared, so it is left out."
            )
        elif len(runs) < MOST:
            runs.append(run)
        else:
            st.warning(f"At most {MOST} runs can be compared: run {run.id} is left out.")
    return runs


def _choose_kind() -> str | None:
    """The kind to compare runs of, from those that have two; the training kinds first."""
    recent = get_store().runs(RECENT * 2)
    kinds = [kind for kind in KINDS if sum(run.kind == kind for run in recent) >= 2]
    kinds.sort(key=lambda kind: not kind.startswith("train-"))
    if not kinds:
        return None
    return st.selectbox("Kind of run", kinds, format_func=kind_title, key="compare-kind", width=320)


def _choice(kind: str, chosen: Sequence[RunRow]) -> None:
    recent = {run.id: run for run in get_store().runs(RECENT, kinds=[kind])} | {run.id: run for run in chosen}
    key = f"compare-{kind}"
    st.session_state[key] = [run.id for run in chosen]
    st.multiselect(
        "Runs",
        sorted(recent, reverse=True),
        key=key,
        format_func=lambda run_id: run_label(recent[run_id]),
        max_selections=MOST,
        placeholder="Choose two or more runs",
        on_change=_choose,
        args=(key,),
    )


def _choose(key: str) -> None:
    runs = ",".join(str(run_id) for run_id in st.session_state[key])
    go_here({"view": "compare", "runs": runs} if runs else {"view": "compare"})


def run_label(run: RunRow) -> str:
    """A run in a list to choose from: number, its own name, state, how much it did, when."""
    name = run.recipe.get("name") or run.name
    parts = [f"Run {run.id}", name, shown_status(run), amount_text(run), ago(run.created_at, run.now)]
    return " · ".join(str(part) for part in parts if part)


def _curves(runs: Sequence[RunRow]) -> None:
    series = {run.id: {k: v for k, v in get_store().metrics(run.id).items() if v} for run in runs}
    names = {name for own in series.values() for name in own}
    if not names:
        st.caption("None of them has curves.")
        return
    _grid(runs, panels(names, first=True), series)
    with st.expander("More curves"):
        _grid(runs, panels(names, first=False), series)


def _grid(
    runs: Sequence[RunRow], shown: Sequence[Panel], series: Mapping[int, Mapping[str, Sequence[MetricRow]]]
) -> None:
    single = [
        (panel, metric, name)
        for panel in shown
        for metric, name in panel.lines
        if any(metric in series[run.id] for run in runs)
    ]
    for start in range(0, len(single), COLUMNS):
        for column, (panel, metric, name) in zip(
            st.columns(COLUMNS), single[start : start + COLUMNS], strict=False
        ):
            with column:
                _overlaid(runs, panel, metric, name, series)


def _overlaid(
    runs: Sequence[RunRow],
    panel: Panel,
    metric: str,
    name: str,
    series: Mapping[int, Mapping[str, Sequence[MetricRow]]],
) -> None:
    lines = [
        Line(
            f"Run {run.id}",
            [row.step for row in series[run.id].get(metric, [])],
            [row.value for row in series[run.id].get(metric, [])],
        )
        for run in runs
    ]
    title = panel.title if len(panel.lines) == 1 else f"{panel.title}: {name}"
    st.markdown(f"**{escape_line(title, limit=80)}**", help=panel.good or None)
    said = "; ".join(f"{line.name} ends at {value_text(line.values[-1])}" for line in lines if line.values)
    figure = curves(lines, height=230, share=panel.share, smooth=True)
    st.plotly_chart(figure, key=f"compare-{metric}", config=CONFIG, alt=f"{title}: {said}")


def differing(recipes: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """{field: its value in each recipe} for the fields that are not the same in all; a missing field is None."""
    flats = [flat(recipe) for recipe in recipes]
    fields = dict.fromkeys(name for one in flats for name in one)
    rows = {name: [one.get(name) for one in flats] for name in fields if name not in UNINTERESTING}
    return {name: values for name, values in rows.items() if any(value != values[0] for value in values)}


def _titles(runs: Sequence[RunRow]) -> list[str]:
    return [f"Run {run.id}" for run in runs]


def _recipes(runs: Sequence[RunRow]) -> None:
    st.subheader("What differs in the recipes", anchor=False)
    rows = differing([run.recipe for run in runs])
    seeds = [run.recipe.get("seed") for run in runs]
    if any(seed != seeds[0] for seed in seeds):
        rows["seed"] = seeds
    if not rows:
        st.caption("Nothing: the same recipe and the same seed.")
        return
    shown = [(name, *(value_text(value) for value in values)) for name, values in rows.items()]
    plain_table(("Field", *_titles(runs)), shown, label="Recipe fields that differ", key="compare-recipes")


def _results(runs: Sequence[RunRow]) -> None:
    st.subheader("Results", anchor=False)
    columns = [result_cells(run.result) for run in runs]
    names = dict.fromkeys(name for cells in columns for name in cells)
    rows = [("status", *(shown_status(run) for run in runs)), ("done", *(amount_text(run) for run in runs))]
    rows += [(readable(name), *(cells.get(name, "–") for cells in columns)) for name in names]
    plain_table(("What", *_titles(runs)), rows, label="Results", key="compare-results")


def result_cells(result: Mapping[str, Any]) -> dict[str, str]:
    """A result as named cells: measures with their intervals, accuracies before and after, the other facts."""
    cells = {}
    for row in found_measures(result):
        cells[row.name] = measure_text(row).removeprefix(row.name).strip()
    for part in ("held_out_before", "held_out_after"):
        if isinstance(result.get(part), Mapping):
            cells |= {
                f"{part.replace('_', ' ')}: {name}": value_text(value)
                for name, value in flat(result[part]).items()
            }
    return cells | {name: value_text(value) for name, value in result_facts(result).items()}
