"""The Queue page's script: making a queue, working in it, guidelines, and addresses that name nothing."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from app.views.queue_new import known_items
from db.errors import NotFoundError, StoreLockedError, StoreValueError
from db.queues_store import NewQueue
from db.store import Store
from tests.page_support import FilledWorld, Open, filled, keyed, pages, words

__all__ = ["filled", "pages"]


@pytest.fixture
def open_at(filled: FilledWorld, pages: Open) -> Open:
    """Opens the page at an address, as ``actor``."""

    def run(actor: str = "rosa", **address: object) -> AppTest:
        return pages("queue", filled[1], address, actor)

    return run


def press(app: AppTest, start: str) -> AppTest:
    return keyed(app, start).click().run()


def chunks(store: Store, trajectory: int) -> list[int]:
    return [chunk.id for chunk in store.chunk_page(trajectory, 0, 50)]


def make(store: Store, name: str, trajectory: int, **more: object) -> int:
    values: dict[str, object] = {"order": "reading", "chunk_ids": chunks(store, trajectory)}
    return store.make_queue(NewQueue(name, **(values | more)), "rosa")  # type: ignore[arg-type]


def test_a_queue_is_made_from_the_filter_in_the_address_and_shown(open_at: Open, filled: FilledWorld) -> None:
    store = filled[0]
    app = open_at(new=1, dataset="handwritten", chunks_max=5)
    said = words(app)
    assert "Chosen from **" in said and "dataset **handwritten**" in said and "chunks&#95;max **5**" in said
    app.text_input(key="new-name").set_value("By hand")
    app.selectbox(key="new-order").set_value("reading")
    app.text_area(key="new-known").set_value("seventeen\n")
    press(app, "FormSubmitter:new-queue")
    assert "No queue was made&#58; known items&#44; line 1&#58; &#39;seventeen&#39;" in words(app)
    app.text_area(key="new-known").set_value("")
    press(app, "FormSubmitter:new-queue")
    queue = store.queue("By hand")
    assert app.query_params["queue"] in (str(queue.id), [str(queue.id)])
    assert queue.recipe["filter"] == {"dataset": "handwritten", "chunks_max": 5}
    said = words(app)
    assert "By hand" in said and "Does this chunk contain an error of its own" in said
    assert "Nobody has begun" in said
    assert "By hand" in str([row.proto for row in open_at().get("bidi_component")])


def test_an_answer_is_stored_with_all_it_says_and_the_next_item_stands_there(
    open_at: Open, filled: FilledWorld
) -> None:
    store, _, ids = filled
    trajectory = ids.sampled[5]
    queue = make(store, "One by one", trajectory, guidelines="Look **twice**.")
    app = open_at(queue=queue, work=1)
    said = words(app)
    assert "item 1 of 4" in said and "Look **twice**" in said and "Mia starts with 7 apples" in said
    assert "7 &#43; 5" not in said
    app.text_area[0].set_value("fine, for $5").run()
    press(app, "bad-problem-")
    press(app, "verdict-sound-")
    row = store.history(chunks(store, trajectory)[0])[0].review
    assert (row.verdict, row.comment, row.flag, row.actor) == (1, "fine, for $5", "bad-problem", "rosa")
    assert row.item_id is not None and row.guideline_id is not None
    said = words(app)
    assert "item 2 of 4" in said
    press(app, "skip-")
    assert "item 3 of 4" in words(app)
    press(app, "undo-")
    assert "item 1 of 4" in words(app)
    assert app.text_area[0].value == "fine, for $5"  # taken back, not lost
    assert [step.review.kind for step in store.history(chunks(store, trajectory)[0])] == ["review", "undo"]


def test_a_press_for_another_card_is_refused(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    queue = make(store, "Stale", ids.sampled[6])
    app = open_at(queue=queue, work=1)
    app.session_state["review_card"] = (("item", 0, 0), "another card")
    press(app, "verdict-error-")
    assert "another card" in words(app)
    assert not store.history(chunks(store, ids.sampled[6])[0])


def test_a_solution_is_read_to_its_first_error(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    trajectory = ids.sampled[7]
    queue = make(store, "First error", trajectory, mode="first-error")
    app = open_at(queue=queue, work=1)
    assert "12 &#45; 4" not in words(app)
    press(app, "item-chunk-next")
    press(app, "item-chunk-next")
    assert "12 &#45; 4" in words(app)
    app.text_area[0].set_value("takes away").run()
    press(app, "flag-")
    press(app, "first-error-")
    said = [[s.review.verdict for s in store.history(chunk)] for chunk in chunks(store, trajectory)]
    assert said == [[1], [1], [-1], []]
    assert "Nothing left for you in this queue" in words(app)
    press(app, "queue-undo")
    assert "item 1 of 1" in words(app)
    # at the chunk that was answered, with what was said of it as a draft again
    assert "12 &#45; 4" in words(app) and app.text_area[0].value == "takes away"
    assert store.draft("rosa", chunks(store, trajectory)[2])[1]["flag"] == "flag"


def test_what_was_typed_on_the_way_to_the_first_error_is_stored_too(
    open_at: Open, filled: FilledWorld
) -> None:
    store, _, ids = filled
    trajectory = ids.sampled[11]
    ours = chunks(store, trajectory)
    queue = make(store, "Notes on the way", trajectory, mode="first-error")
    app = open_at(queue=queue, work=1)
    app.text_area[0].set_value("unusual, but sound").run()
    press(app, "flag-")
    press(app, "item-chunk-next")
    app.text_area[0].set_value("here").run()
    press(app, "first-error-")
    said = [store.history(chunk)[-1].review for chunk in ours[:2]]
    assert [(row.verdict, row.comment, row.flag) for row in said] == [
        (1, "unusual, but sound", "flag"),
        (-1, "here", None),
    ]
    press(app, "queue-undo")
    assert app.text_area[0].value == "here"
    assert store.draft("rosa", ours[0])[0] == "unusual, but sound"
    press(app, "no-error-")  # at a chunk that is not the last: what stands there stays there
    said = [store.history(chunk)[-1].review for chunk in ours]
    assert [row.comment for row in said] == ["unusual, but sound", "here", *[""] * (len(ours) - 2)]
    assert {row.verdict for row in said} == {1}
    app = open_at(queue=queue, work=1, item=said[0].item_id)
    press(app, "change-")
    assert app.text_area[0].value == "unusual, but sound"  # as it was said, to be changed
    press(app, "first-error-")
    row = store.history(ours[0])[-1].review
    assert (row.verdict, row.comment) == (-1, "unusual, but sound")


def test_an_address_with_another_queues_item_takes_nothing(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    here = make(store, "Here", ids.sampled[12])
    there = make(store, "There", ids.sampled[12], blind=True)
    store.next_item(there, "zed")
    (zed,) = store.queue_progress(there)
    item = next(i for i in range(1, 2000) if _queue_of(store, i) == there)
    assert f"no item {item + 1}" in words(open_at(queue=here, item=item + 1))
    assert store.queue_progress(there) == [zed]


def _queue_of(store: Store, item: int) -> int | None:
    try:
        return store.item(item, "nobody @ nowhere").queue_id
    except NotFoundError:
        return None


def test_a_store_that_fails_under_the_screen_is_named(
    open_at: Open, filled: FilledWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make(filled[0], "Locked out", filled[2].sampled[12])

    def locked(*_: object) -> None:
        raise StoreLockedError("the store stayed locked")

    monkeypatch.setattr(Store, "next_item", locked)
    assert "The store cannot be used&#58; the store stayed locked" in words(open_at(queue=queue, work=1))


def test_a_blind_queue_says_neither_its_name_nor_what_judges_say(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    queue = make(store, "Judges erred here", ids.sampled[1], blind=True)
    open_ = make(store, "Not blind", ids.sampled[0])
    said = words(open_at(queue=queue, work=1))
    assert f"Queue {queue}" in said and "Judges erred" not in said and "nano&#45;judge" not in said
    assert "nano&#45;judge" in words(open_at(queue=open_, work=1))


def test_guidelines_get_versions(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    queue = make(store, "Told", ids.sampled[8], guidelines="Old.")
    app = open_at(queue=queue)
    press(app, "guidelines-edit")
    app.text_area[0].set_value("New, with <b>tags</b>.")
    press(app, "guidelines-store")
    assert [row.text for row in store.guidelines(queue)] == ["New, with <b>tags</b>.", "Old."]
    assert "New&#44; with &#60;b&#62;tags" in words(app)
    press(app, "queue-close")
    assert not store.queue(queue).is_open
    assert "closed" in words(open_at(queue=queue, work=1))


def test_guidelines_being_written_survive_a_version_of_somebody_else(
    open_at: Open, filled: FilledWorld
) -> None:
    store, _, ids = filled
    queue = make(store, "Two pens", ids.sampled[8], guidelines="Old.")
    app = open_at(queue=queue)
    press(app, "guidelines-edit")
    store.set_guidelines(queue, "By ann.", "ann")
    app.text_area[0].set_value("By rosa.").run()
    press(app, "guidelines-store")
    said = words(app)
    assert "version 2 by ann" in said and "By ann" in said and app.text_area[0].value == "By rosa."
    assert store.guidelines(queue)[0].text == "By ann."
    press(app, "guidelines-store")
    assert [row.text for row in store.guidelines(queue)] == ["By rosa.", "By ann.", "Old."]
    assert not app.text_area


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ({"queue": 4242}, "no queue 4242"),
        ({"queue": "x;y"}, "no queue x&#59;y"),
        ({"queue": 1, "item": 987654}, "no item 987654"),
        ({"queue": 1, "item": "9" * 30}, "no item 9999"),
        ({"new": 1, "label": "x"}, "label=x: it can be +, -, none"),
        ({"new": 1, "drop_min": "much"}, "drop&#95;min=much: a number"),
        ({"quue": 1}, "quue=…, which this page does not know"),
    ],
)
def test_addresses_that_name_nothing(
    open_at: Open, filled: FilledWorld, address: dict[str, object], message: str
) -> None:
    if not filled[0].queues():
        make(filled[0], "Any", filled[2].sampled[9])
    assert message in words(open_at(**address))


def test_a_reader_looks_on(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    queue = make(store, "To look at", ids.sampled[10])
    store.set_role("lena", "reader", "rosa")
    assert "Reviewing takes an annotator, and you are a reader" in words(open_at("lena", queue=queue))
    assert "reviewing takes an annotator" in words(open_at("lena", queue=queue, work=1))
    assert "takes an owner" in words(open_at("lena", new=1))


def test_known_items_are_read_line_by_line() -> None:
    assert known_items("17 -1\n\n23, 1\n4 −1") == {17: -1, 23: 1, 4: -1}
    with pytest.raises(StoreValueError, match="line 2: 'x 1'"):
        known_items("1 1\nx 1")
