"""The Overview's script: counts and pictures from the store's totals, runs alive, and the empty store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.settings import get_settings
from app.views.overview import POSITIONS, lost_rows
from db.store import Store, open_store
from tests.filled_store import Filled, filled_store

MAIN = str(Path(__file__).parent.parent / "app" / "main.py")
Open = Callable[..., AppTest]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, str, Filled]]:
    url, ids = filled_store(tmp_path_factory.mktemp("overview"))
    store = open_store(url)
    yield store, url, ids
    store.close()


@pytest.fixture
def open_at(
    filled: tuple[Store, str, Filled], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Open]:
    def run(url: str = filled[1]) -> AppTest:
        monkeypatch.setenv("STEPWISER_DATABASE_URL", url)
        monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
        get_settings.cache_clear()
        app = AppTest.from_file(MAIN, default_timeout=60).run()
        assert not app.exception, app.exception[0].message
        return app

    yield run
    get_settings.cache_clear()


def words(app: AppTest) -> str:
    return "\n".join(str(e.value) for e in (*app.markdown, *app.caption))


def tables(app: AppTest) -> dict[str, list[dict[str, object]]]:
    found = [json.loads(table.proto.json) for table in app.get("bidi_component")]
    return {table["label"]: table["rows"] for table in found}


def test_counts_are_those_of_the_store(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
    store = filled[0]
    app = open_at()
    shown = {metric.label.lower(): metric.value for metric in app.metric}
    assert {name: int(shown[name].replace(",", "")) for name in store.counts()} == store.counts()
    assert store.counts()["rollouts"] > 0
    assert {row["id"] for row in tables(app)["Data sets"]} == set(store.datasets())


def test_the_pictures_have_their_numbers_in_words(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
    store = filled[0]
    pictures = [chart.proto.alt for chart in open_at().get("plotly_chart")]
    balance = next(text for text in pictures if text.startswith("abs-q"))
    signs = {key: n for key, (n, _) in store.totals()["labels/rel_ratio"].items()}
    assert f"{signs['-']} -" in balance.split("rel-ratio")[1]
    assert any(text.startswith("Most Q is lost at chunk") for text in pictures)
    assert any(text.startswith("solutions: ") and "rollouts: " in text for text in pictures)


def test_runs_that_are_alive_are_listed_with_progress(
    open_at: Open, filled: tuple[Store, str, Filled]
) -> None:
    store = filled[0]
    assert "No run is alive" in words(open_at())
    run = store.start_run("rollout", {"kind": "rollout"}, "ada", pid=1)
    store.heartbeat(run, done=5, total=20, unit="rollouts", message="busy")
    [row] = tables(open_at())["Runs alive"]
    assert row["href"] == f"/runs?run={run}"
    assert row["cells"][3]["share"] == 0.25  # type: ignore[index]
    store.finish_run(run, "done", result={})
    assert "No run is alive" in words(open_at())


def test_an_empty_store_says_what_to_press(open_at: Open, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    open_store(url, migrate=True).close()
    app = open_at(url)
    assert "This store is empty" in words(app)
    assert "stepwiser sample load" in words(app)
    assert [link.label for link in app.get("page_link")] == ["Start a run"]


def test_late_positions_share_the_last_bar() -> None:
    totals = {
        "lost/position": {"0": (10, 1.0), str(POSITIONS): (2, 0.4), str(POSITIONS + 5): (2, 0.0)},
        "gained/position": {"0": (4, 0.5), str(POSITIONS + 5): (1, 0.2)},
    }
    assert lost_rows(totals) == [("0", 0.1, 0.05, 10), (f"{POSITIONS}+", 0.1, 0.05, 4)]
    assert lost_rows({}) == []
