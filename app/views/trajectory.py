"""One trajectory: problem, chunks and Q curve; of the selected chunk its judges, rollouts, labels and review.

``/trajectory?traj=…&chunk=…&rollout=…`` restores the view. Not here: finding trajectories (trajectories.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.widgets.access import get_store
from app.widgets.address import RUNS, Address, go, new_run, read_address
from app.widgets.chips import OUTCOMES, outcome_chip
from app.widgets.chunk_card import Signs, chunk_card
from app.widgets.empty import empty_state, no_such
from app.widgets.evidence import fraction_words, show_judges, show_labels, show_rollouts
from app.widgets.review_card import review_card, said
from app.widgets.safe_text import code, escape_line, raw_toggle, show_text
from app.widgets.value_curve import biggest_drop, summary, value_figure
from db.reads_trajectory import ChunkView, TrajectoryView
from engine.labels import REL_RATIO, Label, label
from engine.pipeline.labelling import prefix_values
from engine.values import Value

CHUNKS_A_PAGE = 50
MOST_SIBLINGS = 24
MOST_ROLLOUTS = 512
_LIST = "views/trajectories.py"
_LIST_HEIGHT = 720
"""Pixels of the list of chunks where it would push the selected chunk's detail out of sight."""
_SHORT_LIST = 7


@dataclass(frozen=True)
class Shown:
    """What the page shows: H + 1 values, a rel-ratio label each chunk, one page of chunks, the selected one."""

    view: TrajectoryView
    values: tuple[Value, ...]
    labels: tuple[Label | None, ...]
    chunks: tuple[ChunkView, ...]
    selected: int | None
    rollout: int | None
    raw: bool

    @property
    def first(self) -> int:
        """Index of the first chunk on this page of chunks."""
        return page_start(self.selected)


def page_start(selected: int | None) -> int:
    """The first chunk of the page of chunks that holds ``selected``."""
    return (selected or 0) // CHUNKS_A_PAGE * CHUNKS_A_PAGE


def page() -> None:
    """The page, from its address."""
    address = read_address()
    if address.bad:
        no_such(address.bad[0], address.bad[1], page=_LIST, label="All trajectories")
        return
    if address.trajectory is None:
        empty_state(
            "No trajectory chosen",
            "Open one from the list; its address can be sent to a colleague.",
            page=_LIST,
            label="All trajectories",
            icon=":material/timeline:",
        )
        return
    view = get_store().trajectory_view(address.trajectory)
    if view is None:
        no_such("trajectory", str(address.trajectory), page=_LIST, label="All trajectories")
        return
    raw = _header(view)
    shown = _read(view, address, raw)
    above_left, above_right = st.columns([5, 7], gap="medium")
    below_left, below_right = st.columns([5, 7], gap="medium")
    with above_left:
        _problem(view, raw)
    with above_right:
        _curve(shown)
    with below_left:
        _chunks(shown)
        _siblings(view)
    with below_right:
        _detail(shown)


def _read(view: TrajectoryView, address: Address, raw: bool) -> Shown:
    """Values and labels from the counts, and the chunks of one page."""
    store = get_store()
    values = prefix_values(store.label_inputs([view.id])[0])
    selected = _selected(view, address, values)
    return Shown(
        view=view,
        values=tuple(values),
        labels=tuple(label(REL_RATIO, before, after) for before, after in pairwise(values)),
        chunks=tuple(store.chunk_page(view.id, page_start(selected), CHUNKS_A_PAGE)),
        selected=selected,
        rollout=address.rollout,
        raw=raw,
    )


def _selected(view: TrajectoryView, address: Address, values: list[Value]) -> int | None:
    """The chunk that the address names, else where most of the value is lost, else the first."""
    if address.chunk is not None and address.chunk < view.n_chunks:
        return address.chunk
    if address.chunk is not None:
        there_are = f"its chunks are 0 to {view.n_chunks - 1}" if view.n_chunks else "it has none"
        st.error(
            f"Trajectory {view.id} has no chunk {address.chunk}: {there_are}.", icon=":material/link_off:"
        )
    drop = biggest_drop(values)
    return drop[0] if drop else 0 if view.n_chunks else None


def _header(view: TrajectoryView) -> bool:
    """Title and ways on; returns whether text is shown raw."""
    before, after = get_store().neighbours(view.id)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"## Trajectory {view.id} &nbsp; {outcome_chip(view.outcome)}", anchors=False)
        with st.container(horizontal=True, vertical_alignment="center", width="content", gap="small"):
            raw = raw_toggle()
            for words, icon, key, target in (
                ("Previous", "arrow_back", "P", before),
                ("Next", "arrow_forward", "N", after),
            ):
                st.button(
                    words,
                    key=f"trajectory-{words.lower()}",
                    icon=f":material/{icon}:",
                    shortcut=key,
                    disabled=target is None,
                    on_click=go,
                    args=(target,),
                    help=f"{words} trajectory",
                )
    return raw


def _problem(view: TrajectoryView, raw: bool) -> None:
    with st.container(gap="xsmall"):
        st.caption("Problem")
        show_text(view.problem, raw=raw)
        given = code(view.answer) if view.answer is not None else "none"
        st.markdown(f"Reference answer {code(view.reference)} · this solution's answer {given}")
        st.caption(_facts(view))
        if view.run_id is not None:
            st.page_link(
                RUNS,
                label=f"Made by run {view.run_id}",
                icon=":material/play_circle:",
                query_params={"run": str(view.run_id)},
            )
        if view.note:
            st.caption(f":material/info: {escape_line(view.note, limit=400)}")


def _facts(view: TrajectoryView) -> str:
    facts = [
        f"policy **{escape_line(view.policy, limit=60)}**",
        f"{escape_line(view.dataset, limit=60)} / {escape_line(view.key, limit=60)}",
        f"draw {view.draw}" if view.draw is not None else "not sampled here",
        f"{view.n_chunks} chunks cut by {escape_line(view.cutter)}",
    ]
    if view.n_tokens is not None:
        facts.append(f"{view.n_tokens} tokens, ended by {escape_line(view.finish_reason or 'nothing known')}")
    return " · ".join(facts)


def _curve(shown: Shown) -> None:
    view = shown.view
    if not any(value.known for value in shown.values[:-1]):
        empty_state(
            "Values unknown",
            "Nothing was rolled out from this solution. A rollout run draws its Q curve.",
            page=RUNS,
            label="Roll out this trajectory",
            query=new_run("rollout", view.id),
            icon=":material/show_chart:",
        )
        return
    key = f"curve-{view.id}"

    def select_point() -> None:
        points = st.session_state[key].selection.points
        if points:
            go(view.id, max(0, int(points[-1]["x"]) - 1))

    dark = st.context.theme.type == "dark"
    st.plotly_chart(
        value_figure(shown.values, shown.labels, shown.selected, dark=dark),
        key=key,
        on_select=select_point,
        selection_mode="points",
        config={"displayModeBar": False, "scrollZoom": False, "doubleClick": False},
        alt=summary(shown.values),
    )


def _chunks(shown: Shown) -> None:
    """The cards of the page of chunks that holds the selected one, then the tail."""
    view, store = shown.view, get_store()
    votes = store.votes_of(view.id)
    reviews = said(store.reviews_of(view.id))
    _pager(shown)
    with _list(len(shown.chunks)):
        for chunk in shown.chunks:
            signs = Signs(
                before=shown.values[chunk.idx],
                after=shown.values[chunk.idx + 1],
                label=shown.labels[chunk.idx],
                votes=votes.get(chunk.id, {}),
                reviews=[row.verdict for row in reviews if row.chunk_id == chunk.id],
            )
            chunk_card(
                chunk, signs, selected=chunk.idx == shown.selected, raw=shown.raw, trajectory_id=view.id
            )
        if shown.first + CHUNKS_A_PAGE >= view.n_chunks and view.tail.strip():
            with st.container(border=True, gap="xsmall", key="tail"):
                st.markdown(f":gray[:small[after the last chunk]] {outcome_chip(view.outcome)}")
                show_text(view.tail.strip(), raw=shown.raw)


def _list(n_chunks: int) -> DeltaGenerator:
    """The container of the cards: as high as they are, or scrolling where they are many."""
    if n_chunks <= _SHORT_LIST:
        return st.container(gap="xsmall", key="chunks")
    return st.container(gap="xsmall", height=_LIST_HEIGHT, border=False, key="chunks")


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


def _detail(shown: Shown) -> None:
    """Everything about the selected chunk."""
    if shown.selected is None:
        st.caption("This trajectory has no chunks.")
        return
    store, view, idx = get_store(), shown.view, shown.selected
    before, after = shown.values[idx], shown.values[idx + 1]
    chunk, given = shown.chunks[idx - shown.first], shown.labels[idx]
    moved = f"Q {fraction_words(before)} → {fraction_words(after)}" if before.known or after.known else ""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"#### Chunk {idx} &nbsp; :gray[{moved}]", anchors=False)
        with st.container(horizontal=True, width="content", gap="xsmall"):
            _step("Previous chunk", "K", "keyboard_arrow_up", view, idx - 1)
            _step("Next chunk", "J", "keyboard_arrow_down", view, idx + 1)
    with st.container(key="selected-text"):
        show_text(chunk.text, raw=shown.raw)
    review_card(chunk.id, idx, given, chunk.text)
    st.markdown("##### Judges", anchors=False)
    show_judges(store.judgments_of(chunk.id), given, trajectory_id=view.id, raw=shown.raw)
    st.markdown("##### Rollouts after this chunk", anchors=False)
    rollouts = store.rollouts_of(chunk.prefix_id, limit=MOST_ROLLOUTS) if chunk.prefix_id is not None else []
    show_rollouts(rollouts, after, (view.id, idx), shown.rollout, store.rollout_text, raw=shown.raw)
    st.markdown("##### Labels", anchors=False)
    show_labels(before, after)


def _step(words: str, key: str, icon: str, view: TrajectoryView, target: int) -> None:
    st.button(
        words,
        key=f"chunk-step-{key}",
        icon=f":material/{icon}:",
        shortcut=key,
        disabled=not 0 <= target < view.n_chunks,
        on_click=go,
        args=(view.id, target),
    )


def _siblings(view: TrajectoryView) -> None:
    """The other solutions of the problem, by outcome."""
    others = [row for row in get_store().siblings(view.problem_id, MOST_SIBLINGS + 1) if row.id != view.id]
    if not others:
        return
    st.markdown("##### Other solutions of this problem", anchors=False)
    with st.container(horizontal=True, gap="xsmall"):
        for row in others[:MOST_SIBLINGS]:
            st.button(
                f"{row.id}",
                key=f"sibling-{row.id}",
                icon=f":material/{OUTCOMES[row.outcome][1]}:",
                type="tertiary",
                on_click=go,
                args=(row.id,),
                help=f"Trajectory {row.id}: {OUTCOMES[row.outcome][2]}, {row.n_chunks} chunks",
            )


if __name__ == "__main__":
    page()
