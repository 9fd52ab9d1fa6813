"""Queues: which items and in which order, handing out without collisions, answers, undo, skipping, progress."""

from __future__ import annotations

from datetime import timedelta

import pytest

from db.errors import NotAllowedError, NotFoundError, QueueStateError, ReviewConflictError, StoreValueError
from db.queues_store import NewQueue
from db.rows import ReviewDetails
from db.store import Store
from tests.queue_work import at, make, needs_own_clock, store, work
from tests.store_world import add_problem, add_trajectory

__all__ = ["store"]


def test_a_queue_is_worked_through_in_order_and_resumes_at_the_first_unfinished(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks, guidelines="Read **all** of it.")
    item = store.next_item(queue, "ann")
    assert item is not None and store.next_item(queue, "ann") == item
    assert (item.chunk_id, item.idx, item.position, item.n_items) == (chunks[0], 0, 0, 3)
    assert (item.trajectory_id, item.status, item.n_done, item.queue) == (trajectory, "open", 0, "first look")
    assert item.guideline is not None and item.guideline.text == "Read **all** of it."
    row = store.answer(item.id, "card", "ann", -1, "no", ReviewDetails(flag="flag"), supersedes=item.head)
    assert (row.item_id, row.guideline_id, row.flag) == (item.id, item.guideline.id, "flag")
    assert row.seconds is not None and row.seconds >= 0
    following = store.next_item(queue, "ann")
    assert following is not None and (following.chunk_id, following.n_done) == (chunks[1], 1)
    assert [store.queue(queue).n_settled, store.queue(queue).n_items] == [1, 3]
    assert work(store, queue, "ann") == chunks[1:]
    assert store.queue(queue).n_settled == 3 and store.next_item(queue, "bob") is None


def test_two_people_never_get_one_item_of_a_queue_that_asks_for_one_review(store: Store):
    _, chunks = add_trajectory(store, add_problem(store), steps=4)
    queue = make(store, chunks)
    anns, bobs = store.next_item(queue, "ann"), store.next_item(queue, "bob")
    assert anns and bobs and (anns.chunk_id, bobs.chunk_id) == (chunks[0], chunks[1])
    with pytest.raises(QueueStateError, match=f"item {anns.id} was taken by as many others"):
        store.answer(anns.id, "x", "bob", 1)
    assert work(store, queue, "ann") == [chunks[0], chunks[2], chunks[3]]
    assert work(store, queue, "bob") == [chunks[1]]


def test_a_second_annotator_still_gets_an_item_that_takes_two_and_a_third_does_not(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks, reviews_per_item=2)
    assert work(store, queue, "ann") == chunks and store.queue(queue).n_settled == 0
    assert work(store, queue, "bob", -1) == chunks and store.queue(queue).n_settled == 3
    assert work(store, queue, "eve") == []
    assert store.queue(queue).members == ("ann", "bob")


def test_an_action_sent_again_changes_nothing_and_a_stale_card_is_refused(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks)
    item = store.next_item(queue, "ann")
    assert item
    rows = [store.answer(item.id, "card", "ann", 1 if i else -1) for i in range(20)]
    assert {row.id for row in rows} == {rows[0].id} and store.item(item.id, "ann").n_done == 1
    with pytest.raises(ReviewConflictError, match="changed since this card was drawn"):
        store.answer(item.id, "other card", "ann", 0)
    changed = store.answer(item.id, "third", "ann", 0, supersedes=rows[0].id)
    view = store.item(item.id, "ann")
    assert (view.status, view.n_done, view.mine, view.head) == ("done", 1, changed, changed.id)
    store.close_queue(queue, "ann")
    assert store.answer(item.id, "card", "ann", -1) == rows[0]


def test_undo_the_last_opens_its_item_again(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks)
    work(store, queue, "ann")
    items = [store.undo_last(queue, "ann", f"u{i}") for i in range(3)]
    assert [store.item(item, "ann").chunk_id for item in items] == chunks[::-1]
    assert store.undo_last(queue, "ann", "u0") == items[0]
    with pytest.raises(ReviewConflictError, match=f"ann has no answer in queue {queue} to take back"):
        store.undo_last(queue, "ann", "u3")
    assert store.queue(queue).n_settled == 0
    item = store.next_item(queue, "ann")
    assert item and (item.chunk_id, item.status, item.n_done, item.mine) == (chunks[0], "open", 0, None)
    assert work(store, queue, "ann", card="again") == chunks


def test_names_ids_and_roles_are_checked(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    make(store, chunks)
    with pytest.raises(StoreValueError, match="there is a queue named 'first look' already"):
        make(store, chunks)
    with pytest.raises(NotFoundError, match="there are no chunks 998, 999; no queue was made"):
        make(store, [chunks[0], 998, 999], name="other")
    with pytest.raises(NotFoundError, match="there is no queue 'gone'"):
        store.queue("gone")
    with pytest.raises(NotFoundError, match="there is no item 99"):
        store.item(99, "ann")
    with pytest.raises(NotAllowedError, match="is a reader; reviewing takes an annotator"):
        store.next_item(1, "x @ https://issuer")
    with pytest.raises(NotAllowedError, match="making a queue takes an owner"):
        store.make_queue(NewQueue("more", chunk_ids=chunks), "x @ https://issuer")


# ---- skipping, coming back, going away


def test_what_was_skipped_goes_to_others_and_is_asked_again_only_on_request(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks)
    item = store.next_item(queue, "ann")
    assert item
    store.skip(item.id, "ann")
    store.skip(item.id, "ann")
    assert work(store, queue, "ann") == chunks[1:] and store.item(item.id, "ann").status == "skipped"
    assert store.retry_skipped(queue, "ann") == 1
    assert store.audit(limit=1)[0].detail == {"items": 1}
    again = store.next_item(queue, "ann")
    assert again and again.id == item.id
    store.skip(item.id, "ann")
    assert work(store, queue, "bob") == [chunks[0]] and store.retry_skipped(queue, "ann") == 0
    done = store.neighbour_items(queue, item.id, "ann")[1]
    assert done is not None
    with pytest.raises(QueueStateError, match="is answered: undo the answer"):
        store.skip(done, "ann")


def test_neighbours_are_the_items_that_one_has_had(store: Store):
    _, chunks = add_trajectory(store, add_problem(store), steps=4)
    queue = make(store, chunks)
    first, bobs = store.next_item(queue, "ann"), store.next_item(queue, "bob")
    assert first and bobs
    store.skip(first.id, "ann")
    third = store.next_item(queue, "ann")
    assert third and third.chunk_id == chunks[2]
    assert store.neighbour_items(queue, first.id, "ann") == (None, third.id)
    assert store.neighbour_items(queue, third.id, "ann") == (first.id, None)
    assert store.neighbour_items(queue, bobs.id, "bob") == (None, None)


def test_a_closed_queue_asks_nobody_and_is_opened_again(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks)
    item = store.next_item(queue, "ann")
    assert item
    store.close_queue(queue, "ann")
    store.close_queue(queue, "ann")
    for step in (
        lambda: store.next_item(queue, "ann"),
        lambda: store.answer(item.id, "a", "ann", 1),
        lambda: store.skip(item.id, "ann"),
    ):
        with pytest.raises(QueueStateError, match=f"queue {queue} was closed"):
            step()
    assert not store.item(item.id, "ann").is_open
    store.reopen_queue(queue, "ann")
    assert work(store, queue, "ann") == chunks
    assert [row.action for row in store.audit(actor="ann") if "queue" in row.action] == [
        "reopen queue",
        "close queue",
        "create queue",
    ]


def test_a_link_to_an_item_claims_it_while_there_is_room(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks)
    first = store.next_item(queue, "ann")
    assert first and store.item(first.id, "bob").status is None
    last = store.item(first.id + 2, "bob")
    assert (last.status, last.chunk_id) == ("open", chunks[2])
    assert store.item(first.id + 1, "x @ https://issuer").status is None
    assert work(store, queue, "ann") == chunks[:2]


def test_an_item_left_open_goes_to_others_and_its_holder_may_still_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    needs_own_clock(store)
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks[:1])
    item = store.next_item(queue, "ann")
    assert item and store.next_item(queue, "bob") is None
    with at(monkeypatch, timedelta(minutes=31)):
        assert work(store, queue, "bob") == chunks[:1]
        row = store.answer(item.id, "late", "ann", -1, supersedes=item.head)
    assert row.seconds is not None and row.seconds > 1800
    assert (store.queue(queue).n_settled, len(store.history(chunks[0]))) == (1, 2)


def test_a_clock_that_goes_backwards_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch):
    needs_own_clock(store)
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks)
    with at(monkeypatch, timedelta(days=3650)):
        item = store.next_item(queue, "ann")
    assert item and store.next_item(queue, "ann") is not None
    row = store.answer(item.id, "a", "ann", 1, supersedes=item.head)
    assert (
        row.seconds is not None and 0 <= row.seconds < 1800
    )  # counted anew: when it was opened cannot be true
    with at(monkeypatch, timedelta(days=3650)):
        other = store.next_item(queue, "ann")
    assert other and other.chunk_id == chunks[1]
    row = store.answer(other.id, "b", "ann", 1, supersedes=other.head)
    assert row.seconds is None
    with at(monkeypatch, timedelta(days=3650)):
        bobs = store.next_item(queue, "bob")
    assert bobs and work(store, queue, "ann") == [chunks[2]]  # what is held from the future is not held
    assert store.undo_last(queue, "ann", "u") == bobs.id
    (anns, _) = store.queue_progress(queue)
    assert (anns.done, anns.open) == (2, 1)


# ---- progress and guidelines


def test_progress_counts_per_person_what_was_done_skipped_and_right(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    needs_own_clock(store)
    _, chunks = add_trajectory(store, add_problem(store), steps=6)
    queue = make(store, chunks[:4], reviews_per_item=2, known={chunks[4]: -1, chunks[5]: 1}, known_rate=0.4)
    for minute in range(6):
        with at(monkeypatch, timedelta(minutes=minute)):
            item = store.next_item(queue, "ann")
        with at(monkeypatch, timedelta(minutes=minute, seconds=20)):
            assert item
            store.answer(item.id, f"a{minute}", "ann", 1, supersedes=item.head)
    item = store.next_item(queue, "bob")
    assert item
    store.skip(item.id, "bob")
    ann, bob = store.queue_progress(queue)
    assert (ann.actor, ann.done, ann.skipped, ann.known, ann.right) == ("ann", 6, 0, 2, 1)
    assert ann.seconds == pytest.approx(20, abs=2) and ann.per_hour == pytest.approx(60, abs=2)
    assert (bob.actor, bob.done, bob.skipped, bob.seconds, bob.per_hour) == ("bob", 0, 1, None, None)
    assert store.queue(queue).n_settled == 0
    with pytest.raises(NotFoundError, match="there is no queue 99"):
        store.queue_progress(99)


def test_guidelines_are_kept_in_versions_and_a_review_says_which_stood_beside_it(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks)
    assert store.guidelines(queue) == []
    assert [store.set_guidelines(queue, text, "ann") for text in ("one", "one", "two")] == [1, 1, 2]
    newest, oldest = store.guidelines(queue)
    assert (newest.text, newest.version, oldest.text) == ("two", 2, "one")
    item = store.next_item(queue, "ann")
    assert item and item.guideline == newest
    with pytest.raises(NotAllowedError, match="writing guidelines takes an owner"):
        store.set_guidelines(queue, "three", "x @ https://issuer")
    shown = ReviewDetails(guideline_id=oldest.id)
    row = store.answer(item.id, "a", "ann", 1, details=shown, supersedes=item.head)
    assert row.guideline_id == oldest.id


def test_chunks_are_put_into_a_queue_by_name_once(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue, added = store.queue_for_chunks("these", chunks[1:], "ann")
    assert added == 2 and store.queue_for_chunks(" these ", chunks, "ann") == (queue, 1)
    assert work(store, queue, "ann") == [chunks[1], chunks[2], chunks[0]]
    with pytest.raises(NotFoundError, match="there are no chunks 999; nothing was added"):
        store.queue_for_chunks("these", [999], "ann")
    store.close_queue(queue, "ann")
    with pytest.raises(QueueStateError, match="is closed: nothing was added"):
        store.queue_for_chunks("these", chunks, "ann")
