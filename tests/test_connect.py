"""Opening a store: locked, read-only, missing, damaged, empty; and that one handle sees what another wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.connect import connect
from db.errors import (
    StoreError,
    StoreLockedError,
    StoreOutdatedError,
    StoreReadOnlyError,
    StoreUnreachableError,
)
from db.store import Store, open_store
from tests.store_world import BACKENDS, add_problem, fresh_store


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_handle_sees_what_the_first_wrote(backend: str, tmp_path: Path):
    with fresh_store(backend, tmp_path) as store:
        problem = add_problem(store)
        second = open_store(store.engine.url.render_as_string(hide_password=False))
        assert second.problem(problem).text == "What is 1 + 1?"
        second.close()


def test_a_locked_store_says_so_after_the_timeout_and_reads_go_on(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'locked.db'}"
    store = open_store(url, migrate=True)
    problem = add_problem(store)
    hasty = open_store(url, busy_timeout_s=0.2)
    with store.write():
        with pytest.raises(StoreLockedError, match=r"locked.db stayed locked.*nothing was written"):
            add_problem(hasty, "other")
        assert hasty.problem(problem).key == "p"
    assert add_problem(hasty, "other") != problem


def test_a_read_only_store_is_read_and_says_why_it_cannot_be_written(tmp_path: Path):
    path = tmp_path / "some store.db"
    writable = open_store(f"sqlite:///{path}", migrate=True)
    problem = add_problem(writable)
    store = open_store(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert store.problem(problem).key == "p"
    assert store.claim_next(pid=1) is None
    for write in (
        lambda: add_problem(store, "new"),
        lambda: store.create_run("sample", {}, "ann"),
        lambda: store.put_draft("ann", 1, "half"),
    ):
        with pytest.raises(
            StoreReadOnlyError, match=r"read-only; nothing was written. Open it without mode=ro"
        ):
            write()
    writable.close()
    assert open_store(f"sqlite:///file:{path}?mode=ro&uri=true").count_problems() == 1


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("sqlite://", StoreUnreachableError, "in memory cannot be shared"),
        ("sqlite:///:memory:", StoreUnreachableError, "in memory cannot be shared"),
        ("sqlite:////no/such/folder/x.db", StoreUnreachableError, "does its folder exist"),
        ("mysql://host/x", StoreUnreachableError, "only sqlite:///PATH and postgresql://"),
        ("not a url", StoreUnreachableError, "not a usable database URL"),
    ],
)
def test_a_store_that_cannot_be_opened(url: str, error: type[StoreError], message: str):
    with pytest.raises(error, match=message):
        connect(url)


def test_a_file_that_is_no_database(tmp_path: Path):
    path = tmp_path / "notes.db"
    path.write_text("these are notes, not a database, and long enough to be looked at " * 20)
    with pytest.raises(StoreUnreachableError, match=r"notes.db is damaged or not an SQLite database"):
        connect(f"sqlite:///{path}")


def test_an_empty_store_asks_for_the_upgrade(tmp_path: Path):
    with pytest.raises(StoreOutdatedError, match=r"is empty.*stepwiser db upgrade"):
        open_store(f"sqlite:///{tmp_path / 'new.db'}")
    store = Store(connect(f"sqlite:///{tmp_path / 'new.db'}"))
    with pytest.raises(StoreOutdatedError, match="stepwiser db upgrade"):
        store.count_problems()


def test_a_password_is_in_no_message():
    with pytest.raises(StoreError) as caught:
        connect("postgresql://ann:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)
