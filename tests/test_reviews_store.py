"""Reviews: one row a card, stale cards, undo as a stack, history, imported reviews, drafts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from db.check import check
from db.errors import NotFoundError, ReviewConflictError, SpokenMeanwhileError, StoreValueError
from db.review_chain import write_review
from db.rows import ReviewDetails
from db.store import Store
from db.tables import Review
from tests.store_world import BACKENDS, add_problem, add_trajectory, fresh_store


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store
        assert check(store) == []


def n_rows(store: Store) -> int:
    with store.read() as db:
        return db.execute(select(func.count()).select_from(Review)).scalar_one()


def reviewed(store: Store, trajectory: int) -> int:
    view = store.trajectory_view(trajectory)
    assert view is not None
    return view.n_reviewed


def test_twenty_presses_on_one_card_store_one_review(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    rows = [store.add_review(chunks[0], "card-1", "ann", 1 if i else -1) for i in range(20)]
    assert {row.id for row in rows} == {rows[0].id} and rows[-1].verdict == -1
    assert n_rows(store) == 1


def test_twenty_presses_at_once_store_one_review(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda _: store.add_review(chunks[0], "card-1", "ann", 1), range(20)))
    assert len({row.id for row in rows}) == 1 and n_rows(store) == 1


def test_two_stale_cards_at_once_store_one_review(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))

    def press(card: str) -> bool:
        try:
            store.add_review(chunks[0], card, "ann", 1)
        except ReviewConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(press, [f"card-{i}" for i in range(16)])) == 1
    assert n_rows(store) == 1


def test_a_decision_is_refused_if_somebody_speaks_while_it_waits_to_be_written(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    store.add_review(chunks[0], "a", "ann", 1)
    seen = store.add_review(chunks[0], "b", "bob", -1).id

    def decide(card: str, seen: int) -> None:
        store.add_review(chunks[0], card, "ada", -1, kind="adjudication", seen=seen)

    with ThreadPoolExecutor(1) as pool:
        with store.write() as db:  # cid is being written: the decision cannot know yet, and has to wait
            late = write_review(db, chunks[0], "c", "cid", 1, "look", supersedes=None)
            waiting = pool.submit(decide, "d", seen)
        with pytest.raises(SpokenMeanwhileError, match="somebody spoke about this chunk since you opened it"):
            waiting.result()
    assert n_rows(store) == 3
    decide("e", late.id)
    assert [row.kind for row in store.reviews_in_force([1])[chunks[0]]] == [*["review"] * 3, "adjudication"]


def test_a_stale_card_is_refused_and_a_fresh_one_is_not(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    first = store.add_review(chunks[0], "a", "ann", 1)
    with pytest.raises(ReviewConflictError, match="changed since this card was drawn; nothing was stored"):
        store.add_review(chunks[0], "b", "ann", -1)
    second = store.add_review(chunks[0], "c", "ann", -1, "look", supersedes=first.id)
    with pytest.raises(ReviewConflictError):
        store.add_review(chunks[0], "d", "ann", 0, supersedes=first.id)
    head = store.chain_head(chunks[0], "ann")
    assert head == second
    other = store.add_review(chunks[0], "e", "bob", 0)  # another person's chain
    assert [row.id for row in store.reviews_in_force([1])[chunks[0]]] == [second.id, other.id]


def test_an_action_id_belongs_to_one_person_and_chunk(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    store.add_review(chunks[0], "a", "ann", 1)
    for chunk, actor in ((chunks[1], "ann"), (chunks[0], "bob")):
        with pytest.raises(ReviewConflictError, match="'a' was used for another chunk or by another person"):
            store.add_review(chunk, "a", actor, 1)


def test_undo_is_a_stack_and_appends_rows(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    first = store.add_review(chunks[0], "a", "ann", -1, "wrong")
    store.add_review(chunks[0], "b", "ann", None, "cannot tell", supersedes=first.id)
    undone = store.undo("u1", "ann", chunks[0])
    assert (undone.kind, undone.restores, undone.verdict, undone.comment) == ("undo", first.id, -1, "wrong")
    assert undone.says_something and store.undo("u1", "ann", chunks[0]) == undone
    assert store.reviews_in_force([trajectory]) == {chunks[0]: [first]}
    gone = store.undo("u2", "ann", chunks[0])
    assert (gone.restores, gone.verdict) == (None, None) and not gone.says_something
    assert store.reviews_in_force([trajectory]) == {}
    with pytest.raises(ReviewConflictError, match="ann has no review there to take back"):
        store.undo("u3", "ann", chunks[0])
    store.add_review(chunks[0], "c", "ann", 1, supersedes=gone.id)
    assert store.undo("u4", "ann", chunks[0]).restores is None
    assert n_rows(store) == 6


def test_undo_never_touches_another_persons_review(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    bobs = store.add_review(chunks[0], "a", "bob", 1)
    with pytest.raises(ReviewConflictError):
        store.undo("u", "ann", chunks[0])
    assert store.reviews_in_force([trajectory]) == {chunks[0]: [bobs]}


def test_an_undone_adjudication_gives_the_review_back(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    first = store.add_review(chunks[0], "a", "ann", 1)
    decided = store.add_review(chunks[0], "b", "ann", -1, supersedes=first.id, kind="adjudication")
    assert store.reviews_in_force([trajectory])[chunks[0]] == [decided]
    store.undo("u", "ann", chunks[0])
    assert [row.kind for row in store.reviews_in_force([trajectory])[chunks[0]]] == ["review"]


def test_undo_the_last_walks_back_over_chunks(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    rows = [store.add_review(chunk, f"a{chunk}", "ann", 1) for chunk in chunks]
    store.add_review(chunks[0], "x", "bob", 1)
    taken = []
    while (last := store.last_review("ann")) is not None:
        taken.append(last.id)
        store.undo(f"u{last.id}", "ann", last.chunk_id)
    assert taken == [row.id for row in reversed(rows)]
    assert store.chunk_place(chunks[2]) == (trajectory, 2)
    assert store.last_review("nobody") is None


def test_history_says_who_from_what_to_what_and_what_is_in_force(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    first = store.add_review(chunks[1], "a", "ann", -1, "sum is wrong")
    store.add_review(chunks[1], "b", "bob", 0)
    store.add_review(chunks[1], "c", "ann", 1, "it is right", supersedes=first.id)
    store.undo("d", "ann", chunks[1])
    steps = [
        (
            s.review.actor,
            s.before.verdict if s.before else "nothing",
            s.review.verdict,
            s.review.comment,
            s.in_force,
        )
        for s in store.history(chunks[1])
    ]
    assert steps == [
        ("ann", "nothing", -1, "sum is wrong", True),
        ("bob", "nothing", 0, "", True),
        ("ann", -1, 1, "it is right", False),
        ("ann", 1, -1, "sum is wrong", False),
    ]
    assert [s.idx for s in store.reviews_of(trajectory)] == [1] * 4
    assert store.history(chunks[0]) == []


def test_reviewed_chunks_are_counted_as_reviews_come_and_go(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    store.add_review(chunks[0], "a", "ann", 1)
    store.add_review(chunks[0], "b", "bob", 1)
    store.add_review(chunks[1], "c", "ann", 1)
    assert reviewed(store, trajectory) == 2
    store.undo("u1", "ann", chunks[0])
    assert reviewed(store, trajectory) == 2
    store.undo("u2", "bob", chunks[0])
    assert reviewed(store, trajectory) == 1
    assert store.totals()["reviewed"] == {"chunks": (1, 0.0), "trajectories": (1, 0.0)}
    store.undo("u3", "ann", chunks[1])
    assert reviewed(store, trajectory) == 0 and "reviewed" not in store.totals()


def test_what_cannot_be_a_review_is_refused(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    with pytest.raises(NotFoundError, match="no chunk 999; nothing was stored"):
        store.add_review(999, "a", "ann", 1)
    for verdict in (2, True, "+"):
        with pytest.raises(StoreValueError, match="verdict is 1, 0, -1 or None"):
            store.add_review(chunks[0], "a", "ann", verdict)  # type: ignore[arg-type]
    with pytest.raises(StoreValueError, match="review, adjudication, not 'undo'"):
        store.add_review(chunks[0], "a", "ann", 1, kind="undo")
    with pytest.raises(StoreValueError, match="needs an actor"):
        store.add_review(chunks[0], "a", "  ", 1)
    assert n_rows(store) == 0


def test_imported_reviews_are_stored_once_and_keep_their_time(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    rows = [
        {"idx": 0, "verdict": 1, "comment": "fine", "actor": "bob", "created_at": at},
        {"idx": 0, "verdict": -1, "comment": "no", "actor": "bob", "created_at": None},
        {"idx": 2, "verdict": None, "comment": "", "actor": "eve", "created_at": at},
    ]
    assert store.add_imported_reviews(trajectory, rows) == 3
    assert store.add_imported_reviews(trajectory, rows) == 0
    assert [(s.review.verdict, s.in_force) for s in store.history(chunks[0])] == [(1, False), (-1, True)]
    assert store.history(chunks[2])[0].review.created_at == at
    with pytest.raises(NotFoundError, match=f"trajectory {trajectory} has no chunk 9"):
        store.add_imported_reviews(trajectory, [{"idx": 9, "verdict": 1, "comment": "", "actor": "bob"}])


def test_a_review_that_was_edited_in_its_file_is_stored_once_more(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    row = {"idx": 0, "verdict": 1, "comment": "fine", "actor": "bob"}
    assert store.add_imported_reviews(trajectory, [row]) == 1
    for edited in (row | {"verdict": -1}, row | {"verdict": -1, "comment": "3 + 3 is 6"}):
        assert store.add_imported_reviews(trajectory, [edited]) == 1
        assert store.add_imported_reviews(trajectory, [edited]) == 0
        (in_force,) = [s.review for s in store.history(chunks[0]) if s.in_force]
        assert (in_force.verdict, in_force.comment) == (edited["verdict"], edited["comment"])


def test_an_imported_review_that_is_older_than_what_its_author_says_now_changes_nothing_they_say(
    store: Store,
):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    old = {"idx": 0, "verdict": 1, "comment": "fine", "actor": "ann", "created_at": at}
    store.add_review(chunks[0], "a", "ann", -1, "no", details=ReviewDetails(span_start=0, span_end=1))
    assert store.add_imported_reviews(trajectory, [old]) == 1
    in_force = [s.review for s in store.history(chunks[0]) if s.in_force]
    assert [(r.verdict, r.comment, r.span_end) for r in in_force] == [(-1, "no", 1)]
    older = old | {"created_at": at - timedelta(days=1)}
    newer = old | {"comment": "of the day after", "created_at": datetime.now(UTC) + timedelta(days=1)}
    assert store.add_imported_reviews(trajectory, [old, older, newer]) == 2
    assert [s.review.comment for s in store.history(chunks[0]) if s.in_force] == ["of the day after"]
    store.add_review(chunks[1], "b", "ann", -1)
    store.undo("c", "ann", chunks[1])
    assert store.add_imported_reviews(trajectory, [old | {"idx": 1}]) == 1
    assert [s.in_force for s in store.history(chunks[1])].count(True) == 0


def test_a_draft_survives_and_is_emptied_by_the_review(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    assert store.get_draft("ann", chunks[0]) == ""
    store.put_draft("ann", chunks[0], "half a")
    store.put_draft("ann", chunks[0], "half a comment")
    assert (store.get_draft("ann", chunks[0]), store.get_draft("bob", chunks[0])) == ("half a comment", "")
    store.add_review(chunks[0], "a", "ann", 1, "whole")
    assert store.get_draft("ann", chunks[0]) == ""
