"""Addresses of servers, what a recipe and the environment may say of them, and the command that starts one.

Not: asking them (test_llm_server, test_llm_servers_real).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from app.llm_server import serve
from app.settings import Settings
from engine.checkpoints import PACKAGED
from engine.llm import LLMSpec
from engine.llm.checkpoint import check_checkpoint
from engine.llm.server_address import server_address
from engine.llm.server_check import weights_name
from engine.llm.server_start import server_command, server_environment
from tests.tiny_llama import make_tiny_llama


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://gpu-1:8000", "http://gpu-1:8000"),
        ("HTTP://GPU-1:8000/", "http://gpu-1:8000"),
        ("https://host/v1/", "https://host"),
        ("http://host:80/behind/a/proxy/v1", "http://host:80/behind/a/proxy"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_an_address_is_written_one_way(written: str, meant: str) -> None:
    assert server_address(written) == meant
    assert server_address(meant) == meant


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("gpu-1:8000", "begin with http"),
        ("file:///etc/passwd", "begin with http"),
        ("http://", "names no host"),
        ("http://host:99999", "[Pp]ort"),
        ("http://host:0", "names no host"),
        ("http://host/v1?key=1", "leave out what follows"),
        ("http://host/#x", "leave out what follows"),
        ("http://ho st", "only letters"),
        ("http://host\r\nx: y", "only letters"),
        ("http://höst", "only letters"),
    ],
)
def test_what_is_no_address_is_named(written: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        server_address(written)
    assert repr(written) in str(caught.value)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValidationError, match="STEPWISER_LLM_KEYS") as caught:
        LLMSpec(door="server", checkpoint="x", servers=("http://ada:secret@host",))
    assert "secret" not in str(caught.value.errors(include_input=False))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"door": "server"}, "name at least one address"),
        ({"servers": ("http://a",)}, "set door to server"),
        ({"door": "server", "servers": ("http://a", "http://A/v1")}, "'http://a' is named twice"),
        ({"door": "server", "servers": ("http://a",), "patience_s": 0}, "patience_s"),
    ],
)
def test_servers_and_their_door_go_together(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        LLMSpec.model_validate({"checkpoint": "x"} | wrong)


def test_a_server_is_started_as_the_door_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    tiny = make_tiny_llama(tmp_path / "tiny")
    checkpoint = check_checkpoint(tiny)
    spec = LLMSpec(checkpoint=str(tiny), name="tiny", max_num_seqs=32, max_model_len=100)
    monkeypatch.setattr("engine.llm.server_start.on_cpu", lambda: True)
    command = server_command(spec, checkpoint, "127.0.0.1", 8123)
    assert command[-3:] == ["--served-model-name", "tiny", weights_name(checkpoint.content_hash)]
    for wanted in ("--no-enable-chunked-prefill", "--max-num-seqs=32", "--max-model-len=100", "--port=8123"):
        assert wanted in command
    assert server_environment(spec, checkpoint, {"PATH": "x"})["OMP_NUM_THREADS"] == "1"
    monkeypatch.setattr("engine.llm.server_start.on_cpu", lambda: False)
    command = server_command(spec, checkpoint, "127.0.0.1", 8123)
    assert "--gpu-memory-utilization=0.9" in command
    assert not any("chunked" in argument for argument in command)
    assert "OMP_NUM_THREADS" not in server_environment(spec, checkpoint, {})


def test_the_command_is_shown_for_another_machine(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=80)
    serve(Settings(home=tmp_path), "nano", "0.0.0.0", 8123, ["max_num_seqs=32"], True, console)
    line = out.getvalue()
    assert line.count("\n") == 1 and line.startswith("env HF_HUB_OFFLINE=1 ")
    assert "--host=0.0.0.0 --port=8123" in line and "--max-num-seqs=32" in line
    assert weights_name(check_checkpoint(PACKAGED["nano"]).content_hash) in line


def test_keys_come_from_the_environment_and_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWISER_LLM_KEYS", '{"https://GPU-1:8000/v1": "s3cret"}')
    settings = Settings(home=tmp_path)
    assert "s3cret" not in repr(settings)
    assert settings.llm_keys["https://gpu-1:8000"].get_secret_value() == "s3cret"
    monkeypatch.setenv("STEPWISER_LLM_KEYS", '{"gpu-1": "s3cret"}')
    with pytest.raises(ValidationError, match="begin with http"):
        Settings(home=tmp_path)
