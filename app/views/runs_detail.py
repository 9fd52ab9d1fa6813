"""One run: live progress, curves, log, result, and what it was started from. Stop and Resume are its only writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st
import yaml

from app.processes import log_path
from app.settings import get_settings
from app.widgets.access import get_store
from app.widgets.charts import CONFIG, curve
from app.widgets.chips import status_chip
from app.widgets.empty import no_such
from app.widgets.here import here_button
from app.widgets.live import live
from app.widgets.run_words import ALIVE, amount_text, kind_title, rate_text, share, shown_status, what_happens
from app.widgets.safe_text import escape_line
from app.widgets.when import ago, lasting, stamp
from db.errors import NotFoundError, StoreError
from db.rows import MetricRow, RunRow

EVERY_S = 2
LOG_BYTES = 24_000
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
FIRST_CURVES = ("reward", "frac_reward_zero_std", "entropy", "tokens_per_s")
"""Curves that come first, where a run has them; the others follow by name."""


def show_run(given: str) -> None:
    """The run whose id the address gives."""
    try:
        run = get_store().run(int(given)) if given.isdecimal() and len(given) < 19 else None
    except NotFoundError:
        run = None
    if run is None:
        no_such("run", given)
    here_button("All runs", {}, key="all-runs", icon=":material/arrow_back:")
    if run is None:
        return
    st.title(f"Run {run.id} · {kind_title(run.kind)}", anchor=False)
    every = EVERY_S if run.status in ALIVE else None
    live(_live, every=every)(run.id, run.status)
    _started_from(run)


def _live(run_id: int, status_before: str) -> None:
    """All that changes while the run works. A change of status redraws the whole page once."""
    run = get_store().run(run_id)
    _status_line(run)
    _buttons(run)
    _progress(run)
    _result(run)
    _curves(run)
    _log(run)
    if (status_before in ALIVE) != (run.status in ALIVE):
        st.rerun()


def _status_line(run: RunRow) -> None:
    status = shown_status(run)
    attempt = f" · attempt {run.attempt}" if run.attempt > 1 else ""
    st.markdown(
        f"{status_chip(status)} queued {ago(run.created_at, run.now)} by {escape_line(run.actor, limit=60)}{attempt}"
    )
    if status == "stalled":
        st.warning(
            f"Its process has given no sign of life for {lasting(run.heartbeat_age_s)}. Nothing that it committed is "
            "lost: Resume goes on where it was.",
            icon=":material/warning:",
        )
    elif run.error:
        st.error("It failed. What it said:", icon=":material/error:")
        st.code(run.error, language=None, wrap_lines=True)


def _progress(run: RunRow) -> None:
    part = share(run)
    if run.status in ALIVE:
        st.progress(part or 0.0)
    until = run.ended_at or run.heartbeat_at
    facts = {
        f"Done ({run.unit or 'units'})": amount_text(run).removesuffix(run.unit).strip() or "0",
        "Rate": rate_text(run.rate, run.unit),
    }
    if run.ended_at:
        facts |= {"Ended": ago(run.ended_at, run.now), "This attempt took": _span(run, until)}
    else:
        remaining = "–" if run.remaining_s is None else lasting(run.remaining_s)
        facts |= {"Remaining": remaining, "Running for": _span(run, until)}
    with st.container(horizontal=True):
        for name, value in facts.items():
            st.metric(name, value, width=165)
    if shown_status(run) != "stalled" and not run.error and (said := what_happens(run)):
        st.text(said)


def _span(run: RunRow, until: Any) -> str:
    return lasting((until - run.started_at).total_seconds()) if run.started_at and until else "–"


def _buttons(run: RunRow) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if run.status in ("queued", "running", "stalled"):
            asked = run.stop_requested and run.status == "running"
            st.button(
                "Stopping …" if asked else "Stop",
                key=f"stop-{run.id}",
                icon=":material/stop:",
                disabled=asked,
                on_click=_stop,
                args=(run.id,),
                help="It finishes the batch in hand and can be resumed",
            )
        if shown_status(run) in ("stopped", "failed", "stalled"):
            st.button(
                "Resume",
                key=f"resume-{run.id}",
                icon=":material/play_arrow:",
                type="primary",
                on_click=_resume,
                args=(run.id,),
                help="Goes on where it was; nothing that is done is done again",
            )
        here_button(
            "Again, with changes",
            {"new": run.kind, "like": str(run.id)},
            key="again",
            icon=":material/replay:",
            help="Opens the form with this run's recipe filled in",
        )
    if problem := st.session_state.pop(f"run-problem-{run.id}", None):
        st.error(escape_line(problem, limit=400), icon=":material/error:")


def _stop(run_id: int) -> None:
    try:
        get_store().request_stop(run_id)
    except StoreError as error:
        st.session_state[f"run-problem-{run_id}"] = str(error)


def _resume(run_id: int) -> None:
    store = get_store()
    try:
        store.mark_stalled(get_settings().stalled_after_s)
        store.resume_run(run_id)
    except StoreError as error:
        st.session_state[f"run-problem-{run_id}"] = str(error)


def _result(run: RunRow) -> None:
    """What came of it, and where to go from here."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if run.kind in ("sample", "rollout", "judge") and run.done:
            target = {"run": str(run.id)} if run.kind == "sample" else _selected(run)
            st.page_link(
                "views/trajectories.py",
                label="Its trajectories",
                icon=":material/list_alt:",
                query_params=target,
            )
        if run.kind == "sample" and run.done:
            target = {"new": "rollout", "set": f"select.from_run={run.id}"}
            here_button("Roll them out", target, key="next-step", icon=":material/account_tree:")
        checkpoint = run.result.get("checkpoint")
        if run.kind == "train-judge" and run.status == "done" and isinstance(checkpoint, str):
            target = {"new": "judge", "set": f"llm.checkpoint={checkpoint}"}
            here_button("Judge with this checkpoint", target, key="next-step", icon=":material/gavel:")
    if run.result:
        with st.container(border=True):
            st.caption("Result")
            text = yaml.safe_dump(run.result, sort_keys=False, allow_unicode=True)
            st.code(text.rstrip(), language="yaml", wrap_lines=True)


def _selected(run: RunRow) -> dict[str, str]:
    """The list's filters for what a run worked on."""
    select = run.recipe.get("select") or {}
    named = {"dataset": select.get("dataset"), "policy": select.get("policy"), "run": select.get("from_run")}
    return {name: str(value) for name, value in named.items() if value is not None}


def _curves(run: RunRow) -> None:
    series = {name: rows for name, rows in get_store().metrics(run.id).items() if rows}
    if not series:
        if run.kind == "train-judge" and run.status in ALIVE:
            st.caption("The reward curve appears with the first optimizer step.")
        return
    order = [name for name in FIRST_CURVES if name in series] + sorted(set(series) - set(FIRST_CURVES))
    _chart(run, order[0], series[order[0]])
    if rest := order[1:]:
        with st.expander(f"{len(rest)} more curves", expanded=len(rest) <= 3):
            for start in range(0, len(rest), 3):
                for column, name in zip(st.columns(3), rest[start : start + 3], strict=False):
                    with column:
                        _chart(run, name, series[name], small=True)


def _chart(run: RunRow, name: str, rows: Sequence[MetricRow], *, small: bool = False) -> None:
    figure = curve(name, [row.step for row in rows], [row.value for row in rows], small=small)
    said = f"{name}: {len(rows)} steps, last {rows[-1].value} at step {rows[-1].step}"
    st.plotly_chart(figure, key=f"curve-{run.id}-{name}", config=CONFIG, alt=said)


def log_tail(path: Path) -> str:
    """The end of a log as plain text: whole lines, without colours and control characters."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - LOG_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    if size > LOG_BYTES:
        text = text.partition("\n")[2]
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return _CONTROL.sub("", "\n".join(lines)).rstrip()


def _log(run: RunRow) -> None:
    path = log_path(get_settings(), run.id)
    if text := log_tail(path):
        st.caption("Log, newest lines last")
        with st.container(height=300, border=False, autoscroll=True, key=f"log-{run.id}"):
            st.code(text, language=None, wrap_lines=True)
    elif run.attempt:
        st.caption("No log on this machine: it was written elsewhere, or the run came with a sample.")


def _started_from(run: RunRow) -> None:
    """The resolved recipe and what else is needed to repeat the run."""
    recipe = yaml.safe_dump(run.recipe, sort_keys=False, allow_unicode=True)
    with st.expander("Recipe, versions and seed: all that is needed to repeat it"):
        left, right = st.columns([3, 2])
        with left:
            st.caption(f"Resolved recipe · seed {run.recipe.get('seed', '–')}")
            st.code(recipe.rstrip(), language="yaml", wrap_lines=True)
            st.download_button(
                "Download the recipe",
                recipe,
                file_name=f"run-{run.id}.yaml",
                mime="application/yaml",
                icon=":material/download:",
                on_click="ignore",
            )
        with right:
            st.caption("Prompts, by the hash of their wording")
            st.code(_table(run.prompt_hashes) or "none recorded yet", language=None)
            st.caption("Versions")
            st.code(_table(run.versions) or "none recorded yet", language=None)
            st.caption("Times")
            st.code(_table(_times(run)), language=None)


def _table(pairs: dict[str, str]) -> str:
    width = max((len(name) for name in pairs), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in pairs.items())


def _times(run: RunRow) -> dict[str, str]:
    times = {
        "queued": run.created_at,
        "started": run.started_at,
        "heartbeat": run.heartbeat_at,
        "ended": run.ended_at,
    }
    return {name: stamp(when) for name, when in times.items() if when}
