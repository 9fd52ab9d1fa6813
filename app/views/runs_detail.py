"""One run: live progress, its parts, log, and what it was started from. Stop and Resume are its only writes.

Curves and completions are in ``runs_training``, the result in ``runs_results``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import streamlit as st
import yaml

from app.kinds import KINDS
from app.processes import log_path
from app.settings import get_settings
from app.views.runs_parts import show_parent, show_parts
from app.views.runs_results import show_result
from app.views.runs_training import show_alarms, show_curves, show_samples
from app.widgets.access import actor, get_store
from app.widgets.chips import status_chip
from app.widgets.chrome import allowed
from app.widgets.empty import no_such
from app.widgets.here import here_button
from app.widgets.live import live
from app.widgets.run_words import ALIVE, amount_text, kind_title, rate_text, share, shown_status, what_happens
from app.widgets.safe_text import escape_line
from app.widgets.when import ago, lasting, stamp
from db.errors import NotFoundError, StoreError
from db.rows import RunRow

EVERY_S = 2
"""Between two looks at progress and log."""
LOG_BYTES = 24_000
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
CURVES_EVERY_S = 4


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
    part = f" · {escape_line(run.name, limit=60)}" if run.name else ""
    st.title(f"Run {run.id} · {kind_title(run.kind)}{part}", anchor=False)
    show_parent(run)
    alive = run.status in ALIVE
    live(_live, every=EVERY_S if alive else None)(run.id, run.status)
    live(show_curves, every=CURVES_EVERY_S if alive else None)(run.id)
    live(show_samples, every=5 * CURVES_EVERY_S if alive else None)(run.id)
    live(_log, every=EVERY_S if alive else None)(run.id)
    _started_from(run)


def _live(run_id: int, status_before: str) -> None:
    """What every heartbeat changes. A change of status redraws the whole page once."""
    run = get_store().run(run_id)
    _status_line(run)
    _buttons(run)
    _progress(run)
    show_alarms(run)
    show_parts(run)
    show_result(run)
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
        queued = run.status == "queued"  # and may have been at work in an earlier attempt
        facts |= {"Remaining": remaining, "Running for": "–" if queued else _span(run, until)}
    with st.container(horizontal=True):
        for name, value in facts.items():
            st.metric(name, value, width=165)
    if shown_status(run) != "stalled" and not run.error and (said := what_happens(run)):
        st.text(said)


def _span(run: RunRow, until: Any) -> str:
    return lasting((until - run.started_at).total_seconds()) if run.started_at and until else "–"


def _buttons(run: RunRow) -> None:
    trains = run.kind.startswith("train-")
    stoppable, resumable = run.status in ("queued", "running", "stalled"), _resumable(run)
    may = allowed("owner", "Stopping or resuming a run") if stoppable or resumable else True
    with st.container(horizontal=True, vertical_alignment="center"):
        if stoppable:
            asked = run.stop_requested and run.status == "running"
            st.button(
                "Stopping …" if asked else "Stop and save" if trains else "Stop",
                key=f"stop-{run.id}",
                icon=":material/stop:",
                disabled=asked or not may,
                on_click=_stop,
                args=(run.id,),
                help="It saves a checkpoint after the batch in hand; Resume goes on from there, on the same curve"
                if trains
                else "It finishes the batch in hand and can be resumed",
            )
        if resumable:
            st.button(
                "Resume",
                key=f"resume-{run.id}",
                icon=":material/play_arrow:",
                type="primary",
                disabled=not may,
                on_click=_resume,
                args=(run.id,),
                help="Goes on from its last checkpoint, on the same curve, with the same recipe"
                if trains
                else "Goes on where it was; nothing that is done is done again",
            )
        if run.kind in KINDS:
            _again(run)
    if problem := st.session_state.pop(f"run-problem-{run.id}", None):
        st.error(escape_line(problem, limit=400), icon=":material/error:")


def _resumable(run: RunRow) -> bool:
    return shown_status(run) in ("stopped", "failed", "stalled") and run.parent_id is None


def _again(run: RunRow) -> None:
    here_button(
        "Again, with changes",
        {"new": run.kind, "like": str(run.id)},
        key="again",
        icon=":material/replay:",
        help="Opens the form with this run's recipe filled in",
    )
    here_button(
        "Compare",
        {"view": "compare", "runs": str(run.id)},
        key="compare",
        icon=":material/compare_arrows:",
        help="Curves, recipes and results beside those of other runs of this kind",
    )


def _stop(run_id: int) -> None:
    try:
        get_store().request_stop(run_id, actor=actor())
    except StoreError as error:
        st.session_state[f"run-problem-{run_id}"] = str(error)


def _resume(run_id: int) -> None:
    store = get_store()
    try:
        store.mark_stalled(get_settings().stalled_after_s)
        store.resume_run(run_id, actor=actor())
    except StoreError as error:
        st.session_state[f"run-problem-{run_id}"] = str(error)


def log_tail(path: Path) -> str:
    """The end of a log as plain text: whole lines, without colours and control characters."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - LOG_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    if size > LOG_BYTES:  # one line alone may be longer: a progress bar that is drawn over and over
        text = text.partition("\n")[2] or text
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return _CONTROL.sub("", "\n".join(lines)).rstrip()


def _log(run_id: int) -> None:
    run = get_store().run(run_id)
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
