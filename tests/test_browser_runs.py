"""Runs and lists in a real browser: links and Back, live progress in two browsers, a selection that stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from sqlalchemy import update

from app.kinds import resolve_recipe
from db.tables import Run, utc_now
from tests.browser_support import LiveApp, open_page, settled

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture
def running(live_app: LiveApp) -> Iterator[int]:
    """A rollout run that a worker, played by the test, has in hand."""
    store = live_app.store
    recipe = resolve_recipe("rollout", {}).model_dump(mode="json")
    run_id = store.start_run("rollout", recipe, "ada", pid=1)
    store.heartbeat(run_id, done=100, total=400, unit="rollouts", message="first prefixes")
    yield run_id
    if store.run(run_id).status in ("running", "stalled"):
        store.finish_run(run_id, "stopped")


def wait_for_text(page: Page, text: str, seconds: float = 10) -> None:
    page.get_by_text(text).first.wait_for(timeout=seconds * 1000)


def test_a_row_opens_with_one_history_entry(live_app: LiveApp, page: Page) -> None:
    open_page(page, f"{live_app.url}/trajectories?sort=drop")
    first = page.locator("tr[data-row]").first
    trajectory = first.get_attribute("data-row")
    first.get_by_role("link").click()
    page.wait_for_url(re.compile(rf"/trajectory\?traj={trajectory}"))
    settled(page)
    page.go_back()
    page.wait_for_url(f"{live_app.url}/trajectories?sort=drop")
    page.locator(f"tr[data-row='{trajectory}']").wait_for()


def test_a_row_opens_by_keyboard(live_app: LiveApp, page: Page) -> None:
    open_page(page, f"{live_app.url}/trajectories?policy=human")
    link = page.locator("tr[data-row] a").nth(1)
    target = link.get_attribute("href")
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_app.url}{target}")


def test_back_undoes_a_filter(live_app: LiveApp, page: Page) -> None:
    open_page(page, f"{live_app.url}/trajectories")
    search = page.get_by_label("Search the problems")
    search.fill("numbers from 1 to 120")
    search.press("Enter")
    page.locator(f"tr[data-row='{live_app.filled.long}']").wait_for()
    page.wait_for_url(re.compile("q=numbers"))
    settled(page)
    assert page.locator("tr[data-row]").count() == 1
    page.go_back()
    page.locator(f"tr[data-row='{live_app.filled.human}']").wait_for()
    assert search.input_value() == ""


def test_hostile_text_in_the_list_asks_for_nothing_elsewhere(live_app: LiveApp, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_page(page, f"{live_app.url}/trajectories?policy=human")
    wait_for_text(page, "# Not a heading ![p](https://evil.example/p.png)")
    assert page.get_by_role("heading", name="Not a heading").count() == 0
    own = (live_app.url, f"blob:{live_app.url}", "data:")
    assert [url for url in asked if not url.startswith(own)] == []


def test_two_browsers_see_the_same_progress(
    live_app: LiveApp, page: Page, browser: Browser, running: int
) -> None:
    other_context = browser.new_context()
    other = other_context.new_page()
    address = f"{live_app.url}/runs?run={running}"
    open_page(page, address)
    open_page(other, address)
    wait_for_text(page, "100 / 400")
    live_app.store.heartbeat(running, done=237, total=400, unit="rollouts", message="more prefixes")
    for browser_page in (page, other):
        wait_for_text(browser_page, "237 / 400")
        wait_for_text(browser_page, "more prefixes")
    page.reload()
    wait_for_text(page, "237 / 400")
    live_app.store.finish_run(running, "done", result={"labelled_chunks": 12})
    for browser_page in (page, other):
        row = browser_page.get_by_role("table", name="Result").locator("tr", has_text="labelled chunks")
        row.get_by_text("12", exact=True).wait_for()
        expect(browser_page.get_by_role("button", name=re.compile("Stop$"))).to_have_count(0)
    other_context.close()


def test_a_silent_run_becomes_stalled_on_the_open_page(live_app: LiveApp, page: Page, running: int) -> None:
    open_page(page, f"{live_app.url}/runs?run={running}")
    wait_for_text(page, "100 / 400")
    assert page.get_by_role("button", name=re.compile("Resume$")).count() == 0
    with live_app.store.write() as db:
        db.execute(
            update(Run).where(Run.id == running).values(heartbeat_at=utc_now() - timedelta(seconds=21))
        )
    wait_for_text(page, "no sign of life")
    page.get_by_role("button", name=re.compile("Resume$")).wait_for()


def test_stop_is_passed_on_and_shown(live_app: LiveApp, page: Page, running: int) -> None:
    open_page(page, f"{live_app.url}/runs?run={running}")
    page.get_by_role("button", name=re.compile("Stop$")).click()
    wait_for_text(page, "stopping after the batch in hand")
    assert live_app.store.run(running).stop_requested
    assert live_app.store.heartbeat(running, done=240, total=400, unit="rollouts", message="")


def test_a_new_run_moves_no_selection(live_app: LiveApp, page: Page, running: int) -> None:
    address = f"{live_app.url}/runs?run={running}"
    open_page(page, address)
    wait_for_text(page, "100 / 400")
    newer = live_app.store.create_run("judge", resolve_recipe("judge", {}).model_dump(mode="json"), "ada")
    live_app.store.heartbeat(running, done=300, total=400, unit="rollouts", message="after the new run")
    wait_for_text(page, "after the new run")
    assert page.url == address
    assert page.get_by_role("heading", name=f"Run {running} ·").count() == 1
    live_app.store.request_stop(newer)


def test_a_run_starts_from_the_form_once_for_two_presses(live_app: LiveApp, page: Page) -> None:
    tiny = live_app.home / "checkpoints" / "tiny"
    tiny.mkdir(parents=True, exist_ok=True)
    (tiny / "config.json").write_text("{}")
    before = {run.id for run in live_app.store.runs()}
    open_page(page, f"{live_app.url}/runs?new=sample&set=llm.checkpoint=tiny&set=generate.count=3")
    box = page.get_by_label("Solutions a problem (N)", exact=True)
    box.fill("7")
    page.get_by_role("button", name=re.compile("Start: sample solutions")).dblclick()
    page.wait_for_url(re.compile(r"[?&]run=\d+"))
    settled(page)
    [run_id] = {run.id for run in live_app.store.runs()} - before
    assert page.url == f"{live_app.url}/runs?run={run_id}"
    recipe = live_app.store.run(run_id).recipe
    assert (recipe["n"], recipe["generate"]["count"], recipe["llm"]["checkpoint"]) == (7, 3, "tiny")
    page.go_back()
    page.get_by_role("heading", name="Start a run").wait_for()
    settled(page)
    assert {run.id for run in live_app.store.runs()} - before == {run_id}
    live_app.store.request_stop(run_id)


def test_the_next_step_of_a_run_opens_its_form(live_app: LiveApp, page: Page) -> None:
    store = live_app.store
    run_id = store.start_run("sample", resolve_recipe("sample", {}).model_dump(mode="json"), "ada", pid=1)
    store.heartbeat(run_id, done=4, total=4, unit="solutions", message="")
    open_page(page, f"{live_app.url}/runs?run={run_id}")
    page.get_by_role("button", name=re.compile("Again, with changes")).click()
    page.get_by_role("heading", name="Start a run").wait_for()
    page.wait_for_url(f"{live_app.url}/runs?new=sample&like={run_id}")
    page.go_back()
    store.finish_run(run_id, "done", result={})
    page.get_by_role("button", name=re.compile("Roll them out")).click()
    page.get_by_role("heading", name="Start a run").wait_for()
    assert page.url.startswith(f"{live_app.url}/runs?new=rollout&set=select.from_run%3D{run_id}&set=llm%3D")
    assert page.get_by_label("From run", exact=True).input_value().startswith(f"Run {run_id} ")


def test_the_list_is_live(live_app: LiveApp, page: Page, running: int) -> None:
    open_page(page, f"{live_app.url}/runs")
    row = page.locator(f"tr[data-row='{running}']")
    row.get_by_text("100 / 400 rollouts").wait_for()
    live_app.store.heartbeat(running, done=399, total=400, unit="rollouts", message="")
    row.get_by_text("399 / 400 rollouts").wait_for(timeout=10_000)
    row.get_by_role("link").click()
    page.wait_for_url(f"{live_app.url}/runs?run={running}")


@pytest.mark.parametrize("width", [390, 1024])
@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/trajectories",
        "/runs",
        "/runs?new=train-judge",
        "/runs?run=1",
        "/runs?view=checkpoints",
        "/runs?view=checkpoints&checkpoint=nano",
        "/runs?view=compare",
    ],
)
def test_nothing_sticks_out_on_narrow_screens(
    live_app: LiveApp, page: Page, width: int, address: str
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    open_page(page, live_app.url + address)
    over = page.evaluate(
        "(() => { const main = document.querySelector('[data-testid=stMain]');"
        " return main.scrollWidth - main.clientWidth; })()"
    )
    assert over <= 0
