"""The curves of a run, the alarms that hold on them, and completions that training drew. Not its progress or its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from app.widgets.access import get_store
from app.widgets.charts import CONFIG, Line, curves
from app.widgets.chips import chip
from app.widgets.curve_words import Panel, first_metrics, panels
from app.widgets.run_words import ALIVE
from app.widgets.safe_text import escape_line, show_text
from db.rows import MetricRow, NewRunSample, RunRow
from engine.verifiers import VERIFIERS
from training.alarms import alarms

COLUMNS = 3
SHOWN_SAMPLES = 16
ALARM_CURVES = (
    "reward",
    "frac_reward_zero_std",
    "entropy",
    "verdicts/positive",
    "verdicts/none",
    "completions/clipped_ratio",
    "sampling/sampling_logp_difference/mean",
)
"""What ``training.alarms`` looks at."""
Series = Mapping[str, Sequence[MetricRow]]


def show_curves(run_id: int) -> None:
    """The curves that matter as small multiples, then the others, folded and not read until opened."""
    store = get_store()
    run = store.run(run_id)
    series = known(store.metrics(run_id, first_metrics()))
    if not series:
        if run.kind.startswith("train-") and run.status in ALIVE and run.attempt:
            st.caption("The curves appear with the first steps.")
        return
    _grid(run, panels(series, first=True), series)
    more = st.expander("More curves", key=f"more-curves-{run_id}", on_change="rerun")
    if more.open:
        with more:
            everything = known(store.metrics(run_id))
            _grid(run, panels(everything, first=False), everything)


def known(series: Series) -> dict[str, list[MetricRow]]:
    """The series that have a point at all."""
    return {name: list(rows) for name, rows in series.items() if rows}


def show_alarms(run: RunRow) -> None:
    """What goes wrong in a training, in words, and the field to change: a banner above everything else."""
    if not run.kind.startswith("train-"):
        return
    series = known(get_store().metrics(run.id, ALARM_CURVES))
    points = {
        name: [(row.step, row.value) for row in rows if row.value is not None]
        for name, rows in series.items()
    }
    for alarm in alarms(points):
        said = escape_line(f"{alarm.text[:1].upper()}{alarm.text[1:]} (step {alarm.step:,}).", limit=300)
        st.warning(
            f"**{said}** {escape_line(alarm.remedy, limit=400)}.".replace("..", "."),
            icon=":material/notifications_active:",
        )


def _grid(run: RunRow, shown: Sequence[Panel], series: Series) -> None:
    for start in range(0, len(shown), COLUMNS):
        for column, panel in zip(st.columns(COLUMNS), shown[start : start + COLUMNS], strict=False):
            with column:
                _panel(run, panel, series)


def _panel(run: RunRow, panel: Panel, series: Series) -> None:
    there = [(metric, name) for metric, name in panel.lines if metric in series]
    lines = [
        Line(name, [row.step for row in series[metric]], [row.value for row in series[metric]])
        for metric, name in there
    ]
    last = ", ".join(f"{line.name} {number(line.values[-1], panel.share)}" for line in lines)
    step = max(line.steps[-1] for line in lines)
    now = number(lines[0].values[-1], panel.share)
    st.markdown(f"**{escape_line(panel.title, limit=60)}** :gray[{now}]")
    if panel.good:
        st.caption(panel.good)
    figure = curves(lines, share=panel.share, smooth=len(lines) == 1)
    said = f"{panel.title}: {last} at step {step}. {panel.good}"
    st.plotly_chart(figure, key=f"curve-{run.id}-{there[0][0]}", config=CONFIG, alt=said)


def number(value: float | None, share: bool) -> str:
    """A value as the figures write it."""
    if value is None:
        return "not a number"
    if share:
        return f"{value:.0%}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def show_samples(run_id: int) -> None:
    """Completions by step, with what they were compared with and what they got. Nothing where none were kept."""
    store = get_store()
    steps = store.run_sample_steps(run_id)
    if not steps:
        return
    st.subheader("What it writes", anchor=False)
    st.caption(
        "Completions that training drew, kept every so many steps: read what the reward is given for, and whether it "
        "changes."
    )
    step = steps[0]
    if len(steps) > 1:
        key = f"samples-step-{run_id}"
        if st.session_state.get(key) not in steps:
            st.session_state[key] = steps[-1]
        step = st.select_slider("Step", steps, key=key, format_func=lambda at: f"step {at:,}")
    by_prompt: dict[str, list[NewRunSample]] = {}
    for row in store.run_samples(run_id, step)[:SHOWN_SAMPLES]:
        by_prompt.setdefault(row.prompt, []).append(row)
    raw = st.toggle("Raw text", key="raw_text", persist_state="session")
    for place, (prompt, rows) in enumerate(by_prompt.items()):
        with st.container(border=True, key=f"samples-{run_id}-{place}"):
            with st.expander(f"Prompt {place + 1}, {len(rows)} completion{'s' if len(rows) > 1 else ''}"):
                show_text(prompt, raw=True)
            for column, row in zip(st.columns(min(2, len(rows))) * len(rows), rows, strict=False):
                with column:
                    _sample(row, raw)


def compared_words(label: str) -> str:
    """What a completion was compared with; tests of a program in words, not as the JSON that they are."""
    return VERIFIERS["code"].words(label) if label.startswith('{"tests"') else label


def _sample(row: NewRunSample, raw: bool) -> None:
    marks = []
    if row.reward is not None:
        good = row.reward > 0
        marks.append(chip("green" if good else "red", "check" if good else "close", f"reward {row.reward:g}"))
    if row.label is not None:
        said = escape_line(compared_words(row.label), limit=60)
        marks.append(chip("gray", "label", f"compared with {said}"))
    st.markdown(" ".join(marks) or ":gray[no reward]")
    show_text(row.completion, raw=raw, limit=4000)
