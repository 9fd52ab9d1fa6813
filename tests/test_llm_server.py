"""The server door and its fleet against servers that misbehave on demand. Not: real servers (test_llm_servers_real)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from app.doctor import examine
from app.settings import Settings
from engine.checkpoints import PACKAGED
from engine.errors import LLMError
from engine.llm import LLMSpec, open_llm, server_fleet
from engine.llm.base import Completion, Request, Sampling
from engine.llm.checkpoint import check_checkpoint
from engine.llm.server import ServerDoor
from engine.llm.server_check import weights_name
from engine.pipeline.flow import open_door
from engine.recipes import SampleRecipe
from engine.runs import RunContext
from tests.fake_server import FakeServer
from tests.tiny_llama import make_tiny_llama

SHORT = Sampling(max_tokens=24)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    return make_tiny_llama(tmp_path_factory.mktemp("tiny-llama") / "tiny")


@pytest.fixture(scope="module")
def vocabulary(tiny: Path) -> int:
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(tiny).vocab_size)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that suit a test."""
    monkeypatch.setattr(server_fleet, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(server_fleet, "LONGEST_WAIT_S", 0.1)
    monkeypatch.setattr(server_fleet, "LOOK_S", 0.05)


@pytest.fixture
def start(tiny: Path, vocabulary: int) -> Iterator[Callable[..., FakeServer]]:
    """Start fake servers that serve the tiny checkpoint."""
    started: list[FakeServer] = []
    names = ("tiny", weights_name(check_checkpoint(tiny).content_hash))

    def one(**options: Any) -> FakeServer:
        started.append(FakeServer(**({"names": names, "vocabulary": vocabulary} | options)))
        return started[-1]

    yield one
    for server in started:
        server.stop()


@pytest.fixture
def door(tiny: Path) -> Iterator[Callable[..., ServerDoor]]:
    """Open doors to servers; they are closed at the end."""
    opened: list[ServerDoor] = []

    def one(*servers: FakeServer, keys: dict[str, str] | None = None, **options: Any) -> ServerDoor:
        spec = LLMSpec(
            door="server",
            checkpoint=str(tiny),
            name="tiny",
            servers=tuple(server.address for server in servers),
            **({"max_num_seqs": 8, "patience_s": 30} | options),
        )
        llm = open_llm(spec, keys)
        assert isinstance(llm, ServerDoor)
        opened.append(llm)
        return llm

    yield one
    for llm in opened:
        llm.close()


def requests(count: int, n: int = 3) -> list[Request]:
    return [Request(f"r{i}", (1, 10 + i % 40, 20), n, 1000 * i, SHORT) for i in range(count)]


def served(llm: ServerDoor, asked: list[Request]) -> dict[str, list[Completion]]:
    answers = {}
    for completions in llm.stream(asked):
        assert completions[0].request_id not in answers, "a request was answered twice"
        answers[completions[0].request_id] = completions
    return answers


@pytest.fixture
def right(start: Callable[..., FakeServer], door: Callable[..., ServerDoor]) -> dict[str, list[Completion]]:
    """What forty requests are answered by one server that is well."""
    return served(door(start()), requests(40))


# What is asked


def test_every_setting_is_named_so_that_no_server_adds_its_own(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor]
) -> None:
    server = start()
    llm = door(server)
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=5, max_tokens=9999, stop=("x",))
    served(llm, [Request("one", (1, 7, 8), 4, 2**53, sampling)])
    body = server.asked[-1]
    wanted = {
        "model": server.names[1],
        "prompt": [1, 7, 8],
        "n": 4,
        "seed": 2**53,
        "max_tokens": 512 - 3,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "stop": ["x"],
        "include_stop_str_in_output": True,
        "return_token_ids": True,
    }
    assert {name: body[name] for name in wanted} == wanted
    greedy = served(llm, [Request("one", (1, 7, 8), 4, 5, Sampling(temperature=0, max_tokens=8))])["one"]
    assert server.asked[-1]["n"] == 1
    assert [c.index for c in greedy] == [0, 1, 2, 3]
    assert len({c.token_ids for c in greedy}) == 1


def test_what_a_door_says_of_its_servers(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor]
) -> None:
    llm = door(start(context=300), start(context=200), max_model_len=400)
    assert llm.info.context == 200
    assert llm.in_flight == 2 * (8 + 2)
    assert llm.info.versions["vllm"] == "0.0.fake"
    assert llm.info.versions["weights known by"] == "hash"


# Several servers


def test_servers_share_the_work_and_agree_with_one(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor], right: dict[str, list[Completion]]
) -> None:
    one, other = start(), start()
    llm = door(one, other)
    assert served(llm, requests(40)) == right
    assert min(one.drawn, other.drawn) > 0
    assert one.drawn + other.drawn == 40
    assert [use.draws for use in llm.use] == [3 * one.drawn, 3 * other.drawn]
    assert sum(use.tokens for use in llm.use) == sum(len(c.token_ids) for a in right.values() for c in a)
    assert all(0 <= use.below_s <= use.up_s for use in llm.use)
    assert llm.members() == {
        server.address: {"draws": 3 * server.drawn, "handed_on": 0, "outages": 0} for server in (one, other)
    }


def test_the_work_of_a_dead_server_goes_to_the_others_and_it_is_taken_back(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = start(), start()
    one.pause_s = other.pause_s = 0.02
    llm = door(one, other)
    asked, answers, before = requests(300), {}, 0
    expected = served(llm, asked)
    one.asked.clear()
    for completions in llm.stream(asked):
        answers[completions[0].request_id] = completions
        if len(answers) == 20:
            one.stop()
            before = one.drawn
        if len(answers) == 120:
            assert one.drawn == before
            one.start()
        if one.drawn == before and 120 < len(answers) < 290:
            time.sleep(0.01)  # whoever reads may be slow: time for the server to be noticed
    assert answers == expected
    assert one.drawn > before, "it was taken back"
    assert llm.use[0].downs >= 1 and llm.use[1].downs == 0
    assert f"{one.address}: well again" in caplog.text


def test_a_stuck_server_counts_as_dead(
    start: Callable[..., FakeServer],
    door: Callable[..., ServerDoor],
    right: dict[str, list[Completion]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.llm.server_check.HEALTH_S", 0.2)
    one, other = start(), start()
    llm = door(one, other)
    one.silent.set()
    assert served(llm, requests(40)) == right
    assert llm.use[0].handed_on > 0 and llm.use[0].draws == 0


def test_the_shorter_queue_gets_the_next_request(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor]
) -> None:
    busy, free = start(), start()
    busy.metrics = (
        "# HELP vllm:num_requests_running x\n"
        'vllm:num_requests_running{engine="0",model_name="tiny"} 5.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.2e+02\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0\n'
    )
    llm = door(busy, free)
    members = llm._fleet.members
    while members[0].others != 125:
        time.sleep(0.01)
    for _ in range(6):
        served(llm, requests(1, n=1))
    assert (busy.drawn, free.drawn) == (0, 6)


# Servers that answer, but not what was asked


@pytest.mark.parametrize(
    "misdeed",
    [
        "429",
        "503",
        "500",
        "404",
        "redirect",
        "html",
        "garbage",
        "no ids",
        "a list",
        "drop",
        "half",
        "no end",
        "error in stream",
        "odd tokens",
        "more than asked",
    ],
)
def test_what_is_no_answer_is_asked_for_again(
    start: Callable[..., FakeServer],
    door: Callable[..., ServerDoor],
    right: dict[str, list[Completion]],
    misdeed: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = start()
    llm = door(server)
    server.misdeeds.extend([misdeed] * 4)
    assert served(llm, requests(40)) == right
    assert not server.misdeeds
    assert llm.use[0].handed_on == 4 and llm.use[0].downs >= 1
    assert all(record.levelno == logging.WARNING and "\n" not in record.message for record in caplog.records)


def test_a_request_that_a_server_refuses_ends_and_the_others_carry_on(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor], right: dict[str, list[Completion]]
) -> None:
    server = start()
    server.always = lambda body: "400" if body["seed"] == 7000 else None
    answers = served(door(server), requests(40))
    refused = answers.pop("r7")
    assert [c.finish_reason for c in refused] == ["error"] * 3
    assert "I do not like this prompt" in (refused[0].error or "") and "'r7'" in (refused[0].error or "")
    assert server.address in (refused[0].error or "")
    assert answers == {key: value for key, value in right.items() if key != "r7"}


def test_a_request_that_always_fails_is_given_up_and_the_others_carry_on(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor], right: dict[str, list[Completion]]
) -> None:
    server = start()
    server.always = lambda body: "500" if body["seed"] == 7000 else None
    answers = served(door(server), requests(40))
    given_up = answers.pop("r7")
    assert "asked 5 times in vain" in (given_up[0].error or "")
    assert "answered 500: engine ERROR all is lost" in (given_up[0].error or "")
    assert answers == {key: value for key, value in right.items() if key != "r7"}
    assert sum(body["seed"] == 7000 for body in server.asked) == 5


def test_servers_that_are_well_and_answer_nothing_end_the_stream(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor]
) -> None:
    server = start()
    server.always = lambda body: "500" if body["max_tokens"] > 1 else None
    llm = door(server)
    answers = []
    with pytest.raises(LLMError, match=r"3 requests one after the other.*resume the run"):
        for completions in llm.stream(requests(40)):
            answers.append(completions)
    assert len(answers) <= 2
    server.always = lambda body: None
    while not llm._fleet.members[0].up:
        time.sleep(0.01)
    assert len(served(llm, requests(40))) == 40, "the door is as good as before"


def test_patience_ends_where_no_server_is_well(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor]
) -> None:
    one, other = start(), start()
    llm = door(one, other, patience_s=0.3)
    stream = llm.stream(requests(200))
    next(stream)
    one.stop()
    other.stop()
    with pytest.raises(LLMError, match=r"no server has been well for 0.3 s") as caught:
        list(stream)
    assert one.address in str(caught.value) and other.address in str(caught.value)


def test_a_source_with_nothing_ready_is_not_asked_in_a_circle_while_no_server_is_well(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor]
) -> None:
    server = start()
    llm = door(server, patience_s=0.3)
    stream = llm.stream(iter(lambda: None, 0))
    assert next(stream) == []
    server.stop()
    with pytest.raises(LLMError, match="no server has been well"):
        for told, _ in enumerate(stream):
            time.sleep(0.01)
            assert told < 500


# Who may serve


def test_a_key_goes_to_its_own_server_alone(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor]
) -> None:
    guarded, open_to_all = start(key="s3cret"), start()
    keys = {guarded.address: "s3cret"}
    assert len(served(door(guarded, open_to_all, keys=keys), requests(20))) == 20
    assert guarded.drawn and open_to_all.drawn
    assert all("authorization" not in headers for headers in open_to_all.headers)
    for wrong in ({}, {guarded.address: "oth3r"}):
        with pytest.raises(LLMError, match=r"401: it wants a key.*STEPWISER_LLM_KEYS") as caught:
            door(guarded, keys=wrong)
        assert "oth3r" not in str(caught.value)


def test_a_run_hands_its_keys_to_its_door_and_logs_none(
    start: Callable[..., FakeServer], tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "tiny").symlink_to(tiny)
    guarded = start(key="s3cret")
    ctx: RunContext[Any] = RunContext(
        cast(Any, None), 1, 1, SampleRecipe(), tmp_path, "ada", llm_keys={guarded.address: "s3cret"}
    )
    with open_door(ctx, LLMSpec(door="server", checkpoint="tiny", servers=(guarded.address,))) as llm:
        assert llm.info.content_hash == check_checkpoint(tiny).content_hash
    said = capfd.readouterr()
    assert "loaded tiny" in said.out
    assert "s3cret" not in said.out + said.err + repr(ctx)


def test_other_weights_are_refused_at_once(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor], tiny: Path
) -> None:
    good = start()
    with pytest.raises(LLMError, match=r"serves the weights 'abcdef'.*start it again"):
        door(good, start(names=("tiny", "weights-abcdef")))
    with pytest.raises(LLMError, match=r"serves 'other', not 'tiny'.*llm-server tiny"):
        door(good, start(names=("other",)))
    assert door(start(names=("tiny",))).info.versions["weights known by"] == "name"
    assert door(start(names=("x",), root=str(tiny))).info.versions["weights known by"] == "folder"


def test_a_server_that_comes_back_with_other_weights_stays_out(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor]
) -> None:
    one, other = start(), start()
    llm = door(one, other)
    one.stop()
    one.names, one.pause_s = ("tiny", "weights-abcdef"), 0.0
    one.asked.clear()
    one.start()
    one.misdeeds.extend(["drop"] * 50)  # so that it is looked at again
    assert len(served(llm, requests(60))) == 60
    while llm._fleet.members[0].up or "abcdef" not in llm._fleet.members[0].why:
        served(llm, requests(10))
    asked = one.drawn
    assert len(served(llm, requests(60))) == 60
    assert one.drawn == asked


def test_one_server_is_enough_to_begin_and_none_is_not(
    start: Callable[..., FakeServer], door: Callable[..., ServerDoor]
) -> None:
    dead, well = start(), start()
    dead.stop()
    llm = door(dead, well)
    assert len(served(llm, requests(10))) == 10
    with pytest.raises(LLMError, match="no server answers") as caught:
        door(dead)
    assert dead.address in str(caught.value)
    dead.start()
    while not dead.drawn:
        served(llm, requests(20))


def test_a_closed_door_says_so(start: Callable[..., FakeServer], door: Callable[..., ServerDoor]) -> None:
    llm = door(start())
    stream = llm.stream(requests(20))
    next(stream)
    llm.close()
    llm.close()
    stream.close()
    with pytest.raises(LLMError, match="the door is closed"):
        llm.stream([])


# The doctor


def test_doctor_looks_at_servers(start: Callable[..., FakeServer], tmp_path: Path) -> None:
    nano = check_checkpoint(PACKAGED["nano"]).content_hash
    guarded = start(names=("mine", weights_name(nano)), key="s3cret")
    silent, plain, other = start(), start(names=("nano",)), start(names=("nano", "weights-abc"))
    silent.stop()
    keys = {guarded.address: "s3cret"}
    servers = [guarded, silent, plain, other]
    settings = Settings(home=tmp_path, llm_keys=keys)
    with ThreadPoolExecutor(1) as pool:  # where the browser tests ran before, this thread has a loop already
        asked = [*(server.address for server in servers), "ftp://x"]
        findings = pool.submit(examine, settings, asked).result()
        less = pool.submit(examine, Settings(home=tmp_path), [guarded.address]).result()
    by_name = {finding.what: finding for finding in findings}
    said = {server.address: by_name[f"server {server.address}"] for server in servers}
    assert said[guarded.address].found == "vLLM 0.0.fake serves mine, context 512; the weights of nano here"
    assert said[silent.address].ok is False and "llm-server" in said[silent.address].needs
    assert "does not say which weights" in said[plain.address].found
    assert "not the weights of nano here" in said[other.address].found
    assert by_name["model server"].ok is False and "begin with http" in by_name["model server"].found
    (denied,) = [finding for finding in less if finding.what.startswith("server")]
    assert denied.ok is False and "STEPWISER_LLM_KEYS" in denied.found
