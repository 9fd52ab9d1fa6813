"""Thresholds: what γ, α and n do to the labels, in pictures, so that a rule is chosen and not guessed.

``?tab=thresholds&rule=…`` restores the choice. Measured on the builder's selection. Not: the measuring
(``training.sets.sweep``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlencode

import streamlit as st

from app.settings import get_settings
from app.views import data_choice as choice
from app.widgets.access import actor, get_store
from app.widgets.charts import CONFIG
from app.widgets.empty import empty_state
from app.widgets.here import go_here
from app.widgets.rows import Chip, Column, Row, row_table
from app.widgets.safe_text import escape_line
from app.widgets.set_charts import Marked, rule_figure
from engine.errors import RecipeError, StepWiserError
from engine.labels import DEFAULT_RULES, Rule, parse_rule
from engine.recipes import Selection
from training.sets import SweepTable, sweep
from training.sets.sweep import SweepRow

MEASURED = 2000
"""Solutions that are measured; a part of a large selection says enough about a threshold."""
FAMILIES = {"rel-ratio": "rel-ratio over γ", "rel-effective": "rel-effective over α and n"}
PARAMETERS = {"rel-ratio": "gamma", "rel-effective": "alpha"}
DEFAULTS = {rule.name: rule for rule in DEFAULT_RULES}
COLUMNS = (
    Column("Rule", "link"),
    Column("Labels", "chips", "wide"),
    Column("Share −", "number"),
    Column("Confidence", "number", help="Mean over the labels"),
    Column("Sure", "number", help="Labels that reach the confidence the builder asks for"),
    Column("Agreement with people", "text", "wide", help="On reviewed chunks; 95 % interval by problem"),
)


def show_thresholds() -> None:
    """Pictures of the two kinds of rule with a parameter, the choice, and the whole table."""
    store = get_store()
    if store.is_empty():
        empty_state(
            "Nothing to label yet",
            "Labels follow from rollouts: sample solutions and roll them out first, or load the sample: "
            "stepwiser sample load",
            page="views/runs.py",
            label="Start a run",
            query={"new": "sample"},
        )
        return
    choice.begin(store.policies())
    select = _selection()
    trajectories, _ = store.count_selection(**select.model_dump())
    measured = select.model_copy(update={"limit": MEASURED}) if trajectories > MEASURED else select
    with st.spinner("Measuring rules", show_time=True):
        table, problem = _measure(
            get_settings().store_url,
            actor(),
            store.hidden_now(),
            measured.model_dump_json(),
            float(choice.get("min_confidence")),
            store.totals(),
        )
    if table is None:
        st.warning(escape_line(problem, limit=400), icon=":material/warning:")
        return
    over = f"all {trajectories:,}" if measured is select else f"the first {MEASURED:,} of {trajectories:,}"
    st.caption(
        f"Measured over {over} solutions: {table.chunks:,} chunks, {table.reviewed:,} of them reviewed with a + or −."
    )
    _reviews(table)
    _pictures(table)
    _take(table)
    _chosen_by_people(table)
    _all_rules(table)


def _selection() -> Selection:
    """The builder's selection, which can be widened here to where the reviews are."""
    wide = st.segmented_control(
        "Solutions",
        ["all", "builder"],
        format_func={"all": "All solutions", "builder": "What the builder selects"}.__getitem__,
        default="all",
        key="thresholds-over",
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    return Selection() if wide == "all" else choice.selection()


@st.cache_data(ttl=300, max_entries=16, show_spinner=False)
def _measure(
    store_url: str, viewer: str, hidden: str, select: str, min_confidence: float, totals: object
) -> tuple[SweepTable | None, str]:
    """Kept for five minutes, for one pair of eyes and what is ``hidden`` from them, one selection and one state of the
    store (``totals`` moves with every write, but not when somebody joins a blind queue)."""
    try:
        return sweep(get_store(), Selection.model_validate_json(select), min_confidence=min_confidence), ""
    except StepWiserError as error:
        return None, str(error)


def _reviews(table: SweepTable) -> None:
    """Says how reviews are made where there are none, and how they come to count where they do not."""
    if not table.reviewed:
        empty_state(
            "No reviews yet, so no agreement with people",
            "Review some chunks: open a solution, read a chunk, press 1 (error) to 3 (sound). About fifty, on twenty "
            "problems, begin to tell rules apart.",
            page="views/trajectories.py",
            label="Review where judges and labels disagree",
            query={"sort": "disagreement", "reviewed": "no"},
            icon=":material/rate_review:",
        )
        return
    rolled_out = max(
        (row.agreement.n for row in table.rows if row.agreement and row.name != "abs-q"), default=0
    )
    if not rolled_out:
        empty_state(
            f"{table.reviewed:,} chunks are reviewed, but none has both values",
            "A rule's label needs the chance of success before and after the chunk: roll out the reviewed solutions, "
            "or review some that are rolled out.",
            page="views/trajectories.py",
            label="Reviewed solutions",
            query={"reviewed": "yes"},
            icon=":material/account_tree:",
        )


def _lines(table: SweepTable, name: str) -> dict[str, list[SweepRow]]:
    """The rows of one kind of rule, a line for each n."""
    lines: dict[str, list[SweepRow]] = {}
    for row in table.rows:
        if row.name == name:
            lines.setdefault(f"n = {row.n}" if row.n else "", []).append(row)
    return lines


def _pictures(table: SweepTable) -> None:
    n = st.session_state.get(choice.key(choice.N), DEFAULTS["rel-effective"].n)
    for column, (name, title) in zip(st.columns(2, gap="medium"), FAMILIES.items(), strict=True):
        with column:
            st.markdown(f"**{title}**")
            lines = _lines(table, name)
            shown = f"n = {n}" if f"n = {n}" in lines else next(iter(lines))
            key = f"sweep-{name}"
            st.plotly_chart(
                rule_figure(lines, shown, PARAMETERS[name], _marks(name)),
                key=key,
                config=CONFIG,
                on_select=_point_chosen(key),
                selection_mode="points",
                alt=_said(lines[shown]),
            )
            if len(lines) > 1:
                st.caption(f"Bars: {shown}, as in the builder. Lines: every n.")


def _marks(name: str) -> list[Marked]:
    default = DEFAULTS[name]
    value = default.gamma if name == "rel-ratio" else default.alpha
    marks = [Marked(float(value or 0), "default")]
    chosen = _asked()
    if chosen is not None and chosen.name == name:
        at = float((chosen.gamma if name == "rel-ratio" else chosen.alpha) or 0)
        marks = [mark for mark in marks if mark.value != at]
        marks.append(Marked(at, "chosen" if marks else "default, chosen"))
    return marks


def _point_chosen(key: str) -> Callable[[], None]:
    def choose() -> None:
        points = st.session_state[key].selection.points
        if points and points[-1].get("customdata"):
            go_here({"tab": "thresholds", "rule": str(points[-1]["customdata"][0])})

    return choose


def _said(rows: Sequence[SweepRow]) -> str:
    """The picture in words, for screen readers."""
    return "; ".join(f"{row.rule}: {row.positive} +, {row.negative} −{_agreement(row, '; ')}" for row in rows)


def _agreement(row: SweepRow, before: str = "") -> str:
    found = row.agreement
    if found is None:
        return ""
    return (
        f"{before}{found.share:.0%} [{found.low:.0%}, {found.high:.0%}], n = {found.n} chunks of "
        f"{found.problems} problems"
    )


def _asked() -> Rule | None:
    """The rule that the address names; None without one or where it is none."""
    try:
        return parse_rule(st.query_params["rule"]) if "rule" in st.query_params else None
    except RecipeError:
        return None


def _take(table: SweepTable) -> None:
    """The rule that was chosen, in numbers, and the button that takes it into the builder."""
    rule = _asked()
    with st.container(border=True, gap="xsmall"):
        if rule is None:
            if "rule" in st.query_params:
                st.error(
                    f"rule={escape_line(st.query_params['rule'], limit=80)}: there is no such rule.",
                    icon=":material/link_off:",
                )
            st.markdown(
                ":material/touch_app: Press a point or a bar above, or a rule in the table, to choose it. "
                f"The builder has **{choice.rule_text()}** now."
            )
            return
        row = next((one for one in table.rows if one.rule == str(rule)), None)
        facts = _facts(row) if row else "it was not among the measured rules"
        st.markdown(f"**{rule}**: {facts}")
        if rule.warning:
            st.caption(f":material/warning: {rule.warning}")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Take it into the builder",
                key="take-rule",
                type="primary",
                icon=":material/move_item:",
                disabled=not choice.holds(rule),
                on_click=_taken,
                args=(str(rule),),
            )
            st.caption(f"the builder has {choice.rule_text()} now")
        if not choice.holds(rule):
            st.caption(
                ":material/block: The builder cannot hold it: its γ and α end at "
                f"{choice.MOST[choice.GAMMA]:g} and its n at {choice.MOST[choice.N]}, with six digits at most. A recipe "
                "can name it: Runs, Start a run."
            )


def _taken(rule: str) -> None:
    choice.take_rule(rule)
    go_here({"tab": "sets"})


def _facts(row: SweepRow) -> str:
    parts = [f"{row.positive:,} + and {row.negative:,} −, {row.unlabelled:,} chunks without a label"]
    if row.mean_confidence is not None:
        parts.append(f"mean confidence {row.mean_confidence:.0%}")
    parts.append(
        f"agreement with people {_agreement(row)}" if row.agreement else "agreement with people not known"
    )
    return ", ".join(parts)


def _chosen_by_people(table: SweepTable) -> None:
    """What reviews would choose, measured where they did not choose."""
    found = [one for one in table.chosen if one.held_out and one.name != "abs-q"]
    if not found:
        return
    st.markdown("**What the reviews would choose**")
    st.caption(
        "One half of the reviewed problems chooses, the other half measures, and the other way round: "
        "a rule that is chosen and measured on the same reviews looks better than it is."
    )
    for one in found:
        assert one.held_out is not None
        st.markdown(
            f"- {one.name}: one half chooses **{one.first}**, the other **{one.second}**; where they did not choose, "
            f"{one.held_out.share:.0%} agree [{one.held_out.low:.0%}, {one.held_out.high:.0%}], "
            f"n = {one.held_out.n} chunks of {one.held_out.problems} problems"
        )


def _all_rules(table: SweepTable) -> None:
    defaults: Mapping[str, str] = {str(rule): "default" for rule in DEFAULT_RULES}
    with st.expander(f"All {len(table.rows)} rules as a table"):
        row_table(COLUMNS, [_row(row, defaults) for row in table.rows], label="Rules", key="rules")


def _row(row: SweepRow, defaults: Mapping[str, str]) -> Row:
    total = row.positive + row.negative
    chips = [Chip(f"{row.positive:,} +", "good"), Chip(f"{row.negative:,} −", "bad")]
    if row.rule in defaults:
        chips.append(Chip(defaults[row.rule], "info"))
    return Row(
        id=row.rule,
        href="/data?" + urlencode({"tab": "thresholds", "rule": row.rule}),
        label=f"Choose {row.rule}",
        cells=(
            row.rule,
            chips,
            f"{row.negative / total:.0%}" if total else None,
            f"{row.mean_confidence:.0%}" if row.mean_confidence is not None else None,
            f"{row.sure:.0%}" if row.sure is not None else None,
            _agreement(row) or None,
        ),
    )
