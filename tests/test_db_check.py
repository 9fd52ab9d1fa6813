"""``db check`` finds each kind of damage, and nothing in a sound store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.check import EXAMPLES, check
from db.store import Store
from tests.store_world import BACKENDS, add_prefix, add_problem, add_run, filled, fresh_store, rollout


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
