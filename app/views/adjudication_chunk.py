"""The chunk that an adjudicator looks at: the solution up to it, who said what and why, and the decision.

Not: which chunk it is, and the way from one to another (adjudication).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from app.widgets.access import actor, get_store
from app.widgets.card import action_id, fresh, say, show_message, used
from app.widgets.chips import label_chip, review_chip, verdict_chip
from app.widgets.review_card import in_force, said, show_reasons
from app.widgets.review_form import VERDICTS, Card, ask, given, keep_draft
from app.widgets.safe_text import escape_line, show_text
from app.widgets.when import ago
from db.errors import NotFoundError, StoreError
from db.reads_trajectory import ChunkView, TrajectoryView
from db.reviews_store import HistoryRow
from engine.labels import Label

BEFORE = 3
"""Chunks before the disputed one that are shown; the others are one press away."""
DECISIONS = VERDICTS[:3]
"""An adjudicator decides; "cannot tell" would leave the chunk as it is."""


@dataclass(frozen=True)
class Opened:
    """The chunk on the page. ``history``: everything that people said of it, oldest first."""

    view: TrajectoryView
    chunk: ChunkView
    history: Sequence[HistoryRow]
    label: Label | None
    source: str
    disputed: bool

    @property
    def last(self) -> int:
        """The newest row of its history; 0: there is none."""
        return self.history[-1].review.id if self.history else 0


def read_chunk(chunk_id: int) -> Opened | None:
    """The chunk with what people said of it; None: there is no such chunk."""
    store = get_store()
    try:
        trajectory_id, idx = store.chunk_place(chunk_id)
    except NotFoundError:
        return None
    view = store.trajectory_view(trajectory_id)
    assert view is not None, "a chunk has a trajectory"
    (chunk,) = store.chunk_page(trajectory_id, idx, 1)
    history = store.history(chunk_id)
    rule = chunk.label.rel_ratio if chunk.label else None
    label, source = in_force(history, rule if rule in ("+", "-") else None)  # type: ignore[arg-type]
    verdicts = {row.verdict for row in said(history)}
    decided = any(row.kind == "adjudication" for row in said(history))
    return Opened(view, chunk, history, label, source, {1, -1} <= verdicts and not decided)


def show_solution(opened: Opened, raw: bool) -> None:
    """The problem, the chunks before, the disputed one in a frame."""
    view, idx = opened.view, opened.chunk.idx
    with st.container(border=True, gap="xsmall"):
        st.caption("Problem")
        show_text(view.problem, raw=raw)
    first = max(0, idx - BEFORE)
    if first:
        with st.expander(f"Chunks 0 to {first - 1}"):
            for chunk in get_store().chunk_page(view.id, max(0, first - 50), min(first, 50)):
                show_text(chunk.text, raw=raw)
    for chunk in get_store().chunk_page(view.id, first, idx - first):
        with st.container(gap="xxsmall"):
            st.caption(f"Chunk {chunk.idx}")
            show_text(chunk.text, raw=raw)
    with st.container(border=True, gap="xsmall", key="disputed-chunk"):
        st.caption(f":material/arrow_right: Chunk {idx}: is there an error in it?")
        marks = [
            (row.span_start, row.span_end)
            for row in said(opened.history)
            if row.span_start is not None and row.span_end is not None
        ]
        show_text(opened.chunk.text, raw=raw, marks=marks)


def who_said_what(opened: Opened) -> None:
    """Each person's word in force, with its reasons."""
    rows = said(opened.history)
    if not rows:
        st.caption("Nobody's review of this chunk is in force.")
        return
    for row in rows:
        does = "decided" if row.kind == "adjudication" else "said"
        with st.container(border=True, gap="xxsmall"):
            st.markdown(
                f"**{escape_line(row.actor, limit=60)}** {does} {review_chip(row.verdict)} "
                f":small[:gray[{ago(row.created_at)}]]"
            )
            show_reasons(row, opened.chunk.text)
            if not (row.comment or row.correction or row.flag or row.span_start is not None):
                st.caption("without a reason")


def other_voices(opened: Opened) -> None:
    """What the rule and the judges say, folded away: a decision is a person's."""
    votes = get_store().votes_of(opened.view.id).get(opened.chunk.id, {})
    rule = opened.chunk.label.rel_ratio if opened.chunk.label else None
    with st.expander("What the rule and the judges say"):
        st.markdown(label_chip(rule, "rel-ratio"))
        for name, (positive, negative, none) in votes.items():
            verdict = "positive" if positive > negative else "negative" if negative > positive else None
            tally = f"{positive} + / {negative} −" + (f" / {none} none" if none else "")
            st.markdown(f"{escape_line(name, limit=60)} {verdict_chip(verdict, tally)}")
        if not votes:
            st.caption("No judge has read it.")


# ---- the decision


def what_of(chunk_id: int) -> object:
    """What the card on screen asks about."""
    return ("adjudication", chunk_id)


def decide(opened: Opened, keys: Mapping[str, str], decided: Callable[[int], None]) -> dict[str, str]:
    """The form, for an owner; ``decided`` is called with the chunk once a decision is stored. Returns {action: key of
    the widget it presses}."""
    store, me, chunk = get_store(), actor(), opened.chunk
    show_message()
    if store.role(me) != "owner":
        st.info("An owner decides. Owners give roles on the People page.", icon=":material/lock:")
        return {}
    head = store.chain_head(chunk.id, me)
    supersedes, last, what = (head.id if head else None), opened.last, what_of(chunk.id)

    def submit(card: Card, verdict: int | None) -> None:
        if _store(card, verdict, supersedes, last):
            decided(chunk.id)

    with st.container(border=True, gap="xsmall", key="decision"):
        st.markdown(
            "**Decide**" if opened.disputed else "**Decide**, though nobody disagrees or it was decided"
        )
        card = Card(what, action_id(what), chunk.id, chunk.text, None)
        return ask(card, DECISIONS, submit, keys, primary=opened.disputed)


def _store(card: Card, verdict: int | None, supersedes: int | None, last: int) -> bool:
    """For the callback: store the decision; refused where somebody spoke since the card was drawn."""
    if not fresh(card.what, card.action_id):
        return False
    stored = False
    comment, details = given(card)
    try:
        get_store().add_review(
            card.chunk_id,
            card.action_id,
            actor(),
            verdict,
            comment,
            supersedes=supersedes,
            kind="adjudication",
            details=details,
            seen=last,
        )
        stored = True
    except StoreError as error:
        keep_draft(card)
        say(f"Nothing was stored: {error}")
    used(card.action_id)
    return stored
