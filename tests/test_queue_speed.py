"""Queues at size and under several hands: what a step reads does not grow with the queue; nobody collides."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, text, update

from db.check import check
from db.queues_store import NewQueue
from db.store import Store, open_store
from db.tables import Assignment, Queue, QueueItem, QueueMember
from tests.store_world import BACKENDS, add_problem, add_trajectory, fresh_store, fresh_url

N = 2_000
PEOPLE = ("ann", "bob", "eve", "mia")


@pytest.fixture
def big(tmp_path: Path) -> Iterator[tuple[Store, int]]:
    """A queue of N items that takes two reviews each, and its store."""
    with fresh_store("sqlite", tmp_path) as store:
        _, chunks = add_trajectory(store, add_problem(store), steps=N)
        new = NewQueue("q", order="reading", chunk_ids=chunks, limit=N, reviews_per_item=2, blind=True)
        yield store, store.make_queue(new, "ann")


def fill_in(store: Store, queue: int, n: int, *people: str) -> None:
    """As if each of the people had answered the first n items."""
    with store.write() as db:
        items = list(
            db.scalars(text(f"SELECT id FROM queue_items WHERE queue_id = {queue} ORDER BY position"))
        )[:n]
        rows = [{"item_id": i, "actor": actor, "status": "done"} for actor in people for i in items]
        db.execute(insert(Assignment), rows)
        settled = len(people) == 2
        values = {"n_done": len(people), "settled": settled}
        db.execute(update(QueueItem).where(QueueItem.id.in_(items)).values(values))
        db.execute(update(Queue).values(n_settled=n if settled else 0))
        members = [{"queue_id": queue, "actor": a, "position": n - 1, "n_done": n} for a in people]
        db.execute(insert(QueueMember), members)


def steps_of(store: Store, do: Callable[[], Any]) -> int:
    """Thousands of instructions of SQLite's virtual machine that it takes: work, not time."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    def watch(connection: Any, *_: Any) -> None:
        connection.connection.dbapi_connection.set_progress_handler(tick, 100)

    event.listen(store.engine, "begin", watch)
    try:
        do()
    finally:
        event.remove(store.engine, "begin", watch)
        store.close()
    return count // 10


def plans_of(store: Store, do: Callable[[], Any]) -> list[tuple[str, str]]:
    """(statement, a line of its query plan) of everything that it takes."""
    asked: list[tuple[str, Any]] = []

    def watch(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if not many and statement.startswith(("SELECT", "UPDATE", "DELETE")):
            asked.append((statement, parameters))

    event.listen(store.engine, "before_cursor_execute", watch)
    try:
        do()
    finally:
        event.remove(store.engine, "before_cursor_execute", watch)
    with store.read() as db:
        return [
            (statement, row.detail)
            for statement, parameters in asked
            for row in db.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]


def one_round(store: Store, queue: int, actor: str) -> None:
    """What a key press on the Queue page does: answer, next item, its solution's reads."""
    item = store.next_item(queue, actor)
    assert item is not None
    store.answer(item.id, f"{actor}{item.id}", actor, 1, supersedes=item.head)
    following = store.next_item(queue, actor)
    assert following is not None and following.position == item.position + 1
    seen = store.seen_by(actor)
    view = seen.trajectory_view(item.trajectory_id)
    assert view is not None and view.blind
    seen.chunk_page(item.trajectory_id, 0, 3)


def test_every_step_finds_its_rows_by_an_index(big: tuple[Store, int]):
    store, queue = big
    fill_in(store, queue, 100, "ann")

    def steps() -> None:
        one_round(store, queue, "ann")
        item = store.next_item(queue, "ann")
        assert item
        store.skip(item.id, "ann")
        store.undo_last(queue, "ann", "u")
        store.neighbour_items(queue, item.id, "ann")

    plans = plans_of(store, steps)
    assert len(plans) > 50
    big_tables = ("queue_items", "assignments", "reviews", "chunks", "trajectories", "own", "head", "later")
    scans = {plan for _, plan in plans if plan.startswith("SCAN") and plan.split()[1] in big_tables}
    assert not scans, [statement for statement, plan in plans if plan in scans]


def test_the_next_item_is_found_by_the_index_made_for_it(big: tuple[Store, int]):
    store, queue = big
    plans = plans_of(store, lambda: store.next_item(queue, "ann"))
    assert any("ix_queue_items_next (queue_id=? AND settled=? AND position>?)" in plan for _, plan in plans)


@pytest.mark.parametrize("people", [("ann",), ("ann", "bob"), ("bob",)])
def test_a_step_takes_no_more_work_where_most_is_done(big: tuple[Store, int], people: tuple[str, ...]):
    store, queue = big
    at_first = steps_of(store, lambda: one_round(store, queue, "eve"))
    fill_in(store, queue, N - 100, *people)
    later = steps_of(store, lambda: one_round(store, queue, people[-1]))
    assert at_first > 0 and later < 2 * at_first


def test_what_is_hidden_is_found_from_the_solution_not_from_the_queue(big: tuple[Store, int]):
    store, queue = big
    store.next_item(queue, "ann")
    other = add_trajectory(store, add_problem(store, "other"))[0]
    seen = store.seen_by("ann")
    assert steps_of(store, lambda: seen.trajectory_view(other)) < 10


# ---- several hands


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store
        assert check(store) == []


def answer_all(store: Store, queue: int, actor: str) -> list[int]:
    """Every item twice, as a page does that sends an action again; the items in order."""
    got = []
    while (item := store.next_item(queue, actor)) is not None:
        got.append(item.id)
        for _ in range(2):
            store.answer(item.id, f"{actor}-{item.id}", actor, 1, supersedes=item.head)
    return got


@pytest.mark.parametrize("asked", [1, 2])
def test_four_people_at_once_never_meet_on_an_item_too_many(store: Store, asked: int):
    _, chunks = add_trajectory(store, add_problem(store), steps=12)
    queue = store.make_queue(NewQueue("q", order="reading", chunk_ids=chunks, reviews_per_item=asked), "ann")
    with ThreadPoolExecutor(len(PEOPLE)) as pool:
        got = list(pool.map(lambda actor: answer_all(store, queue, actor), PEOPLE))
    assert all(len(items) == len(set(items)) for items in got)
    assert set(Counter(i for items in got for i in items).values()) == {asked}
    assert (store.queue(queue).n_settled, sum(row.done for row in store.queue_progress(queue))) == (
        12,
        12 * asked,
    )
    assert len([row for rows in store.reviews_in_force([1]).values() for row in rows]) == 12 * asked


def test_two_tabs_of_one_person_get_the_same_item(store: Store):
    _, chunks = add_trajectory(store, add_problem(store), steps=6)
    queue = store.make_queue(NewQueue("q", order="reading", chunk_ids=chunks), "ann")
    with ThreadPoolExecutor(8) as pool:
        items = list(pool.map(lambda _: store.next_item(queue, "ann"), range(16)))
    assert len({item.id for item in items if item}) == 1
    (row,) = store.queue_progress(queue)
    assert row.open == 1


WORKER = """
import sys
from db.store import open_store
store = open_store(sys.argv[1])
actor, n = sys.argv[2], 0
while (item := store.next_item(1, actor)) is not None:
    store.answer(item.id, f"{actor}-{item.id}", actor, -1, supersedes=item.head)
    n += 1
print(n)
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_processes_share_a_queue(backend: str, tmp_path: Path):
    with fresh_url(backend, tmp_path) as url:
        store = open_store(url, migrate=True)
        _, chunks = add_trajectory(store, add_problem(store), steps=30)
        queue = store.make_queue(NewQueue("q", order="reading", chunk_ids=chunks), "ann")
        command = [sys.executable, "-c", WORKER, url]
        running = [
            subprocess.Popen([*command, actor], stdout=subprocess.PIPE, text=True) for actor in ("ann", "bob")
        ]
        done = [int(process.communicate(timeout=240)[0]) for process in running]
        assert sum(done) == 30 == store.queue(queue).n_settled
        assert sorted(row.done for row in store.queue_progress(queue)) == sorted(n for n in done if n)
        store.close()
