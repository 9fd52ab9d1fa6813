"""The schema's revisions: they make what tables.py says, from nothing, once; an unknown revision is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, MetaData, Table, insert, inspect, select, text

from db.check import check
from db.connect import connect
from db.errors import StoreOutdatedError, StoreReadOnlyError
from db.migrate import CONFIGURE, alembic_config, check_current, current_revision, head_revision, upgrade
from db.rows import Label
from db.stops_store import Stop
from db.store import Store, open_store
from db.tables import Base
from tests.store_world import BACKENDS, add_problem, filled, fresh_store, fresh_url

ROOT = Path(__file__).resolve().parents[1]
NEW_TOTALS = ("pairs", "judged", "people", "opinions", "flags")


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with fresh_url(request.param, tmp_path) as url:
        yield url


def test_the_revisions_make_exactly_the_tables(url: str):
    engine = connect(url)
    upgrade(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={**CONFIGURE, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_the_comparison_would_notice_a_missing_column_and_index(url: str):
    engine = connect(url)
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP INDEX ix_trajectories_by_drop"))
        connection.execute(text("ALTER TABLE runs DROP COLUMN message"))
    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts=CONFIGURE), Base.metadata)
    assert sorted(change[0] for change in found) == ["add_column", "add_index"]


def test_checks_of_the_tables_are_in_the_database(url: str):
    engine = connect(url)
    upgrade(engine)
    for table in Base.metadata.tables.values():
        wanted = {c.name for c in table.constraints if c.__class__.__name__ == "CheckConstraint"}
        assert {c["name"] for c in inspect(engine).get_check_constraints(table.name)} == wanted, table.name


def test_upgrade_from_nothing_once(url: str):
    engine = connect(url)
    assert current_revision(engine) is None
    with pytest.raises(StoreOutdatedError, match=r"is empty \(no schema yet\): run `stepwiser db upgrade`"):
        check_current(engine)
    assert upgrade(engine) == (None, head_revision())
    check_current(engine)
    store = Store(engine)
    problem = add_problem(store)
    assert upgrade(engine) == (head_revision(), head_revision())
    assert store.problem(problem).key == "p"


def test_a_revision_from_the_future_is_refused_and_untouched(url: str):
    engine = connect(url)
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for attempt in (lambda: check_current(engine), lambda: upgrade(engine), lambda: open_store(url)):
        with pytest.raises(
            StoreOutdatedError, match="schema 9999, which this version does not know: a newer version"
        ):
            attempt()
    assert current_revision(engine) == "9999"


def test_a_read_only_store_is_not_upgraded(tmp_path: Path):
    path = tmp_path / "old.db"
    connect(f"sqlite:///{path}")
    with pytest.raises(StoreReadOnlyError, match="its schema is not up to date"):
        upgrade(connect(f"sqlite:///file:{path}?mode=ro&uri=true"))


def test_processes_that_upgrade_at_once_make_one_schema(url: str):
    code = "import sys; from db.store import open_store; open_store(sys.argv[1], migrate=True)"
    running = [
        subprocess.Popen([sys.executable, "-c", code, url], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in running:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
    check_current(connect(url))


def test_a_store_of_the_release_before_keeps_its_rows(url: str):
    engine = connect(url)
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "0001")
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO runs (uid, kind, status, actor, recipe, versions, prompt_hashes, done, done_at_start, "
                "unit, message, waiting_for, result, stop_requested, attempt, created_at) VALUES ('u', 'judge', "
                "'done', 'ann', '{}', '{}', '{}', 3, 0, 'judgments', '', '', '{}', false, 1, '2026-01-02 03:04:05')"
            )
        )
        connection.execute(
            text("INSERT INTO metrics (run_id, name, step, at) VALUES (1, 'loss', 1, '2026-01-02')")
        )
    assert upgrade(engine) == ("0001", head_revision())
    store = Store(engine)
    run = store.run(1)
    assert (run.uid, run.done, run.parent_id) == ("u", 3, None)
    assert list(store.metrics(1)) == ["loss"]
    child = store.create_run("sample", {}, "ann", parent_id=1)
    assert [r.id for r in store.children(1)] == [child]


def test_a_store_before_thrift_keeps_its_values_and_learns_of_stops(url: str, tmp_path: Path):
    engine = connect(url)
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "0003")
    assert "prefix_stops" not in inspect(engine).get_table_names()
    with fresh_store("sqlite", tmp_path) as now:
        ids = filled(now)
        with now.read() as source, engine.begin() as target:
            for name in (
                "runs",
                "problems",
                "prefixes",
                "trajectories",
                "trajectory_texts",
                "chunks",
                "rollouts",
            ):
                table = Base.metadata.tables[name]
                target.execute(insert(table), [dict(row._mapping) for row in source.execute(select(table))])
        expected = now.label_inputs([ids["sampled"]])
    assert upgrade(engine) == ("0003", head_revision())
    store = Store(engine)
    assert store.label_inputs([ids["sampled"]]) == expected
    store.put_stops([ids["inner"]], 32, ["abs-q"], run_id=ids["run"])
    assert store.stops([ids["inner"]]) == {ids["inner"]: Stop(32, ("abs-q",))}


def test_caches_and_totals_of_a_store_of_the_release_before_are_filled(url: str, tmp_path: Path):
    with fresh_store("sqlite", tmp_path) as now:
        ids = filled(now)
        values = {
            "before_k": 8,
            "before_n": 16,
            "q_before": 0.5,
            "drop": 0.25,
            "abs_q": "+",
            "rel_ratio": "-",
        }
        values |= {"after_k": 4, "after_n": 16, "q_after": 0.25, "rel_ratio_conf": 0.9}
        now.put_labels([Label(ids["chunk"], **values)])
        now.add_review(ids["chunk"], "c1", "cid", 1)
        now.add_review(
            ids["chunk"],
            "d1",
            "ann",
            -1,
            kind="adjudication",
            supersedes=now.chain_head(ids["chunk"], "ann").id,
        )  # type: ignore[union-attr]
        engine = connect(url)
        with engine.begin() as connection:
            command.upgrade(alembic_config(connection), "0002")
        caches = ("totals", "chunk_votes", "chunk_opinions")
        kept = {}
        with now.read() as source, engine.begin() as target:
            old = MetaData()
            old.reflect(target)
            for table in Base.metadata.sorted_tables:
                if table.name not in old.tables or table.name == "alembic_version":
                    continue
                rows = [dict(row._mapping) for row in source.execute(select(table))]
                if table.name == "totals":  # what that release kept
                    rows = [row for row in rows if row["name"].split("/")[0] not in NEW_TOTALS]
                there = old.tables[table.name].c.keys()
                thin = Table(
                    table.name, MetaData(), *(Column(c.name, c.type) for c in table.c if c.name in there)
                )
                if rows:
                    target.execute(
                        insert(thin), [{k: v for k, v in row.items() if k in there} for row in rows]
                    )
            for name in caches:
                kept[name] = sorted(map(tuple, source.execute(select(Base.metadata.tables[name]))), key=str)
        upgrade(engine)
        with engine.connect() as connection:
            for name in caches:
                found = connection.execute(select(Base.metadata.tables[name]))
                assert sorted(
                    (row for row in map(tuple, found) if row[2] != 0 or name != "totals"), key=str
                ) == [row for row in kept[name] if row[2] != 0 or name != "totals"], name
        assert check(Store(engine)) == []
