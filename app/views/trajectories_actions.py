"""What can be done with all that a list's filter fits: save the search, queue, export, judge, roll out.

A file is made when its button is pressed, and holds the rows of the list in its order. Not: the lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from app.views.trajectories_address import PLACE, as_chunks, filter_query
from app.widgets.access import actor, get_store
from app.widgets.here import go_here
from app.widgets.safe_text import escape_line
from db.chunk_filter import ChunkFilter
from db.errors import StoreError
from db.reads_list import TrajectoryFilter
from db.store import Store

PAGE = "trajectories"
MOST_ROWS = 50_000
"""Rows of one exported file; more are a matter for the command."""
MOST_SOLUTIONS = 500
"""Solutions that one run is started on from here: their ids stand in the address of its form."""
_GO, _SAID = "find-go", "find-said"
NDJSON = "application/x-ndjson"
RUNS = {
    "judge": ("Judge these", ":material/gavel:"),
    "rollout": ("Roll these out", ":material/account_tree:"),
}


def go_where_asked() -> None:
    """A button of the run before chose solutions for a run: go to its form."""
    if (query := st.session_state.pop(_GO, None)) is not None:
        st.switch_page("views/runs.py", query_params=query)


# ---- bulk actions


def chunk_actions(where: ChunkFilter, sort: str) -> None:
    """For the list of chunks."""
    store = get_store()  # with the eyes of whoever sees this page; a file is made outside of its script
    _actions(
        where, lambda: _chunk_lines(store, where, sort), "chunks", lambda: _solutions_of(store, where, sort)
    )


def solution_actions(where: TrajectoryFilter, sort: str) -> None:
    """For the list of solutions."""
    store = get_store()

    def ids() -> list[int]:
        return list(islice(_solution_ids(store, where, sort), MOST_SOLUTIONS))

    _actions(as_chunks(where), lambda: _solution_lines(store, where, sort), "solutions", ids)


def _actions(
    where: ChunkFilter, lines: Callable[[], Iterable[dict[str, Any]]], name: str, ids: Callable[[], list[int]]
) -> None:
    owner = get_store().role(actor()) == "owner"
    if owner:
        st.page_link(
            "views/queue.py",
            label="Queue these",
            icon=":material/playlist_add:",
            query_params={"new": "1", **filter_query(where)},
            help="A queue of the chunks that fit: choose the order and how it is worked on",
        )
    st.download_button(
        "Export these",
        lambda: as_file(lines()),
        file_name=f"{name}.jsonl",
        mime=NDJSON,
        icon=":material/download:",
        on_click="ignore",
        type="tertiary",
        key="find-export",
        help=f"One JSON object a row, all rows of this list in this order, {MOST_ROWS:,} at most",
    )
    if owner:
        for kind, (label, icon) in RUNS.items():
            st.button(
                label,
                icon=icon,
                type="tertiary",
                key=f"find-{kind}",
                on_click=_start,
                args=(kind, ids),
                help=f"A run on the solutions that fit, the first {MOST_SOLUTIONS} of this order at most; its form comes first",
            )
    if left := get_store().left_out(siblings=name == "solutions"):
        st.caption(
            f":material/visibility_off: {left.words}, whether they fit or not; the file's last line says so."
        )


def _start(kind: str, ids: Callable[[], list[int]]) -> None:
    """Callback: the form of a run on these solutions."""
    found = ids()
    st.session_state[_GO] = {
        "new": kind,
        "set": f"select.trajectory_ids={json.dumps(found, separators=(',', ':'))}",
    }


def _solutions_of(store: Store, where: ChunkFilter, sort: str) -> list[int]:
    """The solutions of the chunks that fit, in the order of their first."""
    places = store.chunk_ids(where, sort=sort, limit=MOST_ROWS)
    return list(dict.fromkeys(trajectory_id for _, trajectory_id in places))[:MOST_SOLUTIONS]


def _solution_ids(store: Store, where: TrajectoryFilter, sort: str) -> Iterator[int]:
    cursor: str | None = None
    while True:
        page = store.trajectory_page(where, sort=sort, cursor=cursor, limit=500)
        yield from (row.id for row in page.rows)
        if (cursor := page.next) is None:
            return


def _chunk_lines(store: Store, where: ChunkFilter, sort: str) -> Iterator[dict[str, Any]]:
    """One object a chunk; ``votes``: {judge's name: positive, negative, all}."""
    names = {judge.id: judge.name for judge in store.judges()}
    for row in islice(store.iterate_found(where, sort=sort), MOST_ROWS):
        fields = asdict(row)
        fields["votes"] = {
            names.get(judge, str(judge)): dict(zip(("positive", "negative", "total"), counts, strict=True))
            for judge, counts in row.votes.items()
        }
        yield {"chunk_id": fields.pop("id"), "rule": where.rule, **fields}
    if left := store.left_out(siblings=False):
        yield left.line(filtered=True)


def _solution_lines(store: Store, where: TrajectoryFilter, sort: str) -> Iterator[dict[str, Any]]:
    """One object a solution, with its text and chunks."""
    ids = islice(_solution_ids(store, where, sort), MOST_ROWS)
    while batch := list(islice(ids, 200)):
        for one in store.stage_trajectories(batch):
            yield {
                "trajectory_id": one.id,
                "dataset": one.dataset,
                "problem_id": one.key,
                "problem": one.problem,
                "reference": one.reference,
                "verifier": one.verifier,
                "policy": one.policy,
                "outcome": one.outcome,
                "answer": one.answer,
                "text": one.text,
                "chunks": [chunk.text for chunk in one.chunks],
                "run": one.run_id,
            }
    if left := store.left_out():
        yield left.line(filtered=True)


def as_file(rows: Iterable[dict[str, Any]]) -> bytes:
    """JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


# ---- saved searches


def saved_searches() -> None:
    """The searches that people kept, and the one on screen to be kept."""
    store, me = get_store(), actor()
    kept = store.saved_searches(PAGE)
    may_save = store.role(me) != "reader"
    if not kept and not may_save:
        return
    said = st.session_state.pop(_SAID, None)
    with st.popover("Saved searches", icon=":material/bookmark:"):
        if said:
            st.warning(escape_line(said, limit=300), icon=":material/block:")
        for search in kept:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.button(
                    escape_line(search.name, limit=60),
                    key=f"saved-{search.id}",
                    type="tertiary",
                    icon=":material/search:",
                    on_click=_open,
                    args=(search.query,),
                    help=f"Kept by {escape_line(search.actor.partition(' @ ')[0], limit=60)}",
                )
                if search.actor == me or store.role(me) == "owner":
                    st.button(
                        "Delete",
                        key=f"forget-{search.id}",
                        type="tertiary",
                        icon=":material/delete:",
                        on_click=_forget,
                        args=(search.id,),
                    )
        if not kept:
            st.caption("No search is kept yet.")
        if may_save:
            with st.form("save-search", border=False):
                st.text_input("Keep this search under the name", key="save-name", max_chars=200)
                st.form_submit_button("Save", icon=":material/bookmark_add:", on_click=_save)


def _open(query: str) -> None:
    go_here(dict(parse_qsl(query, keep_blank_values=True)))


def _save() -> None:
    """Callback: the address, without its place in the list, under a name."""
    query = urlencode({n: v for n, v in st.query_params.items() if n not in PLACE})
    try:
        get_store().save_search(st.session_state["save-name"], PAGE, query, actor())
        st.session_state["save-name"] = ""
    except StoreError as error:
        st.session_state[_SAID] = f"Nothing was saved: {error}"


def _forget(search_id: int) -> None:
    try:
        get_store().delete_search(search_id, actor())
    except StoreError as error:
        st.session_state[_SAID] = f"Nothing was deleted: {error}"
