"""Overview: a judge against the labels by chunk position, people against the rules, and how far review has come.

From kept totals alone. ``?rule=…&judge=…`` say which rule and judge. Not: agreement among people (Judges page).
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app.views.overview_labels import POSITIONS, RULES, Totals, counted, place_name
from app.widgets.access import get_store
from app.widgets.charts import CONFIG
from app.widgets.empty import no_such
from app.widgets.overview_charts import Differs, Placed, people_against_rules, right_by_position
from app.widgets.safe_text import escape_line, visible
from db.rows import JudgeRow
from engine.values import Value

QUEUES = 4
"""Open queues shown, newest first."""


def judge_by_position(totals: Totals) -> None:
    """One judge's majority against one rule's labels."""
    if not totals.get("judgments/verdict"):
        return
    st.markdown("**Judge against label**")
    rule = st.query_params.get("rule", "rel_ratio")
    if rule not in RULES:
        no_such("label rule", rule)
        rule = "rel_ratio"
    found = get_store().judged_by_position(rule)
    judges = {judge.id: judge for judge in get_store().judges() if judge.id in found}
    if not judges:
        st.caption("No judge has read a chunk that this rule labels: judge some that are rolled out.")
        return
    most = max(judges, key=lambda judge: sum(found[judge].values()))
    asked = st.query_params.get("judge", str(most))
    if not (asked.isdecimal() and len(asked) <= 18) or int(asked) not in judges:
        no_such("judge with labelled chunks", asked)
        asked = str(most)
    _choose(judges, int(asked), rule)
    right = {"+": placed(found[int(asked)], "+"), "−": placed(found[int(asked)], "-")}
    right = {sign: rows for sign, rows in right.items() if rows}
    st.plotly_chart(right_by_position(right), key="by-position", config=CONFIG, alt=_said(right))
    st.caption(
        "Share of the labels that the judge's majority shares; a tie or no verdict shares none. 95 % intervals."
    )
    st.page_link("views/judges.py", label="Judges side by side", icon=":material/gavel:")


def _choose(judges: Mapping[int, JudgeRow], judge: int, rule: str) -> None:
    st.session_state["overview-judge"], st.session_state["overview-rule"] = judge, rule
    left, right = st.columns(2, gap="small")
    left.selectbox(
        "Judge", list(judges), format_func=lambda id_: visible(judges[id_].name), key="overview-judge",
        on_change=_chosen,
    )  # fmt: skip
    right.selectbox(
        "Label rule", list(RULES), format_func=RULES.__getitem__, key="overview-rule", on_change=_chosen
    )


def _chosen() -> None:
    """Callback: the choice goes into the address, where Back undoes it and a link keeps it."""
    state = st.session_state
    st.query_params.from_dict({"judge": str(state["overview-judge"]), "rule": state["overview-rule"]})


def placed(counts: Mapping[str, int], sign: str) -> list[Placed]:
    """How often the judge shares labels of this sign, by chunk index; ``counts``: {``POSITION/+-``: chunks}."""
    sums: dict[int, list[int]] = {}
    for key, n in counts.items():
        position, _, said = key.partition("/")
        if said[0] == sign:
            at = sums.setdefault(min(int(position), POSITIONS), [0, 0])
            at[0] += n if said[1] == sign else 0
            at[1] += n
    rows = []
    for place, (right, n) in sorted(sums.items()):
        low, high = Value(right, n).interval()
        rows.append(Placed(place_name(place), right / n, low, high, n))
    return rows


def _said(right: Mapping[str, list[Placed]]) -> str:
    return "; ".join(
        f"on label {sign}: " + ", ".join(f"chunk {row.position} {row.share:.0%} of {row.n}" for row in rows)
        for sign, rows in right.items()
    )


def noise(totals: Totals) -> None:
    """How often people contradict each rule: construct and noise together, apart as far as confidence tells them."""
    rows = differing(totals)
    if not rows:
        return
    st.markdown("**People against the rules**")
    st.caption(
        "Share of reviewed chunks on which people and the rule's label differ. It holds both noise (few rollouts) and "
        "construct: a rule asks whether the chance of success fell, a person whether there is an error. On sure labels "
        "(confidence 0.9 or more) few draws explain little of it. Intervals take chunks as independent, and reviewed "
        "chunks are seldom a random sample."
    )
    st.plotly_chart(
        people_against_rules(rows),
        key="noise",
        config=CONFIG,
        alt="; ".join(
            f"{row.rule}, {'sure' if row.sure else 'not sure'}: {row.share:.0%} of {row.n} differ "
            f"[{row.low:.0%}, {row.high:.0%}]"
            for row in rows
        ),
    )


def differing(totals: Totals) -> list[Differs]:
    """A row a rule and sureness of label, where people said + or − of such chunks."""
    rows = []
    for rule, title in RULES.items():
        held = counted(totals, f"people/{rule}")
        for sure in (True, False):
            band = "/sure" if sure else "/unsure"
            n = sum(count for key, count in held.items() if key.endswith(band))
            if n:
                differs = held.get(f"+-{band}", 0) + held.get(f"-+{band}", 0)
                low, high = Value(differs, n).interval()
                rows.append(Differs(title.partition(" ")[0], sure, differs / n, low, high, n))
    return rows


def review(totals: Totals) -> None:
    """Reviewed so far, open queues, and what waits for a decision."""
    st.markdown("**Review**")
    reviewed, opinions = counted(totals, "reviewed"), counted(totals, "opinions")
    nouns = {"chunks": sum(counted(totals, "chunks").values())}
    nouns["trajectories"] = sum(counted(totals, "trajectories/outcome").values())
    for noun, total in nouns.items():
        done = reviewed.get(noun, 0)
        st.progress(min(1.0, done / total) if total else 0.0, text=f"{done:,} of {total:,} {noun} reviewed")
    if opinions:
        words = {"+": "sound", "-": "error", "none": "abstained", "disputed": "disputed"}
        st.caption(
            " · ".join(f"{opinions[key]:,} {said}" for key, said in words.items() if opinions.get(key))
        )
    for queue in [queue for queue in get_store().queues() if queue.is_open][:QUEUES]:
        share = min(1.0, queue.n_settled / queue.n_items) if queue.n_items else 0.0
        st.progress(
            share,
            text=f"{escape_line(queue.name, limit=60)}: {queue.n_settled:,} of {queue.n_items:,} items have their answers",
        )
    with st.container(gap=None):
        if opinions.get("disputed"):
            st.page_link(
                "views/adjudication.py",
                label=f"Decide where people disagree ({opinions['disputed']:,})",
                icon=":material/balance:",
            )
        st.page_link("views/queue.py", label="Queues", icon=":material/checklist:")
        st.page_link(
            "views/trajectories.py",
            label="Review where judges and labels disagree",
            icon=":material/rate_review:",
            query_params={"sort": "disagreement", "reviewed": "no"},
        )
