"""Following a run whose worker has gone, and settings that are refused without showing their keys."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError
from rich.console import Console

import app.runs
from app.cli import main
from app.runs import follow
from app.settings import Settings, get_settings
from app.store import open_or_make_store
from db.store import Store


def test_a_run_whose_worker_ended_before_it_is_worked_on_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path, database_url="", actor="Ada")
    store = open_or_make_store(settings)
    run_id = store.create_run("sample", {"kind": "sample"}, "Ada")
    host = socket.gethostname()
    store.take_worker_lock(pid=4_194_303, host=host)
    took: list[Store] = []

    class Here:
        child = None

        def __init__(self, store: Store, settings: Settings) -> None:
            took.append(store)

        def serve(self, until: object) -> None:
            store.request_stop(run_id)

    monkeypatch.setattr(app.runs, "Worker", Here)
    threading.Timer(1.0, store.release_worker_lock, kwargs={"pid": 4_194_303, "host": host}).start()
    following = threading.Thread(
        target=follow, args=(store, settings, run_id, Console(quiet=True)), daemon=True
    )
    following.start()
    following.join(timeout=15)
    ended = not following.is_alive()
    if not ended:
        store.request_stop(run_id)
    assert ended and took


def test_settings_that_are_refused_show_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWISER_LLM_KEYS", '{"ftp://gpu-1": "a-key-of-a-server"}')
    with pytest.raises(ValidationError, match="gpu-1") as refused:
        Settings()
    assert "a-key-of-a-server" not in str(refused.value)


def test_refused_settings_are_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for name, value in (
        ("STEPWISER_LLM_KEYS", '{"ftp://gpu-1": "a-key-of-a-server"}'),
        ("STEPWISER_LLM_KEYS", "no JSON"),
        ("STEPWISER_HOME", str(tmp_path / "file" / "home")),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            patch.setattr("sys.argv", ["stepwiser", "runs"])
            get_settings.cache_clear()
            with pytest.raises(SystemExit, match="2"):
                main()
        said = capsys.readouterr().err
        assert said.startswith("error: settings (STEPWISER_… or .env): ") and "a-key" not in said
    get_settings.cache_clear()
