"""What of a trajectory's values was not drawn, in words, and the button that draws the rest.

Three kinds: prefixes that a thrifty run stopped early, prefixes that were never rolled out (a first-error search looks
only where it must), prefixes that could not be (longer than the context). Not: the values themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import streamlit as st

from app.runs import queue_run
from app.settings import get_settings
from app.views.trajectory_shown import Shown
from app.widgets.access import actor, get_store
from app.widgets.address import RUNS, go, new_run
from app.widgets.chrome import allowed
from app.widgets.live import live
from app.widgets.run_words import ALIVE, amount_text, shown_status
from app.widgets.safe_text import escape_line
from app.widgets.value_words import rule_list
from db.errors import NotFoundError, StoreError
from db.selections import LabelInputs
from engine.errors import StepWiserError
from engine.first_error import first_error
from engine.values import Value

STARTED, PROBLEM, TOKENS = "rest-started", "rest-problem", "rest-tokens"


@dataclass(frozen=True)
class Gaps:
    """Places k (the prefix before chunk k): ``stopped`` early, ``never`` rolled out, and ``faults``: why not.

    ``alone``: the bare problem has no value because nothing was sampled from it but this solution; no rollout run
    changes that.
    """

    stopped: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    faults: Mapping[int, str] = field(default_factory=dict)
    alone: bool = False


def gaps(values: Sequence[Value], inputs: LabelInputs, errors: Mapping[int, str]) -> Gaps:
    """``values``: of prefixes 0..H; ``errors``: {prefix id: why it cannot be rolled out}."""
    prefixes = [None, *(chunk.prefix_id for chunk in inputs.chunks)]
    ends_graded = inputs.outcome != "truncated"
    places = range(len(values) - ends_graded)
    unknown = [k for k in places if not (values[k].known or values[k].left or values[k].errors)]
    alone = 0 in unknown and bool(inputs.sample_counts)
    unknown = [k for k in unknown if k or not alone]
    faults = {k: errors[id_] for k in unknown if (id_ := prefixes[k]) is not None and id_ in errors}
    return Gaps(
        tuple(k for k in places if values[k].left),
        tuple(k for k in unknown if k not in faults),
        faults,
        alone,
    )


def show_gaps(shown: Shown) -> None:
    """What is missing beneath the curve; nothing where every prefix was drawn out."""
    if shown.inputs is None:
        return
    found = gaps(shown.values, shown.inputs, _errors(shown.inputs))
    if not (found.stopped or found.never or found.faults or found.alone):
        return
    with st.container(gap="xsmall", key="gaps"):
        if found.stopped:
            _say_stopped(shown, found.stopped)
        if found.never:
            _say_never(shown, found.never)
        if found.alone:
            st.caption(
                ":material/person: The bare problem has no value: this is the only solution sampled from it, and a "
                "solution is left out of its own pass rate. Sample the problem more often."
            )
        for k, why in list(found.faults.items())[:3]:
            st.caption(
                f":material/block: {_where(k)} nothing can be rolled out: {escape_line(why, limit=200)}"
            )
        if found.stopped or found.never:
            _rest(shown, found)


def _errors(inputs: LabelInputs) -> dict[int, str]:
    empty = [c.prefix_id for c in inputs.chunks if c.prefix_id is not None and not c.counts]
    if not empty:
        return {}
    return {id_: row.error for id_, row in get_store().prefixes(empty).items() if row.error}


def _say_stopped(shown: Shown, stopped: Sequence[int]) -> None:
    values = [shown.values[k] for k in stopped]
    drawn, wanted = [v.n + v.errors for v in values], {v.n + v.errors + v.left for v in values}
    of = f"{min(drawn)} of" if min(drawn) == max(drawn) else f"{min(drawn)} to {max(drawn)} of"
    rules = dict.fromkeys(rule for value in values for rule in value.decided)
    many = "1 value is" if len(values) == 1 else f"{len(values)} values are"
    why = (
        f"because the labels under {rule_list(rules)} could no longer change. Rules that were not named have no label "
        "beside them, and no drop"
        if rules
        else "because their run ended before a label was decided"
    )
    st.caption(
        f":material/hourglass_disabled: **{many} drawn hollow**: stopped after {of} {max(wanted)} draws {why}. "
        "Dotted: what Q would be once all are drawn; the box: 95 % interval of what was drawn."
    )


def _say_never(shown: Shown, never: Sequence[int]) -> None:
    some = "1 prefix was" if len(never) == 1 else f"{len(never)} prefixes were"
    where = ", ".join(_where(k, short=True) for k in never[:8]) + (", …" if len(never) > 8 else "")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(
            f":material/do_not_touch: **{some} never rolled out** ({where}): no value there, which is not a value of 0. "
            "A first-error search leaves such gaps: it looks only where it must."
        )
        found = None if shown.view.outcome == "correct" else first_error(shown.values)
        if found is not None and shown.values[found + 1].known:
            st.button(
                f"No rollout succeeds from chunk {found} on",
                key="first-error",
                type="tertiary",
                icon=":material/first_page:",
                on_click=go,
                args=(shown.view.id, found),
                help="What the binary search found: some rollout still succeeds before this chunk, and none after it",
            )


def _where(k: int, *, short: bool = False) -> str:
    if short:
        return f"after chunk {k - 1}" if k else "the bare problem"
    return f"After chunk {k - 1}" if k else "From the bare problem"


def _rest(shown: Shown, found: Gaps) -> None:
    """The button, or the run that it queued."""
    started = st.session_state.get(STARTED)
    if started is not None and started[0] == shown.view.id:
        live(_started, every=2)(started[1])
        return
    recipe = drawn_by(shown)
    if recipe is None:
        st.page_link(
            RUNS,
            label="Draw the rest",
            icon=":material/add_chart:",
            query_params=new_run("rollout", shown.view.id),
        )
        return
    most = sum(shown.values[k].left for k in found.stopped) + len(found.never) * int(recipe.get("m") or 0)
    may = allowed("owner", "Starting a run")
    tokens = st.session_state.setdefault(TOKENS, {})
    st.button(
        f"Draw the rest ({most:,} rollouts)",
        key="draw-the-rest",
        icon=":material/add_chart:",
        disabled=not may,
        on_click=_queue,
        args=(shown.view.id, recipe, tokens.setdefault(shown.view.id, uuid4().hex)),
        help="Queues a rollout run of this solution with the recipe of the run that stopped, without its rules: every "
        "prefix is drawn out, and every rule gets its labels",
    )
    if problem := st.session_state.pop(PROBLEM, None):
        st.error(escape_line(problem, limit=400), icon=":material/error:")


def drawn_by(shown: Shown) -> dict[str, Any] | None:
    """The recipe of the run that drew its rollouts and left gaps; None where this store does not have it."""
    store, inputs = get_store(), shown.inputs
    assert inputs is not None
    stops = [inputs.first_stop, *(chunk.stop for chunk in inputs.chunks)]
    runs = {stop.run_id for stop in stops if stop is not None and stop.run_id is not None}
    if not runs:
        ids = [chunk.prefix_id for chunk in inputs.chunks if chunk.prefix_id is not None]
        runs = {row.run_id for row in store.prefixes(ids).values() if row.run_id is not None}
    for run_id in sorted(runs, reverse=True):
        try:
            run = store.run(run_id)
        except NotFoundError:
            continue
        if run.kind == "rollout":
            return run.recipe
    return None


def without_rules(recipe: Mapping[str, Any], trajectory_id: int) -> dict[str, Any]:
    """The recipe that draws out one trajectory's prefixes as an earlier run would have without thrift or search."""
    return {**recipe, "rules": [], "places": "all", "select": {"trajectory_ids": [trajectory_id]}}


def _queue(trajectory_id: int, recipe: Mapping[str, Any], token: str) -> None:
    """Callback: queue it, once for each button on screen."""
    runs = st.session_state.setdefault("rest-runs", {})
    if token not in runs:
        try:
            data = without_rules(recipe, trajectory_id)
            runs[token] = queue_run(get_store(), "rollout", data, actor(), get_settings())
        except (StepWiserError, StoreError) as error:
            st.session_state[PROBLEM] = f"It was not started: {error}"
            return
    st.session_state[TOKENS].pop(trajectory_id, None)
    st.session_state[STARTED] = (trajectory_id, runs[token])


def _started(run_id: int) -> None:
    """How far the run is; once it has ended the page is drawn again with what it drew."""
    run = get_store().run(run_id)
    if run.status not in ALIVE:
        st.session_state.pop(STARTED, None)
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        waits = "" if get_store().worker_alive() else " · no worker is running, so it will wait"
        st.caption(f"The rest is drawn: {shown_status(run)} {amount_text(run)}{waits}")
        st.page_link(
            RUNS, label=f"Run {run_id}", icon=":material/play_circle:", query_params={"run": str(run_id)}
        )
