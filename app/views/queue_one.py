"""One queue: work in it, who is how far, its guidelines and their versions; owners edit, close and open it again."""

from __future__ import annotations

import streamlit as st

from app.views.queue_words import recipe_words, state_chips
from app.widgets.access import actor, get_store
from app.widgets.chrome import allowed
from app.widgets.guide_text import show_guide
from app.widgets.here import here_button
from app.widgets.keys import bindings, key_hint, press_keys
from app.widgets.rows import Column, Row, row_table
from app.widgets.safe_text import escape_line, visible
from app.widgets.when import ago, lasting, stamp
from db.errors import StoreError
from db.queues_store import GuidelineRow, MemberProgress, QueueRow

COLUMNS = (
    Column("Who", "text", "wide"),
    Column("Answered", "number"),
    Column("Skipped", "number"),
    Column("In hand", "number"),
    Column(
        "Known right",
        "small",
        help="Quality-control items: how many of those answered were answered right; members see it once the queue is closed",
    ),
    Column("An item takes", "small", help="Median time from its appearance to the answer"),
    Column("An hour", "small", help="Answers an hour while at work"),
    Column("Last", "small"),
)
LONGEST_GUIDE = 20_000
_MESSAGE = "queue_message"
_EDITING = "queue_editing"
"""Whose guidelines are being written, and the version that they began from."""
_TEXT = "guidelines-text"


def one_queue(queue: QueueRow) -> None:
    """Everything about a queue but its items."""
    store, me = get_store(), actor()
    role = store.role(me)
    st.title(escape_line(queue.name, limit=120), anchor=False)
    st.markdown(state_chips(queue))
    if message := st.session_state.pop(_MESSAGE, None):
        st.warning(escape_line(message, limit=400), icon=":material/block:")
    keys = bindings()
    targets = {}
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if queue.is_open and role != "reader":
            here_button(
                f"Work {key_hint('work', keys, bare=True)}",
                {"queue": str(queue.id), "work": "1"},
                key="queue-work",
                icon=":material/play_arrow:",
                primary=True,
            )
            targets["work"] = "queue-work"
        here_button("All queues", {}, key="all-queues", icon=":material/arrow_back:")
        st.page_link(
            "views/trajectories.py",
            label="Its chunks",
            icon=":material/list_alt:",
            query_params={"show": "chunks", "queue_id": str(queue.id)},
        )
        if role == "owner":
            _closing(queue)
    if role == "reader":
        allowed("annotator", "Reviewing")
    st.progress(
        queue.n_settled / queue.n_items if queue.n_items else 0.0,
        text=f"{queue.n_settled:,} of {queue.n_items:,} items settled",
    )
    if words := recipe_words(queue):
        st.caption(words)
    st.markdown("##### Who is how far", anchors=False)
    _members(store.queue_progress(queue.id))
    _guidelines(queue, store.guidelines(queue.id), may_edit=role == "owner")
    press_keys(targets, key="queue-keys", keys=keys)


def _members(members: list[MemberProgress]) -> None:
    if not members:
        st.caption("Nobody has begun.")
        return
    rows = [
        Row(
            id=str(i),
            href="",
            label="",
            cells=[
                visible(one.actor.partition(" @ ")[0]),
                f"{one.done:,}",
                f"{one.skipped:,}",
                f"{one.open:,}",
                f"{one.right} of {one.known}" if one.known else None,
                lasting(one.seconds) if one.seconds is not None else None,
                f"{one.per_hour:.0f}" if one.per_hour is not None else None,
                ago(one.last_at) if one.last_at else None,
            ],
        )
        for i, one in enumerate(members)
    ]
    row_table(COLUMNS, rows, label="Progress of the queue's members", key="queue-members")


def _closing(queue: QueueRow) -> None:
    words, icon = ("Close", "lock") if queue.is_open else ("Open again", "lock_open")
    st.button(
        words,
        key="queue-close",
        icon=f":material/{icon}:",
        type="tertiary",
        on_click=_set_open,
        args=(queue.id, not queue.is_open),
        help="Closed, nobody is asked any more, and what it hid can be seen" if queue.is_open else None,
    )


def _set_open(queue_id: int, is_open: bool) -> None:
    """Callback: close a queue, or open it again."""
    try:
        if is_open:
            get_store().reopen_queue(queue_id, actor())
        else:
            get_store().close_queue(queue_id, actor())
    except StoreError as error:
        st.session_state[_MESSAGE] = f"Nothing was changed: {error}"


def _guidelines(queue: QueueRow, versions: list[GuidelineRow], *, may_edit: bool) -> None:
    st.markdown("##### Guidelines", anchors=False)
    newest = versions[0] if versions else None
    editing = st.session_state.get(_EDITING)
    if may_edit and editing and editing[0] == queue.id:
        _editor(queue.id, newest)
        return
    if newest is None:
        st.caption("None were written.")
    else:
        with st.container(border=True, key="guidelines"):
            show_guide(newest.text)
        st.caption(escape_line(_version(newest)))
    if may_edit:
        st.button(
            "Edit the guidelines" if newest else "Write guidelines",
            key="guidelines-edit",
            icon=":material/edit:",
            on_click=_edit,
            args=(queue.id, newest),
        )
    if len(versions) > 1:
        chosen = st.selectbox(
            "Earlier versions", versions[1:], index=None, format_func=_version, key=f"guideline-{queue.id}"
        )
        if chosen is not None:
            with st.container(border=True):
                show_guide(chosen.text)


def _version(row: GuidelineRow) -> str:
    who = visible(row.actor.partition(" @ ")[0])[:40]
    return f"version {row.version} by {who}, {stamp(row.created_at)}"


def _editor(queue_id: int, newest: GuidelineRow | None) -> None:
    if _TEXT not in st.session_state:  # another page was open meanwhile
        _edit(queue_id, newest)
    st.text_area(
        "Markdown: headings, lists, bold, emphasis, code, formulas",
        key=_TEXT,
        height=360,
        max_chars=LONGEST_GUIDE,
    )
    with st.container(horizontal=True, gap="small"):
        st.button(
            "Store as the next version",
            key="guidelines-store",
            type="primary",
            on_click=_store,
            args=(queue_id,),
        )
        st.button("Leave it", key="guidelines-leave", type="tertiary", on_click=_leave)


def _edit(queue_id: int, newest: GuidelineRow | None) -> None:
    """Callback: open the editor with the version that is shown."""
    st.session_state[_EDITING] = (queue_id, newest.version if newest else 0)
    st.session_state[_TEXT] = newest.text if newest else ""


def _leave() -> None:
    """Callback: close the editor."""
    st.session_state[_EDITING] = None


def _store(queue_id: int) -> None:
    """Callback: the next version of the guidelines; one that somebody else stored meanwhile is shown first."""
    try:
        _, version = st.session_state[_EDITING]
        newest = get_store().guidelines(queue_id)[:1]
        if newest and newest[0].version != version:
            st.session_state[_EDITING] = (queue_id, newest[0].version)
            st.session_state[_MESSAGE] = (
                f"Nothing was stored: {_version(newest[0])}, came while you wrote. Store again to put yours after "
                f"it. It says: {newest[0].text}"
            )
            return
        get_store().set_guidelines(queue_id, st.session_state.get(_TEXT, ""), actor())
        _leave()
    except StoreError as error:
        st.session_state[_MESSAGE] = f"Nothing was stored: {error}"
