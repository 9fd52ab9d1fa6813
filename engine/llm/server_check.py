"""Is this the server that the recipe means? Its health, its version, and whether it serves the checkpoint's weights.

The content hash that a run stores is that of the local folder, so a server has to show that it serves the same:
best by a name that holds the hash (``stepwiser llm-server`` gives it one), else by the same folder, else only by
the same name. What it is asked for, and when it is asked again, is not decided here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx

from engine.llm.base import Request, Sampling
from engine.llm.checkpoint import CheckpointInfo
from engine.llm.server_wire import Fault, Trouble, ask, body, get
from engine.llm.tokens import Tokens

HEALTH_S = 10.0
"""Seconds in which a server that is well answers a question that costs it nothing."""
WEIGHTS = "weights-"
"""A name under which a server says which weights it serves: this and their content hash."""

Shown = Literal["hash", "folder", "name"]
_QUEUE = re.compile(
    rb"^vllm:num_requests_(?:running|waiting)\{[^}\n]*\} (\d+(?:\.\d+)?(?:e\+?\d\d)?)$", re.MULTILINE
)


@dataclass(frozen=True)
class Facts:
    """What a server is: the model name to ask for, its context in tokens, vLLM's version, how the weights were known."""

    model: str
    context: int | None
    version: str
    shown: Shown


def weights_name(content_hash: str) -> str:
    """The name under which a server serves the weights with this hash."""
    return WEIGHTS + content_hash


async def identify(http: httpx.AsyncClient, checkpoint: CheckpointInfo, name: str) -> Facts:
    """Facts of a server that is well and serves ``checkpoint``. Raises Trouble, DENIED where it serves another."""
    card, shown = _card(await models(http), checkpoint, name)
    context = card.get("max_model_len")
    return Facts(card["id"], context if isinstance(context, int) else None, await served_by(http), shown)


async def models(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    """What a server that is well serves, each with at least an ``id``. Raises Trouble."""
    await healthy(http)
    status, raw = await get(http, "v1/models", HEALTH_S)
    if status in (401, 403):
        raise Trouble(
            Fault.DENIED, f"it answered {status}: it wants a key, or another one (STEPWISER_LLM_KEYS)"
        )
    if status != 200:
        raise Trouble(Fault.FAILED, f"v1/models answered {status}; is this a vLLM server's address?")
    return _cards(raw)


async def healthy(http: httpx.AsyncClient) -> None:
    """Raises Trouble where ``/health`` says no or nothing; a server without that route counts as well."""
    status, _ = await get(http, "health", HEALTH_S)
    if status not in (200, 404):
        raise Trouble(Fault.LOST, f"health answered {status}")


async def try_out(http: httpx.AsyncClient, facts: Facts, tokens: Tokens, vocabulary: int) -> None:
    """Have one token drawn. Raises Trouble: a server may be well and yet not answer what we ask."""
    prompt = (min(1, vocabulary - 1),)  # any token will do
    request = Request("a first token", prompt, 1, 0, Sampling(temperature=0.0, max_tokens=1))
    async for _ in ask(http, request, body(request, facts.model, len(prompt) + 1, tokens), vocabulary):
        pass


async def queue_depth(http: httpx.AsyncClient) -> int | None:
    """Draws that the server works on or holds back, whoever asked for them; None where it does not say."""
    status, raw = await get(http, "metrics", HEALTH_S)
    found = [float(number) for number in _QUEUE.findall(raw)] if status == 200 else []
    return int(sum(found)) if found else None


def _cards(raw: bytes) -> list[dict[str, Any]]:
    """The served models, each with at least an id."""
    try:
        cards = json.loads(raw)["data"]
        return [card for card in cards if isinstance(card["id"], str)]
    except (ValueError, TypeError, KeyError) as error:
        raise Trouble(
            Fault.FAILED, "v1/models is no list of models; is this a vLLM server's address?"
        ) from error


def _card(cards: list[dict[str, Any]], checkpoint: CheckpointInfo, name: str) -> tuple[dict[str, Any], Shown]:
    """The served model that is the checkpoint, and how that is known."""
    hashes = [card for card in cards if card["id"].startswith(WEIGHTS)]
    for card in hashes:
        if card["id"] == weights_name(checkpoint.content_hash):
            return card, "hash"
    if hashes:
        raise Trouble(
            Fault.DENIED,
            f"it serves the weights {hashes[0]['id'][len(WEIGHTS) :][:12]!r} and the checkpoint {name!r} here has "
            f"{checkpoint.content_hash[:12]!r}: start it again with this checkpoint, or name the one it has",
        )
    for card in cards:
        if _same_folder(card.get("root"), checkpoint.path):
            return card, "folder"
    for card in cards:
        if card["id"] in (name, checkpoint.path.resolve().name):
            return card, "name"
    served = ", ".join(repr(card["id"][:80]) for card in cards[:5]) or "nothing"
    raise Trouble(
        Fault.DENIED,
        f"it serves {served}, not {name!r}: start it with `stepwiser llm-server {name}`, or with "
        f"--served-model-name {name}",
    )


def _same_folder(root: object, folder: Path) -> bool:
    try:
        return isinstance(root, str) and Path(root).is_absolute() and folder.samefile(root)
    except (OSError, ValueError):
        return False


async def served_by(http: httpx.AsyncClient) -> str:
    """vLLM's version there, or "unknown"."""
    status, raw = await get(http, "version", HEALTH_S)
    try:
        return str(json.loads(raw)["version"])[:40] if status == 200 else "unknown"
    except (ValueError, TypeError, KeyError):
        return "unknown"
