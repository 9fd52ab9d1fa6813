"""One request to a vLLM server over HTTP: what is sent, what may come back, and what can go wrong on the way.

The completions route of vLLM's OpenAI-compatible server, with token ids both ways. Answers are streamed, so that
the end of each draw is seen when it comes. A server is not trusted: sizes are bounded and every field is checked.
Not: which server is asked, or when again (``server_fleet``).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import httpx

from engine.llm.base import Request
from engine.llm.tokens import Tokens

STREAM_INTERVAL = 128
"""Tokens a piece of the stream: few pieces a draw, yet a sign of life now and then."""
MOST_BYTES = 32 << 20
"""Of one line of a stream or of one whole answer; a prompt of a million token ids, echoed, is a quarter of it."""
SAID = 300
"""Characters of a server's own words that stand in a message of ours."""


CONNECT_S = 10.0
KEPT_ALIVE_S = 2.0
"""How long an idle connection is kept: less than the 5 s after which a vLLM server closes it."""


class Fault(Enum):
    """What a failed request says, and of whom."""

    REQUEST = "the server refuses this request"
    BUSY = "the server asks to wait"
    LOST = "the connection was lost"
    FAILED = "the server answered with an error, or with what is no answer"
    DENIED = "the server refuses us: key, address or model"


class Trouble(Exception):
    """A request that was not answered. ``wait``: seconds that the server asked for, if it did."""

    def __init__(self, fault: Fault, message: str, wait: float | None = None):
        self.fault, self.wait = fault, wait
        super().__init__(message)


@dataclass
class Draw:
    """One draw as it came: token ids, how it ended, and the scores of its first token."""

    index: int
    ids: list[int] = field(default_factory=list)
    reason: Literal["stop", "length"] | None = None
    scores: tuple[float, ...] = ()


def client(address: str, key: str | None, timeout: float) -> httpx.AsyncClient:
    """An HTTP client for one server. It follows no redirect and asks no proxy: the address is where the key goes."""
    headers = {"accept-encoding": "identity"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    return httpx.AsyncClient(
        base_url=address + "/",
        headers=headers,
        timeout=httpx.Timeout(timeout, connect=CONNECT_S),
        limits=httpx.Limits(
            max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEPT_ALIVE_S
        ),
        trust_env=False,
    )


def body(request: Request, model: str, context: int, tokens: Tokens) -> dict[str, Any]:
    """The JSON of a completion request.

    Every setting that a server would else take from the checkpoint's generation config is named: a draw depends on
    the request alone. Draw i has seed ``seed + i`` because vLLM gives draw i of ``n`` that seed. Greedy draws are
    all the same, so one is asked for.
    """
    sampling = request.sampling
    data: dict[str, Any] = {
        "model": model,
        "prompt": list(request.prompt_token_ids),
        "n": draws_asked(request),
        "seed": request.seed,
        "max_tokens": min(sampling.max_tokens, context - len(request.prompt_token_ids)),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": list(sampling.stop),
        "stop_token_ids": tokens.stop_ids(sampling),
        "include_stop_str_in_output": True,
        # The server finds stop strings in its own text, which has to hold what ``decode`` shows.
        "skip_special_tokens": not tokens.tags_are_special,
        "stream": True,
        "stream_interval": STREAM_INTERVAL,
        "return_token_ids": True,
    }
    if request.scored:
        data |= {"logprobs": 0, "logprob_token_ids": list(request.scored), "return_tokens_as_token_ids": True}
    return data


def draws_asked(request: Request) -> int:
    """How many draws the server makes for ``request``."""
    return 1 if request.sampling.temperature == 0 else request.n


async def ask(
    http: httpx.AsyncClient, request: Request, data: Mapping[str, Any], vocabulary: int
) -> AsyncIterator[Draw]:
    """Draws in the order in which they end, the last one only when the answer is whole. Raises Trouble."""
    try:
        async with http.stream("POST", "v1/completions", json=data) as answer:
            if answer.status_code != 200:
                raise _refusal(answer, await _head(answer))
            kind = answer.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                raise Trouble(
                    Fault.FAILED, f"it answered with {_said(kind) or 'no type'} instead of a stream"
                )
            answers = _Answers(data, request, vocabulary)
            held: Draw | None = None
            async for line in _lines(answer):
                for draw in answers.take(line):
                    if held:
                        yield held
                    held = draw
                if answers.whole:
                    break
            if held is None or not answers.whole:
                raise Trouble(Fault.FAILED, "its answer broke off before the end")
            yield held
    except httpx.TimeoutException as error:
        raise Trouble(Fault.LOST, f"no sign of an answer for too long ({type(error).__name__})") from error
    except httpx.HTTPError as error:
        raise Trouble(
            Fault.LOST, f"{type(error).__name__}: {_said(str(error)) or 'connection lost'}"
        ) from error


class _Answers:
    """What has come of one request. ``whole`` once every draw has ended and the server has said so."""

    def __init__(self, data: Mapping[str, Any], request: Request, vocabulary: int):
        self.draws = [Draw(index) for index in range(data["n"])]
        self.whole = False
        self._most, self._scored, self._vocabulary = data["max_tokens"], request.scored, vocabulary

    def take(self, line: bytes) -> list[Draw]:
        """The draws that end with this line of the stream."""
        if not line.startswith(b"data:"):
            return []
        line = line[5:].strip()
        if line == b"[DONE]":
            self.whole = all(draw.reason for draw in self.draws)
            if not self.whole:
                raise Trouble(Fault.FAILED, "it said that the answer was whole before every draw had ended")
            return []
        try:
            piece = json.loads(line)
            if "error" in piece:
                raise Trouble(Fault.FAILED, f"it broke off with {_said(piece['error'])}")
            return [draw for choice in piece["choices"] if (draw := self._add(choice)).reason]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise Trouble(
                Fault.FAILED,
                f"it answered with what is no completion with token ids ({type(error).__name__}): {_said(line)}",
            ) from error

    def _add(self, choice: Mapping[str, Any]) -> Draw:
        if not 0 <= choice["index"] < len(self.draws):
            raise ValueError("a draw that was not asked for")
        draw, ids = self.draws[choice["index"]], choice["token_ids"]
        if draw.reason or not all(type(token) is int and 0 <= token < self._vocabulary for token in ids):
            raise ValueError("tokens after the end, or outside the vocabulary")
        if self._scored and not draw.ids and ids:
            first = choice["logprobs"]["top_logprobs"][0]
            draw.scores = tuple(float(first[f"token_id:{token}"]) for token in self._scored)
        draw.ids += ids
        reason = choice["finish_reason"]
        if reason not in (None, "stop", "length") or len(draw.ids) > self._most or (reason and not draw.ids):
            raise ValueError(f"a draw of {len(draw.ids)} tokens that ended with {_said(reason)}")
        draw.reason = reason
        return draw


async def get(http: httpx.AsyncClient, path: str, timeout: float) -> tuple[int, bytes]:
    """Status and body of a GET. Raises Trouble (LOST) where nothing comes, or too much."""
    try:
        async with http.stream("GET", path, timeout=timeout) as answer:
            return answer.status_code, await _head(answer, MOST_BYTES)
    except httpx.HTTPError as error:
        said = _said(str(error)) or type(error).__name__
        raise Trouble(Fault.LOST, f"{path.removeprefix('/')} gives no answer: {said}") from error


async def _lines(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Lines of a stream, each bounded."""
    rest = bytearray()
    async for piece in answer.aiter_bytes():
        rest += piece
        if len(rest) > MOST_BYTES:
            raise Trouble(Fault.FAILED, "it sent a line that does not end")
        *lines, last = rest.split(b"\n")
        rest = bytearray(last)
        for line in lines:
            yield bytes(line)


async def _head(answer: httpx.Response, most: int = 1 << 16) -> bytes:
    """The first bytes of a body."""
    read = bytearray()
    async for piece in answer.aiter_bytes():
        read += piece
        if len(read) >= most:
            break
    return bytes(read[:most])


def _refusal(answer: httpx.Response, said: bytes) -> Trouble:
    """What a status other than 200 means."""
    status = answer.status_code
    message = f"it answered {status}: {_message(said)}"
    if status in (429, 503):
        return Trouble(Fault.BUSY, message, _seconds(answer.headers.get("retry-after", "")))
    if status in (401, 403, 404, 405) or 300 <= status < 400:
        return Trouble(Fault.DENIED, message)
    if status in (400, 413, 422):
        return Trouble(Fault.REQUEST, message)
    return Trouble(Fault.FAILED, message)


def _seconds(text: str) -> float | None:
    """Of a Retry-After header; None for a date or nonsense."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _message(raw: bytes) -> str:
    """The message in the body of an error, as OpenAI and vLLM write it, else the body's beginning."""
    try:
        data = json.loads(raw)
        error = data.get("error", data)
        return _said(error["message"] if isinstance(error, dict) else error)
    except (ValueError, TypeError, KeyError, AttributeError):
        return _said(raw)


def _said(what: Any) -> str:
    """A server's own words on one line, cut, so that no log or page is led astray by them."""
    text = what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)
    return "".join(sign if sign.isprintable() else " " for sign in text[: 4 * SAID]).strip()[:SAID]
