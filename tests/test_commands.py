"""What commands say where a file cannot be written or a name is wrong: one line, nothing lost. Not: what they write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import main
from app.settings import get_settings
from app.store import open_or_make_store
from engine.pipeline.imports import import_file

SOLVED = '{"problem": "What is 2 + 5?", "answer": "7", "solutions": ["So \\\\boxed{7}"]}\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose store has the data set ``mine``; commands write into its folder."""
    monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
    monkeypatch.delenv("STEPWISER_DATABASE_URL", raising=False)
    get_settings.cache_clear()
    (tmp_path / "mine.jsonl").write_text(SOLVED, encoding="utf-8")
    store = open_or_make_store()
    import_file(store, tmp_path / "mine.jsonl", dataset=None, cutter=None, actor="ada")
    store.create_run("rollout", {"kind": "rollout"}, "ada")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    get_settings.cache_clear()


def refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr("sys.argv", ["stepwiser", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("place", ["no-folder/x", "a-folder"])
@pytest.mark.parametrize("command", [["export"], ["report", "2", "--out"]])
def test_a_file_that_cannot_be_written_is_named_without_a_traceback(
    home: Path,
    command: list[str],
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (home / "a-folder").mkdir()
    assert f"error: {place} cannot be written (" in refused([*command, place], monkeypatch, capsys)


def test_an_export_of_a_data_set_that_is_not_there_leaves_an_earlier_file_as_it_was(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "labels.jsonl").write_text("an earlier export", encoding="utf-8")
    said = refused(["export", "labels.jsonl", "--dataset", "mien"], monkeypatch, capsys)
    assert "no data set 'mien'; there are mine" in said
    assert (home / "labels.jsonl").read_text(encoding="utf-8") == "an earlier export"


@pytest.mark.parametrize(
    "command", [["run", "sample"], ["set", "build", "--name", "s"], ["resume", "2"]], ids=lambda c: c[0]
)
def test_a_run_left_in_the_queue_of_no_worker_says_so(
    home: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_or_make_store().request_stop(2)
    monkeypatch.setattr("sys.argv", ["stepwiser", *command, "--detach"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "start one with `stepwiser worker`" in capsys.readouterr().out
