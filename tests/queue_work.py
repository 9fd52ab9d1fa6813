"""What the tests of queues share: a store, a queue in one line, working in it, and another time of day."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from db import session
from db.check import check
from db.column_types import utc_now
from db.queues_store import NewQueue
from db.store import Store
from tests.store_world import BACKENDS, fresh_store


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
