"""Queues read to the first error, known items and who meets them, and what cannot be a queue. Not: handing items out
and progress (test_queues_store).
"""

from __future__ import annotations

import pytest

from db.chunk_filter import ChunkFilter
from db.errors import NotFoundError, QueueStateError, ReviewConflictError, StoreValueError
from db.queues_store import NewQueue
from db.rows import ReviewDetails
from db.store import Store
from tests.queue_work import make, store, work
from tests.store_world import add_problem, add_trajectory

__all__ = ["store"]


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


def test_an_answer_of_which_a_part_was_taken_back_is_not_no_error(store: Store):
    queue, chunks = first_error_queue(store)
    item = store.next_item(queue, "ann")
    assert item
    store.answer_first_error(item.id, "a", "ann", 2)
    store.undo("u", "ann", chunks[2])  # on the solution's page
    assert store.item(item.id, "ann").first_error is None
    store.add_review(chunks[2], "b", "ann", -1, supersedes=store.history(chunks[2])[-1].review.id)
    assert store.item(item.id, "ann").first_error is None


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
    store.undo("u", "ann", store.chunk_page(other, 1, 1)[0].id)  # where they said that the error is
    (ann,) = store.queue_progress(queue)
    assert (ann.done, ann.known, ann.right) == (2, 1, 0)


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


def test_an_undone_change_of_a_known_item_is_held_against_what_is_in_force_again(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks[:1], known={chunks[1]: -1}, known_rate=0.5)
    work(store, queue, "ann", 1)
    assert [(row.known, row.right) for row in store.queue_progress(queue)] == [(1, 0)]
    head = store.chain_head(chunks[1], "ann")
    assert head and head.item_id
    store.answer(head.item_id, "change", "ann", -1, supersedes=head.id)
    assert [(row.known, row.right) for row in store.queue_progress(queue)] == [(1, 1)]
    store.undo_last(queue, "ann", "undo")
    assert [(row.known, row.right) for row in store.queue_progress(queue)] == [(1, 0)]


def test_what_one_skipped_and_others_settled_takes_no_answer_that_has_seen_theirs(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks[:1], blind=True)
    item = store.next_item(queue, "ann")
    assert item
    store.skip(item.id, "ann")
    work(store, queue, "bob")
    assert len(store.seen_by("ann").reviews_of(trajectory)) == 1
    with pytest.raises(QueueStateError, match="which ann skipped, was answered by as many others"):
        store.answer(item.id, "late", "ann", -1)
    assert len(store.reviews_of(trajectory)) == 1


def test_a_known_solution_without_chunks_makes_no_queue(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    empty, _ = add_trajectory(store, add_problem(store, key="empty"), steps=0)
    with pytest.raises(StoreValueError, match="has no chunks: nobody can be asked about it"):
        make(store, chunks, mode="first-error", known={empty: -1})


def test_which_items_are_known_is_not_to_be_learned_from_how_many_were_right(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = make(store, chunks[:1], known={chunks[1]: -1}, known_rate=0.5)
    store.set_role("ann", "annotator", "owner")
    work(store, queue, "ann", 1)

    def told(viewer: str) -> list[tuple[int, int]]:
        return [(row.known, row.right) for row in store.seen_by(viewer).queue_progress(queue)]

    assert (told("ann"), told("owner")) == ([(0, 0)], [(1, 0)])
    store.close_queue(queue, "owner")
    assert told("ann") == [(1, 0)]
