"""Chunks on which people disagree: who said what and why, and an owner's decision. Until then they have no label.

``/adjudication?chunk=…&queue=…`` restores the view. Not: the form (review_form), how a label follows (engine.labels).
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app.views.adjudication_chunk import (
    Opened,
    decide,
    other_voices,
    read_chunk,
    show_solution,
    what_of,
    who_said_what,
)
from app.widgets.access import actor, get_store
from app.widgets.address import parameters
from app.widgets.card import action_id, say, show_message
from app.widgets.chips import label_chip, review_chip
from app.widgets.chrome import reviewing_as
from app.widgets.empty import empty_state, no_such
from app.widgets.here import go_here, here_button
from app.widgets.keys import bindings, key_hint, press_keys
from app.widgets.review_card import show_history
from app.widgets.review_form import focus_wanted
from app.widgets.rows import Chip, Column, Row, row_table
from app.widgets.safe_text import apart, escape_line, raw_toggle, visible
from app.widgets.when import ago
from db.disputes import Dispute
from db.errors import StoreError

KNOWN = ("chunk", "queue")
COUNTED = 1000
LISTED = 20
COLUMNS = (
    Column("Chunk", "link"),
    Column("What it says", "text", "wide"),
    Column("Said", "chips"),
)


def page() -> None:
    """The page, from its address."""
    st.title("Adjudication", anchor=False)
    queue, chunk, wrong = _asked()
    if wrong:
        for one in wrong:
            st.error(one, icon=":material/link_off:")
        here_button("All disagreements", {}, key="all", icon=":material/undo:")
        return
    keys = bindings()
    _scope(queue)
    targets = _undo_bar(queue, keys)
    if chunk is None:
        first = get_store().disputes(queue_id=queue, limit=1)
        if not first:
            _nothing(queue)
            press_keys(targets, key="adjudication-keys", keys=keys)
            return
        chunk = first[0].chunk_id
    opened = read_chunk(chunk)
    if opened is None:
        no_such("chunk", str(chunk))
        here_button("All disagreements", _here(queue), key="all", icon=":material/undo:")
        return
    _show(opened, queue, keys, targets)


def _asked() -> tuple[int | None, int | None, list[str]]:
    """(queue, chunk, what is wrong with the address)."""
    query, wrong, numbers = st.query_params, [], {}
    for name in query:
        if name not in KNOWN:
            wrong.append(f"{escape_line(name, limit=40)}=…: this page knows {' and '.join(KNOWN)}")
    for name in KNOWN:
        text = query.get(name)
        if text is None:
            continue
        if text.isascii() and text.isdigit() and len(text) <= 18:
            numbers[name] = int(text)
        else:
            wrong.append(f"{name}={escape_line(text, limit=60)}: a whole number was expected")
    if "queue" in numbers and numbers["queue"] not in {queue.id for queue in get_store().queues()}:
        wrong.append(f"queue={numbers['queue']}: there is no such queue in this store")
    return numbers.get("queue"), numbers.get("chunk"), wrong


def _here(queue: int | None, chunk: int | None = None) -> dict[str, str]:
    given = {"queue": queue, "chunk": chunk}
    return {name: str(value) for name, value in given.items() if value is not None}


def _scope(queue: int | None) -> None:
    """Whose disagreements, and how many there are."""
    store = get_store()
    names = {"": "all chunks"} | {str(one.id): one.name for one in store.queues()}
    count = store.count_disputes(queue_id=queue, stop=COUNTED)
    number = f"{COUNTED:,}+" if count > COUNTED else f"{count:,}"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if len(names) > 1:
            st.session_state["adjudication-queue"] = "" if queue is None else str(queue)
            st.selectbox(
                "Queue",
                list(names),
                format_func=apart(names).__getitem__,
                key="adjudication-queue",
                on_change=lambda: go_here(_only("queue", st.session_state["adjudication-queue"])),
                width=260,
            )
        noun = "chunk" if count == 1 else "chunks"
        st.markdown(f"**{number}** {noun} on which people disagree and nobody has decided")


def _only(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


def _nothing(queue: int | None) -> None:
    show_message()
    where = " in this queue" if queue is not None else ""
    empty_state(
        f"People disagree on no chunk{where}",
        "Where two reviewers say + and − of one chunk, it comes here and has no label until an owner decides.",
        icon=":material/handshake:",
        page="views/judges.py",
        label="Agreement",
        query={"view": "agreement"},
    )


def _show(opened: Opened, queue: int | None, keys: Mapping[str, str], targets: dict[str, str]) -> None:
    view, chunk = opened.view, opened.chunk

    def decided(chunk_id: int) -> None:
        go_here(_here(queue, _next(chunk_id, queue)))

    left, right = st.columns([6, 5], gap="medium")
    with left:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**Chunk {chunk.idx}** of {view.n_chunks} of trajectory {view.id}")
            st.page_link(
                "views/trajectory.py",
                label="On its page",
                icon=":material/timeline:",
                query_params=parameters(view.id, chunk.idx),
            )
            raw = raw_toggle()
        show_solution(opened, raw)
    with right:
        if view.blind:
            st.info(
                "You are still to review this solution blind: what others said of it is not shown to you, and you "
                "decide nothing about it until then.",
                icon=":material/visibility_off:",
            )
        else:
            st.markdown(f"In force: {label_chip(opened.label)} :small[{opened.source}]")
            who_said_what(opened)
            targets = targets | decide(opened, keys, decided)
            if opened.history:
                with st.expander("History", expanded=not opened.disputed):
                    show_history(opened.history, chunk.text)
            other_voices(opened)
        reviewing_as()
    targets = targets | _steps(chunk.id, queue, keys)
    card = action_id(what_of(chunk.id))
    press_keys(targets, key="adjudication-keys", card=card, keys=keys, focus=focus_wanted())
    _list(chunk.id, queue)


def _next(chunk_id: int, queue: int | None) -> int | None:
    """The disagreement after this chunk, else the first; None: there is none."""
    store = get_store()
    rows = store.disputes(queue_id=queue, after=chunk_id, limit=1) or store.disputes(queue_id=queue, limit=1)
    return rows[0].chunk_id if rows else None


def _undo_bar(queue: int | None, keys: Mapping[str, str]) -> dict[str, str]:
    """One's last decision and the way to take it back, after a reload too. Returns the key's target."""
    store, me = get_store(), actor()
    last = store.last_review(me)
    if last is None or last.kind != "adjudication":
        return {}
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(
            f":small[You decided chunk {last.chunk_id}:] {review_chip(last.verdict)} :small[{ago(last.created_at)}]"
        )
        st.button(
            f"Undo {key_hint('undo', keys)}",
            key="adjudication-undo",
            icon=":material/undo:",
            type="tertiary",
            on_click=_undo,
            args=(last.id, last.chunk_id, queue),
        )
    return {"undo": "adjudication-undo"}


def _undo(review_id: int, chunk_id: int, queue: int | None) -> None:
    """Callback: take back the decision and open its chunk again. The id makes a second press the same action."""
    try:
        get_store().undo(f"undo-adjudication-{review_id}", actor(), chunk_id, review_id=review_id)
        go_here(_here(queue, chunk_id))
    except StoreError as error:
        say(f"Nothing was taken back: {error}")


# ---- from one to another


def _steps(chunk_id: int, queue: int | None, keys: Mapping[str, str]) -> dict[str, str]:
    store = get_store()
    before = store.disputes(queue_id=queue, before=chunk_id, limit=1)
    after = store.disputes(queue_id=queue, after=chunk_id, limit=1)
    with st.container(horizontal=True, horizontal_alignment="center"):
        for key, label, rows, icon in (
            ("previous", "Previous", before, "chevron_left"),
            ("next", "Next", after, "chevron_right"),
        ):
            here_button(
                f"{label} {key_hint(key, keys)}",
                _here(queue, rows[0].chunk_id) if rows else {},
                key=f"adjudication-{key}",
                icon=f":material/{icon}:",
                icon_position="left" if key == "previous" else "right",
                disabled=not rows,
            )
    return {key: f"adjudication-{key}" for key in ("previous", "next")}


def _list(chunk_id: int, queue: int | None) -> None:
    """The disagreements from this one on."""
    rows = get_store().disputes(queue_id=queue, after=chunk_id, limit=LISTED)
    if rows:
        st.markdown("**Next**")
        row_table(COLUMNS, [_row(row, queue) for row in rows], label="Disagreements", key="adjudication-list")


def _row(row: Dispute, queue: int | None) -> Row:
    address = "&".join(f"{name}={value}" for name, value in _here(queue, row.chunk_id).items())
    chips = [Chip(f"{row.plus} +", "good"), Chip(f"{row.minus} −", "bad")]
    if row.abstained:
        chips.append(Chip(f"{row.abstained} abstain"))
    return Row(
        id=str(row.chunk_id),
        href=f"/adjudication?{address}",
        label=f"Chunk {row.idx} of trajectory {row.trajectory_id}",
        cells=(f"#{row.trajectory_id} · chunk {row.idx}", " ".join(visible(row.text).split()), chips),
    )


if __name__ == "__main__":
    page()
