"""Requirements 4 (permalinks) and 8 (hostile text) in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser_support import LiveApp, open_page, settled

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


def heading(page: Page, words: str):  # type: ignore[no-untyped-def]
    return page.get_by_role("heading", name=re.compile(f"^{words}\\b"))


def test_requirement_04_permalinks_restore_the_view_in_a_fresh_browser(
    live_app: LiveApp, page: Page, browser: Browser
) -> None:
    trajectory, other = live_app.filled.sampled[2], live_app.filled.sampled[0]
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=1")
    page.locator("[class*='st-key-rollouts-'] button").first.click()
    page.wait_for_url(re.compile(r"rollout=\d+"))
    settled(page)
    page.locator("[class*='st-key-rationale-'] button").nth(2).click()
    page.wait_for_url(re.compile(r"judgment=\d+"))
    settled(page)
    address = f"{page.url}&gamma=0.4&beside={other}"
    context = browser.new_context()
    try:
        fresh = context.new_page()
        open_page(fresh, address)
        expect(heading(fresh, "Chunk 1")).to_be_visible()
        number = re.search(r"rollout=(\d+)", address)
        assert number
        expect(fresh.get_by_text(f"Rollout {number[1]}", exact=True)).to_be_visible()
        chosen = fresh.locator("[class*='st-key-rationale-']").first.locator("[aria-checked=true]")
        expect(chosen).to_contain_text(re.compile("^2"))
        expect(fresh.get_by_role("slider").first).to_have_value("0.4")
        expect(fresh.get_by_text(f"{trajectory} beside {other}", exact=True)).to_be_visible()
        assert fresh.url == address
    finally:
        context.close()


def test_requirement_04_back_undoes_next(live_app: LiveApp, page: Page) -> None:
    trajectory = live_app.filled.sampled[1]
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=0&gamma=0.4")
    page.keyboard.press("j")
    page.wait_for_url("**chunk=1*")
    settled(page)
    page.keyboard.press("n")
    page.wait_for_url(f"**traj={trajectory + 1}*")
    settled(page)
    assert "gamma=0.4" in page.url  # how one looks at labels stays as it is
    for chunk in (1, 0):
        page.go_back()
        page.wait_for_url(re.compile(rf"traj={trajectory}&chunk={chunk}"))
        settled(page)
        expect(heading(page, f"Trajectory {trajectory}")).to_be_visible()
        expect(heading(page, f"Chunk {chunk}")).to_be_visible()


def test_requirement_04_an_unknown_id_gets_a_named_error(live_app: LiveApp, page: Page) -> None:
    for address, message in (
        ("traj=999999", "There is no trajectory 999999"),
        ("traj=%3Cb%3E", "There is no traj <b>"),
        ("traj=1&chunk=77", "has no chunk 77: its chunks are 0 to 3"),
        (
            "traj=1&chunk=1&rollout=888888&judgment=777777&beside=666666",
            "There is no rollout 888888|There is no judgment 777777|There is no solution 666666",
        ),
        ("traj=1&gamma=nan", "γ cannot be nan"),
    ):
        open_page(page, f"{live_app.url}/trajectory?{address}")
        for part in message.split("|"):
            expect(page.get_by_role("alert").filter(has_text=part)).to_be_visible()


def test_requirement_08_hostile_text_is_only_read(live_app: LiveApp, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_page(page, f"{live_app.url}/trajectory?traj={live_app.filled.hostile}&chunk=1")
    main = page.get_by_test_id("stMain")
    for raw in (False, True):
        if raw:
            page.keyboard.press("r")
            settled(page)
        headings = main.get_by_role("heading").all_inner_texts()
        assert not any(re.search("Fake|Setext|Verdict|Not a", words) for words in headings)
        assert main.locator("a[href*='evil'], img[src*='evil'], svg[id^=mermaid], script").count() == 0
        assert page.locator(".st-key-chunks").locator("table, h1, h2, hr, a, img").count() == 0
        expect(main.get_by_text("It costs $5 and $10", exact=False).first).to_be_visible()
        # 1/2 and the boxed answer, and neither $ nor \href
        assert page.locator(".st-key-chunks .katex").count() == (0 if raw else 2)
    assert [url for url in asked if not url.startswith((live_app.url, "data:", "blob:"))] == []
