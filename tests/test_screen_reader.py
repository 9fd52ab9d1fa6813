"""Keyboard and screen reader on the two pages where people work: the order of focus, and a name on whatever takes it.

Not: what the keys do (``test_keys.py``), nor what a screen reader makes of running text.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from db.queue_rows import NewQueue
from tests.browser_support import ACTOR, LiveApp, open_page
from tests.queue_pages import solution

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_STOPS = 250
UNNAMED = ("RootWebArea", "Iframe", "none", "main")
"""Roles that need no name: ``main`` stands once on a page, and Streamlit lets it take the focus so that keys scroll it."""
STOP = """() => {
    let at = document.activeElement
    while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement
    if (!at || at === document.body) return null
    const box = at.getBoundingClientRect(), main = document.querySelector('[data-testid=stMain]')
    const inside = Boolean(at.closest('[data-testid=stMain]') ?? at.getRootNode().host?.closest('[data-testid=stMain]'))
    const top = inside ? main.scrollTop : 0
    const again = at.dataset.stop !== undefined
    at.dataset.stop = ''
    return {what: at.outerHTML.slice(0, 160), again, inside,
            left: box.left, right: box.right, top: box.top + top, bottom: box.bottom + top}
}"""
"""Where the focus is: null on none; ``again``: it has been there before."""


def stops(page: Page) -> list[dict[str, Any]]:
    """Everything that Tab comes to, from the top of the page until it leaves it or begins again."""
    page.evaluate("document.activeElement?.blur()")
    found: list[dict[str, Any]] = []
    while len(found) < MOST_STOPS:
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop is None or stop["again"]:
            return found
        found.append(stop)
    raise AssertionError(f"Tab does not come to an end: {[stop['what'] for stop in found[-5:]]}")


def out_of_order(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Neighbours of which the second stands above the first and not to its right: no column is read so."""
    inside = [stop for stop in found if stop["inside"]]
    return [
        (one["what"], two["what"])
        for one, two in pairwise(inside)
        if two["bottom"] <= one["top"] and two["left"] < one["right"]
    ]


def nameless(page: Page) -> list[str]:
    """Roles of what can take the focus and has no name, as the browser tells assistive technology."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    found = []
    for node in nodes:
        properties = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
        role = node.get("role", {}).get("value", "")
        named = node.get("name", {}).get("value", "").strip()
        if properties.get("focusable") and not named and role not in UNNAMED:
            found.append(f"{role} {node['nodeId']}")
    return found


@pytest.mark.browser
@pytest.mark.parametrize("place", ["trajectory", "work"])
def test_focus_follows_the_reading_order_and_whatever_takes_it_has_a_name(
    live_app: LiveApp, page: Page, place: str
) -> None:
    if place == "trajectory":
        address = f"trajectory?traj={live_app.filled.sampled[2]}&chunk=2"
    else:
        _, chunks = solution(live_app.store, "read-aloud", ["One and one is three.", "So it is three."])
        queue = NewQueue("read aloud", order="reading", chunk_ids=chunks, guidelines="## What counts")
        address = f"queue?queue={live_app.store.make_queue(queue, ACTOR)}&work=1"
    open_page(page, f"{live_app.url}/{address}")
    found = stops(page)
    assert sum(stop["inside"] for stop in found) > 8
    assert out_of_order(found) == []
    assert page.locator("[tabindex]:not([tabindex='0']):not([tabindex^='-'])").count() == 0
    assert nameless(page) == []
