"""The list of queues: what each asks, how far it is, who works in it."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from app.views.queue_words import MODES, ORDERS, progress_of
from app.widgets.access import actor, get_store
from app.widgets.empty import empty_state
from app.widgets.here import here_button
from app.widgets.rows import Chip, Column, Row, row_table
from app.widgets.safe_text import visible
from app.widgets.when import ago
from db.queues_store import QueueRow

COLUMNS = (
    Column("Queue", "link", "wide"),
    Column("Settled", "progress", "wide", help="Items with as many answers as the queue asks for"),
    Column("Asks", "small"),
    Column("Order", "small"),
    Column("State", "chips"),
    Column("People", "small", "wide"),
    Column("Made", "small"),
)


def queue_list() -> None:
    """All queues, the newest first."""
    store = get_store()
    is_owner = store.role(actor()) == "owner"
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title("Queue", anchor=False, width="content")
        if is_owner:
            here_button("New queue", {"new": "1"}, key="new-queue", icon=":material/add:", primary=True)
    queues = store.queues()
    if not queues:
        empty_state(
            "No queues yet",
            "A queue hands out chunks to review one by one, the most telling first. "
            + ("Make one with New queue." if is_owner else "An owner makes them."),
            icon=":material/checklist:",
        )
        return
    row_table(COLUMNS, [_row(queue) for queue in queues], label="Queues", key="queues")


def _row(queue: QueueRow) -> Row:
    name = visible(queue.name)
    state = [Chip("open", "good") if queue.is_open else Chip("closed", "quiet")]
    if queue.blind:
        state.append(
            Chip("blind", "info", "Values, verdicts and others' reviews are hidden from who works in it")
        )
    if queue.reviews_per_item > 1:
        state.append(Chip(f"{queue.reviews_per_item} reviews an item"))
    people = [visible(one.partition(" @ ")[0]) for one in queue.members]
    return Row(
        id=str(queue.id),
        href=f"queue?{urlencode({'queue': queue.id})}",
        label=f"Open queue {name}",
        cells=[
            name if len(name) <= 60 else name[:59] + "…",
            progress_of(queue),
            MODES[queue.mode],
            ORDERS[queue.order][0] if queue.order else None,
            state,
            ", ".join(people[:4]) + (f" and {len(people) - 4} more" if len(people) > 4 else "") or None,
            ago(queue.created_at),
        ],
    )
