"""What the tests of the Trajectories page share: its store, the page at an address, and the rows on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from db.rows import NewChunk, NewProblem, NewTrajectory
from db.store import open_store
from tests.filled_store import filled_store
from tests.page_support import FilledWorld, Open, components


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledWorld]:
    """The filled store, and sixty more trajectories on a problem of their own."""
    url, ids = filled_store(tmp_path_factory.mktemp("list"))
    store = open_store(url)
    problem = store.add_problems(
        [NewProblem("many", "m", "Count to sixty.", "60")], run_id=None, actor="ada"
    ).ids["many", "m"]
    rows = [
        NewTrajectory(problem, "counter", f"{i}", "", (NewChunk("", f"{i}"),), "blank-line", "wrong", "1")
        for i in range(60)
    ]
    store.add_trajectories(rows, run_id=None, actor="ada")
    yield store, url, ids
    store.close()


@pytest.fixture
def open_at(filled: FilledWorld, pages: Open) -> Open:
    def run(url: str = filled[1], actor: str = "ann", **address: str) -> AppTest:
        return pages("trajectories", url, address, actor)

    return run


def rows(app: AppTest) -> list[dict[str, Any]]:
    """The rows of the table, as they go to the browser."""
    [table] = tables(app)
    return table["rows"]


def tables(app: AppTest) -> list[dict[str, Any]]:
    """What goes to the browser's tables of rows."""
    return [data for data in components(app) if "rows" in data]


def ids(app: AppTest) -> list[int]:
    return [int(row["id"]) for row in rows(app)]


# ---- the list of chunks


def chunks_of(app: AppTest) -> list[tuple[int, int]]:
    """(trajectory, index) of the rows."""
    places = (row["cells"][0].removeprefix("#").split(" · ") for row in rows(app))
    return [(int(trajectory), int(idx)) for trajectory, idx in places]


def address_of(app: AppTest) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value[0] for name, value in app.query_params.items()}


def box(app: AppTest, label: str):  # type: ignore[no-untyped-def]
    return next(one for one in app.selectbox if one.label == label)
