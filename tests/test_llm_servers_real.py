"""Two real vLLM servers, started once: the contract of all doors over one of them, then both together, then one killed.

The contract's tests are those of test_llm and test_llm_stream, collected here again with this file's ``door``.
"""

from __future__ import annotations

import inspect
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from engine.llm import LLMSpec, open_llm, server_fleet
from engine.llm.base import LLM, Request
from engine.llm.checkpoint import check_checkpoint
from engine.llm.server import ServerDoor
from engine.llm.server_start import ServerProcess, server_command, server_environment
from tests import test_llm, test_llm_stream
from tests.doors import by_id, mixed
from tests.tiny_llama import make_tiny_llama

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


def _contract(module: object) -> dict[str, Callable[..., None]]:
    """The tests of a module that are about whichever door they are given."""
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and "door" in inspect.signature(test).parameters
    }


globals().update(_contract(test_llm) | _contract(test_llm_stream))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("tiny-llama") / "tiny")


@pytest.fixture(scope="module")
def servers(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    """Two servers by address, started at the same time."""
    pytest.importorskip("vllm")
    checkpoint, logs = check_checkpoint(tiny), tmp_path_factory.mktemp("servers")
    spec = LLMSpec(checkpoint=str(tiny), name="tiny", max_num_seqs=16, kv_cache_gib=0.125)
    environment = server_environment(spec, checkpoint, os.environ)
    started: dict[str, ServerProcess] = {}
    try:
        for _ in range(2):
            port = _free_port()
            command = server_command(spec, checkpoint, "127.0.0.1", port)
            started[f"http://127.0.0.1:{port}"] = ServerProcess(command, environment, logs / f"{port}.log")
        for address, server in started.items():
            server.wait_until_well(address, 500)
        yield started
    finally:
        for server in started.values():
            server.signal(signal.SIGKILL)  # nothing to wait for
            server.stop()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _open(tiny: Path, *addresses: str, each: int = 13) -> ServerDoor:
    spec = LLMSpec(door="server", checkpoint=str(tiny), name="tiny", servers=addresses, max_num_seqs=each)
    llm = open_llm(spec)
    assert isinstance(llm, ServerDoor)
    return llm


@pytest.fixture(scope="module")
def door(tiny: Path, servers: dict[str, ServerProcess]) -> Iterator[LLM]:
    """One server; 13 draws there and 3 that wait are the 16 that the contract's tests count with."""
    with _open(tiny, next(iter(servers))) as llm:
        yield llm


def test_a_server_says_which_weights_it_has(door: LLM, tiny: Path) -> None:
    assert door.info.versions["weights known by"] == "hash"
    assert door.info.content_hash == check_checkpoint(tiny).content_hash


def test_a_server_forgets_what_was_dropped(door: LLM, servers: dict[str, ServerProcess]) -> None:
    stream = door.stream(mixed(door, 60))
    next(stream)
    stream.close()
    assert isinstance(door, ServerDoor)
    address = door.use[0].address
    for _ in range(200):
        lines = httpx.get(f"{address}/metrics", trust_env=False).text.splitlines()
        counts = [
            line
            for line in lines
            if line.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{"))
        ]
        if len(counts) == 2 and all(line.endswith(" 0.0") for line in counts):
            return
        time.sleep(0.1)
    pytest.fail(f"still at work: {counts}")


def test_a_server_draws_what_the_door_in_this_process_draws(door: LLM, vllm_door: LLM) -> None:
    asked = mixed(door, 40)
    there, here = by_id(door.stream(asked)), by_id(vllm_door.stream(asked))
    assert there == here


def test_two_servers_share_the_work_and_agree_with_one(
    door: LLM, tiny: Path, servers: dict[str, ServerProcess]
) -> None:
    asked = mixed(door, 120)
    with _open(tiny, *servers, each=8) as both:
        assert by_id(both.stream(asked)) == by_id(door.stream(asked))
        assert min(use.draws for use in both.use) > 20
        assert sum(use.draws for use in both.use) == sum(request.n for request in asked)


def test_a_frozen_server_counts_as_dead_and_is_taken_back_when_it_goes_on(
    door: LLM, tiny: Path, servers: dict[str, ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_fleet, "LOOK_S", 0.2)
    monkeypatch.setattr("engine.llm.server_check.HEALTH_S", 1.0)
    address, frozen = list(servers.items())[1]
    asked = mixed(door, 60)
    with _open(tiny, *servers, each=8) as both:
        member = both._fleet.members[1]
        assert member.address == address
        frozen.signal(signal.SIGSTOP)
        try:
            assert len(by_id(both.stream(asked))) == len(asked)
            assert member.use.draws == 0 and member.use.handed_on > 0 and not member.up
        finally:
            frozen.signal(signal.SIGCONT)
        for _ in range(600):
            if member.up:
                break
            time.sleep(0.1)
        assert by_id(both.stream(asked)) == by_id(door.stream(asked))
        assert member.use.draws > 0


def test_a_killed_server_loses_nothing(door: LLM, tiny: Path, servers: dict[str, ServerProcess]) -> None:
    """The last of this file: the second server does not come back."""
    asked: list[Request] = mixed(door, 200)
    expected = by_id(door.stream(asked))
    with _open(tiny, *servers, each=8) as both:
        answers = {}
        for completions in both.stream(asked):
            assert completions[0].request_id not in answers
            answers[completions[0].request_id] = completions
            if len(answers) == 40:
                list(servers.values())[1].signal(signal.SIGKILL)
        assert answers == expected
        assert not both._fleet.members[1].up and both.use[1].handed_on > 0
