"""Requirements 1, 2, 3, 5 and 6 of the pages, in a real browser: no mislabel, keyboard only, undo, blind, queue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from db.queues_store import NewQueue
from db.rows import NewPrefix, NewRollout, ReviewDetails
from tests.browser_support import ACTOR, LiveApp, open_page, settled
from tests.queue_pages import SLOW_ACTOR, judged, keys_act, open_work, press, solution, verdicts

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
RECORD = """
window.pressedAt = [];
window.addEventListener('keydown', (event) => {
  const text = document.querySelector('.st-key-item-chunk')?.innerText ?? '';
  window.pressedAt.push([event.key, event.repeat, text]);
}, true);
"""


def make(app: LiveApp, name: str, chunks: list[int], **more: object) -> int:
    values: dict[str, object] = {"order": "reading", "chunk_ids": chunks}
    return app.store.make_queue(NewQueue(name, **(values | more)), ACTOR)  # type: ignore[arg-type]


def at_item(page: Page, n: int, of: int) -> None:
    expect(page.get_by_text(f"item {n} of {of}")).to_be_visible()


def test_requirement_01_no_press_labels_what_was_not_on_screen(
    live_app: LiveApp, slow_url: str, page: Page
) -> None:
    store = live_app.store
    texts = [
        f"Step {word}." for word in ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    ]
    _, chunks = solution(store, "req-01", texts)
    queue = make(live_app, "Requirement 1", chunks)
    page.add_init_script(RECORD)
    open_work(page, slow_url, queue)
    for _ in range(20):
        page.keyboard.press("3")
    settled(page)
    said = verdicts(store, chunks)
    assert said[0] == [1]
    # As many cards as stood on the screen while the key was pressed, and none was passed over.
    seen = [text for key, _, text in page.evaluate("window.pressedAt") if key == "3"]
    n = sum(any(text in shown for shown in seen) for text in texts)
    assert [len(rows) for rows in said] == [1] * sum(map(len, said)) + [0] * (8 - sum(map(len, said)))
    assert 1 <= sum(map(len, said)) <= n

    page.wait_for_timeout(300)
    before = sum(map(len, said))
    for _ in range(15):
        page.keyboard.down("1")  # held: all but the first are repeats
    page.keyboard.up("1")
    settled(page)
    assert verdicts(store, chunks) == [*said[:before], [-1], *said[before + 1 :]]

    # Even presses that the keys' own guard never sees are good for one review of their card.
    page.wait_for_timeout(300)
    page.evaluate(
        "() => { const b = document.querySelector('[class*=st-key-verdict-neutral-] button');"
        " for (let i = 0; i < 20; i++) b.click(); }"
    )
    settled(page)
    assert verdicts(store, chunks)[before + 1 :] == [[0], *said[before + 2 :]]


def test_requirement_02_twenty_items_by_keyboard_alone(
    live_app: LiveApp, page: Page, request: pytest.FixtureRequest
) -> None:
    store = live_app.store
    request.addfinalizer(lambda: store.set_key_bindings(ACTOR, {}))
    _, chunks = solution(store, "req-02", [f"Line {i}: {i} + 1 = {i + 1}." for i in range(21)])
    queue = make(live_app, "Requirement 2", chunks)
    page.goto(f"{live_app.url}/queue?queue={queue}")
    settled(page)
    page.keyboard.press("w")
    at_item(page, 1, 21)
    keys_act(page)
    keys = [str(1 + i % 4) for i in range(20)]
    for i, key in enumerate(keys):
        if i % 7 == 3:
            page.keyboard.press("c")
            expect(page.get_by_label("Comment")).to_be_focused()
            page.keyboard.type(f"why {i}? 1 2 3 s u n")  # no key acts while one types
            page.keyboard.press("Escape")
            settled(page)
        press(page, key)
        at_item(page, i + 2, 21)
        if i == 9:
            press(page, "u")
            at_item(page, 10, 21)
            press(page, key)
            at_item(page, 11, 21)
    meant = {"1": -1, "2": 0, "3": 1, "4": None}
    said = verdicts(store, chunks, ACTOR)
    assert [rows[-1] for rows in said[:20]] == [meant[key] for key in keys] and not said[20]
    assert [i for i, rows in enumerate(said) if len(rows) != 1] == [9, 20]
    comments = [store.history(chunk)[-1].review.comment for chunk in chunks[:20]]
    assert [i for i, text in enumerate(comments) if text == f"why {i}? 1 2 3 s u n"] == [3, 10, 17]

    press(page, "p")
    press(page, "p")
    at_item(page, 19, 21)
    expect(page.get_by_text("You said")).to_be_visible()
    press(page, "n")
    press(page, "n")
    at_item(page, 21, 21)

    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys")
    expect(sheet).to_be_visible()
    for words in ("the chunk has an error", "take back the last review", "skip the item", "guidelines"):
        expect(sheet).to_contain_text(words)
    page.keyboard.press("1")  # behind a dialog no key acts
    page.get_by_role("button", name="+1: the chunk is sound: 3. Choose another key").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("v")
    expect(page.get_by_role("button", name="+1: the chunk is sound: V. Choose another key")).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    settled(page)
    assert not verdicts(store, chunks)[20]
    page.keyboard.press("3")  # nobody's key any more
    page.keyboard.press("v")
    expect(page.get_by_text("Nothing left for you in this queue")).to_be_visible()
    assert verdicts(store, chunks)[20] == [1]


def test_requirement_03_one_key_takes_back_the_last_review_after_a_reload_too(
    live_app: LiveApp, page: Page
) -> None:
    store = live_app.store
    trajectory, chunks = solution(store, "req-03", ["Two and two is five.", "So it is five."])
    queue = make(live_app, "Requirement 3", chunks)
    open_work(page, live_app.url, queue)
    page.keyboard.press("c")
    page.keyboard.type("it is four")
    page.keyboard.press("Escape")
    settled(page)
    press(page, "1")
    at_item(page, 2, 2)
    before = store.history(chunks[0])
    open_work(page, live_app.url, queue)  # the reload
    at_item(page, 2, 2)
    press(page, "u")
    at_item(page, 1, 2)
    expect(page.get_by_label("Comment")).to_have_value("it is four")
    rows = store.history(chunks[0])
    assert [step.review for step in rows[:1]] == [step.review for step in before]  # append-only
    assert [(step.review.kind, step.review.verdict, step.in_force) for step in rows] == [
        ("review", -1, False),
        ("undo", None, False),
    ]
    press(page, "3")
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=0")
    card = page.locator(".st-key-review-card")
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    for who_from_to in ("no review.*−1 error", "took back.*−1 error.*no review", r"no review.*\+1 sound"):
        expect(card).to_contain_text(re.compile(rf"{ACTOR}.*{who_from_to}.*{when}", re.S))
    expect(card).to_contain_text("it is four")


CANARIES = {
    "rationale": "canaryrationale8c1f",
    "comment": "canarycomment8c1f",
    "correction": "canarycorrection8c1f",
    "rollout": "canaryrollout8c1f",
    "answer": "31415926535",
    "value": "7/13",
}


def plant(app: LiveApp) -> tuple[int, list[int]]:
    """A solution about which a judge, rollouts and another person have said something that can be recognised."""
    store = app.store
    trajectory, chunks = solution(
        store, "req-05", ["One is one.", "One and one is three."], answer=CANARIES["answer"], reference="2"
    )
    judged(
        store,
        chunks,
        "--",
        "+-",
        name="blind-judge",
        rationale=f"{CANARIES['rationale']}: this does not hold.",
        sure=(0.9, 0.9),
    )
    problem = store.stage_trajectories([trajectory])[0].problem_id
    row = NewPrefix("req-05", problem, "human", "c", {}, (1,), base_seed=5)
    prefix = store.ensure_prefixes([row])["req-05"]
    store.set_chunk_prefixes([(chunks[0], prefix)])
    run = store.create_run("rollout", {}, "ada")
    draws = [
        NewRollout(
            prefix, draw, "correct" if draw < 7 else "wrong", 3, CANARIES["rollout"], "2", "stop", draw
        )
        for draw in range(13)
    ]
    store.add_rollouts(draws, run_id=run)
    said = ReviewDetails(correction=CANARIES["correction"])
    store.add_review(chunks[0], "req-05-ada", "ada", -1, CANARIES["comment"], details=said)
    return trajectory, chunks


def test_requirement_05_blind_says_nothing_before_the_last_answer(live_app: LiveApp, page: Page) -> None:
    trajectory, chunks = plant(live_app)
    queue = make(live_app, "Errors that the judge missed", chunks, blind=True, reviews_per_item=2)
    frames: list[bytes] = []

    def listen(socket: object) -> None:
        socket.on(  # type: ignore[attr-defined]
            "framereceived", lambda data: frames.append(data if isinstance(data, bytes) else data.encode())
        )

    page.on("websocket", listen)

    def found() -> set[str]:
        everything = b"\n".join(frames)
        return {what for what, canary in CANARIES.items() if canary.encode() in everything}

    open_work(page, live_app.url, queue)
    expect(page.get_by_text(f"Queue {queue}")).to_be_visible()  # a neutral name
    for address in (
        f"queue?queue={queue}",
        "queue",
        f"trajectory?traj={trajectory}&chunk=0",
        f"trajectory?traj={trajectory}&chunk=1",
        "trajectories?q=req-05",
        f"trajectories?show=chunks&queue_id={queue}",
        "trajectories?show=chunks&search=canary",
        f"adjudication?chunk={chunks[0]}",
    ):
        open_page(page, f"{live_app.url}/{address}")
        assert found() == set(), address
    assert "Errors that the judge" not in b"\n".join(frames).decode("utf-8", "replace")
    open_work(page, live_app.url, queue)
    press(page, "3")
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=0")  # one item is left
    assert found() == set() and len(frames) > 20
    open_work(page, live_app.url, queue)
    page.keyboard.press("1")
    expect(page.get_by_text("Nothing left for you in this queue")).to_be_visible()
    assert found() == set()
    open_page(page, f"{live_app.url}/trajectory?traj={trajectory}&chunk=0")
    assert found() >= {"rationale", "comment", "correction", "value"}


def test_requirement_06_a_queue_is_shared_and_resumed(
    live_app: LiveApp, slow_url: str, page: Page, browser: Browser
) -> None:
    store = live_app.store
    _, chunks = solution(store, "req-06", ["North.", "East.", "South.", "West."])
    judged(store, chunks, "+-+-", "++--", name="compass", rationale="It holds.", sure=(0.95, 0.7, 0.9, 0.99))
    queue = make(live_app, "Requirement 6", chunks, order="disagreement", reviews_per_item=2)
    shown = page.locator(".st-key-item-chunk")
    open_work(page, live_app.url, queue)
    expect(shown).to_contain_text("South.")  # the surest disagreement
    press(page, "3")
    expect(shown).to_contain_text("East.")  # the other one
    press(page, "3")

    context = browser.new_context()
    other = context.new_page()
    open_work(other, slow_url, queue)  # a second annotator still gets the item
    expect(other.locator(".st-key-item-chunk")).to_contain_text("South.")
    press(other, "1")
    expect(other.locator(".st-key-item-chunk")).to_contain_text("East.")

    open_work(page, live_app.url, queue)  # resumes at the first that is unfinished
    at_item(page, 3, 4)
    press(page, "3")
    page.keyboard.press("3")
    expect(page.get_by_text("Nothing left for you in this queue")).to_be_visible()
    for _ in range(2):
        press(other, "1")
    other.keyboard.press("1")
    expect(other.get_by_text("Nothing left for you in this queue")).to_be_visible()
    context.close()
    # Never the same item twice to one person, and each item to both.
    assert verdicts(store, chunks, ACTOR) == [[1]] * 4
    assert verdicts(store, chunks, SLOW_ACTOR) == [[-1]] * 4
    assert store.queue(queue).n_settled == 4
