"""One trajectory: problem, chunks and Q curve; of the selected chunk its labels, judges, rollouts and review.

``/trajectory?traj=…&chunk=…&rollout=…`` restores the view. Not here: finding trajectories (trajectories.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import streamlit as st

from app.widgets.access import get_store
from app.widgets.address import Address, go, read_address
from app.widgets.chips import OUTCOMES, outcome_chip
from app.widgets.chunk_card import Signs, chunk_card
from app.widgets.empty import empty_state, no_such
from app.widgets.evidence import fraction_words, show_judges, show_labels, show_rollouts
from app.widgets.review_card import review_card, said
from app.widgets.safe_text import code, escape_line, raw_toggle, show_text
from app.widgets.value_curve import biggest_drop, summary, value_figure
from db.reads_trajectory import TrajectoryView
from db.selections import ChunkInputs
from engine.labels import REL_RATIO, label
from engine.pipeline.labelling import prefix_values
from engine.values import Value

CHUNKS_A_PAGE = 50
MOST_SIBLINGS = 24
MOST_ROLLOUTS = 512
_LIST = "views/trajectories.py"


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
    _show(view, address)


def _show(view: TrajectoryView, address: Address) -> None:
    inputs = get_store().label_inputs([view.id])[0]
    values = prefix_values(inputs)
    labels = [label(REL_RATIO, before, after) for before, after in pairwise(values)]
    selected = _selected(view, address, values)
    raw = _header(view)
    problem_side, curve_side = st.columns([5, 7], gap="medium")
    with problem_side:
        _problem(view, raw=raw)
    with curve_side:
        _curve(view, values, labels, selected)
    chunk_side, detail_side = st.columns([5, 7], gap="medium")
    with chunk_side:
        _chunks(view, values, labels, selected, raw=raw)
    if selected is not None:
        with detail_side:
            chunk = inputs.chunks[selected]
            _detail(view, chunk, selected, (values[selected], values[selected + 1]), address.rollout, raw=raw)


def _selected(view: TrajectoryView, address: Address, values: Sequence[Value]) -> int | None:
    """The chunk that the address names, else where most of the value is lost, else the first."""
    if address.chunk is not None and address.chunk < view.n_chunks:
        return address.chunk
    if address.chunk is not None:
        st.error(
            f"Trajectory {view.id} has no chunk {address.chunk}: "
            + (f"its chunks are 0 to {view.n_chunks - 1}." if view.n_chunks else "it has none."),
            icon=":material/link_off:",
        )
    drop = biggest_drop(values)
    return drop[0] if drop else 0 if view.n_chunks else None


def _header(view: TrajectoryView) -> bool:
    """Title, facts, ways on; returns whether text is shown raw."""
    before, after = get_store().neighbours(view.id)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"### Trajectory {view.id} &nbsp; {outcome_chip(view.outcome)}", anchors=False)
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


def _facts(view: TrajectoryView) -> str:
    facts = [
        f"policy **{escape_line(view.policy, limit=60)}**",
        f"{escape_line(view.dataset, limit=60)} / {escape_line(view.key, limit=60)}",
        f"draw {view.draw}" if view.draw is not None else "not sampled here",
        f"{view.n_chunks} chunks cut by {escape_line(view.cutter)}",
    ]
    if view.n_tokens is not None:
        facts.append(f"{view.n_tokens} tokens, ended by {escape_line(view.finish_reason or 'nothing known')}")
    if view.run_id is not None:
        facts.append(f"run {view.run_id}")
    return " · ".join(facts)


def _problem(view: TrajectoryView, *, raw: bool) -> None:
    st.caption("Problem")
    show_text(view.problem, raw=raw)
    given = code(view.answer) if view.answer is not None else "none"
    st.markdown(f"Reference answer {code(view.reference)} · this solution's answer {given}")
    st.caption(_facts(view))
    if view.note:
        st.caption(f":material/info: {escape_line(view.note, limit=400)}")


def _curve(
    view: TrajectoryView, values: Sequence[Value], labels: Sequence[str | None], selected: int | None
) -> None:
    if not any(value.known for value in values[:-1]):
        empty_state(
            "Values unknown",
            "Nothing was rolled out from this solution. A rollout run on the Runs page draws its Q curve.",
            page="views/runs.py",
            label="Start a rollout run",
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
        value_figure(values, labels, selected, dark=dark),
        key=key,
        on_select=select_point,
        selection_mode="points",
        config={"displayModeBar": False, "scrollZoom": False, "doubleClick": False},
        alt=summary(values),
    )


def _chunks(
    view: TrajectoryView,
    values: Sequence[Value],
    labels: Sequence[str | None],
    selected: int | None,
    *,
    raw: bool,
) -> None:
    """The cards of the page of chunks that holds the selected one, then the tail."""
    store = get_store()
    first = (selected or 0) // CHUNKS_A_PAGE * CHUNKS_A_PAGE
    chunks = store.chunk_page(view.id, first, CHUNKS_A_PAGE)
    votes = store.votes_of(view.id)
    reviews = store.reviews_of(view.id)
    _pager(view, first, "top")
    for chunk in chunks:
        signs = Signs(
            values[chunk.idx],
            values[chunk.idx + 1],
            labels[chunk.idx],
            votes.get(chunk.id, {}),
            [row.verdict for row in said(reviews) if row.chunk_id == chunk.id],
        )
        chunk_card(
            chunk.idx,
            chunk.lead,
            chunk.text,
            signs,
            selected=chunk.idx == selected,
            raw=raw,
            on_select=go,
            args=(view.id, chunk.idx),
        )
    if first + CHUNKS_A_PAGE >= view.n_chunks and view.tail.strip():
        with st.container(border=True, gap="xsmall", key="tail"):
            st.markdown(f":gray[:small[after the last chunk]] {outcome_chip(view.outcome)}")
            show_text(view.tail.strip(), raw=raw)
    _pager(view, first, "bottom")


def _pager(view: TrajectoryView, first: int, place: str) -> None:
    if view.n_chunks <= CHUNKS_A_PAGE:
        return
    last = min(first + CHUNKS_A_PAGE, view.n_chunks) - 1
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for words, target in (("Earlier", first - CHUNKS_A_PAGE), ("Later", first + CHUNKS_A_PAGE)):
            st.button(
                words,
                key=f"chunks-{words.lower()}-{place}",
                disabled=not 0 <= target < view.n_chunks,
                on_click=go,
                args=(view.id, target),
            )
        st.caption(f"chunks {first} to {last} of {view.n_chunks}")


def _detail(
    view: TrajectoryView,
    chunk: ChunkInputs,
    idx: int,
    around: tuple[Value, Value],
    rollout: int | None,
    *,
    raw: bool,
) -> None:
    """Everything about the selected chunk."""
    store = get_store()
    given = label(REL_RATIO, *around)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(
            f"#### Chunk {idx} of {view.n_chunks} &nbsp; {fraction_words(around[0])} → {fraction_words(around[1])}"
        )
        with st.container(horizontal=True, width="content", gap="xsmall"):
            _step("Previous chunk", "K", "keyboard_arrow_up", view, idx - 1)
            _step("Next chunk", "J", "keyboard_arrow_down", view, idx + 1)
    review_card(chunk.chunk_id, idx, given)
    st.markdown("##### Labels")
    show_labels(*around)
    st.markdown("##### Judges")
    show_judges(store.judgments_of(chunk.chunk_id), given, raw=raw)
    st.markdown("##### Rollouts after this chunk")
    rollouts = store.rollouts_of(chunk.prefix_id, limit=MOST_ROLLOUTS) if chunk.prefix_id is not None else []
    show_rollouts(rollouts, around[1], (view.id, idx), rollout, store.rollout_text, raw=raw)
    _siblings(view)


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
    st.markdown("##### Other solutions of this problem")
    with st.container(horizontal=True, gap="xsmall"):
        for row in others[:MOST_SIBLINGS]:
            icon = OUTCOMES[row.outcome][1]
            st.button(
                f"{row.id}",
                key=f"sibling-{row.id}",
                icon=f":material/{icon}:",
                type="tertiary",
                on_click=go,
                args=(row.id,),
                help=f"{row.outcome}, {row.n_chunks} chunks",
            )


if __name__ == "__main__":
    page()
