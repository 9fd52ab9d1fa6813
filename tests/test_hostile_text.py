"""The probe corpus over every page: nothing is asked of anyone, nothing runs, nothing is forged, and the page can be used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.widgets.safe_text import JOINER
from tests.browser_support import ACTOR, ROOT, open_page, settled, start_server
from tests.hostile_store import SEEN, Hostile, hostile_store

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

ADDRESSES = {
    "": [""],
    "trajectories": ["", "?show=chunks", "?show=chunks&search=evil"],
    "trajectory": [
        "?traj={h.trajectory}&chunk=1&rollout={h.rollout}&beside={h.sibling}",
        "?traj={h.trajectory}&chunk=0&find=evil",
        "?traj={h.long}&chunk=0",
    ],
    "queue": ["", "?queue={h.queue}", "?queue={h.queue}&work=1", "?new=1"],
    "adjudication": ["?chunk={h.disputed}"],
    "judges": ["", "?view=agreement", "?view=compare&a=judge:{h.judges[0]}&b=judge:{h.judges[1]}"],
    "runs": ["", "?run={h.run}"],
    "data": ["", "?tab=export"],
    "rewards": ["?problem={h.problem}"],
    "people": [""],
}
CSP = """() => { window.stepwiserRefused = [];
document.addEventListener("securitypolicyviolation", e => window.stepwiserRefused.push(e.blockedURI)) }"""


@dataclass
class Served:
    url: str
    hostile: Hostile = field(repr=False)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("hostile")
    store_url, hostile = hostile_store(home, ACTOR)
    environment = os.environ | {
        "STEPWISER_HOME": str(home),
        "STEPWISER_DATABASE_URL": store_url,
        "STEPWISER_ACTOR": ACTOR,
    }
    process, url = start_server(environment, home / "server.log")
    try:
        yield Served(url, hostile)
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_every_page_is_in_the_corpus_test() -> None:
    main = Path(ROOT / "app" / "main.py").read_text(encoding="utf-8")
    assert set(re.findall(r'url_path="([^"]+)"', main)) | {""} == set(ADDRESSES)


def watched(page: Page) -> tuple[list[str], list[str]]:
    """(requests, dialogs) from now on; refused ones are noted in the page itself."""
    asked: list[str] = []
    dialogs: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.add_init_script(f"({CSP})()")
    return asked, dialogs


def forged(page: Page) -> list[str]:
    """What on the page came out of a text and is more than text."""
    return page.evaluate(
        """() => {
        const roots = [document], found = []
        for (const root of roots)
            for (const node of root.querySelectorAll("*")) {
                if (node.shadowRoot) roots.push(node.shadowRoot)
                const words = (node.textContent || "").slice(0, 200)
                if (/^H[1-6]$/.test(node.tagName) && /^#? ?Fake/.test(words)) found.push("heading " + words)
                for (const name of node.getAttributeNames()) {
                    const value = node.getAttribute(name)
                    if (/^(href|src|action|data|poster|xlink:href|background)$/.test(name)) {
                        const to = new URL(value, location.href)  // a link to these pages may search for anything
                        if (to.origin !== location.origin && !/^(data|blob):/.test(value))
                            found.push(name + "=" + value)
                    }
                    if (/^(srcset|style)$/.test(name) && /evil|javascript:/.test(value)) found.push(name + "=" + value)
                    if (/^on/.test(name) && /stepwiserProbe/.test(value)) found.push(name + "=" + value)
                }
                if (/^(IFRAME|OBJECT|EMBED|FORM)$/.test(node.tagName) && node.outerHTML.includes("evil"))
                    found.push(node.tagName)
                if (/^(SCRIPT|STYLE)$/.test(node.tagName) && /evil|stepwiserProbe/.test(words)) found.push(node.tagName)
                if (/^mermaid/.test(node.id)) found.push("mermaid")
                if (node.tagName === "BUTTON" && words === "Fake button") found.push("button")
            }
        return found }"""
    )


@pytest.mark.parametrize("path", ADDRESSES)
def test_text_on_the_page_is_only_text(served: Served, page: Page, path: str) -> None:
    asked, dialogs = watched(page)
    for address in ADDRESSES[path]:
        open_page(page, f"{served.url}/{path}{address.format(h=served.hostile)}")
        assert page.get_by_test_id("stException").count() == 0, address
        assert page.get_by_test_id("stMain").inner_text().strip(), address
        assert forged(page) == [], address
        assert page.evaluate("window.stepwiserProbe") is None, address
        assert page.evaluate("window.stepwiserRefused") == [], address  # nothing was even tried
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 1, f"{address}: the page is {wide} px too wide"
    assert dialogs == []
    assert [url for url in asked if not url.startswith((served.url, "data:", "blob:"))] == []


def test_the_trajectory_shows_the_corpus_as_it_was_typed_rendered_and_raw(served: Served, page: Page) -> None:
    asked, _ = watched(page)
    open_page(page, f"{served.url}/trajectory?traj={served.hostile.trajectory}&chunk=1")
    for raw in (False, True):
        if raw:
            page.get_by_text("Raw text", exact=True).click()
            settled(page)
        words = page.get_by_test_id("stMain").inner_text().replace(JOINER, "")
        assert SEEN in words and "<script>window.stepwiserProbe=1</script>" in words
        assert "# Fake heading" in words and ":material/home:" in words and "⟦U+202E⟧" in words
        assert "⟦U+0000⟧" in words and "⟦U+200B⟧" in words and "&lt;b&gt;" in words
        assert forged(page) == [] and page.evaluate("window.stepwiserRefused") == []
        formulas = page.locator(".st-key-chunks .katex").count()
        assert (formulas == 0) is raw
    assert [url for url in asked if not url.startswith((served.url, "data:", "blob:"))] == []
