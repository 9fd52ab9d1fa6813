"""What a door to a language model is: requests in, completions out as they finish. Not how any door does it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol, runtime_checkable

FinishReason = Literal["stop", "length", "error"]
"""``stop``: a stop string or end token; ``length``: the token limit; ``error``: the door could not serve it."""


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn. ``max_tokens`` counts new tokens; ``stop`` strings stay in the text."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 8192
    stop: tuple[str, ...] = ()

    def digest(self) -> str:
        """Hash of the settings (not of seeds or counts): part of a prefix's key."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Request:
    """``n`` draws from one prompt. Draw i of the request uses seed ``seed + i``."""

    id: str
    prompt_token_ids: tuple[int, ...]
    n: int
    seed: int
    sampling: Sampling


@dataclass(frozen=True)
class Completion:
    """One finished draw. ``index`` is 0..n-1 within its request; ``error`` is set only for finish reason ``error``."""

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    error: str | None = None
    too_long: bool = False


@dataclass(frozen=True)
class LLMInfo:
    """What a run stores about the LLM it used. ``content_hash`` identifies the weights and the tokenizer."""

    name: str
    content_hash: str
    context: int
    versions: dict[str, str] = field(default_factory=dict)


@runtime_checkable
class LLM(Protocol):
    """A door. Open it with ``engine.llm.open_llm``, use it as a context manager or call ``close``."""

    info: LLMInfo

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain-text prompt, with the begin token if the tokenizer has one."""
        ...

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Token ids of a chat prompt, generation prompt added. Raises LLMError without a chat template."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out, tags kept."""
        ...

    def stream(self, requests: Iterable[Request]) -> Iterator[list[Completion]]:
        """Serve requests, yielding each request's completions (ordered by index, all n) as it finishes.

        Requests are pulled lazily: never more than the door's in-flight bound are drawn from the iterable ahead
        of need. A request the door cannot serve (prompt too long, …) yields n completions with finish reason
        ``error`` and the message; the others carry on. Closing the iterator aborts what is in flight.
        """
        ...

    def close(self) -> None: ...
