"""The list of a trajectory's chunks: fifty cards a page, and what stands behind the last chunk."""

from __future__ import annotations

import streamlit as st

from app.views.trajectory_shown import CHUNKS_A_PAGE, Shown
from app.widgets.address import go
from app.widgets.chips import outcome_chip
from app.widgets.chunk_card import Signs, chunk_card
from app.widgets.safe_text import show_text
from db.reads_trajectory import ChunkView
from engine.labels import confidence


def show_chunks(shown: Shown) -> None:
    """The cards of the page of chunks that holds the selected one, then the tail."""
    view = shown.view
    with st.container(key="trajectory-list", gap="xsmall"):
        _pager(shown)
        with st.container(gap="xsmall", key="chunks"):
            for chunk in shown.chunks:
                chunk_card(
                    chunk,
                    _signs(shown, chunk),
                    selected=chunk.idx == shown.selected,
                    raw=shown.raw,
                    trajectory_id=view.id,
                    find=shown.address.find,
                )
            if shown.first + CHUNKS_A_PAGE >= view.n_chunks and view.tail.strip():
                with st.container(border=True, gap="xsmall", key="tail"):
                    graded = "" if view.blind else f" {outcome_chip(view.outcome)}"
                    st.markdown(f":gray[:small[after the last chunk]]{graded}")
                    show_text(view.tail.strip(), raw=shown.raw)


def _signs(shown: Shown, chunk: ChunkView) -> Signs:
    before, after = shown.values[chunk.idx], shown.values[chunk.idx + 1]
    return Signs(
        before=before,
        after=after,
        label=shown.label[chunk.idx],
        usual=shown.usual[shown.rules.name][chunk.idx],
        sure=confidence(shown.rules.shown, before, after),
        votes=shown.votes.get(chunk.id, {}),
        reviews=[row.verdict for row in shown.reviews.get(chunk.id, ())],
    )


def _pager(shown: Shown) -> None:
    view, first = shown.view, shown.first
    if view.n_chunks <= CHUNKS_A_PAGE:
        return
    last = min(first + CHUNKS_A_PAGE, view.n_chunks) - 1
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for words, target in (("Earlier", first - CHUNKS_A_PAGE), ("Later", first + CHUNKS_A_PAGE)):
            st.button(
                words,
                key=f"chunks-{words.lower()}",
                disabled=not 0 <= target < view.n_chunks,
                on_click=go,
                args=(view.id, target),
            )
        st.caption(f"chunks {first} to {last} of {view.n_chunks}")
