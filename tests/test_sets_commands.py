"""``stepwiser set …``: what the commands print and write. Building through the worker is the pages' test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import app as cli
from app.settings import Settings
from engine.errors import TrainingError
from tests.labelled_store import store_with
from tests.little_world import context
from tests.test_sets_build import PAIRS, lengths, recipe
from training.sets.build import run
from training.sets.frozen import freeze


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a filled store and the frozen set ``s``."""
    store, chunks = store_with(tmp_path, PAIRS)
    for place in (0, 4, 9, 13):
        store.add_review(chunks[place], action_id=f"a{place}", actor="ada", verdict=1 if place % 2 else -1)
    monkeypatch.setattr("training.sets.build.tokens_of", lambda checkpoint: lengths)
    run(context(store, recipe(), tmp_path))
    store.close()
    settings = Settings(home=tmp_path, database_url=f"sqlite:///{tmp_path / 'store.db'}")
    for module in ("app.settings", "app.set_commands", "app.store"):
        monkeypatch.setattr(f"{module}.get_settings", lambda: settings)
    return tmp_path


def said(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["set", *arguments], env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


HUMAN = ("--set", "select.policy=human", "--set", "labels.min_confidence=0")


def test_list_and_show(home: Path) -> None:
    assert "judge" in said("list")
    shown = said("show", "s")
    assert (
        "labels from people: " in shown
        and "data set d: " in shown
        and "files are as they were frozen" in shown
    )
    file = home / "sets" / "s" / "train.jsonl"
    file.write_text("", encoding="utf-8")
    with pytest.raises(TrainingError, match="is not what was frozen"):
        said("show", "s")
    with pytest.raises(TrainingError, match="no training set 'x'"):
        said("show", "x")


def test_sets_of_any_making_say_their_rows_and_whose_labels_they_hold(home: Path) -> None:
    parts = {
        "train": [{"prompt": "p", "completion": "c"}] * 7,
        "held_out": [{"prompt": "q", "completion": "d"}],
    }
    freeze(home, "cut", "completion", parts, run="r", recipe={}, counts={"segmented": 8}, from_judge=3)
    row = next(line for line in said("list").splitlines() if "cut" in line)
    assert row.split()[1:4] == ["completion", "7", "1"]
    assert "from a judge's votes: 3" in said("show", "cut")


def test_preview_builds_nothing(home: Path) -> None:
    shown = said("build", "--preview", "--name", "other", *HUMAN)
    assert "chunks 54" in shown and "reviewed 4" in shown and "labels from people in it" in shown
    one_class = ("--set", "select.limit=1", "--set", "labels.rule=abs-q", "--set", "labels.reviews=false")
    assert "no chunk labelled '-' is left" in said("build", "--preview", *HUMAN, *one_class)
    assert [p.name for p in (home / "sets").iterdir()] == ["s"]


def test_sweep_prints_every_rule_and_what_people_chose(home: Path) -> None:
    shown = said("sweep", *HUMAN, "--gamma", "0.5,1.1", "--alpha", "0.3", "--n", "4")
    assert "54 chunks, 4 with a person's + or -" in shown
    for rule in ("abs-q", "rel-effective α=0.3 n=4", "rel-ratio γ=0.5", "rel-ratio γ=1.1"):
        assert rule in shown
    assert "γ = 1.1 labels a chunk - that keeps a sure success" in shown
    assert "on the half that did not choose it" in shown and "n=4" in shown


def test_export_writes_the_rows(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert "rows written" in said(
        "export", "s", str(out), "--style", "prompt-completion", "--part", "held_out"
    )
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows and set(rows[0]) == {"prompt", "completion", "label"}
    with pytest.raises(TrainingError, match="no style 'messages'"):
        said("export", "s", str(out), "--style", "messages")
