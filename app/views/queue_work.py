"""Working in a queue: one item a screen, its guidelines beside it, everything by key, one redrawing a key.

The whole screen is one fragment that reads the address itself: ``&item=…`` an item that one has had, else the next.
Not here: what the item shows and its answers (queue_card).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import streamlit as st

from app.views.queue_card import item_card, show, show_evidence, undo
from app.widgets.access import actor, get_store
from app.widgets.card import action_id, say, show_message
from app.widgets.chips import chip
from app.widgets.chrome import reviewing_as
from app.widgets.empty import empty_state, no_such
from app.widgets.guide_text import show_guide
from app.widgets.here import here_button
from app.widgets.keys import bindings, key_hint, press_keys
from app.widgets.live import live
from app.widgets.review_form import focus_wanted
from app.widgets.safe_text import escape_line, raw_toggle
from app.widgets.when import stamp
from db.errors import NotAllowedError, NotFoundError, QueueStateError, StoreError
from db.queues_store import ItemView, QueueRow

_NO_GUIDE = "queue_guidelines_hidden"
_LONG_GUIDE, _GUIDE_HEIGHT = 400, 280


def work(queue: QueueRow) -> None:
    """The screen of one queue's work."""
    if "work" not in st.query_params:
        st.query_params["work"] = "1"
    live(_screen, every=None)(queue)


def _screen(queue: QueueRow) -> None:
    try:
        item = _asked_item(queue.id)
    except (NotAllowedError, QueueStateError) as error:
        st.warning(escape_line(str(error), limit=300), icon=":material/block:")
        _back(queue.id, {})
        return
    except NotFoundError:
        no_such("item", st.query_params.get("item", ""))
        here_button(
            "The next item", _address(queue.id), key="queue-next-item", icon=":material/arrow_forward:"
        )
        return
    if item is None:
        _nothing_left(queue)
    else:
        _item(item)


def _asked_item(queue_id: int) -> ItemView | None:
    """The item that the address names, else the next one. Raises NotFoundError."""
    given = st.query_params.get("item")
    store, me = get_store(), actor()
    if given is None:
        return store.next_item(queue_id, me)
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise NotFoundError(f"there is no item {given[:40]!r}")
    return store.item(int(given), me, queue_id=queue_id)


def _address(queue_id: int) -> dict[str, str]:
    return {"queue": str(queue_id), "work": "1"}


def _item(item: ItemView) -> None:
    keys = bindings()
    targets, raw = _header(item, keys)
    left, right = st.columns([7, 4], gap="medium")
    with left:
        show_message()
        card, more = item_card(item, keys, raw=raw)
        targets |= more
    with right:
        targets |= _guidelines(item, keys)
        if not item.blind:
            targets |= show_evidence(item, card, raw=raw)
        reviewing_as()
    press_keys(targets, key="item-keys", card=card.action_id, keys=keys, focus=focus_wanted())


def _header(item: ItemView, keys: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """Where one is, and ways on. Returns {action: widget} and whether text is shown raw."""
    before, after = get_store().neighbour_items(item.queue_id, item.id, actor())
    back_to_open = after is None and "item" in st.query_params
    targets = {}
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        blind = f" {chip('violet', 'visibility_off', 'blind')}" if item.blind else ""
        st.markdown(
            f"#### {escape_line(item.queue, limit=60)} &nbsp; :gray[item {item.position + 1} of {item.n_items}]{blind}",
            anchors=False,
            width="content",
        )
        with st.container(horizontal=True, vertical_alignment="center", width="content", gap="small"):
            raw = raw_toggle()
            targets["raw"] = "raw_text"
            for action, words, target, there in (
                ("previous", "Previous", before, before is not None),
                ("next", "Next", after, after is not None or back_to_open),
            ):
                targets[action] = f"item-{action}"
                st.button(
                    f"{words} {key_hint(action, keys)}",
                    key=targets[action],
                    type="tertiary",
                    disabled=not there,
                    on_click=show,
                    args=(item.queue_id, target),
                )
            targets |= _back(item.queue_id, keys)
    st.progress(
        min(1.0, item.n_done / item.n_items) if item.n_items else 0.0,
        text=f":small[you have answered {item.n_done:,} of {item.n_items:,}]",
    )
    return targets, raw


def _back(queue_id: int, keys: Mapping[str, str]) -> dict[str, str]:
    here_button(
        f"The queue {key_hint('work', keys) if keys else ''}",
        {"queue": str(queue_id)},
        key="queue-back",
        icon=":material/arrow_back:",
    )
    return {"work": "queue-back"}


def _guidelines(item: ItemView, keys: Mapping[str, str]) -> dict[str, str]:
    guide = item.guideline
    if guide is None:
        return {}
    hidden = bool(st.session_state.get(_NO_GUIDE))
    st.button(
        f"Guidelines {key_hint('guidelines', keys)}",
        key="guidelines-toggle",
        icon=f":material/{'expand_more' if hidden else 'expand_less'}:",
        type="tertiary",
        on_click=_toggle_guide,
    )
    if not hidden:
        # Where judges stand below them, long guidelines scroll in a box.
        short = item.blind or len(guide.text) < _LONG_GUIDE
        height: Literal["content"] | int = "content" if short else _GUIDE_HEIGHT
        with st.container(border=True, key="guidelines", gap="xsmall", height=height):
            show_guide(guide.text)
            st.caption(f"version {guide.version}, {stamp(guide.created_at)}")
    return {"guidelines": "guidelines-toggle"}


def _toggle_guide() -> None:
    """Callback: show or hide the guidelines, for this session."""
    st.session_state[_NO_GUIDE] = not st.session_state.get(_NO_GUIDE)


def _nothing_left(queue: QueueRow) -> None:
    """Everything is answered, in others' hands or skipped."""
    keys = bindings()
    what = ("end of queue", queue.id)
    action = action_id(what)
    show_message()
    mine = next((one for one in get_store().queue_progress(queue.id) if one.actor == actor()), None)
    answered = f"You answered {mine.done:,} of its {queue.n_items:,} items. " if mine else ""
    skipped = mine.skipped if mine else 0
    empty_state(
        "Nothing left for you in this queue",
        f"{answered}What others hold may come back here when they leave it.",
        icon=":material/task_alt:",
    )
    targets = {}
    with st.container(horizontal=True, gap="small"):
        if skipped:
            st.button(
                f"Be asked again what I skipped ({skipped})",
                key="queue-retry",
                icon=":material/redo:",
                on_click=_retry,
                args=(queue.id,),
            )
        if mine and mine.done:
            targets["undo"] = "queue-undo"
            st.button(
                f"Undo the last {key_hint('undo', keys)}",
                key="queue-undo",
                icon=":material/undo:",
                on_click=undo,
                args=(queue.id, what, action),
            )
        targets |= _back(queue.id, keys)
    press_keys(targets, key="item-keys", card=action, keys=keys)


def _retry(queue_id: int) -> None:
    """Callback: what was skipped comes again."""
    try:
        get_store().retry_skipped(queue_id, actor())
    except StoreError as error:
        say(f"Nothing was changed: {error}")
