"""What the tests of the Runs page share: an empty store that the pages see, and short ways to look at a page."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from streamlit.testing.v1 import AppTest

from app.kinds import resolve_recipe
from app.settings import get_settings
from app.widgets.safe_text import JOINER
from db.store import Store
from tests.page_support import Open, components, page_at
from tests.store_world import new_store

LAYERS = {
    "embed_tokens.weight": (10, 4),
    "q_proj.weight": (4, 4),
    "up_proj.weight": (8, 4),
    "norm.weight": (4,),
}
"""Tensors of the folder that passes for a checkpoint: 40 + 16 + 32 + 4 parameters."""


def make_checkpoint(folder: Path, card: dict[str, object] | None = None) -> Path:
    """A folder with a config and a few weights: enough for everything that does not load it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    tensors = {name: np.zeros(shape, np.float32) for name, shape in LAYERS.items()}
    save_file(tensors, folder / "model.safetensors")
    if card is not None:
        (folder / "stepwiser.json").write_text(json.dumps(card))
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store that the pages see, and a checkpoint called tiny."""
    monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
    monkeypatch.setenv("STEPWISER_DATABASE_URL", f"sqlite:///{tmp_path / 'runs.db'}")
    monkeypatch.setenv("STEPWISER_ACTOR", "rosa")
    monkeypatch.setenv("STEPWISER_STALLED_AFTER_S", "300")  # a busy machine may take long to draw a page
    get_settings.cache_clear()
    make_checkpoint(tmp_path / "checkpoints" / "tiny")
    store = new_store(tmp_path / "runs.db")
    yield store
    store.close()
    get_settings.cache_clear()


@pytest.fixture
def open_at(store: Store) -> Open:
    def run(**address: str) -> AppTest:
        return page_at("runs", address).run()

    return run


def words(app: AppTest) -> str:
    """All text on the page as a person reads it: character references are what they stand for."""
    assert not app.exception, app.exception[0].message
    shown = (app.title, app.subheader, app.markdown, app.caption, app.error, app.warning, app.text, app.code)
    text = "\n".join(str(element.value) for kind in shown for element in kind)
    return html.unescape(text).replace(JOINER, "")


def queue(store: Store, kind: str = "sample", **recipe: object) -> int:
    return store.create_run(kind, resolve_recipe(kind, dict(recipe)).model_dump(mode="json"), "ada")


def run_to(
    store: Store,
    status: str,
    kind: str = "train-judge",
    result: dict[str, object] | None = None,
    **recipe: object,
) -> int:
    """A run that has ended as ``status``, or is running."""
    run_id = store.start_run(kind, resolve_recipe(kind, dict(recipe)).model_dump(mode="json"), "ada", pid=1)
    store.heartbeat(run_id, done=30, total=60, unit="steps", message="step 30")
    if status != "running":
        store.finish_run(run_id, status, result=result or {})
    return run_id


def labels(app: AppTest) -> list[str]:
    return [b.label for b in app.button]


def tables(app: AppTest) -> list[dict]:  # type: ignore[type-arg]
    """What the row tables on the page were given."""
    return [one.get("data", one) for one in components(app)]


def cells(app: AppTest, label: str) -> list[list[object]]:
    """The rows of the table called ``label``, as plain text where a cell is text."""
    table = next(one for one in tables(app) if one["label"] == label)
    return [row["cells"] for row in table["rows"]]


def widgets(app: AppTest):  # type: ignore[no-untyped-def]
    texts = (*app.text_input, *app.text_area, *app.number_input)
    return (*texts, *app.selectbox, *app.multiselect, *app.toggle, *app.button_group)


def field(app: AppTest, kind: str, path: str):  # type: ignore[no-untyped-def]
    return next(
        w for w in widgets(app) if w.key and w.key.startswith(f"new:{kind}:") and w.key.endswith(f":{path}")
    )
