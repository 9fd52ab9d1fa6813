"""One chunk in the list: its number as a button, what values, judges and people say in a few signs, its text.

Not here: the detail of the selected chunk (``evidence.py``, ``review_card.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from app.widgets.chips import chip, label_chip, review_chip
from app.widgets.evidence import fraction_words
from app.widgets.safe_text import show_text
from engine.values import Value

_BARE_TAG = "<chunk>"


@dataclass(frozen=True)
class Signs:
    """What a card says of its chunk. ``votes``: each judge's (positive, negative, none); ``reviews``: in force."""

    before: Value
    after: Value
    label: str | None
    votes: Mapping[str, tuple[int, int, int]]
    reviews: Sequence[int | None]

    def words(self) -> str:
        """The signs as chips in one line of markdown."""
        parts = []
        if self.after.known or self.before.known:
            parts.append(label_chip(self.label))
            parts.append(f":small[{fraction_words(self.before)} → {fraction_words(self.after)}]")
        parts += [_vote(*counts) for counts in self.votes.values()]
        against = {"+": -1, "-": 1}.get(self.label or "")
        if any(_sign(*counts) == against for counts in self.votes.values()):
            parts.append(chip("orange", "call_split", "judge differs"))
        parts += [review_chip(verdict) for verdict in self.reviews]
        return " ".join(parts)


def _sign(positive: int, negative: int, _none: int) -> int:
    return (positive > negative) - (negative > positive)


def _vote(positive: int, negative: int, none: int) -> str:
    """One judge's vote as a thumb with the share of its draws that voted so."""
    sign, total = _sign(positive, negative, none), positive + negative + none
    if sign == 0:
        return f":gray[:material/remove: :small[{total}]]"
    colour, icon, n = ("green", "thumb_up", positive) if sign > 0 else ("red", "thumb_down", negative)
    return f":{colour}[:material/{icon}: :small[{n}/{total}]]"


def chunk_card(
    idx: int,
    lead: str,
    text: str,
    signs: Signs,
    *,
    selected: bool,
    raw: bool,
    on_select: object,
    args: tuple[int, ...],
) -> None:
    """The card of chunk ``idx``; ``on_select(*args)`` is the callback of its button."""
    with st.container(border=True, gap="xsmall", key=f"chunk-{idx}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            st.button(
                f"{idx}",
                key=f"select-{idx}",
                type="primary" if selected else "secondary",
                on_click=on_select,  # type: ignore[arg-type]
                args=args,
                help="shown on the right"
                if selected
                else f"Show labels, judges, rollouts and reviews of chunk {idx}",
            )
            st.markdown(signs.words() or ":gray[:small[nothing known yet]]")
        between = lead.replace(_BARE_TAG, "").strip()
        if between:
            show_text(between, raw=raw)
        show_text(text, raw=raw)
