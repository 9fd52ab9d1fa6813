"""``db check`` finds each kind of damage, and nothing in a sound store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.check import EXAMPLES, check
from db.queue_rows import NewQueue
from db.store import Store
from tests.store_world import (
    BACKENDS,
    add_prefix,
    add_problem,
    add_run,
    add_trajectory,
    filled,
    fresh_store,
    rollout,
)


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store


def damage(store: Store, statement: str) -> None:
    """Change rows behind the store's back, foreign keys off (only SQLite lets one do that)."""
    with store.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        if store.is_sqlite:
            raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute(statement)
        raw.commit()
        if store.is_sqlite:
            raw.execute("PRAGMA foreign_keys = ON")


def found(store: Store) -> set[str]:
    return {finding.kind for finding in check(store)}


def test_a_sound_store_has_no_findings(store: Store):
    assert check(store) == []
    filled(store)
    assert check(store) == []


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        ("UPDATE chunks SET text = 'changed' WHERE idx = 1", "rejoin", "do not give its text back"),
        (
            "UPDATE trajectory_texts SET tail = tail || ' ' WHERE trajectory_id = 1",
            "rejoin",
            "trajectories 1",
        ),
        ("DELETE FROM rollout_texts WHERE rollout_id = 3", "orphan", "rollouts 3: has no text"),
        ("DELETE FROM trajectory_texts WHERE trajectory_id = 2", "orphan", "trajectories 2: has no text"),
        ("UPDATE trajectories SET n_chunks = 9 WHERE id = 1", "orphan", "says it has 9 chunks and has 3"),
        ("UPDATE trajectories SET n_reviewed = 7 WHERE id = 1", "cache", "says 7 chunks are reviewed, 2 are"),
        ("UPDATE totals SET n = n + 1 WHERE name = 'chunks'", "total", "chunks all: says 13"),
        ("DELETE FROM totals WHERE name = 'problems/dataset'", "total", "problems/dataset nano: says 0"),
        (
            "UPDATE trajectories SET biggest_drop = 0.9 WHERE id = 1",
            "cache",
            "biggest_drop is 0.9, it is 0.25",
        ),
        ("UPDATE trajectories SET n_disagree = 3 WHERE id = 1", "cache", "n_disagree is 3, it is 1"),
        ("UPDATE chunk_opinions SET plus = 5 WHERE plus = 1", "opinion", "plus=5"),
        ("DELETE FROM chunk_opinions WHERE plus = 1", "opinion", "none is kept"),
        (
            "UPDATE chunk_votes SET positive = 1 WHERE total = 3",
            "vote",
            "1 / 0 / 3 are kept, there are 3 / 0 / 3",
        ),
        ("DELETE FROM chunk_votes WHERE total = 1", "vote", "0 / 0 / 0 are kept, there are 0 / 0 / 1"),
        ("UPDATE chunk_votes SET verdict = NULL WHERE total = 3", "vote", "is none, it is positive"),
        ("UPDATE rollouts SET draw = 40 WHERE draw = 7", "gap in draws", "8 draws of 41"),
        ("UPDATE reviews SET actor = 'eve' WHERE id = 2", "review chain", "of another person or chunk"),
        ("UPDATE reviews SET supersedes = NULL WHERE id = 2", "review chain", "ann has 2 chains"),
    ],
)
def test_damage_is_found_and_named(store: Store, statement: str, kind: str, message: str):
    filled(store)
    damage(store, statement)
    findings = [str(finding) for finding in check(store) if finding.kind == kind]
    assert any(message in finding for finding in findings), findings or check(store)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE queue_items SET n_done = 2 WHERE id = 1", "queue_items 1: says 2 answered it, 1 did"),
        (
            "UPDATE queue_items SET settled = NOT settled WHERE id = 2",
            "queue_items 2: says it is settled, which",
        ),
        ("UPDATE queues SET n_items = 9", "queues 1: says it has 9 items and has 3"),
        ("UPDATE queues SET n_settled = 3", "queues 1: says 3 items are settled, 1 are"),
        ("UPDATE queue_members SET n_done = 0", "'ann': says 0 items are answered, 1 are"),
        ("DELETE FROM queue_members", "'ann' has items of it and is no member"),
    ],
)
def test_a_wrong_count_of_a_queue_is_found_and_named(store: Store, statement: str, message: str):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = store.make_queue(NewQueue("q", order="reading", chunk_ids=chunks), "ann")
    item = store.next_item(queue, "ann")
    assert item is not None
    store.answer(item.id, "a", "ann", 1)
    assert store.next_item(queue, "ann") is not None and check(store) == []
    damage(store, statement)
    findings = [str(finding) for finding in check(store) if finding.kind == "queue count"]
    assert any(message in finding for finding in findings), findings or check(store)


def test_a_broken_foreign_key_is_found(tmp_path: Path):
    with fresh_store("sqlite", tmp_path) as store:
        filled(store)
        damage(store, "UPDATE rollouts SET run_id = 999 WHERE id = 5")
        assert [str(f) for f in check(store)] == [
            "foreign key: rollouts 5: points to a row of runs that does not exist"
        ]


def test_a_problem_missing_from_the_search_index_is_found(tmp_path: Path):
    with fresh_store("sqlite", tmp_path) as store:
        filled(store)
        damage(store, "DELETE FROM problem_fts_docsize WHERE id = 1")
        assert found(store) == {"full text"}


def test_findings_of_one_kind_are_bounded(store: Store):
    run, problem = add_run(store), add_problem(store)
    for i in range(EXAMPLES + 5):
        store.add_rollouts([rollout(add_prefix(store, problem, f"k{i}"), 3)], run_id=run)
    findings = check(store)
    assert len(findings) == EXAMPLES and found(store) == {"gap in draws"}
