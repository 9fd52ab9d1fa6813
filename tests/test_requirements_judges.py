"""In a real browser: agreement that equals the libraries' and opens its chunks; two judges or two runs, paired."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from db.store import Store, open_store
from tests.browser_support import open_page, settled, start_server
from tests.raters_store import Raters, fill_raters

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


@dataclass
class Live:
    url: str
    store: Store
    raters: Raters

    def at(self, page: str = "judges", **address: object) -> str:
        return f"{self.url}/{page}?{urlencode(address)}"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server of its own: its raters would be in the way of tests that count."""
    home = tmp_path_factory.mktemp("raters")
    store_url = f"sqlite:///{home / 'stepwiser.db'}"
    store = open_store(store_url, migrate=True)
    raters = fill_raters(store)
    environment = os.environ | {
        "STEPWISER_HOME": str(home),
        "STEPWISER_DATABASE_URL": store_url,
        "STEPWISER_ACTOR": "rosa",
    }
    process, url = start_server(environment, home / "server.log")
    yield Live(url, store, raters)
    process.terminate()
    process.wait(timeout=20)
    store.close()


def table(page: Page, label: str) -> Locator:
    return page.locator(f'table[aria-label="{label}"]')


def cells(page: Page, label: str, first: str) -> list[str]:
    """The texts of the row whose first cell says ``first``."""
    row = table(page, label).locator("tbody tr").filter(has_text=first).first
    row.wait_for()
    return [text.strip() for text in row.locator("td").all_inner_texts()]


def listed(page: Page) -> list[int]:
    """The chunks of the list, in its order."""
    table(page, "Chunks").locator("tbody tr").first.wait_for()
    return [
        int(row.get_attribute("data-row") or 0) for row in table(page, "Chunks").locator("tbody tr").all()
    ]


def number(text: str) -> tuple[float, float, float]:
    """A figure with its interval as the page writes it, shares as such."""
    found = re.fullmatch(r"(\S+) \[(\S+), (\S+)\].*", text)
    assert found, text

    def value(part: str) -> float:
        plain = part.replace("−", "-").replace("+", "")
        return float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)

    return value(found[1]), value(found[2]), value(found[3])


def test_requirement_07_agreement_equals_the_libraries_and_a_cell_opens_exactly_its_chunks(
    page: Page, live: Live
) -> None:
    from sklearn.metrics import cohen_kappa_score

    raters = live.raters
    open_page(page, live.at(view="agreement"))
    _, n, _, kappa = cells(page, "Pairs of people", "ada × bob")
    both = raters.pairs("person:ada", "person:bob", "+0-")
    expected = cohen_kappa_score([a for _, a, _ in both], [b for _, _, b in both])
    value, low, high = number(kappa)
    assert int(n) == len(both)
    assert value == pytest.approx(expected, abs=0.005) and low < expected < high
    table(page, "Pairs of people").get_by_role("link").filter(has_text="ada × bob").click()
    settled(page)
    assert number(cells(page, "Agreement of the two", "Cohen")[1])[0] == value

    judge = f"judge:{raters.judges[0]}"
    open_page(page, live.at(view="agreement", a="person:ada", b=judge))
    both = raters.pairs("person:ada", judge)
    expected = cohen_kappa_score([a for _, a, _ in both], [b for _, _, b in both])
    value, low, high = number(cells(page, "Agreement of the two", "Cohen")[1])
    assert value == pytest.approx(expected, abs=0.005) and low < expected < high
    assert cells(page, "Agreement of the two", "Counted")[1].startswith(f"{len(both)} chunks of ")

    wanted = {chunk for chunk, a, b in both if (a, b) == ("-", "+")}
    page.get_by_role("link", name=re.compile(r"ada said − error, .* said \+ sound")).click()
    settled(page)
    assert len(wanted) > 2 and set(listed(page)) == wanted and len(listed(page)) == len(wanted)
    first = listed(page)[0]
    here = page.url
    table(page, "Chunks").get_by_role("link").first.click()
    page.wait_for_url("**/trajectory?**")
    settled(page)
    opened = {name: int(value[0]) for name, value in parse_qs(urlsplit(page.url).query).items()}
    assert (opened["traj"], opened["chunk"]) == raters.place_of[first]
    page.go_back()
    page.wait_for_url(here)
    settled(page)
    assert set(listed(page)) == wanted


def test_requirement_11_two_judges_or_two_runs_paired_and_the_file_is_the_list(
    page: Page, live: Live, tmp_path: Path
) -> None:
    from sklearn.metrics import f1_score

    raters, truth = live.raters, live.raters.said["rule:rel-ratio"]
    for kind, ids in (("run", raters.runs), ("judge", raters.judges)):
        a, b = (f"{kind}:{one}" for one in ids)
        one, other = raters.said[a], raters.said[b]
        both = [c for c in raters.chunks if c in one and c in other and c in truth]
        open_page(page, live.at(view="compare", a=a, b=b, against="rule:rel-ratio"))
        _, first, second, gap = cells(page, "Scores of both", "F1")
        for said, text in ((one, first), (other, second)):
            expected = f1_score(
                [truth[c] for c in both], [said[c] for c in both], labels=["-"], average="micro"
            )
            value, low, high = number(text)
            assert value == pytest.approx(expected, abs=0.0005) and low <= expected <= high
        assert number(gap)[0] == pytest.approx(number(second)[0] - number(first)[0], abs=0.0016)
        fixed = {c for c in both if one[c] != truth[c] == other[c]}
        regressed = {c for c in both if one[c] == truth[c] != other[c]}
        assert fixed and regressed
        for change, wanted in (("regressed", regressed), ("fixed", fixed)):
            page.get_by_role("link", name=re.compile(rf"^{change}, ")).click()
            settled(page)
            assert set(listed(page)) == wanted and len(listed(page)) == len(wanted)

    shown = listed(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    file = tmp_path / "list.jsonl"
    download.value.save_as(file)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [row["chunk_id"] for row in rows] == shown
    for row in rows:
        chunk = row["chunk_id"]
        assert (row["trajectory"], row["chunk"]) == raters.place_of[chunk]
        assert row["said"] == {a: one[chunk], b: other[chunk], "rule:rel-ratio": truth[chunk]}

    table(page, "Chunks").get_by_role("link").first.click()
    settled(page)
    beside, boxes = page.locator(".st-key-side-by-side"), []
    for name in ("weak <i>judge</i>", "better judge"):
        rationale = beside.get_by_text(f"Check of chunk {shown[0]} by {name}, draw 0").first
        rationale.wait_for()
        boxes.append(rationale.bounding_box())
    left, right = boxes
    assert left is not None and right is not None and left["x"] + left["width"] <= right["x"] + 1
