"""The scripted stand-in for tests: a door whose completions a function writes. No recipe can name it.

It keeps every promise of ``engine.llm.base.LLM`` (stop strings, seeds, counts, laziness, early close, errors), has
a tokenizer of its own, and can finish requests in any order and fail on demand. It knows nothing of language.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

from engine.errors import LLMError
from engine.llm.base import TAGS, Completion, LLMInfo, Request, refusal, refused

Script = Callable[[str, int], str]
"""(prompt text, seed) → the whole answer. Deterministic; the door cuts it at stop strings and token limits."""

Order = Callable[[Sequence[Request]], int]
"""Requests in flight, oldest first → which of them finishes next."""

Scorer = Callable[[str, str], float]
"""(prompt text, text of a token) → its log-probability as the next token."""

PAD, BEGIN, END = 0, 1, 2
# Tokens of several characters, as real vocabularies have them: a stop string may end inside one.
PIECES = (*TAGS, "\n\n", "ab", "12")
FIRST_CHARACTER = 3 + len(PIECES)
VOCABULARY = FIRST_CHARACTER + 0x110000


def oldest_first(flying: Sequence[Request]) -> int:
    return 0


def uniform(prompt: str, token: str) -> float:
    """Every token of the vocabulary is as likely as any other."""
    return -math.log(VOCABULARY)


def newest_first(flying: Sequence[Request]) -> int:
    return len(flying) - 1


def shuffled(seed: int) -> Order:
    """An order that looks random and is the same for the same seed and requests."""

    def pick(flying: Sequence[Request]) -> int:
        names = "|".join(f"{request.id}:{request.seed}" for request in flying)
        return int.from_bytes(hashlib.sha256(f"{seed}|{names}".encode()).digest()[:8]) % len(flying)

    return pick


class ScriptedLLM:
    """``engine.llm.base.LLM`` over a script.

    ``context`` and ``in_flight`` are as in any door. ``fail`` returns a message for a request that shall end with
    finish reason ``error``, else None. After ``crash_after`` served requests the whole door raises LLMError, as an
    engine that died would. ``score`` gives the log-probabilities of tokens that a request wants scored. ``served``
    and ``aborted`` list request ids, for tests to look at.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        context: int = 4096,
        in_flight: int = 8,
        order: Order = oldest_first,
        fail: Callable[[Request], str | None] | None = None,
        crash_after: int | None = None,
        score: Scorer = uniform,
    ):
        self._script, self._order, self._fail, self._crash_after = script, order, fail, crash_after
        self._score = score
        self._streaming = self._closed = False
        self.in_flight = in_flight
        self.served: list[str] = []
        self.aborted: list[str] = []
        digest = hashlib.sha256(f"scripted:{name}".encode()).hexdigest()
        self.info = LLMInfo(name, digest, context, {"door": "scripted"})

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain-text prompt, with the begin token."""
        return [BEGIN, *_tokens(text)]

    def encode_chat(self, messages: Sequence[dict[str, str]], answer: str = "") -> list[int]:
        """Token ids of ``role: content`` lines and an open assistant line, with the answer begun on it."""
        lines = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return self.encode(f"{lines}assistant: {answer}")

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids; begin, end and padding left out."""
        return "".join(_text(token) for token in token_ids)

    def stream(self, requests: Iterable[Request | None]) -> Iterator[list[Completion]]:
        """Serve requests in the given order; see ``engine.llm.base.LLM.stream``."""
        if self._closed:
            raise LLMError(f"{self.info.name}: the door is closed; open it again")
        return self._stream(iter(requests))

    def _stream(self, requests: Iterator[Request | None]) -> Iterator[list[Completion]]:
        if self._streaming:
            raise LLMError(f"{self.info.name}: a stream is open already; exhaust or close it first")
        self._streaming = True
        flying: list[Request] = []
        more = True
        try:
            while more or flying:
                while more and sum(request.n for request in flying) < self.in_flight:
                    try:
                        request = next(requests)
                    except StopIteration:
                        more = False
                        break
                    if request is None:
                        break
                    if completions := self._refusal(request):
                        yield completions
                    else:
                        flying.append(request)
                if not flying:
                    if more:
                        yield []
                    continue
                if self._crash_after is not None and len(self.served) >= self._crash_after:
                    raise LLMError(f"{self.info.name}: crashed after {len(self.served)} requests, as asked")
                request = flying.pop(self._order(flying))
                self.served.append(request.id)
                prompt = self.decode(request.prompt_token_ids)
                yield [self._draw(request, prompt, index) for index in range(request.n)]
        finally:
            self._streaming = False
            self.aborted += [request.id for request in flying]

    def _refusal(self, request: Request) -> list[Completion] | None:
        if completions := refusal(request, self.info.context, VOCABULARY):
            return completions
        message = self._fail(request) if self._fail else None
        return refused(request, message) if message else None

    def _draw(self, request: Request, prompt: str, index: int) -> Completion:
        """One draw; greedy draws are all the first one, as in any door."""
        sampling = request.sampling
        seed = request.seed + index if sampling.temperature > 0 else 0
        tokens = [*_tokens(self._script(prompt, seed)), END]
        scores = tuple(self._score(prompt, _text(token)) for token in request.scored)
        room = min(sampling.max_tokens, self.info.context - len(request.prompt_token_ids))
        text = ""
        for count, token in enumerate(tokens[:room], start=1):
            text += _text(token)
            if token == END or any(stop in text for stop in sampling.stop):
                return Completion(request.id, index, text, tuple(tokens[:count]), "stop", scores=scores)
        return Completion(request.id, index, text, tuple(tokens[:room]), "length", scores=scores)

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _tokens(text: str) -> list[int]:
    """Token ids of ``text``: the first piece that fits, else one character."""
    ids, at = [], 0
    while at < len(text):
        piece = next((piece for piece in PIECES if text.startswith(piece, at)), None)
        ids.append(FIRST_CHARACTER + ord(text[at]) if piece is None else 3 + PIECES.index(piece))
        at += len(piece or text[at])
    return ids


def _text(token: int) -> str:
    if token < 3:
        return ""
    return PIECES[token - 3] if token < FIRST_CHARACTER else chr(token - FIRST_CHARACTER)
