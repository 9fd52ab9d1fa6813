"""The Trajectory page in a real browser: address, clicks, keys, reviews, hostile text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser_support import ACTOR, READ_MS, LiveApp, open_page, settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def chunk_ids(app: LiveApp, trajectory: int) -> list[int]:
    return [chunk.id for chunk in app.store.chunk_page(trajectory, 0, 50)]


def until(done: Callable[[], bool]) -> None:
    """Wait for a write by the server; the test fails if it does not come."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def query(page: Page) -> str:
    return page.url.partition("?")[2]


def test_a_click_on_a_point_selects_its_chunk_and_back_undoes_next(live_app: LiveApp, page: Page) -> None:
    trajectory = live_app.filled.sampled[1]
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=0")
    points = page.locator(".js-plotly-plot .subplot.xy .points path.point")
    expect(points).to_have_count(5)
    box = points.nth(3).bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url("**chunk=2*")
    settled(page)
    expect(page.get_by_role("heading", name="Chunk 2", exact=False)).to_be_visible()
    page.get_by_role("button", name="Next chunk").click()
    page.wait_for_url("**chunk=3*")
    settled(page)
    page.go_back()
    page.wait_for_url("**chunk=2*")
    settled(page)
    expect(page.get_by_role("heading", name="Chunk 2", exact=False)).to_be_visible()
    marks = page.locator(".js-plotly-plot .subplot.xy2 .points path.point")
    box = marks.nth(0).bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url("**chunk=0*")


def test_hovering_a_point_says_successes_and_interval(live_app: LiveApp, page: Page) -> None:
    open_page(page, f"{live_app.url}/trajectory?traj={live_app.filled.sampled[2]}")
    box = page.locator(".js-plotly-plot .subplot.xy .points path.point").nth(2).bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".hoverlayer")).to_contain_text(
        re.compile(r"\d+ of 16 correct = 0\.\d\d, 95 % interval")
    )


def test_an_override_with_a_comment_survives_a_reload_and_is_undone(live_app: LiveApp, page: Page) -> None:
    trajectory = live_app.filled.sampled[1]
    chunk = chunk_ids(live_app, trajectory)[1]
    address = f"{live_app.url}/trajectory?traj={trajectory}&chunk=1"
    open_page(page, address)
    page.get_by_label("Comment").fill("7 + 5 is 12, but it is put right in the next chunk, for $5.")
    page.get_by_label("Comment").blur()
    settled(page)
    open_page(page, address)  # the draft was kept
    expect(page.get_by_label("Comment")).to_have_value(re.compile("put right in the next chunk"))
    page.wait_for_timeout(READ_MS)
    page.keyboard.press("1")
    expect(page.get_by_text("You said")).to_be_visible()
    open_page(page, address)
    card = page.locator(".st-key-review-card")
    expect(card).to_contain_text("from review")
    expect(card).to_contain_text(
        re.compile(rf"{ACTOR}.*no review.*→.*−1 error.*\d{{4}}-\d\d-\d\d \d\d:\d\d UTC")
    )
    expect(card).to_contain_text("put right in the next chunk, for $5.")
    assert [step.review.verdict for step in live_app.store.history(chunk)] == [-1]
    page.wait_for_timeout(READ_MS)
    page.keyboard.press("u")
    expect(card).to_contain_text("took back")
    expect(card).to_contain_text("from rel-ratio, nobody reviewed it")
    assert [step.review.kind for step in live_app.store.history(chunk)] == ["review", "undo"]


def test_twenty_presses_of_a_key_store_one_review_of_the_chunk_on_screen(
    live_app: LiveApp, page: Page
) -> None:
    trajectory = live_app.filled.sampled[0]
    chunks = chunk_ids(live_app, trajectory)
    before = {chunk: len(live_app.store.history(chunk)) for chunk in chunks}
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=2")
    for _ in range(20):
        page.keyboard.press("3")
    settled(page)
    page.keyboard.down("3")
    for _ in range(10):  # a held key repeats
        page.keyboard.down("3")
    page.keyboard.up("3")
    settled(page)
    expect(page.get_by_text("You said")).to_be_visible()
    stored = {chunk: len(live_app.store.history(chunk)) - before[chunk] for chunk in chunks}
    assert stored == {chunk: int(chunk == chunks[2]) for chunk in chunks}


def test_keys_pressed_while_moving_on_go_to_a_chunk_that_was_on_screen(live_app: LiveApp, page: Page) -> None:
    trajectory = live_app.filled.sampled[4]
    chunks = chunk_ids(live_app, trajectory)
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=0")
    page.wait_for_timeout(READ_MS)
    for key in "2j2j2":
        page.keyboard.press(key)
        page.wait_for_timeout(15)
    settled(page)
    until(lambda: bool(live_app.store.history(chunks[0])))
    for chunk in chunks:
        assert len(live_app.store.history(chunk)) <= 1
    assert not live_app.store.history(chunks[3])


def test_no_key_acts_while_typing(live_app: LiveApp, page: Page) -> None:
    trajectory = live_app.filled.human
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=0")
    page.get_by_label("Comment").click()
    page.keyboard.type("1 2 3 jku")
    settled(page)
    assert "chunk=0" in query(page)
    assert not live_app.store.history(chunk_ids(live_app, trajectory)[0])


def test_the_pages_load_nothing_from_elsewhere(live_app: LiveApp, page: Page) -> None:
    open_page(page, f"{live_app.url}/trajectory?traj=1")
    directive = page.evaluate(
        """() => new Promise(done => {
            document.addEventListener("securitypolicyviolation", e => done(e.effectiveDirective))
            new Image().src = "https://evil.example/beacon.png"
        })"""
    )
    assert directive == "img-src"


def test_a_long_trajectory_shows_fifty_cards_a_page(live_app: LiveApp, page: Page) -> None:
    open_page(page, f"{live_app.url}/trajectory?traj={live_app.filled.long}&chunk=60")
    cards = page.locator("[class*='st-key-select-']")
    expect(cards).to_have_count(50)
    expect(page.get_by_text("chunks 50 to 99 of 120")).to_be_visible()
    page.get_by_role("button", name="Later").click()
    page.wait_for_url("**chunk=100*")
    expect(cards).to_have_count(20)
