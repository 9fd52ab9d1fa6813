"""Who says what of a chunk, side by side: the rule from rollouts, each judge's vote, people. Not: their reasons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import cast

import streamlit as st

from app.widgets.chips import chip, label_chip, verdict_chip
from app.widgets.curve_marks import Mark
from app.widgets.review_card import said_mark
from app.widgets.safe_text import escape_line
from app.widgets.value_words import fraction_words
from db.reads_trajectory import JudgmentView
from db.rows import ReviewRow
from engine.judge import Verdict, vote
from engine.values import Value

KINDS = {
    "prompted": "prompted LLM",
    "generative": "trained to write reasons",
    "discriminative": "trained to score",
}
"""What a judge is, by its kind in the store."""
MOST_JUDGES = 4
LIST = "views/trajectories.py"


def kind_words(kind: str) -> str:
    """A judge's kind in words."""
    return KINDS.get(kind) or escape_line(kind, limit=30)


def show_sources(
    rule: str,
    label: str | None,
    sure: float | None,
    values: tuple[Value, Value],
    judgments: Sequence[JudgmentView],
    reviews: Sequence[ReviewRow],
) -> None:
    """Three columns, then in words whether they agree, with the way to the other chunks on which they do."""
    by_judge: dict[int, list[JudgmentView]] = defaultdict(list)
    for judgment in judgments:
        by_judge[judgment.judge_id].append(judgment)
    votes = {judge: _vote(drawn) for judge, drawn in by_judge.items()}
    rollouts, judges, people = st.columns(3, border=True, gap="small")
    with rollouts, st.container(gap="xxsmall"):
        st.caption(f"Rollouts, by {rule}")
        st.markdown(label_chip(label, "" if sure is None else f"{sure:.0%}"))
        st.caption(" → ".join(fraction_words(value) for value in values))
    with judges, st.container(gap="xxsmall"):
        st.caption("Judges")
        for judge, drawn in list(by_judge.items())[:MOST_JUDGES]:
            _judge(drawn, votes[judge])
        if len(by_judge) > MOST_JUDGES:
            st.caption(f"and {len(by_judge) - MOST_JUDGES} more, below")
        if not by_judge:
            st.caption("none has read it")
    mark = said_mark(reviews)
    with people, st.container(gap="xxsmall"):
        st.caption("People")
        st.markdown(_people(mark))
        if reviews:
            st.caption(f"{len(reviews)} review{'s' if len(reviews) > 1 else ''}")
    _agreement(rule, label, by_judge, votes, mark)


def _vote(drawn: Sequence[JudgmentView]) -> str | None:
    return vote(cast("list[Verdict | None]", [judgment.verdict for judgment in drawn]))


def _judge(drawn: Sequence[JudgmentView], majority: str | None) -> None:
    counts = Counter(judgment.verdict for judgment in drawn)
    tally = f"{counts['positive']} + / {counts['negative']} −"
    st.markdown(verdict_chip(majority, tally))
    st.caption(f"{escape_line(drawn[0].judge, limit=40)} · {kind_words(drawn[0].kind)}")


def _people(mark: Mark) -> str:
    if mark in ("+", "-"):
        return label_chip(mark)
    return {
        "x": chip("orange", "balance", "they disagree"),
        "0": chip("gray", "radio_button_unchecked", "neither + nor −"),
    }.get(mark or "", chip("gray", "circle", "nobody yet"))


def _agreement(
    rule: str,
    label: str | None,
    by_judge: dict[int, list[JudgmentView]],
    votes: dict[int, str | None],
    people: Mark,
) -> None:
    """Prompted judges first: their agreement with the label is what agreement-filtered sets keep."""
    if label is None:
        return
    wanted = {"+": "positive", "-": "negative"}[label]
    ordered = sorted(by_judge, key=lambda judge: (by_judge[judge][0].kind != "prompted", judge))
    decided = [judge for judge in ordered if votes[judge] is not None]
    others = [
        *(votes[judge] == wanted for judge in decided),
        *([people == label] if people in ("+", "-") else []),
    ]
    if not others:
        return
    agree = all(others)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(
            chip("green", "done_all", "all who speak agree")
            if agree
            else chip("orange", "call_split", "they differ")
        )
        if decided:
            judge = decided[0]
            same = votes[judge] == wanted
            name = escape_line(by_judge[judge][0].judge, limit=40)
            st.page_link(
                LIST,
                label=f"Chunks on which {'both agree' if same else 'the two differ'}",
                icon=":material/filter_alt:",
                help=f"All chunks on which the vote of {name} and the label by {rule} {'agree' if same else 'differ'}",
                query_params={
                    "show": "chunks",
                    "judge_id": str(judge),
                    "against": "no" if same else "yes",
                    "rule": rule,
                },
            )
