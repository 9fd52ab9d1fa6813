"""The address of the Judges page, checked: which part, whom it compares, which of the chunks are open.

``?view=…&queue=…&a=…&b=…&against=…&cell=…&at=…&change=…&chunk=…&page=…``. Not: the widgets that write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

import streamlit as st

from app.widgets.safe_text import escape_line
from db.agreement_reads import UNSURE, parse_rater
from db.errors import StoreValueError
from engine.evaluate.paired import CHANGES

VIEWS = {
    "judges": ("Side by side", ":material/gavel:"),
    "agreement": ("Agreement", ":material/handshake:"),
    "compare": ("Compare two", ":material/compare_arrows:"),
}
KNOWN = ("view", "queue", "a", "b", "against", "cell", "at", "change", "chunk", "page")
SIGNS = ("+", "0", "-", UNSURE)
EFFECTIVE = ("effective", "effective:rel-effective", "effective:abs-q")
"""The label in force where nobody reviewed is a rule's: rel-ratio's, or that of the rule named."""
AGAINST = (*EFFECTIVE, "people", "rule:rel-ratio", "rule:rel-effective", "rule:abs-q")
CHANGE_KEYS = {change.replace(" ", "-"): change for change in CHANGES}
LAST_POSITION = 20
"""Chunks from this index on are counted together."""


@dataclass(frozen=True)
class Asked:
    """What the address asks for. ``a``, ``b``: raters as text; ``cell``: what they said; ``at``: the chunk's index;
    ``page``: of the list of chunks, from 1. ``wrong`` says what it asks for that cannot be."""

    view: str = "judges"
    queue: int | None = None
    a: str | None = None
    b: str | None = None
    against: str = "effective"
    cell: tuple[str, str] | None = None
    at: int | None = None
    change: str | None = None
    chunk: int | None = None
    page: int = 1
    wrong: list[str] = field(default_factory=list)


def read_asked(raters: Mapping[str, str], queues: Mapping[int, str]) -> Asked:
    """Reads and checks the address; ``raters`` and ``queues`` are those that there are. What cannot be is named."""
    query, wrong = st.query_params, []

    def refuse(name: str, why: str) -> None:
        wrong.append(f"{name}={escape_line(query[name], limit=60)}: {why}")

    for name in query:
        if name not in KNOWN:
            refuse(name, f"this page knows {', '.join(KNOWN)}")
    for name, options in (("view", tuple(VIEWS)), ("against", AGAINST), ("change", tuple(CHANGE_KEYS))):
        if name in query and query[name] not in options:
            refuse(name, f"it can be {', '.join(options)}")
    numbers: dict[str, int] = {}
    for name in ("queue", "at", "chunk", "page"):
        if name in query:
            if query[name].isascii() and query[name].isdigit() and len(query[name]) <= 18:
                numbers[name] = int(query[name])
            else:
                refuse(name, "a whole number was expected")
    if "queue" in numbers and numbers["queue"] not in queues:
        refuse("queue", "there is no such queue in this store")
    if numbers.get("at", 0) > LAST_POSITION:
        refuse("at", f"chunks from {LAST_POSITION} on are counted together, as at={LAST_POSITION}")
    for name in ("a", "b"):
        if name in query and query[name] not in raters:
            refuse(name, _why_not(query[name]))
    cell = _cell(query.get("cell"))
    if "cell" in query and cell is None:
        refuse("cell", f"two of {' '.join(SIGNS)} were expected, one behind the other")
    return Asked(
        view=query.get("view", "judges"),
        queue=numbers.get("queue"),
        a=query.get("a"),
        b=query.get("b"),
        against=query.get("against", "effective"),
        cell=cell,
        at=numbers.get("at"),
        change=CHANGE_KEYS.get(query.get("change", "")),
        chunk=numbers.get("chunk"),
        page=max(1, numbers.get("page", 1)),
        wrong=wrong,
    )


def _why_not(text: str) -> str:
    try:
        parse_rater(text)
    except StoreValueError as error:
        return escape_line(str(error), limit=200)
    return "this store has no such person, judge or run"


def _cell(text: str | None) -> tuple[str, str] | None:
    if text is None or len(text) != 2 or not set(text) <= set(SIGNS):
        return None
    return text[0], text[1]


def address(**changed: str | None) -> dict[str, str]:
    """The address with these values; None takes one out. A change of anything leads to the list's first page."""
    kept = {
        name: value
        for name, value in st.query_params.items()
        if name in KNOWN and name not in changed and name not in ("page", "chunk")
    }
    return kept | {name: value for name, value in changed.items() if value is not None}


def href(**changed: str | None) -> str:
    """``address`` as a link to this page."""
    return f"/judges?{urlencode(address(**changed))}"
