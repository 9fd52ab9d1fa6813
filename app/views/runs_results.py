"""What came of a run: accuracies before and after, measures with their intervals, counts, and where to go from here.

Written for any kind: what has an ``accuracy`` is a measure, what is a number is a fact. Not curves, not progress.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import streamlit as st
import yaml

from app.rollout_report import report_html
from app.settings import get_settings
from app.widgets.access import get_store
from app.widgets.address import as_sampled
from app.widgets.charts import CONFIG, Measure, measures
from app.widgets.curve_words import readable
from app.widgets.here import here_button
from app.widgets.plain_table import flat, plain_table, value_text
from db.rows import RunRow
from engine.checkpoints import read_card, resolve_checkpoint
from engine.errors import CheckpointError

BEFORE, AFTER = "held_out_before", "held_out_after"
ACCURACIES = {
    "single": "one judgment",
    "majority": "majority vote",
    "accuracy": "accuracy",
    "f1": "F1",
    "auc": "AUC",
}
"""What a part of a result that was measured before and after training may hold, and what it is called."""
SHARES = {"none": "without a verdict", "split": "chunks whose judgments differ"}
LEFT_OUT = ("by_problem", "verdicts")
"""Parts that are kept for later computations and are too long to read."""
DIFFERENCES = ("gain",)
"""Parts whose accuracy is a difference of two: told in words, not drawn among the accuracies."""
MOST_MEASURES = 24
JUDGES = ("judge", "discriminative-judge")


def show_result(run: RunRow) -> None:
    """The result panel. Nothing where the run has no result yet."""
    next_steps(run)
    if not run.result:
        return
    with st.container(border=True, key=f"result-{run.id}"):
        st.markdown("**Result**")
        _before_after(run)
        rows = list(found_measures({k: v for k, v in run.result.items() if k not in (BEFORE, AFTER)}))
        if rows:
            figure = measures(rows[:MOST_MEASURES])
            said = "; ".join(measure_text(row) for row in rows[:MOST_MEASURES])
            st.plotly_chart(figure, key=f"measures-{run.id}", config=CONFIG, alt=said)
            if len(rows) > MOST_MEASURES:
                st.caption(
                    f"{MOST_MEASURES} of {len(rows)} measures; all are in the recipe's run result below."
                )
        facts = result_facts(run.result)
        if facts:
            plain_table(
                ("What", "How much"),
                [(readable(name), value_text(value)) for name, value in facts.items()],
                label="Result",
                key=f"facts-{run.id}",
            )


def _before_after(run: RunRow) -> None:
    before, after = run.result.get(BEFORE), run.result.get(AFTER)
    if not isinstance(before, Mapping):
        return
    rows = []
    with st.container(horizontal=True):
        for name, called in ACCURACIES.items():
            if not isinstance(before.get(name), int | float):
                continue
            rows.append(Measure(f"{called}, before", before[name], *_interval(before, name)))
            if isinstance(after, Mapping) and isinstance(after.get(name), int | float):
                rows.append(Measure(f"{called}, after", after[name], *_interval(after, name)))
                gain = 100 * (after[name] - before[name])
                st.metric(
                    f"Held out, {called}",
                    f"{before[name]:.1%} → {after[name]:.1%}",
                    f"{gain:+.1f} points",
                    width=230,
                )
            else:
                st.metric(f"Held out, {called}, before", f"{before[name]:.1%}", width=230)
    if any(row.low is not None for row in rows):
        said = "; ".join(measure_text(row) for row in rows)
        st.plotly_chart(measures(rows), key=f"held-out-{run.id}", config=CONFIG, alt=said)
    facts = [
        f"{before[name]:,} {name}" for name in ("chunks", "problems") if isinstance(before.get(name), int)
    ]
    if isinstance(before.get("k"), int):
        facts.append(f"{before['k']} judgments each")
    for name, called in SHARES.items():
        if isinstance(before.get(name), float):
            now = (
                f" → {after[name]:.0%}"
                if isinstance(after, Mapping) and isinstance(after.get(name), float)
                else ""
            )
            facts.append(f"{called} {before[name]:.0%}{now}")
    st.caption("Measured on problems that are not trained on: " + ", ".join(facts) + ".")


def _interval(part: Mapping[str, Any], name: str) -> tuple[float | None, float | None]:
    """Where the interval of a value lies: ``single_interval`` of ``single``, ``interval`` of ``accuracy``."""
    for key in (f"{name}_interval", "interval" if name == "accuracy" else ""):
        limits = part.get(key)
        if isinstance(limits, list | tuple) and len(limits) == 2 and None not in limits:
            return float(limits[0]), float(limits[1])
    return None, None


def found_measures(part: Mapping[str, Any], name: str = "") -> Iterator[Measure]:
    """Every accuracy with its interval, named after the place in the result where it stands."""
    value = part.get("accuracy")
    if isinstance(value, int | float) and -1 <= value <= 1:
        n = part.get("n")
        low, high = _interval(part, "accuracy")
        yield Measure(name or "accuracy", float(value), low, high, n if isinstance(n, int) else None)
    for key, inner in part.items():
        if isinstance(inner, Mapping) and key not in (*LEFT_OUT, *DIFFERENCES):
            own = "" if key == "measures" else _place(str(key))
            yield from found_measures(inner, ", ".join(part for part in (name, own) if part))


def _place(key: str) -> str:
    return {"by_position": "chunk", "majority": "majority of", "by_label": "label"}.get(key, readable(key))


def measure_text(row: Measure) -> str:
    """A measure in words, for screen readers and tables."""
    limits = "" if row.low is None or row.high is None else f" ({row.low:.1%} to {row.high:.1%})"
    return f"{row.name} {row.value:.1%}{limits}" + ("" if row.n is None else f", n = {row.n:,}")


def result_facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """The other numbers and words of a result, in dotted names: no measure is told twice, nothing long."""
    return {name: value for name, value in flat(_pruned(result)).items() if not isinstance(value, Mapping)}


def _pruned(part: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    measured = isinstance(part.get("accuracy"), int | float) and name not in DIFFERENCES
    for key, value in part.items():
        if key in (BEFORE, AFTER, *LEFT_OUT) or (measured and key in ("accuracy", "interval", "n")):
            continue
        if isinstance(value, Mapping):
            if inner := _pruned(value, str(key)):
                out[key] = inner
        elif not (isinstance(value, list | tuple) and len(value) > 8):
            out[key] = value
    return out


def role_of(checkpoint: str, kind: str = "") -> str:
    """What a checkpoint is for, from its card, else from the kind of run that made it; empty: nobody says."""
    try:
        card = read_card(resolve_checkpoint(checkpoint, get_settings().home))
    except CheckpointError:
        card = {}
    by_kind = "judge" if kind.startswith("train-judge") else "policy" if kind else ""
    return str(card.get("role") or by_kind)


def next_steps(run: RunRow) -> None:
    """Links and buttons to what one does with such a run: each opens a form that is filled in already."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if run.kind in ("sample", "rollout", "judge") and run.done:
            _trajectories(run)
        if run.kind == "rollout" and run.done:
            report_button(run)
        if run.kind == "sample" and run.done:
            fields = [f"select.from_run={run.id}", *as_sampled(run.recipe)]
            here_button(
                "Roll them out",
                {"new": "rollout", "set": fields},
                key="next-step",
                icon=":material/account_tree:",
            )
        if isinstance(made := run.result.get("set"), str) and run.status == "done":
            _set_buttons(made, run)
        checkpoint = run.result.get("checkpoint")
        if run.status == "done" and isinstance(checkpoint, str):
            use_buttons(checkpoint, role_of(checkpoint, run.kind))
            here_button(
                "Its card",
                {"view": "checkpoints", "checkpoint": checkpoint},
                key="card",
                icon=":material/id_card:",
            )


def _trajectories(run: RunRow) -> None:
    """What the run made or worked on; nothing where those were chosen by many ids, by which the list has no filter."""
    ids = list((run.recipe.get("select") or {}).get("trajectory_ids") or ())
    if len(ids) == 1:
        st.page_link(
            "views/trajectory.py",
            label="Its trajectory",
            icon=":material/timeline:",
            query_params={"traj": str(ids[0])},
        )
    elif not ids:
        st.page_link(
            "views/trajectories.py",
            label="Its trajectories",
            icon=":material/list_alt:",
            query_params={"run": str(run.id)} if run.kind == "sample" else selected(run),
        )


def report_button(run: RunRow) -> None:
    """A rollout run's one-page report, made when the button is pressed."""
    st.download_button(
        "Its report",
        lambda: report_html(get_store(), run.id).encode("utf-8", errors="replace"),
        file_name=f"rollout-run-{run.id}.html",
        mime="text/html",
        icon=":material/lab_profile:",
        on_click="ignore",
        type="tertiary",
        key=f"report-{run.id}",
        help="One page that needs nothing else: outcomes, what was spared, throughput and waiting over time, recipe",
    )


def assigned(field: str, name: str) -> str:
    """``field=name`` for the address; quoted where YAML would take the name for a number or a date."""
    return f"{field}={name if yaml.safe_load(name) == name else json.dumps(name)}"


def _set_buttons(made: str, run: RunRow) -> None:
    """The set itself, and what a set of its form is trained on by."""
    st.page_link("views/data.py", label="The set", icon=":material/dataset:", query_params={"set": made})
    form = run.recipe.get("form", "completion")
    label, kind = {
        "judge": ("Train a judge on it", "train-judge"),
        "turns": ("Train a discriminative judge on it", "train-judge-sft"),
    }.get(form, ("Fine-tune a policy on it", "train-sft"))
    target = {"new": kind, "set": assigned("set", made)}
    here_button(label, target, key="next-step", icon=":material/model_training:")


def use_buttons(checkpoint: str, role: str) -> None:
    """What a checkpoint of that role is used for."""
    uses = {
        "judge": ("Judge with this checkpoint", ":material/gavel:"),
        "sample": ("Sample with this checkpoint", ":material/bubble_chart:"),
    }
    wanted = ("judge",) if role in JUDGES else ("sample",) if role else tuple(uses)
    for kind in wanted:
        label, icon = uses[kind]
        target = {"new": kind, "set": assigned("llm.checkpoint", checkpoint)}
        here_button(label, target, key=f"next-step-{kind}", icon=icon)


def selected(run: RunRow) -> dict[str, str]:
    """The Trajectories page's filters for what a run worked on."""
    select = run.recipe.get("select") or {}
    named = {"dataset": select.get("dataset"), "policy": select.get("policy"), "run": select.get("from_run")}
    return {name: str(value) for name, value in named.items() if value is not None}
