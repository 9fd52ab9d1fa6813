"""Everything about the selected chunk: its text, review, labels with their reasons, judges, rollouts."""

from __future__ import annotations

import streamlit as st

from app.views.trajectory_shown import CHUNKS_A_PAGE, Shown
from app.views.trajectory_stopped import drawn_by
from app.widgets.access import get_store
from app.widgets.address import go, new_run
from app.widgets.evidence import show_labels
from app.widgets.hits import hits
from app.widgets.judges_shown import NEXT as NEXT_JUDGMENT
from app.widgets.judges_shown import next_judgment, show_judges
from app.widgets.keys import key_hint
from app.widgets.review_card import review_card
from app.widgets.rollouts_shown import NEXT as NEXT_ROLLOUT
from app.widgets.rollouts_shown import next_rollout, show_rollouts
from app.widgets.safe_text import show_text
from app.widgets.sources import show_sources
from app.widgets.value_words import moved_words
from db.reads_trajectory import ChunkView, TrajectoryView
from engine.labels import confidence

MOST_ROLLOUTS = 512


def show_detail(shown: Shown) -> dict[str, str]:
    """Draw it. Returns {action: key of the widget that it presses}."""
    chunk = shown.chunk
    if chunk is None:
        st.caption("This trajectory has no chunks.")
        return {}
    view, idx = shown.view, chunk.idx
    moved = moved_words(shown.values[idx], shown.values[idx + 1])
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"#### Chunk {idx}{f' &nbsp; :gray[Q {moved}]' if moved else ''}", anchors=False)
        with st.container(horizontal=True, width="content", gap="xsmall"):
            targets = {
                "chunk-previous": _step(
                    "Previous chunk", "chunk-previous", "keyboard_arrow_up", view, idx - 1
                ),
                "chunk-next": _step("Next chunk", "chunk-next", "keyboard_arrow_down", view, idx + 1),
            }
    with st.container(key="selected-text"):
        show_text(chunk.text, raw=shown.raw, marks=hits(chunk.text, shown.address.find), colour="blue")
    review_card(chunk.id, idx, shown.usual["rel-ratio"][idx], chunk.text, blind=view.blind)
    if not view.blind:
        targets |= _evidence(shown, chunk)
    return targets


def _evidence(shown: Shown, chunk: ChunkView) -> dict[str, str]:
    store, view, idx, targets = get_store(), shown.view, chunk.idx, {}
    before, after = shown.values[idx], shown.values[idx + 1]
    judgments = store.judgments_of(chunk.id)
    _section("Who says what")
    show_sources(
        shown.rules.name,
        shown.label[idx],
        confidence(shown.rules.shown, before, after),
        (before, after),
        judgments,
        shown.reviews.get(chunk.id, ()),
    )
    _section("Why this label")
    show_labels(before, after, shown.rules, lambda: new_run("rollout", view.id, drawn_by(shown)))
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        _section("Judges")
        if len(judgments) > 1:
            next_judgment(judgments, shown.address.judgment, (view.id, idx))
            targets["judge-next"] = NEXT_JUDGMENT
    show_judges(
        judgments,
        shown.label[idx],
        where=(view.id, idx),
        opened=shown.address.judgment,
        rule=shown.rules.name,
        find=shown.address.find,
        raw=shown.raw,
    )
    rollouts = store.rollouts_of(chunk.prefix_id, limit=MOST_ROLLOUTS) if chunk.prefix_id is not None else []
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        _section("Rollouts after this chunk")
        if rollouts:
            next_rollout(rollouts, shown.address.rollout, (view.id, idx))
            targets["rollout-next"] = NEXT_ROLLOUT
    show_rollouts(
        rollouts,
        after,
        (view.id, idx),
        shown.address.rollout,
        store.rollout_text,
        lambda: _followed(view, idx),
        view.cutter,
        raw=shown.raw,
        ungraded=view.outcome == "error" and idx == view.n_chunks - 1,
    )
    return targets


def _section(words: str) -> None:
    st.markdown(f"##### {words}", anchors=False, width="content")


def _followed(view: TrajectoryView, idx: int) -> list[str]:
    """What the solution itself went on with after chunk ``idx``: its next chunks, and the tail where they end."""
    chunks = get_store().chunk_page(view.id, idx + 1, CHUNKS_A_PAGE)
    texts = [chunk.text for chunk in chunks]
    ends = not chunks or chunks[-1].idx == view.n_chunks - 1
    return [*texts, view.tail.strip()] if ends and view.tail.strip() else texts


def _step(words: str, action: str, icon: str, view: TrajectoryView, target: int) -> str:
    key = f"chunk-step-{action}"
    st.button(
        f"{words} {key_hint(action)}",
        key=key,
        icon=f":material/{icon}:",
        disabled=not 0 <= target < view.n_chunks,
        on_click=go,
        args=(view.id, target),
    )
    return key
