"""Making a queue: what it asks, of which chunks, in which order, how it is worked on.

Filters stand in the address under the names of ``ChunkFilter``'s fields, so that the list of chunks can send its own
here. Not here: choosing the items (the store does).
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import streamlit as st

from app.views.queue_words import MODES, ORDERS
from app.views.trajectories_address import FIELDS, filter_query, read_chunks
from app.widgets.access import actor, get_store
from app.widgets.here import go_here, here_button
from app.widgets.plain_table import value_text
from app.widgets.safe_text import escape_line, visible
from db.chunk_filter import RULES, ChunkFilter
from db.errors import StoreError, StoreValueError
from db.queue_rows import MOST_ITEMS, MOST_KNOWN
from db.queues_store import NewQueue

FILTERS = tuple(FIELDS)
GUIDELINES = Path(__file__).parents[1].joinpath("widgets", "guidelines.txt").read_text(encoding="utf-8")
COUNTED = 1000
_MESSAGE = "new_queue_message"
_FORM = "new-queue"


def new_queue() -> None:
    """The form, filled in from the address."""
    store = get_store()
    st.title("New queue", anchor=False)
    here_button("All queues", {}, key="all-queues", icon=":material/arrow_back:")
    if message := st.session_state.pop(_MESSAGE, None):
        st.error(escape_line(message, limit=400), icon=":material/block:")
    if store.role(actor()) != "owner":
        st.warning("Making a queue takes an owner. An owner sets roles on the People page.")
        return
    asked = read_chunks({name: st.query_params[name] for name in FILTERS if name in st.query_params})
    if asked.problems:
        for problem in asked.problems:
            st.error(problem, icon=":material/link_off:")
        here_button("Without filters", {"new": "1"}, key="no-filters", icon=":material/filter_list_off:")
        return
    where = cast(ChunkFilter, asked.where)
    _which(where)
    with st.form(_FORM, border=True):
        _what()
        st.divider()
        _how()
        st.form_submit_button("Make the queue", type="primary", on_click=_make, args=(where,))


def known_items(text: str) -> dict[int, int]:
    """{id: answer} from lines of two numbers. Raises StoreValueError for a line that is none."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.replace(",", " ").replace("−", "-").split()
        if not words:
            continue
        try:
            id_, answer = (int(word) for word in words)
        except ValueError as error:
            raise StoreValueError(
                f"known items, line {number}: {line[:60]!r} is not an id and its answer, as in 17 -1"
            ) from error
        found[id_] = answer
    return found


def _which(where: ChunkFilter) -> None:
    """What is chosen from, in words, and how much that is."""
    count = get_store().count_chunks(where, stop=COUNTED)
    many = f"{min(count.n, COUNTED):,}{'+' if count.n > COUNTED or not count.whole else ''}"
    asks = ", ".join(
        f"{escape_line(name)} **{escape_line(value_text(value), limit=60)}**"
        for name, value in where.asks.items()
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(
            f"Chosen from **{many}** chunks{': ' + asks if asks else ', all of the store'}.", width="content"
        )
        st.page_link(
            "views/trajectories.py",
            label="Choose by filters",
            icon=":material/filter_list:",
            query_params={"show": "chunks", **filter_query(where)},
        )


def _what() -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        st.text_input("Name", key="new-name", max_chars=200, placeholder="First look at the disagreements")
        st.selectbox(
            "Which first",
            list(ORDERS),
            key="new-order",
            format_func=lambda name: f"{ORDERS[name][0]}: {ORDERS[name][1]}",
        )
        st.checkbox("Only what the order speaks of", key="new-only", help="Else the rest comes behind it")
        st.number_input("Items at most", 1, MOST_ITEMS, 200, key="new-limit")
    with right:
        st.radio("Asks", list(MODES), key="new-mode", format_func=MODES.__getitem__, horizontal=True)
        store = get_store()
        names = {judge.id: visible(judge.name)[:60] for judge in store.judges()}
        st.selectbox("Labels by rule", RULES, index=RULES.index("rel-ratio"), key="new-rule")
        st.selectbox(
            "Judge",
            [None, *names],
            key="new-judge",
            format_func=lambda id_: "all judges" if id_ is None else f"{names[id_]} ({id_})",
        )
        st.number_input(
            "Seed", 0, 2**31, 0, key="new-seed", help="Of the random order and of a blind queue's"
        )


def _how() -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        st.checkbox(
            "Blind",
            key="new-blind",
            help="Values, labels, verdicts, rationales, rollouts and others' reviews of a solution are not sent to whoever "
            "works in the queue until their last item of that solution is answered; name and order are neutral",
        )
        st.number_input("Reviews an item", 1, 100, 1, key="new-reviews", help="By different people")
        st.text_area(
            "Quality-control items",
            key="new-known",
            height=90,
            placeholder="17 -1\n23 1",
            help="One a line: chunk id and right verdict (first-error: trajectory id and index of the first error, "
            "−1 for none). Everybody gets them, mixed in; nobody is told which they are",
        )
        st.slider("Their share", 1, int(MOST_KNOWN * 100), 10, format="%d %%", key="new-known-rate")
    with right:
        st.text_area("Guidelines (Markdown)", GUIDELINES, key="new-guidelines", height=330, max_chars=20_000)


def _make(where: ChunkFilter) -> None:
    """Callback: make the queue and show it."""
    state = st.session_state
    try:
        new = NewQueue(
            name=state["new-name"],
            order=state["new-order"],
            mode=state["new-mode"],
            where=where,
            rule=state["new-rule"],
            judge_id=state["new-judge"],
            seed=int(state["new-seed"]),
            limit=int(state["new-limit"]),
            only=state["new-only"],
            blind=state["new-blind"],
            reviews_per_item=int(state["new-reviews"]),
            known=known_items(state["new-known"]),
            known_rate=state["new-known-rate"] / 100,
            guidelines=state["new-guidelines"],
        )
        queue_id = get_store().make_queue(new, actor())
    except StoreError as error:
        st.session_state[_MESSAGE] = f"No queue was made: {error}"
        return
    go_here({"queue": str(queue_id)})
