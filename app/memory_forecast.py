"""How much memory a recipe will ask for, from the headers of its checkpoints. An estimate: activations are not in it.

Weights that learn cost 16 bytes a parameter (float32 weights and gradients, two AdamW moments); weights that are only
read cost their own format. Not here: how long it takes (``forecast``), and what really happened.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel

from app.machine import GIB, Machine
from engine.checkpoints import resolve_checkpoint
from engine.errors import CheckpointError
from engine.llm import LLMSpec
from engine.recipes import Recipe
from training.grpo_parts import Grpo
from training.parts import Hardware, Lora

LEARNING = 16
"""Bytes a parameter that learns: float32 weight 4, gradient 4, two AdamW moments 8."""
KV_CACHE_CPU_GIB = 2.0
"""What the vLLM door takes on a CPU where the recipe names no size."""
LARGEST_HEADER = 100 * 2**20
_BYTES = {
    "F64": 8,
    "F32": 4,
    "I64": 8,
    "I32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U8": 1,
    "I8": 1,
}


@dataclass(frozen=True)
class Weights:
    """What the safetensors headers of a checkpoint say. ``linear``: shapes of the layers that LoRA calls all-linear."""

    parameters: int
    stored_bytes: int
    linear: tuple[tuple[str, tuple[int, int]], ...]


@dataclass(frozen=True)
class Need:
    """One thing that takes memory, in words, and its bytes."""

    what: str
    bytes: int


@dataclass(frozen=True)
class MemoryForecast:
    """``free`` and ``total`` bytes of ``where``, the roomiest GPU or the machine's memory."""

    needs: tuple[Need, ...]
    where: str
    free: int
    total: int

    @property
    def bytes(self) -> int:
        return sum(need.bytes for need in self.needs)

    @property
    def fits(self) -> bool:
        return self.bytes <= self.free


def read_weights(checkpoint: Path) -> Weights:
    """Parameters and shapes of a checkpoint, from the headers alone. Raises CheckpointError for a broken file."""
    files = sorted(checkpoint.glob("*.safetensors"))
    stamps = tuple((str(file), file.stat().st_mtime_ns) for file in files)
    return _read(stamps)


@lru_cache(maxsize=64)
def _read(stamps: tuple[tuple[str, int], ...]) -> Weights:
    parameters, stored, linear = 0, 0, []
    for name, _ in stamps:
        for tensor, about in _header(Path(name)).items():
            shape = tuple(int(n) for n in about["shape"])
            count = math.prod(shape)
            parameters += count
            stored += count * _BYTES.get(str(about["dtype"]), 2)
            if len(shape) == 2 and tensor.endswith(".weight") and not _is_head(tensor):
                linear.append((tensor.removesuffix(".weight"), (shape[0], shape[1])))
    return Weights(parameters, stored, tuple(linear))


def _header(file: Path) -> dict[str, dict[str, list[int] | str]]:
    """Tensor names with dtype and shape: eight bytes of length, then JSON (the safetensors format)."""
    try:
        with file.open("rb") as handle:
            (length,) = struct.unpack("<Q", handle.read(8))
            if length > LARGEST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(handle.read(length))
            if not isinstance(header, dict):
                raise ValueError("it names no tensors")
    except (OSError, ValueError, struct.error) as error:
        raise CheckpointError(f"{file}: its header cannot be read ({error}); copy it again") from error
    header.pop("__metadata__", None)
    return header


def _is_head(tensor: str) -> bool:
    """Embeddings and the output head: PEFT's all-linear leaves them out."""
    return any(part in tensor for part in ("embed", "lm_head", "wte", "wpe"))


def adapter_parameters(weights: Weights, lora: Lora) -> int:
    """Parameters of the adapter: r × (in + out) for each layer that the recipe targets."""
    wanted = None if lora.target == "all-linear" else tuple(lora.target.replace(" ", "").split(","))
    return sum(
        lora.r * (rows + columns)
        for name, (rows, columns) in weights.linear
        if wanted is None or name.rpartition(".")[2] in wanted
    )


def memory_forecast(recipe: Recipe, home: Path, machine: Machine) -> MemoryForecast | None:
    """What ``recipe`` takes where it would run; None for a kind that loads no model. Raises CheckpointError."""
    gpu = max(machine.gpus, key=lambda one: one.free, default=None)
    needs = [*_training(recipe, home, gpu is not None, gpu.total if gpu else 0)]
    unjudged = not getattr(getattr(recipe, "reward", None), "judged", True)
    for path, spec in doors(recipe):
        if unjudged and path.startswith("judge."):  # rewarded for the outcome alone: no judge is loaded
            continue
        if spec.door != "vllm":  # the memory is the servers', or the cluster's
            continue
        needs += _door(path, spec, home, gpu.total if gpu else None)
    if not needs:
        return None
    if gpu:
        return MemoryForecast(tuple(needs), gpu.name, gpu.free, gpu.total)
    return MemoryForecast(tuple(needs), "this machine's memory", machine.memory_free, machine.memory_total)


def doors(part: BaseModel, path: str = "") -> Iterator[tuple[str, LLMSpec]]:
    """Every language model that a recipe opens, with the path of its field."""
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, LLMSpec):
            yield f"{path}{name}", value
        elif isinstance(value, BaseModel):
            yield from doors(value, f"{path}{name}.")


def _training(recipe: Recipe, home: Path, gpu: bool, gpu_total: int) -> Iterator[Need]:
    base, hardware = getattr(recipe, "base", None), getattr(recipe, "hardware", None)
    if not isinstance(base, str) or not isinstance(hardware, Hardware):
        return
    weights = read_weights(resolve_checkpoint(base, home))
    cut = hardware.processes if hardware.sharding != "ddp" else 1
    copies = 1 if gpu or cut > 1 else hardware.processes  # without GPUs all whole copies lie in one memory
    shared = (
        f", cut over {cut} processes" if cut > 1 else f", in each of {copies} processes" if copies > 1 else ""
    )
    lora = getattr(recipe, "lora", None)
    if isinstance(lora, Lora):
        frozen = 2 if hardware.precision == "bfloat16" or (gpu and hardware.precision == "auto") else 4
        adapter = adapter_parameters(weights, lora)
        yield Need(
            f"{millions(weights.parameters)} frozen parameters of {base}, {frozen} bytes each{shared}",
            weights.parameters * frozen * copies // cut,
        )
        yield Need(
            f"LoRA: {millions(adapter)} parameters that learn, {LEARNING} bytes each",
            adapter * LEARNING * copies,
        )
    else:
        yield Need(
            f"{millions(weights.parameters)} parameters of {base}, {LEARNING} bytes each: weights, gradients and "
            f"AdamW's moments in float32{shared}",
            weights.parameters * LEARNING * copies // cut,
        )
    grpo = getattr(recipe, "grpo", None)
    if isinstance(grpo, Grpo) and grpo.beta and not isinstance(lora, Lora):
        yield Need("the base once more, for grpo.beta", weights.parameters * 4 * copies // cut)
    if gpu and hardware.vllm == "auto" and isinstance(grpo, Grpo):
        yield Need(
            f"vLLM in the same process: {hardware.vllm_memory:.0%} of the GPU",
            int(gpu_total * hardware.vllm_memory),
        )


def _door(path: str, spec: LLMSpec, home: Path, gpu_total: int | None) -> list[Need]:
    """vLLM takes a share of a GPU whatever it serves; on a CPU its weights and its KV cache."""
    if gpu_total is not None and spec.kv_cache_gib is None:
        share = spec.gpu_memory_utilization
        return [Need(f"{path}: vLLM with {spec.checkpoint}, {share:.0%} of the GPU", int(gpu_total * share))]
    weights = read_weights(resolve_checkpoint(spec.checkpoint, home))
    width = {"auto": None, "float32": 4}.get(spec.dtype, 2)
    size = weights.stored_bytes if width is None else weights.parameters * width
    cache = spec.kv_cache_gib or KV_CACHE_CPU_GIB
    return [
        Need(f"{path}: {millions(weights.parameters)} parameters of {spec.checkpoint}", size),
        Need(f"{path}: vLLM's KV cache", int(cache * GIB)),
    ]


def millions(count: int) -> str:
    """A number of parameters as people say it: 1.8 M, 1.54 B."""
    if count >= 10**9:
        return f"{count / 1e9:.2f} B"
    return f"{count / 1e6:.1f} M" if count >= 10**5 else f"{count:,}"


def size(count: int) -> str:
    """Bytes as GiB, or MiB where that is the readable number."""
    if count < 2**20:
        return "under 1 MiB"
    return f"{count / GIB:.1f} GiB" if count >= GIB / 2 else f"{count / 2**20:,.0f} MiB"
