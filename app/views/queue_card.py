"""One item of a queue: the problem, what stands before the chunk, the chunk, the form; answer, skip, undo, change.

In mode first-error a solution is read from the top, chunk by chunk, until its first error. Callbacks write through the
store, each for the card it was drawn with. Not here: the screen around it (queue_work).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from app.widgets.access import actor, get_store
from app.widgets.address import parameters
from app.widgets.card import action_id, fresh, say, used
from app.widgets.chips import chip, label_chip, review_chip
from app.widgets.chrome import allowed
from app.widgets.judges_shown import NEXT, next_judgment, show_judges
from app.widgets.keys import key_hint
from app.widgets.reference import show_reference
from app.widgets.review_card import said, show_reasons
from app.widgets.review_form import VERDICTS, Answer, Card, ask, draft_again, given, keep_draft
from app.widgets.safe_text import show_text
from app.widgets.when import ago
from db.errors import StoreError
from db.queue_answers import derived
from db.queues_store import ItemView
from db.reads_trajectory import ChunkView
from db.rows import ReviewDetails, ReviewRow

BEFORE = 6
"""Chunks shown before the one that is asked about, unless all are wanted."""
MOST = 50
FIRST_ERROR, NO_ERROR = 1, 0
FIRST_ERROR_ANSWERS = (
    Answer("first-error", "The first error is here", ":material/do_not_disturb_on:", FIRST_ERROR),
    Answer("no-error", "No error at all", ":material/add_circle:", NO_ERROR),
)
_AT = "queue_chunk_at"
"""Mode first-error: (item id, index of the chunk that is being read)."""
_ALL = "queue_all_before"
_AFTER = "queue_after"
_CHANGING = "queue_changing"


@dataclass(frozen=True)
class Asked:
    """The chunk asked about, and what stands around it."""

    item: ItemView
    idx: int
    chunk: ChunkView
    before: list[ChunkView]
    after: list[ChunkView]


def item_card(item: ItemView, keys: Mapping[str, str], *, raw: bool) -> tuple[Card, dict[str, str]]:
    """Draw the item. Returns the card on screen and {action: widget}."""
    asked = _read(item)
    what = ("item", item.id, asked.idx)
    mine = item.mine if item.mode == "chunk" else _mine_here(asked)
    card = Card(what, action_id(what), asked.chunk.id, asked.chunk.text, mine)
    with st.container(gap="xsmall", key="item-problem"):
        st.caption("Problem")
        show_text(item.problem, raw=raw)
        if item.reference is not None:
            show_reference(item.reference, item.verifier)
    targets = _solution(asked, keys, raw=raw)
    with st.container(border=True, gap="xsmall", key="item-card"):
        targets |= _asking(asked, card, keys)
    return card, targets


def _mine_here(asked: Asked) -> ReviewRow | None:
    """Mode first-error: what one's answer to the item says of this chunk, when that is to be changed."""
    if asked.item.status != "done":
        return None
    rows = said(get_store().history(asked.chunk.id))
    return next((row for row in rows if (row.actor, row.item_id) == (actor(), asked.item.id)), None)


def _asking(asked: Asked, card: Card, keys: Mapping[str, str]) -> dict[str, str]:
    """The form, or what was answered, or why there is nothing to answer."""
    item = asked.item
    if not allowed("annotator", "Reviewing"):
        return {}
    if item.status is None:
        st.info("Others have answered this item; you only look at it.", icon=":material/group:")
        return {}
    if item.status == "done" and st.session_state.get(_CHANGING) != item.id:
        return _answered(asked, card, keys)
    return _open(asked, card, keys)


def show_evidence(item: ItemView, card: Card, *, raw: bool) -> dict[str, str]:
    """What the rule and the judges say: only of a queue that is not blind. Returns {action: widget}."""
    store, chunk_id = get_store(), card.chunk_id
    row = store.labels([chunk_id]).get(chunk_id)
    label = row.rel_ratio if row else None
    if row is not None and row.q_before is not None and row.q_after is not None:
        sure = f" · {row.rel_ratio_conf:.0%} sure" if row.rel_ratio_conf is not None else ""
        st.markdown(
            f"{label_chip(label, 'rel-ratio')} :small[Q {row.q_before:.2f} → {row.q_after:.2f}{sure}]"
        )
    elif label is not None:
        st.markdown(
            f"{label_chip(label, 'rel-ratio')} :small[a value beside it was stopped early: its label could no longer change]"
        )
    judgments = store.judgments_of(chunk_id)
    asked = st.query_params.get("judgment")
    opened = next((judgment.id for judgment in judgments if str(judgment.id) == asked), None)
    where = (item.trajectory_id, at_of(card))
    show_judges(judgments, label, where=where, opened=opened, rule="rel-ratio", find="", raw=raw)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if judgments:
            next_judgment(judgments, opened, where)
        st.page_link(
            "views/trajectory.py",
            label=f"Trajectory {item.trajectory_id}: values, rollouts, history",
            icon=":material/timeline:",
            query_params=parameters(*where),
        )
    return {"judge-next": NEXT} if judgments else {}


def at_of(card: Card) -> int:
    """The index of the chunk that the card asks about."""
    assert isinstance(card.what, tuple)
    return int(card.what[2])


def show(queue_id: int, item_id: int | None = None) -> None:
    """Callback: show an item that one has had; None: the next."""
    item = {} if item_id is None else {"item": str(item_id)}
    st.query_params.from_dict({"queue": str(queue_id), "work": "1", **item})


def _read(item: ItemView) -> Asked:
    if item.idx is not None:
        idx = item.idx
    else:
        at = st.session_state.get(_AT)
        idx = at[1] if at and at[0] == item.id else max(0, item.first_error or 0)
    wanted = MOST if st.session_state.get(_ALL) == item.id else BEFORE
    first = max(0, idx - wanted)
    count = idx - first + 1 + (MOST if st.session_state.get(_AFTER) == item.id else 0)
    chunks = get_store().chunk_page(item.trajectory_id, first, count)
    at_idx = next(i for i, chunk in enumerate(chunks) if chunk.idx == idx)
    return Asked(item, idx, chunks[at_idx], chunks[:at_idx], chunks[at_idx + 1 :])


def _solution(asked: Asked, keys: Mapping[str, str], *, raw: bool) -> dict[str, str]:
    """What stands before, the chunk itself, and what follows if it is asked for."""
    item = asked.item
    targets: dict[str, str] = {}
    with st.container(gap="xsmall", key="item-before"):
        if asked.before and asked.before[0].idx > 0:
            st.button(
                f"{asked.before[0].idx} earlier chunks",
                key="item-all",
                type="tertiary",
                icon=":material/unfold_less:",
                on_click=_set,
                args=(_ALL, item.id),
                disabled=st.session_state.get(_ALL) == item.id,
            )
        for chunk in asked.before:
            _around(chunk, raw=raw)
    with st.container(border=True, gap="xsmall", key="item-chunk"):
        st.markdown(f":blue-badge[chunk {asked.idx}] :small[of {item.n_chunks}]")
        show_text(asked.chunk.text, raw=raw)
    for chunk in asked.after:
        _around(chunk, raw=raw)
    with st.container(horizontal=True, gap="small"):
        if item.mode == "first-error":
            targets |= _steps(asked, keys)
        if asked.idx < item.n_chunks - 1:
            targets["after"] = "item-after"
            shown = st.session_state.get(_AFTER) == item.id
            st.button(
                f"{'Hide what follows' if shown else 'What follows'} {key_hint('after', keys)}",
                key="item-after",
                type="tertiary",
                on_click=_set,
                args=(_AFTER, None if shown else item.id),
            )
    return targets


def _around(chunk: ChunkView, *, raw: bool) -> None:
    with st.container(horizontal=True, wrap=False, gap="small"):
        st.markdown(f":gray-badge[{chunk.idx}]", width="content")
        with st.container(gap="xxsmall"):
            show_text(chunk.text, raw=raw)


def _steps(asked: Asked, keys: Mapping[str, str]) -> dict[str, str]:
    """Mode first-error: on to the next chunk, or back."""
    targets = {}
    for action, words, target in (
        ("chunk-previous", "Back", asked.idx - 1),
        ("chunk-next", "Sound so far: next chunk", asked.idx + 1),
    ):
        targets[action] = f"item-{action}"
        st.button(
            f"{words} {key_hint(action, keys)}",
            key=targets[action],
            disabled=not 0 <= target < asked.item.n_chunks,
            on_click=_set,
            args=(_AT, (asked.item.id, target)),
        )
    return targets


def _open(asked: Asked, card: Card, keys: Mapping[str, str]) -> dict[str, str]:
    """The form, skip, and undo of the item before."""
    item = asked.item

    def submit(card: Card, value: int | None) -> None:
        _answer(asked, card, value)

    chunks = item.mode == "chunk"
    targets = ask(card, VERDICTS if chunks else FIRST_ERROR_ANSWERS, submit, keys)
    with st.container(horizontal=True, gap="small"):
        if item.status == "done":
            targets["change"] = "item-keep"
            st.button(
                f"Keep it as it is {key_hint('change', keys)}",
                key="item-keep",
                type="tertiary",
                on_click=_set,
                args=(_CHANGING, None),
            )
        else:
            targets["skip"] = f"skip-{card.action_id}"
            st.button(
                f"Skip {key_hint('skip', keys)}",
                key=targets["skip"],
                icon=":material/skip_next:",
                type="tertiary",
                on_click=_skip,
                args=(item, card),
            )
        targets |= _undo_button(item, card, keys)
    return targets


def _answered(asked: Asked, card: Card, keys: Mapping[str, str]) -> dict[str, str]:
    """What one said of it, and ways to change that."""
    item = asked.item
    if item.mode == "chunk" and item.mine is not None:
        st.markdown(f"You said {review_chip(item.mine.verdict)} {ago(item.mine.created_at)}")
        show_reasons(item.mine, asked.chunk.text)
    elif item.first_error is not None and item.first_error >= 0:
        words = f"first error in chunk {item.first_error}"
        st.markdown(f"You said {chip('red', 'do_not_disturb_on', words)}")
    elif item.first_error is not None:
        st.markdown(f"You said {chip('green', 'add_circle', 'no error')}")
    else:
        st.markdown("You answered it, and changed parts of the answer since, chunk by chunk.")
    targets = {"change": f"change-{card.action_id}"}
    with st.container(horizontal=True, gap="small"):
        st.button(
            f"Change {key_hint('change', keys)}",
            key=targets["change"],
            icon=":material/edit:",
            on_click=_set,
            args=(_CHANGING, item.id),
        )
        targets |= _undo_button(item, card, keys)
    return targets


def _undo_button(item: ItemView, card: Card, keys: Mapping[str, str]) -> dict[str, str]:
    if not item.n_done:
        return {}
    key = f"undo-{card.action_id}"
    st.button(
        f"Undo the last {key_hint('undo', keys)}",
        key=key,
        icon=":material/undo:",
        type="tertiary",
        on_click=undo,
        args=(item.queue_id, card.what, card.action_id),
    )
    return {"undo": key}


# ---- callbacks


def _set(name: str, value: object) -> None:
    """Callback: what is shown beside the item."""
    st.session_state[name] = value


def _answer(asked: Asked, card: Card, value: int | None) -> None:
    """Callback: store the answer of the card it was drawn with."""
    if not fresh(card.what, card.action_id):
        return
    item, store = asked.item, get_store()
    comment, details = given(card)
    try:
        if item.mode == "chunk":
            store.answer(item.id, card.action_id, actor(), value, comment, details, supersedes=item.head)
        else:
            at = asked.idx if value == FIRST_ERROR else -1
            if (
                at < 0 and asked.idx < item.n_chunks - 1
            ):  # what was typed belongs to this chunk, not to the last
                keep_draft(card)
                comment, details = "", ReviewDetails()
            store.answer_first_error(
                item.id, card.action_id, actor(), at, comment, details, supersedes=item.head
            )
        _go_on(item)
    except StoreError as error:
        keep_draft(card)
        say(f"Nothing was stored: {error}")
    used(card.action_id)


def _skip(item: ItemView, card: Card) -> None:
    """Callback: leave the item to others."""
    if not fresh(card.what, card.action_id):
        return
    try:
        get_store().skip(item.id, actor())
        show(item.queue_id)
    except StoreError as error:
        say(f"Nothing was skipped: {error}")
    used(card.action_id)


def undo(queue_id: int, what: object, action: str) -> None:
    """Callback: take back one's newest answer in the queue; its item is on screen again."""
    if not fresh(what, action):
        return
    try:
        store = get_store()
        item_id = store.undo_last(queue_id, actor(), action)
        item = store.item(item_id, actor())
        chunk_id = item.chunk_id
        at: tuple[int, int] | None = None
        if chunk_id is None:  # a whole solution: back to the chunk that holds what was said, not to the first
            steps = store.reviews_of(item.trajectory_id)
            taken = [s for s in steps if s.review.action_id in (action, derived(action, s.idx))]
            for step in taken:
                draft_again(step.review.chunk_id)
            at = item_id, next(s.idx for s in taken if s.review.action_id == action)
        else:
            draft_again(chunk_id)
        st.session_state[_AT] = at
        show(queue_id, item_id)
    except StoreError as error:
        say(f"Nothing was taken back: {error}")
    used(action)


def _go_on(item: ItemView) -> None:
    """After an answer: to the next item; after a change the item stays on screen."""
    st.session_state[_CHANGING] = None
    st.session_state[_AT] = None
    if item.status != "done":
        show(item.queue_id)
