"""What a person can say of a chunk: verdict, comment, where the error is, what it should have said, flag, bad problem.

All of it is a draft in the store from the moment it is typed, so that a reload, another page or a closed laptop loses
nothing; a stored review empties the draft. Not here: storing the review (review_card and the Queue page do).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from app.widgets.access import actor, get_store
from app.widgets.card import on_screen, say
from app.widgets.keys import key_hint
from app.widgets.safe_text import code
from app.widgets.span import mark_span, picked
from db.errors import StoreError
from db.rows import ReviewDetails, ReviewRow

LONGEST_COMMENT = 4000
LONGEST_CORRECTION = 20_000
_OPEN = "review_open"
"""Which part of the form is open: (action id, ``mark`` or ``correct``)."""
_FOCUS = "review_focus"


@dataclass(frozen=True)
class Card:
    """A card on screen. ``what`` it asks about; the chunk (id, text) that an answer would be about; ``mine``: what its
    reader says of the chunk now, when that is to be changed."""

    what: object
    action_id: str
    chunk_id: int
    text: str
    mine: ReviewRow | None = None


@dataclass(frozen=True)
class Answer:
    """A button: ``action`` is the key's (keys.ACTIONS), ``value`` what the callback gets."""

    action: str
    words: str
    icon: str
    value: int | None


@dataclass(frozen=True)
class Half:
    """A half-done review."""

    comment: str = ""
    flag: str | None = None
    span: tuple[int, int] | None = None
    correction: str | None = None


VERDICTS = (
    Answer("verdict-error", "−1 error", ":material/do_not_disturb_on:", -1),
    Answer("verdict-neutral", "0 neutral", ":material/radio_button_unchecked:", 0),
    Answer("verdict-sound", "+1 sound", ":material/add_circle:", 1),
    Answer("verdict-unsure", "cannot tell", ":material/help:", None),
)


def half_done(card: Card) -> Half:
    """The draft of this chunk; without one what its reader says of it now."""
    comment, data = get_store().draft(actor(), card.chunk_id)
    if comment or data:
        span = data.get("span")
        return Half(comment, data.get("flag"), tuple(span) if span else None, data.get("correction"))
    return _said(card.mine) if card.mine is not None else Half()


def _said(row: ReviewRow) -> Half:
    span = (row.span_start, row.span_end) if None not in (row.span_start, row.span_end) else None
    return Half(row.comment, row.flag, span, row.correction)  # type: ignore[arg-type]


def given(card: Card) -> tuple[str, ReviewDetails]:
    """(comment, the rest) as the form has it now. For callbacks."""
    half = _typed(card, half_done(card))
    correction = half.correction if (half.correction or "").strip() not in ("", card.text.strip()) else None
    start, end = half.span or (None, None)
    details = ReviewDetails(flag=half.flag, span_start=start, span_end=end, correction=correction)
    return half.comment.strip(), details


def keep_draft(card: Card) -> None:
    """Callback: keep what was typed where a reload finds it; not that of a card already answered."""
    if on_screen(card.what, card.action_id):
        _put(card, _typed(card, half_done(card)))


def draft_again(chunk_id: int) -> None:
    """After an undo, for callbacks: what was taken back beyond the verdict is a draft again. Raises StoreError."""
    store, me = get_store(), actor()
    mine = [step for step in store.history(chunk_id) if step.review.actor == me]
    if not mine or mine[-1].review.kind != "undo" or mine[-1].before is None:
        return
    before = _said(mine[-1].before)
    if before != Half():
        store.put_draft(me, chunk_id, before.comment, _data(before))


def ask(
    card: Card,
    answers: Sequence[Answer],
    submit: Callable[[Card, int | None], None],
    keys: Mapping[str, str],
    *,
    primary: bool = False,
) -> dict[str, str]:
    """Draw the form. Returns {action: key of the widget it presses} for ``press_keys``."""
    targets = {}
    with st.container(horizontal=True, gap="xsmall"):
        for answer in answers:
            key = targets[answer.action] = f"{answer.action}-{card.action_id}"
            st.button(
                f"{answer.words} {key_hint(answer.action, keys)}",
                key=key,
                icon=answer.icon,
                type="primary" if primary else "secondary",
                on_click=submit,
                args=(card, answer.value),
            )
    half = half_done(card)
    targets["comment"] = _comment(card, half)
    targets |= _more(card, half, keys)
    _mark(card, half)
    targets |= _correction(card, half)
    return targets


def focus_wanted() -> str:
    """The text field that was just opened, once; empty: none."""
    return str(st.session_state.pop(_FOCUS, ""))


def _comment(card: Card, half: Half) -> str:
    key = _comment_key(card)
    if key not in st.session_state:
        st.session_state[key] = half.comment
    st.text_area(
        "Comment",
        key=key,
        placeholder="Why (optional). Stored with the verdict; a draft is kept until then.",
        height=68,
        max_chars=LONGEST_COMMENT,
        on_change=keep_draft,
        args=(card,),
        label_visibility="collapsed",
    )
    return key


def _more(card: Card, half: Half, keys: Mapping[str, str]) -> dict[str, str]:
    """Where, what instead, flag, bad problem: pressed ones are filled, and say what they hold."""
    marked = f"error: {code(card.text[slice(*half.span)], 30)}" if half.span else "Mark the error"
    corrected = half.correction is not None
    buttons = (
        ("mark", marked, "ink_highlighter", half.span is not None, _open, "mark"),
        ("correct", "Correction", "edit_note", corrected, _open, "correct"),
        ("flag", "Flag", "flag", half.flag == "flag", _flag, "flag"),
        ("bad-problem", "Bad problem", "report", half.flag == "bad-problem", _flag, "bad-problem"),
    )
    targets = {}
    with st.container(horizontal=True, gap="xsmall"):
        for action, words, icon, on, callback, value in buttons:
            key = targets[action] = f"{action}-{card.action_id}"
            st.button(
                f"{words} {key_hint(action, keys)}",
                key=key,
                icon=f":material/{'check' if on else icon}:",
                type="secondary" if on else "tertiary",
                on_click=callback,
                args=(card, value),
            )
    return targets


def _mark(card: Card, half: Half) -> None:
    if st.session_state.get(_OPEN) != (card.action_id, "mark"):
        return
    key = f"span-{card.action_id}"

    def keep() -> None:
        st.session_state[_OPEN] = None
        span = picked(key, len(card.text))
        if span != "leave" and on_screen(card.what, card.action_id):
            _put(card, replace(_typed(card, half_done(card)), span=None if span == "none" else span))

    mark_span(card.text, half.span, key=key, on_picked=keep)


def _correction(card: Card, half: Half) -> dict[str, str]:
    if st.session_state.get(_OPEN) != (card.action_id, "correct") and half.correction is None:
        return {}
    key = _correction_key(card)
    if key not in st.session_state:
        st.session_state[key] = card.text if half.correction is None else half.correction
    st.text_area(
        "What the chunk should have said",
        key=key,
        height=110,
        max_chars=LONGEST_CORRECTION,
        on_change=keep_draft,
        args=(card,),
        help="Emptied or left as it was, no correction is stored.",
    )
    return {"correct": key}


def _open(card: Card, part: str) -> None:
    """Callback: open a part of the form, or close it again."""
    now = (card.action_id, part)
    st.session_state[_OPEN] = None if st.session_state.get(_OPEN) == now else now
    if part == "correct" and st.session_state[_OPEN]:
        st.session_state[_FOCUS] = _correction_key(card)


def _flag(card: Card, flag: str) -> None:
    """Callback: put the flag, or take it off."""
    if not on_screen(card.what, card.action_id):
        return
    half = _typed(card, half_done(card))
    _put(card, replace(half, flag=None if half.flag == flag else flag))


def _typed(card: Card, half: Half) -> Half:
    """The draft with what stands in the text fields now."""
    comment = st.session_state.get(_comment_key(card), half.comment)
    return replace(
        half, comment=comment, correction=st.session_state.get(_correction_key(card), half.correction)
    )


def _data(half: Half) -> dict[str, Any]:
    span = list(half.span) if half.span else None
    return {"flag": half.flag, "span": span, "correction": half.correction}


def _put(card: Card, half: Half) -> None:
    try:
        get_store().put_draft(actor(), card.chunk_id, half.comment, _data(half))
    except StoreError as error:
        say(f"The draft could not be kept: {error}")


def _comment_key(card: Card) -> str:
    return f"comment-{card.action_id}"


def _correction_key(card: Card) -> str:
    return f"correction-{card.action_id}"
