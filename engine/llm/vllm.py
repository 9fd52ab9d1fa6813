"""The vLLM door: vLLM in the run's own process, one code for CPU and GPU builds.

Covers starting, streaming, stopping and freeing the engine. Not covered: servers, clusters, and choosing what to
ask. vLLM, torch and transformers are imported when a door is opened, not before.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from engine.errors import CheckpointError, LLMError
from engine.llm.base import Completion, LLMInfo, Request, refusal, refused
from engine.llm.checkpoint import CheckpointInfo
from engine.llm.tokens import Tokens

if TYPE_CHECKING:
    from engine.llm import LLMSpec

GIB = 1 << 30
CPU_KV_CACHE_GIB = 2.0
CPU_BLOCK = 32  # the smallest that the CPU kernels take; 128, their default, shares only long prefixes
CPU_PREFILL_TOKENS = 8192
# Below this a second thread brings little (its work is over before it starts) and costs much: threads that wait
# for one another take the cores from the graders and the pages, and everything slows down many times over.
ONE_THREAD_BYTES = 64 << 20

_open_doors: set[int] = set()


class VLLMDoor:
    """``engine.llm.base.LLM`` over ``vllm.LLM``. Raises CheckpointError if vLLM cannot load the checkpoint."""

    info: LLMInfo
    in_flight: int

    def __init__(self, spec: LLMSpec, checkpoint: CheckpointInfo):
        self._llm: Any = None
        self._streaming = False
        self._failure: str | None = None
        _set_environment()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's and vLLM's own affairs
            self._llm = _start(spec, checkpoint)
        _open_doors.add(id(self))
        config = self._llm.llm_engine.vllm_config
        self._vocabulary = config.model_config.get_vocab_size()
        self._tokenizer = self._llm.get_tokenizer()
        self._tokens = Tokens(self._tokenizer, spec.name or checkpoint.path.resolve().name)
        self.in_flight = spec.max_num_seqs
        self.info = LLMInfo(
            name=spec.name or checkpoint.path.resolve().name,
            content_hash=checkpoint.content_hash,
            context=config.model_config.max_model_len,
            versions=_versions(config),
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
        return self._stream(iter(requests), self._engine())

    def _engine(self) -> Any:
        if self._failure:
            raise LLMError(f"{self.info.name}: the engine failed earlier ({self._failure}); open it again")
        if self._llm is None:
            raise LLMError(f"{self.info.name}: the door is closed; open it again")
        return self._llm.llm_engine

    def _stream(self, requests: Iterator[Request | None], engine: Any) -> Iterator[list[Completion]]:
        if self._streaming:
            raise LLMError(f"{self.info.name}: a stream is open already; exhaust or close it first")
        self._streaming = True
        flying: dict[str, Request] = {}
        pulled, more = 0, True
        try:
            while more or flying:
                # vLLM counts draws, not requests: the next request is pulled while a draw's place is free.
                while more and engine.get_num_unfinished_requests() < self.in_flight:
                    try:
                        request = next(requests)
                    except StopIteration:
                        more = False
                        break
                    if request is None:  # nothing ready: the source is asked again after the next step
                        break
                    pulled += 1
                    # Own ids: the caller's may repeat, and vLLM would take two for one.
                    flying[str(pulled)] = request
                    if completions := self._submit(engine, str(pulled), request):
                        del flying[str(pulled)]
                        yield completions
                if more and not flying:
                    yield []
                for output in self._step(engine) if flying else ():
                    yield self._completions(flying.pop(output.request_id), output.outputs)
        finally:
            self._streaming = False
            if flying and self._failure is None and self._llm is not None:
                engine.abort_request(list(flying))
                # vLLM forgets the draws of an aborted request but keeps the request they belong to.
                engine.output_processor.parent_requests.clear()

    def _submit(self, engine: Any, key: str, request: Request) -> list[Completion] | None:
        """Hand a request to vLLM; its error completions if it cannot be served."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        if completions := refusal(request, self.info.context, self._vocabulary):
            return completions
        sampling = request.sampling
        greedy = sampling.temperature == 0
        params = SamplingParams(
            n=1 if greedy else request.n,  # vLLM refuses n greedy draws: they are one draw, n times
            seed=request.seed,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=min(sampling.max_tokens, self.info.context - len(request.prompt_token_ids)),
            stop=list(sampling.stop),
            stop_token_ids=self._tokens.stop_ids(sampling),
            include_stop_str_in_output=True,
            # The text is decoded once at the end, from the token ids; vLLM needs its own only to find stop
            # strings. It has to see what ``decode`` shows: a tag is there even where it is a special token.
            detokenize=bool(sampling.stop),
            skip_special_tokens=not self._tokens.tags_are_special,
            output_kind=RequestOutputKind.FINAL_ONLY,
            logprob_token_ids=list(request.scored) or None,
        )
        try:
            engine.add_request(key, {"prompt_token_ids": list(request.prompt_token_ids)}, params)
        except ValueError as error:
            return refused(request, f"request {request.id!r}: vLLM refuses it: {error}")
        return None

    def _step(self, engine: Any) -> list[Any]:
        try:
            return [output for output in engine.step() if output.finished]
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise LLMError(f"{self.info.name}: vLLM failed while sampling ({self._failure})") from error

    def _completions(self, request: Request, outputs: Sequence[Any]) -> list[Completion]:
        if len(outputs) < request.n:
            outputs = [outputs[0]] * request.n
        return [self._completion(request, index, output) for index, output in enumerate(outputs)]

    def _completion(self, request: Request, index: int, output: Any) -> Completion:
        ids = tuple(output.token_ids)
        if output.finish_reason in ("stop", "length"):
            first = output.logprobs[0] if request.scored else {}
            scores = tuple(first[token].logprob for token in request.scored)
            return Completion(request.id, index, self.decode(ids), ids, output.finish_reason, scores=scores)
        reason = f"request {request.id!r}: vLLM ended draw {index} with {output.finish_reason!r}"
        return Completion(request.id, index, self.decode(ids), ids, "error", reason)

    @property
    def vllm(self) -> Any:
        """The ``vllm.LLM`` behind the door, for benchmarks that go round it."""
        self._engine()
        return self._llm

    def close(self) -> None:
        """Free the engine's memory. Closing twice is harmless."""
        if self._llm is None:
            return
        _open_doors.discard(id(self))
        engine, self._llm = self._llm.llm_engine, None
        if _open_doors:
            # vLLM's own shutdown would end the process-wide group, and with it every other door here: let go of
            # the weights and the cache (held by the layers in this context) and leave the group.
            if finalizer := getattr(engine.engine_core, "_finalizer", None):
                finalizer.detach()
            engine.vllm_config.compilation_config.static_forward_context.clear()
        else:
            engine.engine_core.shutdown()
        del engine
        _free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _set_environment() -> None:
    """What vLLM reads from the environment, and only there, when it is imported."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",  # in this process: no second one to lose or to leave behind
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
        TOKENIZERS_PARALLELISM="false",
        TORCH_CPP_LOG_LEVEL="ERROR",
        OMP_WAIT_POLICY="PASSIVE",  # threads that wait sleep: the graders run on the same cores
    )
    logging.getLogger("vllm").setLevel(logging.ERROR)


def _start(spec: LLMSpec, checkpoint: CheckpointInfo) -> Any:
    try:
        import torch
        import vllm
        from vllm.platforms import current_platform
    except ImportError as error:
        raise LLMError(f"vLLM cannot be imported ({error}); install the [cpu] or [gpu] extra") from error
    options: dict[str, Any] = {
        "model": str(checkpoint.path),
        "dtype": spec.dtype,
        "max_model_len": spec.max_model_len,
        "max_num_seqs": spec.max_num_seqs,
        "tensor_parallel_size": spec.tensor_parallel,
        "enforce_eager": spec.enforce_eager,
        "gpu_memory_utilization": spec.gpu_memory_utilization,
        "load_format": "safetensors",
        "trust_remote_code": False,
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
    }
    if spec.kv_cache_gib is not None:
        options["kv_cache_memory_bytes"] = int(spec.kv_cache_gib * GIB)
    if spec.block_size is not None:
        options["block_size"] = spec.block_size
    if current_platform.is_cpu():
        options |= _cpu_options(spec, checkpoint)
        if threads := spec.threads or (1 if checkpoint.weight_bytes < ONE_THREAD_BYTES else None):
            torch.set_num_threads(threads)
    set_num_threads = torch.set_num_threads
    try:
        return vllm.LLM(**options)
    except Exception as error:
        _free()
        raise CheckpointError(
            f"checkpoint {checkpoint.path}: vLLM cannot load it ({_root_cause(error)}); the folder may be broken, "
            "its architecture unknown to this vLLM, or max_model_len, kv_cache_gib or "
            "gpu_memory_utilization may not fit the memory"
        ) from error
    finally:
        torch.set_num_threads = set_num_threads  # the CPU build replaces it by a function that only warns


def _cpu_options(spec: LLMSpec, checkpoint: CheckpointInfo) -> dict[str, Any]:
    """What the CPU build needs on top.

    A seeded prompt that is prefilled in parts kills the engine there (its generator cannot be rewound). Without
    chunked prefill a prompt waits until a step has room for all of it, so that a step must hold the longest
    prompt beside a token of every other draw.
    """
    if spec.tensor_parallel > 1:
        raise LLMError(
            f"tensor_parallel {spec.tensor_parallel} spreads weights over GPUs; set it to 1 on a CPU"
        )
    context = spec.max_model_len or checkpoint.context
    if context is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.path}: config.json names no context (max_position_embeddings); "
            "set max_model_len"
        )
    return {
        "max_model_len": context,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(context, CPU_PREFILL_TOKENS) + spec.max_num_seqs,
        "kv_cache_memory_bytes": int((spec.kv_cache_gib or CPU_KV_CACHE_GIB) * GIB),
        "block_size": spec.block_size or CPU_BLOCK,
    }


def _root_cause(error: BaseException) -> str:
    """The first error in the chain on one line, without pydantic's dump of the input."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).partition(' [type=')[0].split())}"


def _free() -> None:
    """Give memory back; the process-wide group that vLLM starts goes with the last open door."""
    gc.unfreeze()  # vLLM freezes what it made at start, which would never be collected
    gc.collect()
    if not _open_doors:
        from vllm.distributed import cleanup_dist_env_and_memory

        cleanup_dist_env_and_memory()


def _versions(config: Any) -> dict[str, str]:
    import torch
    import transformers
    import vllm
    from vllm.platforms import current_platform

    return {
        "vllm": vllm.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": current_platform.get_device_name() or current_platform.device_type,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
    }
