"""Queues: which items and in which order, handing out without collisions, answers, undo, skipping, progress."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.check import check
from db.errors import NotAllowedError, NotFoundError, QueueStateError, ReviewConflictError, StoreValueError
from db.queues_store import NewQueue
from db.rows import ReviewDetails
from db.store import Store
from tests.store_world import BACKENDS, add_problem, add_trajectory, fresh_store


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store
        assert check(store) == []


def make(store: Store, chunks: list[int], **more: object) -> int:
    values: dict[str, object] = {"name": "first look", "order": "reading", "chunk_ids": chunks}
    return store.make_queue(NewQueue(**(values | more)), "ann")  # type: ignore[arg-type]


def work(
    store: Store, queue: int, actor: str, verdict: int | None = 1, card: str = "card"
) -> list[int | None]:
    """Answer everything that the actor is asked; the chunks in the order in which they came."""
    done = []
    while (item := store.next_item(queue, actor)) is not None:
        done.append(item.chunk_id)
        store.answer(item.id, f"{card}-{actor}-{item.id}", actor, verdict, supersedes=item.head)
    return done


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
