"""The review of one chunk: verdict by key, comment with a kept draft, history, undo.

Every card on screen has an action id, made when the card is drawn and good for one review: a second press, a held key
or a press that arrives after the chunk has changed is refused here and by the store. All writes happen in callbacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import streamlit as st

from app.widgets.access import actor, get_store
from app.widgets.chips import chip, label_chip, review_chip
from app.widgets.chrome import reviewing_as
from app.widgets.safe_text import escape_line, show_text
from app.widgets.when import ago, stamp
from db.errors import StoreError
from db.reviews_store import HistoryRow
from db.rows import ReviewRow
from engine.labels import Label, effective_label

VERDICTS: tuple[tuple[int | None, str, str, str], ...] = (
    (-1, "−1 error", "1", ":material/do_not_disturb_on:"),
    (0, "0 neutral", "2", ":material/radio_button_unchecked:"),
    (1, "+1 sound", "3", ":material/add_circle:"),
    (None, "cannot tell", "4", ":material/help:"),
)
_SOURCES = {
    "adjudication": "decided by adjudication",
    "review": "from review",
    "disagreement": "reviewers disagree",
    "abstained": "reviewers abstained",
    "rule": "from rel-ratio, nobody reviewed it",
    "none": "value unknown, nobody reviewed it",
}
_CARD = "review_card"
_LAST = "review_last_action"
_MESSAGE = "review_message"
_STORED = "review_stored"
_CHANGING = "review_changing"


def said(history: Sequence[HistoryRow]) -> list[ReviewRow]:
    """What each person says now, in the order in which it was said."""
    return [step.review for step in history if step.in_force and step.review.kind != "undo"]


def in_force(history: Sequence[HistoryRow], rule_label: Label | None) -> tuple[Label | None, str]:
    """The effective label of a chunk and, in words, where it comes from."""
    rows = said(history)
    decided = [row.verdict for row in rows if row.kind == "adjudication"]
    reviews = [row.verdict for row in rows if row.kind != "adjudication"]
    label, source = effective_label(decided[-1] if decided else None, reviews, rule_label)
    return label, _SOURCES[source]


def _action_id(chunk_id: int) -> str:
    """The id of the card on screen: a new one whenever another chunk is shown or the last one was used."""
    card = st.session_state.get(_CARD)
    if card is None or card[0] != chunk_id:
        card = st.session_state[_CARD] = (chunk_id, uuid4().hex)
    return card[1]


def _submit(chunk_id: int, action_id: str, verdict: int | None, supersedes: int | None) -> None:
    """Callback: store one review for the card it was drawn with."""
    if not _fresh(chunk_id, action_id):
        return
    comment = st.session_state.get(_comment_key(action_id), "").strip()
    try:
        get_store().add_review(
            chunk_id=chunk_id,
            action_id=action_id,
            actor=actor(),
            verdict=verdict,
            comment=comment,
            supersedes=supersedes,
        )
    except StoreError as error:
        _keep_draft(chunk_id, action_id)
        st.session_state[_MESSAGE] = f"Nothing was stored: {error}"
    _used(action_id)


def _undo(chunk_id: int, action_id: str) -> None:
    """Callback: take back one's last review of the card's chunk."""
    if not _fresh(chunk_id, action_id):
        return
    try:
        get_store().undo(action_id=action_id, actor=actor(), chunk_id=chunk_id)
    except StoreError as error:
        st.session_state[_MESSAGE] = f"Nothing was taken back: {error}"
    _used(action_id)


def _fresh(chunk_id: int, action_id: str) -> bool:
    """Whether the press belongs to the card on screen. A repeated press of the last card is ignored in silence."""
    if st.session_state.get(_CARD) == (chunk_id, action_id):
        return True
    if st.session_state.get(_LAST) != action_id:
        st.session_state[_MESSAGE] = (
            "That key was pressed for another card; nothing was stored. Press it again."
        )
    return False


def _used(action_id: str) -> None:
    """The card is done with: the next drawing makes a new one, whose comment starts from the stored draft."""
    st.session_state[_LAST] = action_id
    st.session_state[_CARD] = None
    st.session_state[_CHANGING] = None
    st.session_state[_STORED] = True


def _comment_key(action_id: str) -> str:
    return f"comment-{action_id}"


def _keep_draft(chunk_id: int, action_id: str) -> None:
    """Callback: keep the half-typed comment where a reload finds it; not that of a card already answered."""
    text = st.session_state.get(_comment_key(action_id))
    if text is None or st.session_state.get(_CARD) != (chunk_id, action_id):
        return
    try:
        get_store().put_draft(actor=actor(), chunk_id=chunk_id, text=text)
    except StoreError as error:
        st.session_state[_MESSAGE] = f"The draft could not be kept: {error}"


def _change(chunk_id: int | None) -> None:
    """Callback: ask again for this chunk; None: keep what was said."""
    st.session_state[_CHANGING] = chunk_id


@st.fragment
def review_card(chunk_id: int, chunk_idx: int, rule_label: Label | None) -> None:
    """The card; reads the chunk's history itself, so that it can be redrawn without the page around it."""
    if st.session_state.pop(_STORED, False):
        st.rerun()  # the list of chunks shows reviews too
    history = get_store().history(chunk_id)
    me = actor()
    head = next((step.review.id for step in reversed(history) if step.review.actor == me), None)
    mine = next((row for row in said(history) if row.actor == me), None)
    label, source = in_force(history, rule_label)
    with st.container(border=True, gap="xsmall", key="review-card"):
        st.markdown(f"**Review** of chunk {chunk_idx}: effective {label_chip(label)} :small[{source}]")
        if message := st.session_state.pop(_MESSAGE, None):
            st.warning(escape_line(message, limit=400), icon=":material/block:")
        if mine is not None and st.session_state.get(_CHANGING) != chunk_id:
            _answered(chunk_id, mine)
        else:
            _ask(chunk_id, head, mine)
        if history:
            _show_history(history)
        reviewing_as()


def _ask(chunk_id: int, head: int | None, mine: ReviewRow | None) -> None:
    """Verdict buttons and comment; ``mine``: what one says now, when it is to be changed."""
    action_id = _action_id(chunk_id)
    with st.container(horizontal=True, gap="xsmall"):
        for verdict, words, key, icon in VERDICTS:
            st.button(
                words,
                key=f"verdict-{action_id}-{key}",
                icon=icon,
                shortcut=key,
                on_click=_submit,
                args=(chunk_id, action_id, verdict, head),
            )
        if mine is not None:
            st.button(
                "Keep", key=f"keep-{action_id}", type="tertiary", shortcut="E", on_click=_change, args=(None,)
            )
    comment = _comment_key(action_id)
    if comment not in st.session_state:
        st.session_state[comment] = get_store().get_draft(actor(), chunk_id) or (mine.comment if mine else "")
    st.text_area(
        "Comment",
        key=comment,
        placeholder="Why (optional). Stored with the verdict; a draft is kept until then.",
        height=68,
        max_chars=4000,
        on_change=_keep_draft,
        args=(chunk_id, action_id),
        label_visibility="collapsed",
    )


def _answered(chunk_id: int, mine: ReviewRow) -> None:
    action_id = _action_id(chunk_id)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"You said {review_chip(mine.verdict)} {ago(mine.created_at)}")
        st.button(
            "Undo",
            key=f"undo-{action_id}",
            icon=":material/undo:",
            shortcut="U",
            on_click=_undo,
            args=(chunk_id, action_id),
        )
        st.button(
            "Change",
            key=f"change-{action_id}",
            icon=":material/edit:",
            shortcut="E",
            on_click=_change,
            args=(chunk_id,),
        )


def _show_history(history: Sequence[HistoryRow]) -> None:
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
            if row.comment and row.kind != "undo":
                show_text(row.comment)


def _state(row: ReviewRow | None) -> str:
    """What a row leaves in force, as a chip."""
    if row is None or not row.says_something:
        return chip("gray", "circle", "no review")
    return review_chip(row.verdict)
