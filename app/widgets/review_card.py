"""The review of one chunk on its trajectory's page: what is in force and why, the form, undo, change, history.

Every card on screen has an action id, good for one review (card.py). All writes happen in callbacks. Not here: the
form itself (review_form.py); items of a queue (views/queue_item.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from app.widgets.access import actor, get_store
from app.widgets.card import action_id, fresh, say, show_message, used
from app.widgets.chips import chip, label_chip, review_chip
from app.widgets.chrome import allowed, reviewing_as
from app.widgets.curve_marks import Mark, people_mark
from app.widgets.keys import bindings, key_hint, press_keys
from app.widgets.live import live
from app.widgets.review_form import VERDICTS, Card, ask, draft_again, focus_wanted, given, keep_draft
from app.widgets.safe_text import code, escape_line, show_text
from app.widgets.when import ago, stamp
from db.errors import StoreError
from db.reviews_store import HistoryRow
from db.rows import ReviewRow
from engine.labels import Label, effective_label

_SOURCES = {
    "adjudication": "decided by adjudication",
    "review": "from review",
    "disagreement": "reviewers disagree",
    "abstained": "reviewers abstained",
    "rule": "from rel-ratio, nobody reviewed it",
    "none": "value unknown, nobody reviewed it",
}
_STORED = "review_stored"
_CHANGING = "review_changing"


def said(history: Sequence[HistoryRow]) -> list[ReviewRow]:
    """What each person says now, in the order in which it was said."""
    return [step.review for step in history if step.in_force and step.review.kind != "undo"]


def said_mark(reviews: Sequence[ReviewRow]) -> Mark:
    """What the reviews in force on a chunk come to, as the rows beneath the curve mark it."""
    decided = [row.verdict for row in reviews if row.kind == "adjudication"]
    verdicts = [row.verdict for row in reviews if row.kind == "review"]
    return people_mark(verdicts, decided[-1] if decided else None, bool(decided))


def in_force(history: Sequence[HistoryRow], rule_label: Label | None) -> tuple[Label | None, str]:
    """The effective label of a chunk and, in words, where it comes from."""
    rows = said(history)
    decided = [row.verdict for row in rows if row.kind == "adjudication"]
    reviews = [row.verdict for row in rows if row.kind != "adjudication"]
    label, source = effective_label(decided[-1] if decided else None, reviews, rule_label)
    return label, _SOURCES[source]


def review_card(
    chunk_id: int, chunk_idx: int, rule_label: Label | None, text: str, *, blind: bool = False
) -> None:
    """The card of a chunk with this ``text``; it reads the history itself, so that it can be redrawn alone.

    ``blind``: a queue hides what others say of the chunk, and so what is in force, from this reader.
    """
    live(_card, every=None)(chunk_id, chunk_idx, rule_label, text, blind)


def _card(chunk_id: int, chunk_idx: int, rule_label: Label | None, text: str, blind: bool) -> None:
    if st.session_state.pop(_STORED, False):
        st.rerun()  # the list of chunks shows reviews too
    history = get_store().history(chunk_id)
    me, keys = actor(), bindings()
    head = next((step.review.id for step in reversed(history) if step.review.actor == me), None)
    mine = next((row for row in said(history) if row.actor == me), None)
    label, source = in_force(history, rule_label)
    with st.container(border=True, gap="xsmall", key="review-card"):
        effective = "" if blind else f": effective {label_chip(label)} :small[{source}]"
        st.markdown(f"**Review** of chunk {chunk_idx}{effective}")
        if source == _SOURCES["disagreement"] and not blind:
            st.page_link(
                "views/adjudication.py",
                label="Who said what, and the decision",
                icon=":material/balance:",
                query_params={"chunk": str(chunk_id)},
            )
        show_message()
        card = Card(chunk_id, action_id(chunk_id), chunk_id, text, mine)
        if not allowed("annotator", "Reviewing"):
            targets: dict[str, str] = {}
        elif mine is not None and st.session_state.get(_CHANGING) != chunk_id:
            targets = _answered(replace(card, mine=None), mine, keys)
        else:
            targets = _ask(card, head, keys)
        if history:
            show_history(history, text)
        reviewing_as()
        press_keys(targets, key="review-keys", card=card.action_id, keys=keys, focus=focus_wanted())


def _ask(card: Card, head: int | None, keys: Mapping[str, str]) -> dict[str, str]:
    """The form; when a review is to be changed, also a way to leave it as it is."""

    def submit(card: Card, verdict: int | None) -> None:
        _submit(card, verdict, head)

    targets = ask(card, VERDICTS, submit, keys)
    if card.mine is not None:
        targets["change"] = f"keep-{card.action_id}"
        st.button(
            f"Keep it as it is {key_hint('change', keys)}",
            key=targets["change"],
            type="tertiary",
            on_click=_change,
            args=(None,),
        )
    return targets


def _submit(card: Card, verdict: int | None, supersedes: int | None) -> None:
    """Callback: store one review for the card it was drawn with."""
    if not fresh(card.what, card.action_id):
        return
    comment, details = given(card)
    try:
        get_store().add_review(
            chunk_id=card.chunk_id,
            action_id=card.action_id,
            actor=actor(),
            verdict=verdict,
            comment=comment,
            supersedes=supersedes,
            details=details,
        )
    except StoreError as error:
        keep_draft(card)
        say(f"Nothing was stored: {error}")
    _done(card)


def _undo(card: Card, review_id: int) -> None:
    """Callback: take back the review that the card showed as one's last of its chunk."""
    if not fresh(card.what, card.action_id):
        return
    try:
        get_store().undo(card.action_id, actor(), card.chunk_id, review_id=review_id)
        draft_again(card.chunk_id)
    except StoreError as error:
        say(f"Nothing was taken back: {error}")
    _done(card)


def _done(card: Card) -> None:
    used(card.action_id)
    st.session_state[_CHANGING] = None
    st.session_state[_STORED] = True


def _change(chunk_id: int | None) -> None:
    """Callback: ask again for this chunk; None: keep what was said."""
    st.session_state[_CHANGING] = chunk_id


def _answered(card: Card, mine: ReviewRow, keys: Mapping[str, str]) -> dict[str, str]:
    targets = {"undo": f"undo-{card.action_id}", "change": f"change-{card.action_id}"}
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"You said {review_chip(mine.verdict)} {ago(mine.created_at)}")
        st.button(
            f"Undo {key_hint('undo', keys)}",
            key=targets["undo"],
            icon=":material/undo:",
            on_click=_undo,
            args=(card, mine.id),
        )
        st.button(
            f"Change {key_hint('change', keys)}",
            key=targets["change"],
            icon=":material/edit:",
            on_click=_change,
            args=(card.chunk_id,),
        )
    return targets


def show_history(history: Sequence[HistoryRow], text: str) -> None:
    """Who, when, from → to, why; the newest first."""
    st.caption("History")
    for step in reversed(history):
        row = step.review
        does = {"undo": " took back", "adjudication": " decided"}.get(row.kind, "")
        with st.container(gap=None):
            st.markdown(
                f":small[**{escape_line(row.actor, limit=40)}**{does} {_state(step.before)} → {_state(row)} "
                f":gray[{stamp(row.created_at)}]]"
            )
            if row.kind != "undo":
                show_reasons(row, text)


def show_reasons(row: ReviewRow, text: str) -> None:
    """What a review says beyond its verdict: flag, the error's place in the chunk's ``text``, comment, correction."""
    signs = []
    if row.flag:
        signs.append(chip("orange", "flag", "bad problem" if row.flag == "bad-problem" else "flagged"))
    if row.span_start is not None:
        # not inside the brackets of a mark: one in the text would end it
        signs.append(f":small[error:] {code(text[row.span_start : row.span_end], 80)}")
    if signs:
        st.markdown(" ".join(signs))
    if row.comment:
        show_text(row.comment)
    if row.correction:
        st.caption("It should have said:")
        show_text(row.correction)


def _state(row: ReviewRow | None) -> str:
    """What a row leaves in force, as a chip."""
    if row is None or not row.says_something:
        return chip("gray", "circle", "no review")
    return review_chip(row.verdict)
