"""Keys for everything: each action has a key, which presses or focuses a widget of the page, and one sheet (`?`) lists them.

One listener for the whole page (keys.js): a held key acts once, no key acts while somebody types, chooses from a list
or has a dialog open, and a key that answers a card acts once on that card. Keys belong to the person who chose them and
are kept in the store. Not here: what an action does; that is the widget's callback, which checks its card again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import streamlit as st

from app.widgets.access import actor, get_store
from app.widgets.safe_text import escape_line
from db.errors import StoreError, StoreValueError

_HERE = Path(__file__).parent
_JS = (_HERE / "keys.js").read_text(encoding="utf-8")
_PRESSES = st.components.v2.component("stepwiser_press_keys", html='<span class="keys"></span>', js=_JS)
_SHEET = st.components.v2.component(
    "stepwiser_key_sheet",
    html='<div class="sheet"></div>',
    css=(_HERE / "keys.css").read_text(encoding="utf-8"),
    js=_JS,
)
_SHEET_KEY = "key-sheet"
_SAID = "key_sheet_said"


@dataclass(frozen=True)
class Action:
    """``once``: it answers the card on screen, so that it acts once a card."""

    words: str
    usual: str
    group: str
    once: bool = False


_REVIEW, _MOVE, _SHOW = "Review", "Move", "Show"
ACTIONS: dict[str, Action] = {
    "verdict-error": Action("−1: the chunk has an error", "1", _REVIEW, once=True),
    "verdict-neutral": Action("0: neutral, neither helps nor errs", "2", _REVIEW, once=True),
    "verdict-sound": Action("+1: the chunk is sound", "3", _REVIEW, once=True),
    "verdict-unsure": Action("cannot tell", "4", _REVIEW, once=True),
    "first-error": Action("the first error is in this chunk", "x", _REVIEW, once=True),
    "no-error": Action("no error in the whole solution", "0", _REVIEW, once=True),
    "comment": Action("write a comment (Esc leaves it)", "c", _REVIEW),
    "mark": Action("mark where the error is", "m", _REVIEW),
    "correct": Action("suggest a correction (Esc leaves it)", "t", _REVIEW),
    "flag": Action("flag for somebody to look at", "f", _REVIEW),
    "bad-problem": Action("bad problem or reference answer", "b", _REVIEW),
    "undo": Action("take back the last review", "u", _REVIEW, once=True),
    "change": Action("change the review, or keep it", "e", _REVIEW),
    "skip": Action("skip the item", "s", _REVIEW, once=True),
    "chunk-next": Action("next chunk", "j", _MOVE),
    "chunk-previous": Action("previous chunk", "k", _MOVE),
    "next": Action("next item or trajectory", "n", _MOVE),
    "previous": Action("previous item or trajectory", "p", _MOVE),
    "work": Action("work in the queue, or go back to it", "w", _MOVE),
    "guidelines": Action("guidelines", "g", _SHOW),
    "after": Action("what follows the chunk", "a", _SHOW),
    "raw": Action("raw or rendered text", "r", _SHOW),
    "rollout-next": Action("next rollout", "l", _SHOW),
    "judge-next": Action("next judgment", "d", _SHOW),
}
ARROWS = ("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight")
SHEET = "?"


def bindings() -> dict[str, str]:
    """{action: key}: the usual keys, and those that the person in front of the page chose instead.

    An action whose usual key somebody gave to another has none ("").
    """
    own = {name: key for name, key in get_store().key_bindings(actor()).items() if name in ACTIONS}
    taken = set(own.values())
    return {
        name: own.get(name, "" if action.usual in taken else action.usual) for name, action in ACTIONS.items()
    }


def rebound(action: str, key: str, keys: Mapping[str, str]) -> dict[str, str]:
    """The keys after ``action`` got ``key``; the action that had it gets the other's. Raises StoreValueError."""
    if action not in ACTIONS:
        raise StoreValueError(f"there is no action {action[:40]!r}")
    if key == SHEET:
        raise StoreValueError("? opens this sheet")
    if key not in ARROWS and not (len(key) == 1 and key.isprintable() and not key.isspace()):
        raise StoreValueError(f"a key is one letter, digit, sign or arrow, not {key[:20]!r}")
    swapped = {name: keys[action] for name, other in keys.items() if other == key}
    return {**keys, **swapped, action: key}


def key_hint(action: str, keys: Mapping[str, str] | None = None, *, bare: bool = False) -> str:
    """The action's key as markdown for the end of a button's label. ``keys``: what ``bindings`` gave, to ask once;
    ``bare``: without a box around it, for a button that is filled with colour."""
    key = (keys or bindings())[action]
    if not key:
        return ""
    shown = {"ArrowUp": "↑", "ArrowDown": "↓", "ArrowLeft": "←", "ArrowRight": "→", "`": "ˋ"}
    sign = shown.get(key, key.upper())
    if bare:
        return f":small[{escape_line(sign)}]"
    return f":gray[:small[{escape_line(sign) if sign in '[]' else f'`{sign}`'}]]"  # one would end the mark


def press_keys(
    targets: Mapping[str, str],
    *,
    key: str,
    card: str = "",
    keys: Mapping[str, str] | None = None,
    focus: str = "",
) -> None:
    """Let each action's key press (or, for a text field, focus) the widget whose key is ``targets[action]``.

    ``card`` names what is on screen: an action that answers it acts once until another card is there. ``focus``: a
    text field that just appeared and gets the cursor. Call it after the widgets that it presses: until it is drawn,
    the keys are still those of what stood there before.
    """
    bound = keys or bindings()
    _PRESSES(
        key=key,
        data={
            "set": key,
            "card": card,
            "focus": focus,
            "actions": [
                {"key": bound[name], "target": target, "once": ACTIONS[name].once}
                for name, target in targets.items()
            ],
        },
        height=1,
    )


def key_sheet() -> None:
    """The sheet that ? opens, with every action's key and a way to choose another. Once a page, in ``main``."""
    try:
        keys = bindings()
    except StoreError:
        return  # the page says what is wrong with the store
    _SHEET(
        key=_SHEET_KEY,
        data={
            "sheet": True,
            "said": st.session_state.pop(_SAID, ""),
            "actions": [
                {"action": name, **asdict(action), "key": keys[name], "own": keys[name] != action.usual}
                for name, action in ACTIONS.items()
            ],
        },
        on_chosen_change=_choose,
    )


def _choose() -> None:
    """Callback: one action gets another key, or (an empty action) all get the usual ones."""
    chosen = st.session_state[_SHEET_KEY].chosen
    if not isinstance(chosen, dict):
        return
    action, key = str(chosen.get("action", "")), str(chosen.get("key", ""))
    store, me = get_store(), actor()
    try:
        keys = rebound(action, key, bindings()) if action else {}
        own = {name: bound for name, bound in keys.items() if bound and bound != ACTIONS[name].usual}
        store.set_key_bindings(me, own)
    except StoreError as error:
        st.session_state[_SAID] = f"Nothing was changed: {error}"
