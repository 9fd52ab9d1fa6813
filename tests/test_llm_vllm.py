"""What only the vLLM door has: how it fails, closes, and is set up on a CPU. Not: the contract of all doors (test_llm)."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import CheckpointError, LLMError
from engine.llm import LLMSpec, open_llm
from engine.llm.base import Request, Sampling
from engine.llm.checkpoint import CheckpointInfo
from engine.llm.tokens import Tokens
from tests.doors import mixed
from tests.tiny_llama import make_tiny_llama


@pytest.mark.vllm
def test_vllm_without_a_chat_template(vllm_door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_door._tokenizer, "chat_template", None)
    with pytest.raises(LLMError, match="no chat template"):
        vllm_door.encode_chat([{"role": "user", "content": "1"}])


@pytest.mark.vllm
def test_the_token_that_closes_a_turn_ends_a_completion_where_that_is_asked_for(
    vllm_door: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = Tokens(vllm_door._tokens.tokenizer, "closing")
    end = closing.tokenizer.convert_tokens_to_ids("a")
    closing.__dict__["turn_end"] = end  # as if the template closed a turn with it
    monkeypatch.setattr(vllm_door, "_tokens", closing)
    ids = tuple(vllm_door.encode("12"))
    settings = [Sampling(max_tokens=40), Sampling(max_tokens=40, ends_turn=True)]
    requests = [Request(str(s.ends_turn), ids, 16, 5, s) for s in settings]
    drawn = {completions[0].request_id: completions for completions in vllm_door.stream(requests)}
    through = 0
    for free, ended in zip(drawn["False"], drawn["True"], strict=True):
        place = free.token_ids.index(end) + 1 if end in free.token_ids else None
        assert ended.token_ids == free.token_ids[:place]
        if place is not None:
            through += place < len(free.token_ids)
            assert ended.finish_reason == "stop" and ended.text == vllm_door.decode(
                free.token_ids[: place - 1]
            )
    assert through, "without being asked it goes on"


@pytest.mark.vllm
def test_vllm_that_fails_is_named_and_stays_failed(vllm_door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("out of memory")

    engine = vllm_door._llm.llm_engine
    with monkeypatch.context() as patch:
        patch.setattr(vllm_door, "_failure", None)
        patch.setattr(engine, "step", broken)
        with pytest.raises(LLMError, match=r"vLLM failed while sampling .*out of memory"):
            list(vllm_door.stream(mixed(vllm_door, 3)))
        with pytest.raises(LLMError, match=r"failed earlier .*out of memory"):
            vllm_door.stream([])
    engine.abort_request(list(engine.output_processor.external_req_ids))
    assert len(list(vllm_door.stream(mixed(vllm_door, 3)))) == 3


@pytest.mark.vllm
def test_vllm_that_is_closed_says_so(vllm_door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_door, "_llm", None)
    vllm_door.close()
    with pytest.raises(LLMError, match="the door is closed"):
        vllm_door.stream([])


@pytest.mark.vllm
def test_a_checkpoint_that_vllm_does_not_know_is_named(vllm_door: Any, tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path / "odd")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"model_type": "odd", "architectures": ["OddLM"]})
    )
    with pytest.raises(CheckpointError, match="odd: vLLM cannot load it") as caught:
        open_llm(LLMSpec(checkpoint=str(folder)))
    assert "\n" not in str(caught.value)
    assert len(list(vllm_door.stream(mixed(vllm_door, 3)))) == 3, "the open door is not touched"


@pytest.mark.vllm
def test_a_tiny_llm_takes_one_thread_and_leaves_the_setter_alone(vllm_door: Any) -> None:
    import torch
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("threads are set on a CPU only")
    assert torch.get_num_threads() == 1
    try:
        torch.set_num_threads(2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_on_a_cpu_a_step_holds_the_longest_prompt_whole(tmp_path: Path) -> None:
    from engine.llm.vllm import _cpu_options

    info = CheckpointInfo(tmp_path, "hash", 40_000, "LlamaForCausalLM", 1)
    options = _cpu_options(LLMSpec(checkpoint="x", max_num_seqs=300), info)
    assert options["enable_chunked_prefill"] is False
    assert options["max_model_len"] == 40_000
    assert options["max_num_batched_tokens"] == 40_300
    assert options["kv_cache_memory_bytes"] == 2 << 30
    spec = LLMSpec(checkpoint="x", max_num_seqs=300, max_model_len=100, kv_cache_gib=0.5, block_size=64)
    options = _cpu_options(spec, info)
    assert options["max_model_len"] == 100
    assert options["max_num_batched_tokens"] >= 8192
    assert (options["kv_cache_memory_bytes"], options["block_size"]) == (1 << 29, 64)
    with pytest.raises(CheckpointError, match="set max_model_len"):
        _cpu_options(LLMSpec(checkpoint="x"), replace(info, context=None))


def test_tags_are_text_even_where_a_tokenizer_calls_them_special(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(make_tiny_llama(tmp_path / "tiny"))
    plain = tokenizer.convert_tokens_to_ids(["<pad>", "<s>", "</s>", "<unk>"])
    ids = [*plain, *tokenizer("<chunk>a</chunk>", add_special_tokens=False)["input_ids"]]
    tokens = Tokens(tokenizer, "tiny")
    assert tokens.decode(ids) == "<chunk>a</chunk>" and not tokens.tags_are_special
    tokenizer.add_special_tokens({"additional_special_tokens": ["<chunk>", "</chunk>", "<|user|>"]})
    tokens = Tokens(tokenizer, "tiny")
    assert tokens.decode([*ids, tokenizer.convert_tokens_to_ids("<|user|>")]) == "<chunk>a</chunk>"
    assert tokens.tags_are_special


def test_a_tokenizer_that_closes_every_text_does_not_close_a_prompt() -> None:
    def encode(text: str, add_special_tokens: bool = True) -> list[int]:
        plain = [ord(letter) for letter in text]
        return [1, *plain, 2] if add_special_tokens else plain

    tokens = Tokens(SimpleNamespace(encode=encode, eos_token_id=2), "closing")
    assert tokens.encode("ab") == [1, 97, 98]


def test_vllm_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_tiny_llama(tmp_path / "tiny")
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(LLMError, match="install the \\[cpu\\] or \\[gpu\\] extra"):
        open_llm(LLMSpec(checkpoint=str(folder)))
