"""The door to a Ray cluster: a pool of actors, each with a vLLM of its own.

The run's process has to be on a node of the cluster, as a Ray job's is, and every node needs this project and the
checkpoint's folder at the same path. The tokenizer is here, the weights are not loaded here. Who works on what, and
what happens when an actor dies, is in ``ray_pool``. Ray is imported when a door is opened, not before.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from engine.errors import LLMError
from engine.llm.base import Completion, LLMInfo, Request, refusal, refused
from engine.llm.checkpoint import CheckpointInfo
from engine.llm.ray_pool import EngineUse, Pool
from engine.llm.server import AHEAD, load_tokens

if TYPE_CHECKING:
    from engine.llm import LLMSpec

_ours: set[int] = set()
"""Doors that keep a connection open which the first of them made."""


class RayDoor:
    """``engine.llm.base.LLM`` over ``spec.engines`` actors.

    ``in_flight`` is ``max_num_seqs`` for each engine and a quarter more, which waits in front of it. Raises LLMError
    where there is no cluster, no room for an engine in it, or none loads the checkpoint; CheckpointError for a folder
    whose tokenizer cannot be loaded here.
    """

    info: LLMInfo
    in_flight: int

    def __init__(self, spec: LLMSpec, checkpoint: CheckpointInfo):
        name = spec.name or checkpoint.path.resolve().name
        self._tokens, self._vocabulary = load_tokens(checkpoint, name)
        self._streaming = False
        self._pool: Pool | None = None
        ahead = max(1, spec.max_num_seqs // AHEAD)
        self.in_flight = (spec.max_num_seqs + ahead) * spec.engines
        version = _connect(id(self))
        try:
            self._pool = Pool(spec, name, checkpoint.content_hash, ahead)
            self._pool.open()
        except BaseException:
            self.close()
            raise
        loaded = self._pool.info
        assert loaded is not None
        engines = f"{spec.engines} engine{'s' if spec.engines > 1 else ''} on Ray {version}"
        self.info = LLMInfo(
            name, checkpoint.content_hash, loaded.context, {"door": engines, **loaded.versions}
        )

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
        if self._pool is None:
            raise LLMError(f"{self._tokens.name}: the door is closed; open it again")
        return self._stream(iter(requests), self._pool)

    def _stream(self, requests: Iterator[Request | None], pool: Pool) -> Iterator[list[Completion]]:
        if self._streaming:
            raise LLMError(f"{self.info.name}: a stream is open already; exhaust or close it first")
        self._streaming, more = True, True
        pool.begin()
        try:
            while more or pool.flying:
                nothing_ready = False
                while more and pool.room:
                    try:
                        request = next(requests)
                    except StopIteration:
                        more = False
                        break
                    if request is None:
                        nothing_ready = True
                        break
                    if completions := refusal(request, self.info.context, self._vocabulary):
                        yield completions
                    else:
                        pool.submit(request)
                if nothing_ready and not pool.flying:
                    yield []
                elif more or pool.flying:
                    for request, answer in pool.wait():
                        yield _completions(request, answer)
        finally:
            self._streaming = False
            if self._pool is not None:
                pool.end()

    @property
    def use(self) -> list[EngineUse]:
        """What has become of each engine since the door was opened."""
        return [member.use for member in self._pool.members] if self._pool else []

    def members(self) -> dict[str, dict[str, int]]:
        """What became of each engine; see ``engine.llm.base.Spread``."""
        return {
            f"engine {number} on {use.host or 'no node'}": {
                "draws": use.draws,
                "handed_on": use.handed_on,
                "outages": max(0, use.starts - 1),
            }
            for number, use in enumerate(self.use)
        }

    def close(self) -> None:
        """End the engines. Closing twice is harmless."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        _disconnect(id(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _completions(request: Request, answer: list[Completion] | str) -> list[Completion]:
    return refused(request, f"request {request.id!r}: {answer}") if isinstance(answer, str) else answer


def _connect(door: int) -> str:
    """Join the cluster that this machine belongs to, unless this process has. Returns Ray's version."""
    try:
        import ray
    except ImportError as error:
        raise LLMError(f"Ray cannot be imported ({error}); install the [cluster] extra") from error
    if not ray.is_initialized():
        main = threading.current_thread() is threading.main_thread()
        on_stop: Any = signal.getsignal(signal.SIGTERM) if main else None
        try:
            ray.init(address="auto", logging_level=logging.WARNING)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise LLMError(
                f"no Ray cluster can be joined from this machine ({' '.join(str(error).split())[:300]}); start a "
                "node here (`ray start`), or set STEPWISER_RAY_ADDRESS so that runs are worked on as Ray jobs "
                "(docs/cluster.md)"
            ) from error
        finally:
            if main and on_stop is not None:
                signal.signal(signal.SIGTERM, on_stop)  # Ray's own would end the run where it stands
        _ours.add(door)
    elif _ours:
        _ours.add(door)
    return str(ray.__version__)


def _disconnect(door: int) -> None:
    """Leave the cluster with the last door that needed it, if it was a door that joined it."""
    if door in _ours:
        _ours.discard(door)
        if not _ours:
            import ray

            ray.shutdown()
