"""Queues: which items and in which order, handing out without collisions, answers, undo, skipping, progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from db import session
from db.check import check
from db.chunk_filter import ChunkFilter
from db.column_types import utc_now
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


@contextmanager
def at(monkeypatch: pytest.MonkeyPatch, later: timedelta) -> Iterator[None]:
    """The store's clock, so much later than it is (SQLite's is this machine's; a server's cannot be moved)."""
    with monkeypatch.context() as patch:
        patch.setattr(session, "utc_now", lambda: utc_now() + later)
        yield


def needs_own_clock(store: Store) -> None:
    if not store.is_sqlite:
        pytest.skip("the clock is the server's")


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


# ---- first error


def first_error_queue(store: Store, **more: object) -> tuple[int, list[int]]:
    _, chunks = add_trajectory(store, add_problem(store), steps=4)
    return make(store, [chunks[0]], mode="first-error", **more), chunks


def said_of(store: Store, chunks: list[int], actor: str = "ann") -> list[int | str | None]:
    """What the actor says of each chunk; nothing where they say nothing."""
    (trajectory, _) = store.chunk_place(chunks[0])
    now = store.reviews_in_force([trajectory])
    return [next((r.verdict for r in now.get(c, []) if r.actor == actor), "nothing") for c in chunks]


def test_a_first_error_makes_everything_before_it_sound_and_nothing_after(store: Store):
    queue, chunks = first_error_queue(store)
    item = store.next_item(queue, "ann")
    assert item and (item.mode, item.chunk_id, item.first_error, item.n_chunks) == (
        "first-error",
        None,
        None,
        4,
    )
    details = ReviewDetails(span_start=0, span_end=4, correction="right")
    rows = store.answer_first_error(item.id, "a", "ann", 2, "here", details)
    assert [(row.verdict, row.comment, row.correction) for row in rows] == [
        (1, "", None),
        (1, "", None),
        (-1, "here", "right"),
    ]
    assert said_of(store, chunks) == [1, 1, -1, "nothing"]
    assert store.answer_first_error(item.id, "a", "ann", 0) == rows
    view = store.item(item.id, "ann")
    assert (view.status, view.first_error, view.n_done, view.head) == ("done", 2, 1, rows[0].id)
    assert store.next_item(queue, "ann") is None and store.queue(queue).n_settled == 1


@pytest.mark.parametrize(("second", "said"), [(1, [1, -1]), (3, [1, 1, 1, -1]), (-1, [1, 1, 1, 1])])
def test_a_first_error_is_changed_whole_and_taken_back_whole(store: Store, second: int, said: list[int]):
    queue, chunks = first_error_queue(store)
    store.add_review(chunks[1], "before", "ann", 0, "of old")
    item = store.next_item(queue, "ann")
    assert item
    rows = store.answer_first_error(item.id, "a", "ann", 2, supersedes=item.head)
    with pytest.raises(ReviewConflictError, match="answer was changed since this card was drawn"):
        store.answer_first_error(item.id, "b", "ann", 0)
    store.answer_first_error(item.id, "c", "ann", second, supersedes=rows[0].id)
    after = [0, "nothing", "nothing"] if second == 0 else ["nothing"] * (4 - len(said))
    assert said_of(store, chunks) == said + after
    view = store.item(item.id, "ann")
    assert (view.first_error, view.status, store.queue(queue).n_settled) == (second, "done", 1)
    assert store.undo_last(queue, "ann", "u") == item.id == store.undo_last(queue, "ann", "u")
    assert said_of(store, chunks) == ["nothing", 0, "nothing", "nothing"]
    view = store.item(item.id, "ann")
    assert (view.first_error, view.status, store.queue(queue).n_settled) == (None, "open", 0)


def test_what_is_no_chunk_or_no_solution_is_refused(store: Store):
    queue, chunks = first_error_queue(store)
    item = store.next_item(queue, "ann")
    assert item
    for wrong in (4, -2, True):
        with pytest.raises(StoreValueError, match="has 4 chunks: its first error cannot be at"):
            store.answer_first_error(item.id, "a", "ann", wrong)
    with pytest.raises(StoreValueError, match="is a whole solution: it is answered by its first error"):
        store.answer(item.id, "a", "ann", 1)
    other = store.next_item(make(store, chunks, name="chunks"), "ann")
    assert other
    with pytest.raises(StoreValueError, match="is a chunk: it is answered by a verdict"):
        store.answer_first_error(other.id, "a", "ann", 1)
    assert said_of(store, chunks) == ["nothing"] * 4


# ---- quality control


def test_known_items_are_mixed_in_at_their_rate_and_every_member_gets_them(store: Store):
    _, chunks = add_trajectory(store, add_problem(store), steps=20)
    _, known = add_trajectory(store, add_problem(store, "k"), steps=10)
    queue = make(store, [*chunks, *known[:3]], known=dict.fromkeys(known, 1), known_rate=0.2)
    row = store.queue(queue)
    assert (row.n_items, row.recipe["known"]) == (25, 5)
    anns = [store.next_item(queue, "ann")]
    assert anns[0] is not None and not hasattr(anns[0], "known")
    done = work(store, queue, "ann")
    mine = [chunk for chunk in done if chunk in known]
    assert len(mine) == 5 and [chunk for chunk in done if chunk in chunks] == chunks
    places = [done.index(chunk) for chunk in mine]
    assert (
        max(b - a for a, b in zip([-1, *places], [*places, 25], strict=True)) <= 10
    )  # spread, not in a heap
    assert work(store, queue, "bob") == []  # they alone are no work
    assert store.queue(queue).n_settled == 20


def test_two_members_share_the_items_and_both_get_the_known_ones(store: Store):
    _, chunks = add_trajectory(store, add_problem(store), steps=8)
    _, known = add_trajectory(store, add_problem(store, "k"), steps=2)
    queue = make(store, chunks, known=dict.fromkeys(known, -1), known_rate=0.2)
    got: dict[str, list[int | None]] = {"ann": [], "bob": []}
    turns = 0
    while turns < 40:
        for actor, mine in got.items():
            turns += 1
            item = store.next_item(queue, actor)
            if item is not None:
                mine.append(item.chunk_id)
                store.answer(item.id, f"{actor}{item.id}", actor, -1, supersedes=item.head)
    assert sorted(c for mine in got.values() for c in mine if c in chunks) == chunks  # type: ignore[type-var]
    assert all(set(known) <= set(mine) for mine in got.values())
    assert {row.right for row in store.queue_progress(queue)} == {2}


def test_known_first_errors_are_checked_and_counted(store: Store):
    _, chunks = add_trajectory(store, add_problem(store), steps=3)
    other, _ = add_trajectory(store, add_problem(store, "k"), steps=3)
    with pytest.raises(
        StoreValueError, match=f"trajectory {other} has 3 chunks: its first error cannot be at 3"
    ):
        make(store, chunks, mode="first-error", known={other: 3})
    with pytest.raises(NotFoundError, match="there are no trajectories 99"):
        make(store, chunks, mode="first-error", known={99: 0})
    queue = make(store, chunks, mode="first-error", known={other: 1}, known_rate=0.5)
    while (item := store.next_item(queue, "ann")) is not None:
        store.answer_first_error(item.id, f"a{item.id}", "ann", 1, supersedes=item.head)
    (ann,) = store.queue_progress(queue)
    assert (ann.done, ann.known, ann.right) == (2, 1, 1)


# ---- what a queue can be


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "  "}, "a queue needs a name of 1 to 200 characters"),
        ({"order": "best"}, "a queue's order is one of disagreement, "),
        ({"mode": "all"}, "a queue's mode is one of chunk, first-error"),
        ({"rule": "abs"}, "a queue's rule is one of abs-q, "),
        ({"limit": 0}, "a queue holds 1 to 100,000 items, not 0"),
        ({"reviews_per_item": 0}, "an item takes 1 to 100 reviews, not 0"),
        ({"known_rate": 0.9}, "known items can be up to 50% of a queue, not 0.9"),
        ({"known": {1: 2}}, "a known verdict is 1, 0 or -1"),
        ({"where": ChunkFilter(), "chunk_ids": [1]}, "from a filter or from given chunks, not from both"),
    ],
)
def test_what_cannot_be_a_queue_is_said(values: dict[str, object], message: str):
    with pytest.raises(StoreValueError, match=message):
        NewQueue(**({"name": "q"} | values))  # type: ignore[arg-type]


def test_a_filter_that_fits_nothing_makes_no_queue(store: Store):
    add_trajectory(store, add_problem(store))
    with pytest.raises(StoreValueError, match="no chunk fits: no queue was made"):
        store.make_queue(NewQueue("q", where=ChunkFilter(dataset="other")), "ann")
    assert store.queues() == []
