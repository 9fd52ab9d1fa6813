"""What a door to a language model is: requests in, completions out as they finish. Not how any door does it.

Two promises hold for every door and are tested on each: a completion's text is ``decode(token_ids)``, and draw i
of a request depends on the prompt, the settings and ``seed + i`` alone, up to the rounding of floating-point sums
(a different mix of prompts in one batch may round differently, and a near tie may then fall the other way).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol, Self, runtime_checkable

from engine.errors import LLMError, PromptTooLongError, RecipeError

FinishReason = Literal["stop", "length", "error"]
"""``stop``: a stop string or end token; ``length``: the token limit; ``error``: the door could not serve it."""

TAGS = ("<chunk>", "</chunk>")
"""Kept in decoded text even where a tokenizer calls them special."""

MOST_SCORED = 128
"""Token ids whose log-probability one request may ask for: vLLM's limit."""


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn. ``temperature`` 0 is greedy; ``top_k`` 0 keeps every token.

    ``max_tokens`` counts new tokens, the end token included; where the context leaves less room than that, the
    completion ends there with finish reason ``length``. ``stop`` strings stay in the text, which ends with the
    token that completed one: a token that runs on past the stop string is kept whole. ``ends_turn``: the token with
    which the tokenizer's chat template closes a turn ends the completion too, as the end token does.
    Raises RecipeError for settings that no door can follow.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 8192
    stop: tuple[str, ...] = ()
    ends_turn: bool = False

    def __post_init__(self) -> None:
        wrong = {
            "temperature must be at least 0": self.temperature < 0,
            "top_p must be above 0 and at most 1": not 0 < self.top_p <= 1,
            "top_k must be at least 0": self.top_k < 0,
            "max_tokens must be at least 1": self.max_tokens < 1,
            "a stop string may not be empty": "" in self.stop,
        }
        if problems := [what for what, is_wrong in wrong.items() if is_wrong]:
            raise RecipeError(f"sampling settings: {'; '.join(problems)}; received {self}")

    def digest(self) -> str:
        """Hash of the settings (not of seeds or counts): part of a prefix's key.

        ``ends_turn`` is part of it only where it is on: keys that were stored before there was such a thing stay.
        """
        settings = {name: value for name, value in asdict(self).items() if name != "ends_turn" or value}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Request:
    """``n`` draws from one prompt. Draw i of the request uses seed ``seed + i``.

    ``id`` is the caller's own and need not be unique. ``scored`` are token ids whose probability as the first new
    token is wanted, at most 128; asking changes no draw. Raises LLMError for an impossible ``n`` or ``seed``.
    """

    id: str
    prompt_token_ids: tuple[int, ...]
    n: int
    seed: int
    sampling: Sampling
    scored: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.n < 1 or self.seed < 0 or self.seed + self.n > 2**63:
            raise LLMError(
                f"request {self.id!r}: n must be at least 1 and seeds lie in 0 … 2**63 − 1; "
                f"received n={self.n}, seed={self.seed}"
            )


@dataclass(frozen=True)
class Completion:
    """One finished draw. ``index`` is 0..n-1 within its request; ``error`` is set only for finish reason ``error``.

    ``token_ids`` are all tokens drawn, an end token included; ``text`` is their text, end token left out.
    ``scores``: the natural log-probability of each of the request's ``scored`` tokens as the first new token, in that
    order, at temperature 1 over the whole vocabulary; empty where none were asked for.
    """

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    error: str | None = None
    too_long: bool = False
    scores: tuple[float, ...] = ()


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
    in_flight: int
    """How many draws it works on at once: a request is pulled only while fewer than that are unfinished."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain-text prompt, with the begin token if the tokenizer has one."""
        ...

    def encode_chat(self, messages: Sequence[dict[str, str]], answer: str = "") -> list[int]:
        """Token ids of a chat prompt, generation prompt added, and of an ``answer`` that has begun behind it.

        The answer's characters stand there as they are, with no space or begin token before them and nothing behind.
        Raises LLMError without a chat template.
        """
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out, tags kept."""
        ...

    def stream(self, requests: Iterable[Request | None]) -> Iterator[list[Completion]]:
        """Serve requests, yielding each request's completions (ordered by index, all n) as it finishes.

        Requests are pulled lazily, see ``in_flight``. ``None`` from the source means that nothing is ready just now:
        it is asked again later (often, so asking must be cheap). With nothing in flight either, an empty list is
        yielded first, so that who reads the answers can act on them and make something ready; it is the only empty
        list there is. A request the door cannot serve (prompt too long, …) yields n completions with finish
        reason ``error`` and the message; the others carry on. Closing the iterator
        aborts what is in flight. One stream at a time: a second one raises LLMError until the first is exhausted
        or closed. Raises LLMError if the LLM itself fails.
        """
        ...

    def close(self) -> None:
        """Free the LLM's memory. Closing twice is harmless; a closed door raises LLMError."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class Spread(Protocol):
    """A door to several servers or engines."""

    def members(self) -> dict[str, dict[str, int]]:
        """By what each is called, what became of it since the door was opened: ``draws`` it made, requests
        ``handed_on`` to others because it did not answer them, ``outages``."""
        ...


def refusal(request: Request, context: int, vocabulary: int) -> list[Completion] | None:
    """The n error completions of a request that cannot be served at all, else None.

    ``context`` and ``vocabulary`` are counts of tokens; a prompt must leave room for one new token.
    """
    ids = request.prompt_token_ids
    if not ids:
        return refused(request, f"request {request.id!r}: the prompt is empty; give it at least one token")
    if len(ids) >= context:
        return refused(request, str(PromptTooLongError(request.id, len(ids), context)), too_long=True)
    low, high = min((*ids, *request.scored)), max((*ids, *request.scored))
    if low < 0 or high >= vocabulary:
        return refused(
            request,
            f"request {request.id!r}: token id {low if low < 0 else high} is outside the vocabulary "
            f"of {vocabulary} tokens; encode the prompt with this checkpoint's tokenizer",
        )
    if len(request.scored) > MOST_SCORED:
        return refused(
            request,
            f"request {request.id!r}: {len(request.scored)} scored tokens; ask for {MOST_SCORED} at most",
        )
    return None


def refused(request: Request, message: str, *, too_long: bool = False) -> list[Completion]:
    """``n`` completions that say why ``request`` was not served."""
    return [Completion(request.id, i, "", (), "error", message, too_long) for i in range(request.n)]
