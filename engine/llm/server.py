"""The door to vLLM servers: one or many, over their OpenAI-compatible route, with token ids both ways.

The checkpoint's folder is needed here too: its tokenizer makes the prompts, its content hash names the weights, and
each server has to show that it serves them (``server_check``). Who works on what, and what happens when a server
dies, is in ``server_fleet``. No server is started here (``server_start``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

from engine.errors import CheckpointError, LLMError
from engine.llm.base import Completion, LLMInfo, Request, refusal, refused
from engine.llm.checkpoint import CheckpointInfo
from engine.llm.server_check import Facts, identify, try_out
from engine.llm.server_fleet import Answer, Fleet
from engine.llm.server_member import Member, ServerUse
from engine.llm.server_wire import Fault, Trouble, client
from engine.llm.tokens import Tokens

if TYPE_CHECKING:
    from engine.llm import LLMSpec

AHEAD = 4
"""One draw in so many more waits here, so that a place is filled while who reads the answers is busy."""


class ServerDoor:
    """``engine.llm.base.LLM`` over servers. ``keys``: API keys by address; a key goes to its own address alone.

    ``in_flight`` is ``max_num_seqs`` for each server and a quarter more. Raises LLMError where no server answers,
    one refuses us, or one serves another model; CheckpointError for a folder whose tokenizer cannot be loaded.
    """

    info: LLMInfo
    in_flight: int

    def __init__(self, spec: LLMSpec, checkpoint: CheckpointInfo, keys: Mapping[str, str]):
        name = spec.name or checkpoint.path.resolve().name
        self._tokens, self._vocabulary = load_tokens(checkpoint, name)
        self._checkpoint, self._streaming, self._closed = checkpoint, False, False
        self._context: int | None = None
        members = [
            Member(address, client(address, keys.get(address), spec.answer_timeout_s))
            for address in spec.servers
        ]
        ahead = spec.max_num_seqs // AHEAD
        self.in_flight = (spec.max_num_seqs + ahead) * len(members)
        self._fleet = Fleet(
            name,
            members,
            self._check,
            vocabulary=self._vocabulary,
            tokens=self._tokens,
            target=spec.max_num_seqs,
            ahead=ahead,
            patience_s=spec.patience_s,
        )
        try:
            self._fleet.call(self._fleet.open())
            facts = [member.facts for member in members if member.facts]
            self._context = self._fleet.context = _context(spec, checkpoint, facts)
        except BaseException:
            self.close()
            raise
        self.info = LLMInfo(name, checkpoint.content_hash, self._context, _versions(facts, len(members)))

    async def _check(self, member: Member) -> Facts:
        """Ask a server whether it may serve: at the start, and after it has failed. Raises Trouble."""
        facts = await identify(member.http, self._checkpoint, self._tokens.name)
        if self._context and (facts.context or self._context) < self._context:
            raise Trouble(
                Fault.DENIED, f"its context is {facts.context} tokens now, and this run's is {self._context}"
            )
        await try_out(member.http, facts, self._tokens, self._vocabulary)
        return facts

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain-text prompt, with the begin token if the tokenizer has one."""
        return self._tokens.encode(text)

    def encode_chat(self, messages: Sequence[dict[str, str]], answer: str = "") -> list[int]:
        """Token ids of a chat prompt and of the answer begun behind it; see ``engine.llm.base.LLM.encode_chat``."""
        return self._tokens.encode_chat(messages, answer)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out, tags kept."""
        return self._tokens.decode(token_ids)

    def stream(self, requests: Iterable[Request | None]) -> Iterator[list[Completion]]:
        """Serve requests, yielding each one's completions as it finishes; see ``engine.llm.base.LLM.stream``."""
        if self._closed:
            raise LLMError(f"{self._tokens.name}: the door is closed; open it again")
        return self._stream(iter(requests))

    def _stream(self, requests: Iterator[Request | None]) -> Iterator[list[Completion]]:
        if self._streaming:
            raise LLMError(f"{self.info.name}: a stream is open already; exhaust or close it first")
        fleet = self._fleet
        self._streaming, more, flying = True, True, 0
        fleet.begin()
        try:
            while more or flying:
                nothing_ready = False
                while more and fleet.room:
                    try:
                        request = next(requests)
                    except StopIteration:
                        more = fleet.source_waits = False
                        break
                    fleet.source_waits = request is not None
                    if request is None:
                        nothing_ready = True
                        break
                    if completions := refusal(request, self.info.context, self._vocabulary):
                        yield completions
                    else:
                        flying += 1
                        fleet.submit(request)
                if nothing_ready and not flying:
                    yield []
                elif (more or flying) and (answer := fleet.take()):
                    flying -= 1
                    yield self._completions(answer)
        finally:
            self._streaming = False
            fleet.end()

    def _completions(self, answer: Answer) -> list[Completion]:
        job, draws = answer
        request = job.request
        if isinstance(draws, str):
            return refused(request, f"request {request.id!r}: {draws}")
        completions = [
            Completion(
                request.id,
                draw.index,
                self.decode(draw.ids),
                tuple(draw.ids),
                draw.reason or "error",
                scores=draw.scores,
            )
            for draw in draws
        ]
        # Greedy draws are one draw, n times.
        return completions + [replace(completions[0], index=index) for index in range(len(draws), request.n)]

    @property
    def use(self) -> list[ServerUse]:
        """What has become of each server since the door was opened, in the order of the recipe."""
        return [member.use for member in self._fleet.members]

    def members(self) -> dict[str, dict[str, int]]:
        """What became of each server; see ``engine.llm.base.Spread``."""
        return {
            use.address: {"draws": use.draws, "handed_on": use.handed_on, "outages": use.downs}
            for use in self.use
        }

    def close(self) -> None:
        """Let go of the servers. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._fleet.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def load_tokens(checkpoint: CheckpointInfo, name: str) -> tuple[Tokens, int]:
    """The checkpoint's tokenizer, and the size of its vocabulary as its config has it.

    Raises LLMError without transformers, CheckpointError where it cannot be loaded.
    """
    try:
        tokens = replace(Tokens.load(checkpoint.path), name=name)
    except ImportError as error:
        raise LLMError(
            f"prompts are made here, and transformers cannot be imported ({error}); install the [cpu] or [gpu] extra"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {checkpoint.path}: its tokenizer cannot be loaded ({error}); copy it again"
        ) from error
    config: dict[str, Any] = json.loads((checkpoint.path / "config.json").read_text(encoding="utf-8"))
    size = (config | (config.get("text_config") or {})).get("vocab_size")
    return tokens, size if isinstance(size, int) else len(tokens.tokenizer)


def _context(spec: LLMSpec, checkpoint: CheckpointInfo, facts: list[Facts]) -> int:
    """The longest sequence, in tokens, that every server and the recipe allow. Raises CheckpointError."""
    known = [context for context in (spec.max_model_len, *(one.context for one in facts)) if context]
    if not known and checkpoint.context is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.path}: neither it nor a server names a context; set max_model_len"
        )
    return min(known) if known else checkpoint.context or 0


def _versions(facts: list[Facts], servers: int) -> dict[str, str]:
    return {
        "door": f"{servers} vLLM server{'s' if servers > 1 else ''}",
        "vllm": ", ".join(sorted({one.version for one in facts})),
        "transformers": version("transformers"),
        "weights known by": ", ".join(sorted({one.shown for one in facts})),
    }
