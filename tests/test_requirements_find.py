"""Requirements 9 and 12 of the pages: lists stay small and ask little, and what is found is opened and explained."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

from app.bench.ui_store import COMMON, NEEDLE, make_store
from db.chunk_filter import ChunkFilter
from db.reads_list import TrajectoryFilter
from db.store import Store, open_store
from tests.browser_support import ACTOR, LiveApp, open_page, settled, start_server
from tests.test_reads import plans

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
SCALE = 0.003
"""600 trajectories with about 4,000 chunks."""
MOST_BYTES = 1_000_000


class World(NamedTuple):
    store: Store
    url: str
    home: Path
    long: int
    judge: int


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A made-up store, as ``stepwiser bench ui`` makes it."""
    home: Path = tmp_path_factory.mktemp("large")
    url = f"sqlite:///{home / 'stepwiser.db'}"
    store = open_store(url, migrate=True)
    made = make_store(store, SCALE, lambda _: None)
    yield World(store, url, home, made.long, made.judge)
    store.close()


@pytest.fixture(scope="module")
def large_url(world: World) -> Iterator[str]:
    """The pages over it."""
    place = {"STEPWISER_HOME": str(world.home), "STEPWISER_DATABASE_URL": world.url, "STEPWISER_ACTOR": ACTOR}
    process, address = start_server(os.environ | place, world.home / "server.log")
    yield address
    process.terminate()
    process.wait(timeout=20)


def received(page: Page, url: str) -> int:
    """Bytes that came over the WebSocket until the page was drawn."""
    sizes: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: sizes.append(len(data))))
    open_page(page, url)
    return sum(sizes)


@pytest.mark.parametrize(
    ("address", "row"),
    [
        ("trajectories", r"^Trajectory \d+"),
        (f"trajectories?q={NEEDLE}", r"^Trajectory \d+"),
        ("trajectories?show=chunks&sort=drop&label=-", r"^Chunk \d+ of trajectory"),
        (f"trajectories?show=chunks&search={COMMON}", r"^Chunk \d+ of trajectory"),
    ],
)
def test_requirement_09_a_list_is_at_most_a_megabyte(
    large_url: str, page: Page, address: str, row: str
) -> None:
    size = received(page, f"{large_url}/{address}")
    shown = page.get_by_role("link", name=re.compile(row))
    expect(shown.first).to_be_visible()
    assert shown.count() <= 50
    assert 10_000 < size <= MOST_BYTES


def test_requirement_09_five_hundred_chunks_are_paged(world: World, large_url: str, page: Page) -> None:
    size = received(page, f"{large_url}/trajectory?traj={world.long}&chunk=250")
    expect(page.get_by_text("in step 251 of plan 0").first).to_be_visible()
    assert size <= 3 * MOST_BYTES
    assert page.get_by_text(re.compile(r"in step \d+ of plan 0")).count() <= 2 * 51 + 2


def test_requirement_09_lists_ask_a_few_questions_that_an_index_answers(world: World) -> None:
    store = world.store
    reads = {
        "the solutions": lambda: store.trajectory_page(TrajectoryFilter(outcome="wrong"), sort="drop"),
        "how many": lambda: store.count_trajectories(TrajectoryFilter(outcome="wrong")),
        "the chunks": lambda: store.find_chunks(ChunkFilter(label="-", against=True), sort="certain"),
        "how many chunks": lambda: store.count_chunks(ChunkFilter(label="-", against=True), sort="certain"),
        "a common word": lambda: store.find_chunks(ChunkFilter(search=COMMON)),
        "a rare word": lambda: store.find_chunks(ChunkFilter(search=NEEDLE), sort="drop"),
        "a judge": lambda: store.find_chunks(ChunkFilter(judge_id=world.judge, verdict="none")),
        "a reviewer": lambda: store.find_chunks(ChunkFilter(reviewed_by="ann", review="-1")),
    }
    for name, read in reads.items():
        sent = plans(store, read)
        assert 0 < len(sent) <= 14, (name, len(sent))
        for plan in sent:
            steps = plan.split("; ")
            for place, step in enumerate(steps):
                # A walk reads a window along the order's own index, and a count stops: both read no further than
                # they have to. Nothing else may read a large table from its beginning.
                walks = place > 0 and steps[place - 1] in ("MATERIALIZE anon_1", "CO-ROUTINE anon_1")
                scans = re.match(r"SCAN (chunks|trajectories|judgments|problems|rollouts|reviews)\b", step)
                assert not scans or walks or plan == "SCAN chunks", (name, plan)


def test_requirement_12_what_is_found_opens_highlighted(live_app: LiveApp, page: Page) -> None:
    ids = live_app.filled
    open_page(page, f"{live_app.url}/trajectories?show=chunks")
    search = page.get_by_label("Search", exact=True)
    search.fill("arithmetic does")
    search.press("Enter")
    page.wait_for_url(re.compile("search=arithmetic"))
    settled(page)
    hit = page.get_by_role("row").filter(has_text="7 + 5 = 13")
    assert [mark.lower() for mark in hit.locator("mark").all_inner_texts()][:2] == ["arithmetic", "does"]
    expect(hit).to_contain_text("nano-judge judged:")
    hit.get_by_role("link").click()
    page.wait_for_url(re.compile(rf"traj={ids.sampled[1]}&chunk=1&find=arithmetic"))
    settled(page)
    expect(page.get_by_text("She picks 5 more: 7 + 5 = 13.").first).to_be_visible()

    open_page(page, f"{live_app.url}/trajectories?show=chunks&search=%3D+13&search_in=chunk")
    page.get_by_role("row").filter(has_text="7 + 5 = 13").get_by_role("link").click()
    page.wait_for_url(re.compile("find="))
    settled(page)
    selected = page.locator(".st-key-selected-text")
    expect(selected).to_contain_text("7 + 5 = 13")
    assert "13" in " ".join(selected.locator("[class*=stMarkdownColoredBackground], mark").all_inner_texts())


def test_requirement_12_a_value_says_its_counts_and_opens_its_rollouts(live_app: LiveApp, page: Page) -> None:
    ids = live_app.filled
    open_page(page, f"{live_app.url}/trajectory?traj={ids.sampled[1]}&chunk=1")
    expect(page.get_by_text(re.compile(r"\d+ ?/ ?16")).first).to_be_visible()
    page.locator("[class*='st-key-rollouts-'] button").first.click()
    page.wait_for_url(re.compile(r"rollout=\d+"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_requirement_12_light_and_dark(live_app: LiveApp, page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    open_page(page, f"{live_app.url}/trajectories?show=chunks&search=apples&search_in=chunk")
    mark = page.locator("mark").first
    colours = mark.evaluate(
        "m => [getComputedStyle(m).color, getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor]"
    )
    text, ground = (sum(int(part) for part in re.findall(r"\d+", colour)[:3]) for colour in colours)
    assert (text < ground) == (scheme == "light") and abs(text - ground) > 300
