"""What the tests of the pages' scripts share: stores, a page opened at an address, and what stands on it.

Not here: a browser (browser_support.py), and what only the Runs page has (runs_page.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from streamlit.components.v2.component_manager import BidiComponentManager
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button

from app.settings import get_settings
from db.store import Store, open_store
from tests.filled_store import Filled, filled_store
from tests.raters_store import Raters, fill_raters
from tests.store_world import new_store

MAIN = str(Path(__file__).parent.parent / "app" / "main.py")
TIMEOUT_S = 200
"""Only a hang should end a test: the machine may be busy with something else."""
SAID = ("title", "markdown", "caption", "error", "warning", "info", "text", "code")
Open = Callable[..., AppTest]
FilledWorld = tuple[Store, str, Filled]
RatedWorld = tuple[Store, str, Raters]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledWorld]:
    """A filled store of the module's own, its URL, and the ids of what is in it."""
    url, ids = filled_store(tmp_path_factory.mktemp("filled"))
    store = open_store(url)
    yield store, url, ids
    store.close()


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RatedWorld]:
    """A store of the module's own in which people and judges disagree, its URL, and what they said."""
    path = tmp_path_factory.mktemp("rated") / "stepwiser.db"
    store = new_store(path)
    yield store, f"sqlite:///{path}", fill_raters(store)
    store.close()


def page_at(page: str, address: Mapping[str, object]) -> AppTest:
    """A page of ``app/views`` at an address, not run yet. No other page runs before it, as behind a link."""
    app = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    # Otherwise each AppTest looks through every installed package for components, and there are none.
    app._bidi_component_manager = BidiComponentManager()
    if page != "overview":  # which is where the app begins
        app.switch_page(f"views/{page}.py")
    for name, value in address.items():
        app.query_params[name] = str(value)
    return app


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Open]:
    """``pages(page, url, address, actor)`` opens a page over the store at ``url``."""

    def run(page: str, url: str, address: Mapping[str, object], actor: str = "rosa") -> AppTest:
        monkeypatch.setenv("STEPWISER_DATABASE_URL", url)
        monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
        monkeypatch.setenv("STEPWISER_ACTOR", actor)
        get_settings.cache_clear()
        return page_at(page, address).run()

    yield run
    get_settings.cache_clear()


def words(app: AppTest) -> str:
    """All that the page says in ``SAID``. Fails if the page's script did."""
    assert not app.exception, app.exception[0].message
    return "\n".join(str(element.value) for kind in SAID for element in getattr(app, kind))


def components(app: AppTest) -> list[dict[str, Any]]:
    """What goes to the browser for each component of ours. Fails if the page's script did."""
    assert not app.exception, app.exception[0].message
    return [json.loads(part.proto.json) for part in app.get("bidi_component") if part.proto.json]


def table_rows(app: AppTest) -> dict[str, list[dict[str, Any]]]:
    """{label: rows} of the page's tables."""
    return {part["label"]: part["rows"] for part in components(app) if "rows" in part}


def button(app: AppTest, label: str) -> Button:
    return next(b for b in app.button if b.label == label)


def keyed(app: AppTest, start: str) -> Button:
    """The first button whose key begins with ``start``."""
    return next(b for b in app.button if b.key and b.key.startswith(start))
