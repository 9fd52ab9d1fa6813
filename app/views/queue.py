"""Queue: the list; ``?queue=…`` one queue, ``&work=1`` working in it (``&item=…`` one item); ``?new=1`` a new one.

The parts are in queue_list, queue_one, queue_work (with queue_card) and queue_new.
"""

from __future__ import annotations

import streamlit as st

from app.views.queue_list import queue_list
from app.views.queue_new import FILTERS, new_queue
from app.views.queue_one import one_queue
from app.views.queue_work import work
from app.widgets.access import get_store
from app.widgets.empty import no_such
from app.widgets.here import here_button
from app.widgets.safe_text import escape_line
from db.errors import NotFoundError
from db.queues_store import QueueRow

KNOWN = ("queue", "item", "work", "chunk", "judgment", "new", *FILTERS)


def page() -> None:
    """The part that the address asks for."""
    for name in st.query_params:
        if name not in KNOWN:
            st.warning(f"The address has {escape_line(name, limit=40)}=…, which this page does not know.")
    if "new" in st.query_params:
        new_queue()
    elif "queue" not in st.query_params:
        queue_list()
    elif (queue := _asked_queue(st.query_params["queue"])) is not None:
        if "work" in st.query_params or "item" in st.query_params:
            work(queue)
        else:
            one_queue(queue)


def _asked_queue(given: str) -> QueueRow | None:
    try:
        if given.isascii() and given.isdigit() and len(given) <= 18:
            return get_store().queue(int(given))
    except NotFoundError:
        pass
    no_such("queue", given)
    here_button("All queues", {}, key="all-queues", icon=":material/arrow_back:")
    return None


if __name__ == "__main__":
    page()
