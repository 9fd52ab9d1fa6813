"""A list of chunks with what raters said of each: pages, the file of it, a queue of it. For the Judges page.

The list, its file and its queue are the same rows. Not: which chunks they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import streamlit as st

from app.views.judges_address import address
from app.views.judges_raters import Raters, sign_chip
from app.widgets.access import actor, get_store
from app.widgets.here import here_button
from app.widgets.rows import Column, Row, row_table
from app.widgets.safe_text import escape_line, visible
from db.agreement_reads import Rated
from db.errors import StoreError
from db.queue_rows import NewQueue

PAGE = 50
LONGEST = 100_000
"""Characters of a chunk that go into the file."""
_MADE = "judges_queue_made"


@dataclass(frozen=True)
class Listed:
    """``rows`` with what ``raters`` said, in their order; ``title`` says which chunks they are, ``name`` their file.

    ``opens``: where a row leads.
    """

    rows: Sequence[Rated]
    raters: Sequence[str]
    title: str
    name: str
    opens: Callable[[Rated], str]


def opens_trajectory(row: Rated) -> str:
    """The chunk on its trajectory's page."""
    return "/trajectory?" + urlencode({"traj": row.trajectory_id, "chunk": row.idx})


def show_chunks(listed: Listed, known: Raters, page: int) -> None:
    """The page of the list, with its file and its queue."""
    rows = listed.rows
    last = max(1, -(-len(rows) // PAGE))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            f"**{len(rows):,} {'chunk' if len(rows) == 1 else 'chunks'}**: {escape_line(listed.title)}"
        )
        if rows:
            st.download_button(
                "Export",
                lambda: as_file(listed),
                file_name=f"{listed.name}.jsonl",
                mime="application/x-ndjson",
                icon=":material/download:",
                on_click="ignore",
                key="judges-export",
                help="One JSON object a chunk, the rows of this list in this order",
            )
            _queue_these(listed)
    if left := get_store().left_out(siblings=False):
        st.caption(f":material/visibility_off: {left.words}, whether they fit or not.")
    if not rows:
        return
    if page > last:
        st.info("There is nothing further in this direction.", icon=":material/info:")
        here_button("First page", address(), key="judges-first", icon=":material/first_page:")
        return
    shown = rows[(page - 1) * PAGE : page * PAGE]
    texts = get_store().excerpts([row.chunk_id for row in shown])
    columns = (
        Column("Chunk", "link"),
        Column("What it says", "text", "wide"),
        *(Column(known.title(rater), "chips", "named") for rater in listed.raters),
    )
    drawn = [
        Row(
            id=str(row.chunk_id),
            href=listed.opens(row),
            label=f"Chunk {row.idx} of trajectory {row.trajectory_id}",
            cells=(
                f"#{row.trajectory_id} · chunk {row.idx}",
                " ".join(visible(texts[row.chunk_id].text).split()),
                *(sign_chip(sign) for sign in row.said),
            ),
        )
        for row in shown
    ]
    row_table(columns, drawn, label="Chunks", key="judges-chunks")
    if last > 1:
        with st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center"):
            _step("Previous", page - 1, page > 1)
            st.caption(f"page {page} of {last}", width="content")
            _step("Next", page + 1, page < last)


def _step(label: str, to: int, possible: bool) -> None:
    forward = label == "Next"
    here_button(
        label,
        address() | {"page": str(to)},
        key=f"judges-{label}",
        icon=f":material/chevron_{'right' if forward else 'left'}:",
        icon_position="right" if forward else "left",
        disabled=not possible,
    )


def as_file(listed: Listed) -> bytes:
    """The rows of the list as JSON lines, in its order: who said what of which chunk, and its text."""
    texts = get_store().excerpts([row.chunk_id for row in listed.rows], chars=LONGEST)
    lines = []
    for row in listed.rows:
        text = texts[row.chunk_id]
        found = {
            "chunk_id": row.chunk_id,
            "trajectory": row.trajectory_id,
            "chunk": row.idx,
            "dataset": text.dataset,
            "problem_id": text.key,
            "said": dict(zip(listed.raters, row.said, strict=True)),
            "text": text.text,
            "problem": text.problem,
        }
        lines.append(json.dumps(found, ensure_ascii=False) + "\n")
    if left := get_store().left_out(siblings=False):
        lines.append(json.dumps(left.line(filtered=True), ensure_ascii=False) + "\n")
    return "".join(lines).encode()


def _queue_these(listed: Listed) -> None:
    """An owner makes a queue of the list."""
    store, me = get_store(), actor()
    made = st.session_state.pop(_MADE, None)
    if store.role(me) != "owner":
        return
    with st.popover("Queue these", icon=":material/playlist_add:"):
        st.text_input("Name of the queue", key="judges-queue-name", max_chars=200)
        st.number_input("Reviews an item", 1, 100, 1, key="judges-queue-reviews")
        st.toggle(
            "Blind",
            key="judges-queue-blind",
            help="Its members see neither values, labels, verdicts nor each other's reviews before they answer",
        )
        st.button(
            "Make the queue",
            key="judges-queue-make",
            type="primary",
            on_click=_make,
            args=([row.chunk_id for row in listed.rows],),
        )
    if isinstance(made, int):
        st.page_link("views/queue.py", label="Queue made: open it", query_params={"queue": str(made)})
    elif made:
        st.warning(escape_line(str(made), limit=300), icon=":material/block:")


def _make(chunk_ids: list[int]) -> None:
    """Callback: make the queue; what came of it is shown at the next drawing."""
    new = st.session_state
    try:
        queue = NewQueue(
            name=new["judges-queue-name"],
            order="random",
            chunk_ids=chunk_ids,
            limit=len(chunk_ids),
            blind=new["judges-queue-blind"],
            reviews_per_item=int(new["judges-queue-reviews"]),
        )
        st.session_state[_MADE] = get_store().make_queue(queue, actor())
    except StoreError as error:
        st.session_state[_MADE] = f"No queue was made: {error}"
