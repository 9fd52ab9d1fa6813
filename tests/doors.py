"""The doors that the contract is tested over, and short ways to ask them. The vLLM door serves a tiny Llama with
random weights: what it writes is noise, and the contract does not care.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from engine.llm.base import LLM, Completion, Request, Sampling
from engine.llm.scripted import ScriptedLLM

CONTEXT = 512
SHORT = Sampling(max_tokens=24)
LETTERS = "abcdefghijk +-=0123456789"


def babble(prompt: str, seed: int) -> str:
    """Noise that follows from prompt and seed, as a Llama with random weights writes it; sometimes nothing."""
    dice = random.Random(f"{seed}|{prompt}")
    pieces = [*LETTERS, "\n", "\n\n", "ab", "<chunk>", "</chunk>"]
    return "".join(dice.choice(pieces) for _ in range(dice.choice((0, 3, 9, 20, 60))))


def scripted(**options: Any) -> ScriptedLLM:
    return ScriptedLLM(babble, **({"context": CONTEXT, "in_flight": 16} | options))


@pytest.fixture(params=["scripted", pytest.param("vllm", marks=pytest.mark.vllm)])
def door(request: pytest.FixtureRequest) -> LLM:
    return scripted() if request.param == "scripted" else request.getfixturevalue("vllm_door")


def prompt(door: LLM, tokens: int, salt: int = 0) -> tuple[int, ...]:
    """A prompt of exactly so many tokens."""
    dice = random.Random(salt)
    ids = door.encode("".join(dice.choice("cdefghijk+-=") for _ in range(tokens)))
    return tuple(ids[:tokens])


def by_id(stream: Iterable[list[Completion]]) -> dict[str, list[Completion]]:
    answers: dict[str, list[Completion]] = {}
    for completions in stream:
        assert completions[0].request_id not in answers, "a request was answered twice"
        answers[completions[0].request_id] = completions
    return answers


def texts(completions: list[Completion]) -> list[tuple[str, tuple[int, ...], str]]:
    return [(c.text, c.token_ids, c.finish_reason) for c in completions]


def ask(door: LLM, n: int, seed: int, sampling: Sampling = SHORT, tokens: int = 12) -> list[Completion]:
    (completions,) = door.stream([Request("one", prompt(door, tokens), n, seed, sampling)])
    return completions


def mixed(door: LLM, count: int) -> list[Request]:
    """Long prompts among short ones, all seeded: a prompt that is prefilled in parts would kill vLLM on a CPU."""
    return [
        Request(f"r{i}", prompt(door, 450 if i % 7 == 0 else 5 + i % 11, salt=i), 1 + i % 3, 100 * i, SHORT)
        for i in range(count)
    ]
