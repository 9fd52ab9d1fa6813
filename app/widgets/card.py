"""The card on screen: what it asks about, and the action id under which it may be answered once.

A press belongs to the card it was drawn with: one that arrives after the card has changed, a second press and a held
key are refused here, and again by the store. Not here: what a card shows (review_form) and stores (its callbacks).
"""

from __future__ import annotations

from uuid import uuid4

import streamlit as st

from app.widgets.safe_text import escape_line

_CARD = "review_card"
_LAST = "review_last_action"
_MESSAGE = "review_message"


def action_id(what: object) -> str:
    """The id of the card that asks about ``what``: a new one whenever something else is asked or the last was used."""
    card = st.session_state.get(_CARD)
    if card is None or card[0] != what:
        card = st.session_state[_CARD] = (what, uuid4().hex)
    return str(card[1])


def on_screen(what: object, action: str) -> bool:
    """Whether this is the card on screen now."""
    return bool(st.session_state.get(_CARD) == (what, action))


def fresh(what: object, action: str) -> bool:
    """Whether a press belongs to the card on screen. A repeated press of the last card is ignored in silence."""
    if on_screen(what, action):
        return True
    if st.session_state.get(_LAST) != action:
        say("That key was pressed for another card; nothing was stored. Press it again.")
    return False


def used(action: str) -> None:
    """The card is done with: the next drawing makes a new one."""
    st.session_state[_LAST] = action
    st.session_state[_CARD] = None


def say(message: str) -> None:
    """Show ``message`` with the next card."""
    st.session_state[_MESSAGE] = message


def show_message() -> None:
    """What a callback had to say."""
    if message := st.session_state.pop(_MESSAGE, None):
        st.warning(escape_line(message, limit=400), icon=":material/block:")
