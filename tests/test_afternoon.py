"""docs/afternoon.md, step by step, in a real browser: a queue, twenty items, a disagreement decided, a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import expect

from tests.browser_support import ACTOR, ROOT, LiveApp, open_page, settled
from tests.queue_pages import judged, keys_act, open_work, press, solution, verdicts

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


def test_the_afternoon_of_the_docs(
    live_app: LiveApp, slow_url: str, page: Page, browser: Browser, tmp_path: Path
) -> None:
    store = live_app.store
    texts = [f"Line {i}: {i} + {i} = {2 * i + (i == 3)}." for i in range(20)]
    trajectory, chunks = solution(store, "afternoon", texts)
    sure = [0.99 - i / 100 for i in range(20)]  # the order of the queue: all disagree, the first most surely
    judged(store, chunks, "+" * 20, "-" * 20, name="afternoon-judge", rationale="It does not.", sure=sure)
    listed = re.findall(r"^(\d+)\. ", (ROOT / "docs" / "afternoon.md").read_text(encoding="utf-8"), re.M)
    assert listed == [str(n) for n in range(1, 11)]  # the steps below

    # 1. Trajectories, chunks, a filter, Queue these
    open_page(page, f"{live_app.url}/trajectories?show=chunks&trajectory_id={trajectory}")
    page.get_by_role("link", name=re.compile("Queue these")).click()
    page.wait_for_url("**/queue?**")
    settled(page)
    assert parse_qs(page.url.partition("?")[2])["trajectory_id"] == [str(trajectory)]

    # 2. the form
    page.get_by_label("Name", exact=True).fill("An afternoon")
    for label, number in (("Items at most", "20"), ("Reviews an item", "2")):
        page.get_by_label(label, exact=True).fill(number)
    page.get_by_role("button", name="Make the queue").click()
    page.wait_for_url(re.compile(r"queue=\d+$"))
    settled(page)
    queue = store.queue("An afternoon")
    assert (queue.order, queue.n_items, queue.reviews_per_item) == ("disagreement", 20, 2)

    # 3. work
    expect(page.get_by_role("heading", name="An afternoon")).to_be_visible()
    page.keyboard.press("w")
    expect(page.get_by_text("item 1 of 20")).to_be_visible()
    keys_act(page)

    # 4. problem, chunk, guidelines, judge; one key
    for shown in (
        "Problem afternoon",
        "Line 0",
        "Does this chunk contain an error of its own",
        "afternoon-judge",
    ):
        expect(page.get_by_text(shown).first).to_be_visible()
    for i in range(3):
        press(page, "3")
        expect(page.get_by_text(f"item {i + 2} of 20")).to_be_visible()

    # 5. why, where, what instead, a flag; kept over a reload
    page.keyboard.press("c")
    page.keyboard.type("3 and 3 is 6")
    page.keyboard.press("Escape")
    settled(page)
    page.keyboard.press("m")
    marking = page.get_by_role("application")
    expect(marking).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(marking).to_be_hidden()
    settled(page)
    page.keyboard.press("t")
    correction = page.get_by_role("textbox", name="What the chunk should have said")
    expect(correction).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("Line 3: 3 + 3 = 6.")
    page.keyboard.press("Escape")
    settled(page)
    page.keyboard.press("f")
    settled(page)
    open_page(page, page.url)
    expect(page.get_by_label("Comment")).to_have_value("3 and 3 is 6")
    expect(correction).to_have_value("Line 3: 3 + 3 = 6.")
    keys_act(page)
    press(page, "1")
    row = store.history(chunks[3])[0].review
    assert (row.verdict, row.comment, row.flag) == (-1, "3 and 3 is 6", "flag")
    assert (row.span_start, row.span_end) == (texts[3].index("7"), texts[3].index("7") + 1)
    assert row.correction == "Line 3: 3 + 3 = 6."

    # 6. undo, skip, previous, change, next
    press(page, "2")
    press(page, "u")
    expect(page.get_by_text("item 5 of 20")).to_be_visible()
    press(page, "3")
    press(page, "p")
    page.keyboard.press("e")
    settled(page)
    press(page, "4")
    expect(page.get_by_text("You said")).to_be_visible()
    press(page, "n")
    assert verdicts(store, chunks[4:5]) == [[0, None, 1, None]]

    # 7. to the twentieth
    for i in range(5, 19):
        press(page, "3")
        expect(page.get_by_text(f"item {i + 2} of 20")).to_be_visible()
    page.keyboard.press("3")
    expect(page.get_by_text("Nothing left for you in this queue")).to_be_visible()
    settled(page)
    page.keyboard.press("w")
    expect(page.get_by_role("heading", name="An afternoon")).to_be_visible()
    settled(page)
    assert store.queue_progress(queue.id)[0].done == 20

    # 8. the colleague, in a browser of their own
    context = browser.new_context()
    other = context.new_page()
    open_work(other, slow_url, queue.id)
    expect(other.locator(".st-key-item-chunk")).to_contain_text("Line 0")
    other.keyboard.press("c")
    other.keyboard.type("it says nothing")
    other.keyboard.press("Escape")
    settled(other)
    press(other, "1")
    context.close()
    assert store.count_disputes(queue_id=queue.id) == 1

    # 9. the decision
    open_page(page, f"{live_app.url}/adjudication?queue={queue.id}")
    expect(page.get_by_text("it says nothing").first).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.type("it holds")
    page.keyboard.press("Escape")
    settled(page)
    page.keyboard.press("3")
    expect(page.get_by_text("People disagree on no chunk")).to_be_visible()
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=0")
    card = page.locator(".st-key-review-card")
    expect(card).to_contain_text("decided by adjudication")
    expect(card).to_contain_text("it holds")
    expect(card).to_contain_text("it says nothing")

    # 10. the file
    open_page(page, f"{live_app.url}/queue?queue={queue.id}")
    page.get_by_role("link", name=re.compile("Its chunks")).click()
    page.wait_for_url("**/trajectories?**")
    settled(page)
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("Export these")).click()
    file = tmp_path / "chunks.jsonl"
    download.value.save_as(file)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert sorted(row["chunk_id"] for row in rows) == sorted(chunks)
    decided = next(row for row in rows if row["chunk_id"] == chunks[0])
    assert (decided["adjudicated"], decided["people"]) == (True, "+")
    assert verdicts(store, chunks[5:], ACTOR) == [[1]] * 15
