"""One trajectory: problem, chunks and Q curve; of the selected chunk its judges, rollouts, labels and review.

``/trajectory?traj=…&chunk=…&rollout=…`` restores the view (address.py has the rest). Not here: finding trajectories
(trajectories.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.views.trajectory_chunks import show_chunks
from app.views.trajectory_detail import show_detail
from app.views.trajectory_others import show_others
from app.views.trajectory_rules import show_rules
from app.views.trajectory_shown import Shown, mark_rows, read_shown, shown_rule_words
from app.views.trajectory_stopped import show_gaps
from app.widgets.access import get_store
from app.widgets.address import RAW, RUNS, change, go, new_run, read_address
from app.widgets.chips import chip, outcome_chip
from app.widgets.empty import empty_state, no_such
from app.widgets.keys import key_hint, press_keys
from app.widgets.reference import show_reference
from app.widgets.safe_text import RAW_HELP, code, escape_line, show_text
from app.widgets.trajectory_style import trajectory_style
from app.widgets.value_curve import chunk_at, summary, value_figure
from db.errors import NotFoundError
from db.reads_trajectory import TrajectoryView

_LIST = "views/trajectories.py"
_RAW_KEY = "trajectory-raw"
_BAD = {
    "rule": "label rule",
    "gamma": "γ",
    "alpha": "α",
    "n": "n",
    "traj": "traj",
    "chunk": "chunk",
    "rollout": "rollout",
    "judgment": "judgment",
    "beside": "solution to show beside",
    "raw": "raw",
}


def page() -> None:
    """The page, from its address."""
    address = read_address()
    if address.bad:
        name, text = address.bad
        if name in ("rule", "gamma", "alpha", "n", "raw"):
            st.error(
                f"{_BAD[name]} cannot be {escape_line(text, limit=40)}; the address asks for it.",
                icon=":material/link_off:",
            )
            usual = dict.fromkeys(("raw",) if name == "raw" else ("rule", "gamma", "alpha", "n"))
            st.button(
                "Show text as usual" if name == "raw" else "Use the usual labels",
                on_click=lambda: change(**usual),
            )
            return
        no_such(_BAD[name], text, page=_LIST, label="All trajectories")
        return
    if address.trajectory is None:
        empty_state(
            "No trajectory chosen",
            "Open one from the list; its address can be sent to a colleague.",
            page=_LIST,
            label="All trajectories",
            icon=":material/timeline:",
        )
        return
    view = get_store().trajectory_view(address.trajectory)
    if view is None:
        no_such("trajectory", str(address.trajectory), page=_LIST, label="All trajectories")
        return
    raw = address.raw
    targets = _header(view, raw)
    shown = read_shown(view, address, raw=raw)
    above_left, above_right = st.columns([5, 7], gap="medium")
    with above_left:
        _problem(view, raw)
        if _has_curve(shown):
            show_rules(shown)
    with above_right:
        _above(shown)
    with st.container(key="trajectory-below"):
        below_left, below_right = st.columns([5, 7], gap="medium")
        with below_left:
            show_chunks(shown)
        with below_right:
            targets |= show_detail(shown)
    if not view.blind:
        show_others(shown)
    press_keys(targets, key="trajectory-keys")
    trajectory_style()


def _header(view: TrajectoryView, raw: bool) -> dict[str, str]:
    """Title and ways on; returns {action: key of the widget that it presses}."""
    before, after = get_store().neighbours(view.id)
    state = chip("violet", "visibility_off", "blind") if view.blind else outcome_chip(view.outcome)
    targets = {"raw": _RAW_KEY}
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"## Trajectory {view.id} &nbsp; {state}", anchors=False)
        with st.container(horizontal=True, vertical_alignment="center", width="content", gap="small"):
            _raw_toggle(raw)
            for words, icon, action, target in (
                ("Previous", "arrow_back", "previous", before),
                ("Next", "arrow_forward", "next", after),
            ):
                targets[action] = f"trajectory-{action}"
                st.button(
                    f"{words} {key_hint(action)}",
                    key=targets[action],
                    icon=f":material/{icon}:",
                    disabled=target is None,
                    on_click=go,
                    args=(target,),
                    help=f"{words} trajectory",
                )
    return targets


def _raw_toggle(raw: bool) -> None:
    """It follows the address and writes to it: a colleague sees what the sender of the address saw."""
    st.session_state[_RAW_KEY] = raw

    def turn() -> None:
        change(raw=RAW if st.session_state[_RAW_KEY] else None)

    st.toggle("Raw text", key=_RAW_KEY, help=RAW_HELP, on_change=turn)


def _problem(view: TrajectoryView, raw: bool) -> None:
    with st.container(gap="xsmall"):
        st.caption("Problem")
        show_text(view.problem, raw=raw)
        if not view.blind:
            given = code(view.answer) if view.answer is not None else "none"
            then = f" · this solution's answer {given}"
            show_reference(view.reference, view.verifier, then=then)
        st.caption(_facts(view))
        if view.run_id is not None:
            st.page_link(
                RUNS,
                label=f"Made by run {view.run_id}",
                icon=":material/play_circle:",
                query_params={"run": str(view.run_id)},
            )
        if view.note:
            st.caption(f":material/info: {escape_line(view.note, limit=400)}")


def _facts(view: TrajectoryView) -> str:
    facts = [
        f"policy **{escape_line(view.policy, limit=60)}**",
        f"{escape_line(view.dataset, limit=60)} / {escape_line(view.key, limit=60)}",
        f"draw {view.draw}" if view.draw is not None else "not sampled here",
        f"{view.n_chunks} chunks cut by {escape_line(view.cutter)}",
    ]
    if view.n_tokens is not None:
        facts.append(f"{view.n_tokens} tokens, ended by {escape_line(view.finish_reason or 'nothing known')}")
    return " · ".join(facts)


def _above(shown: Shown) -> None:
    """The curve, or why there is none."""
    view = shown.view
    if view.blind:
        empty_state(
            "Blind",
            "A queue of yours hides values, labels, verdicts and other people's reviews of this solution "
            "until you have answered the last of its items in it.",
            page="views/queue.py",
            label="To the queues",
            icon=":material/visibility_off:",
        )
        return
    if not view.n_chunks:
        empty_state(
            "No chunks",
            "This solution has no chunks, so there is nothing to draw a curve over.",
            page=_LIST,
            label="All trajectories",
            icon=":material/show_chart:",
        )
        return
    if not _has_curve(shown):
        empty_state(
            "Values unknown",
            "Nothing was rolled out from this solution. A rollout run draws its Q curve.",
            page=RUNS,
            label="Roll out this trajectory",
            query=new_run("rollout", view.id, _sampled(view)),
            icon=":material/show_chart:",
        )
        return
    _curve(shown)
    show_gaps(shown)


def _sampled(view: TrajectoryView) -> Mapping[str, Any] | None:
    """The recipe of the run that sampled it, which rollouts should share; None where it was imported."""
    try:
        run = get_store().run(view.run_id) if view.run_id is not None else None
    except NotFoundError:
        return None
    return run.recipe if run is not None and run.kind == "sample" else None


def _has_curve(shown: Shown) -> bool:
    """Whether anything but the grade of the end is known of its values."""
    return any(value.known or value.bounds for value in shown.values[:-1])


def _curve(shown: Shown) -> None:
    key = f"curve-{shown.view.id}"

    def select_point() -> None:
        points = st.session_state[key].selection.points
        if points:
            go(shown.view.id, min(chunk_at(points[-1]["x"]), shown.view.n_chunks - 1))

    rows, more = mark_rows(shown)
    st.plotly_chart(
        value_figure(
            shown.values,
            shown.label,
            shown.selected,
            dark=st.context.theme.type == "dark",
            rows=rows,
            rule=shown_rule_words(shown.rules),
        ),
        key=key,
        on_select=select_point,
        selection_mode="points",
        config={"displayModeBar": False, "scrollZoom": False, "doubleClick": False},
        alt=summary(shown.values),
    )
    if more:
        st.caption(f"and {more} more judge{'s' if more > 1 else ''}, at the chunk")


if __name__ == "__main__":
    page()
