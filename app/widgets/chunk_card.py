"""One chunk in the list: its number as a button, what values, judges and people say in a few signs, its text.

Not here: the detail of the selected chunk (``evidence.py``, ``review_card.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from app.widgets.address import go
from app.widgets.chips import chip, label_chip, review_chip
from app.widgets.hits import hits
from app.widgets.safe_text import show_text
from app.widgets.value_words import fraction_words
from db.reads_trajectory import ChunkView
from engine.values import Value

_BARE_TAG = "<chunk>"


@dataclass(frozen=True)
class Signs:
    """What a card says of its chunk. ``label`` under the parameters shown, ``usual`` under the usual ones;
    ``votes``: each judge's (positive, negative, none); ``reviews``: in force."""

    before: Value
    after: Value
    label: str | None
    usual: str | None
    sure: float | None
    votes: Mapping[str, tuple[int, int, int]]
    reviews: Sequence[int | None]

    def words(self) -> str:
        """The signs as chips in one line of markdown."""
        parts = []
        sides = (self.before, self.after)
        if self.label is not None or all(value.known or value.left for value in sides):
            parts.append(label_chip(self.label, "" if self.sure is None else f"{self.sure:.0%}"))
        if self.label is not None or any(value.n or value.left for value in sides):
            parts.append(f":small[{fraction_words(self.before)} → {fraction_words(self.after)}]")
        if self.label != self.usual:
            parts.append(
                chip("orange", "swap_vert", f"usually {'−' if self.usual == '-' else self.usual or 'none'}")
            )
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
    chunk: ChunkView, signs: Signs, *, selected: bool, raw: bool, trajectory_id: int, find: str = ""
) -> None:
    """The card of one chunk; its button shows it in detail. ``find``: words to mark."""
    idx = chunk.idx
    with st.container(border=True, horizontal=True, wrap=False, gap="small", key=f"chunk-{idx}"):
        st.button(
            f"{idx}",
            key=f"select-{idx}",
            type="primary" if selected else "secondary",
            on_click=go,
            args=(trajectory_id, idx),
            help="shown in detail" if selected else f"Show judges, rollouts and reviews of chunk {idx}",
        )
        with st.container(gap="xxsmall"):
            if words := signs.words():
                st.markdown(words)
            between = chunk.lead.replace(_BARE_TAG, "").strip()
            if between:
                show_text(between, raw=raw)
            show_text(chunk.text, raw=raw, marks=hits(chunk.text, find), colour="blue")
