"""The one door to language models: ``base`` says what a door is, one file for each door.

No stage knows which door it has. ``open_llm`` opens the door that a recipe names. The scripted stand-in
(``scripted``) is for tests, which construct it themselves: no recipe can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from engine.llm.base import LLM
from engine.llm.server_address import server_address


class LLMSpec(BaseModel):
    """Which language model, and how it is served. Part of a recipe; every field does something."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    door: Literal["vllm", "server", "ray"] = Field(
        "vllm",
        description="How the LLM is served: vllm in the run's own process, server by the vLLM servers named below, "
        "ray by engines on a Ray cluster",
    )
    checkpoint: str = Field(min_length=1, description="Folder of the checkpoint (safetensors)")
    servers: tuple[str, ...] = Field(
        (),
        max_length=256,
        description="Addresses of vLLM servers that serve the checkpoint: http://host:8000",
    )
    engines: int = Field(
        1, ge=1, le=1024, description="Ray: vLLM engines to start, each where the cluster has room for it"
    )
    tensor_parallel: int = Field(
        1, ge=1, le=64, description="GPUs over which one engine spreads the weights (GPU only)"
    )
    name: str | None = Field(
        None, min_length=1, description="What the pages call it; empty: the folder's name"
    )
    max_model_len: int | None = Field(
        None, ge=16, description="Context in tokens, prompt and answer together; empty: the checkpoint's own"
    )
    max_num_seqs: int = Field(
        256,
        ge=1,
        le=4096,
        description="Completions worked on at once, by each server or engine if there are several",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Number format of the weights; auto: the checkpoint's own (bfloat16 for a float32 one)",
    )
    enforce_eager: bool = Field(
        True, description="Skip compilation: starts in seconds; off pays on a GPU and in long runs"
    )
    kv_cache_gib: float | None = Field(
        None,
        gt=0,
        description="Memory for the KV cache; empty: 2 GiB on a CPU, gpu_memory_utilization on a GPU",
    )
    gpu_memory_utilization: float = Field(
        0.9, gt=0, le=1, description="Share of the GPU's memory that is used (GPU only, without kv_cache_gib)"
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="Threads (CPU only); empty: one below 64 MiB of weights, else every core; on Ray one",
    )
    block_size: int | None = Field(
        None,
        ge=1,
        description="Tokens a cache block; empty: 32 on a CPU (128 shares too little), vLLM's choice on a GPU",
    )
    answer_timeout_s: float = Field(
        600, gt=0, description="Servers: seconds without a sign of an answer after which another one is asked"
    )
    patience_s: float = Field(
        300,
        gt=0,
        description="Servers, Ray: seconds in which none is well after which the run fails (and can be resumed)",
    )

    @field_validator("servers")
    @classmethod
    def _addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        addresses = tuple(server_address(text) for text in servers)
        if twice := {one for one in addresses if addresses.count(one) > 1}:
            raise ValueError(f"server address {min(twice)!r} is named twice")
        return addresses

    @model_validator(mode="after")
    def _servers_for_their_door(self) -> Self:
        if self.door == "server" and not self.servers:
            raise ValueError(
                "door server: name at least one address in servers, such as http://127.0.0.1:8000"
            )
        if self.door != "server" and self.servers:
            raise ValueError(f"servers are named, but door is {self.door}; set door to server")
        if self.door != "ray" and self.engines > 1:
            raise ValueError(f"{self.engines} engines, but door is {self.door}; set door to ray")
        return self


def open_llm(spec: LLMSpec, keys: Mapping[str, str] | None = None) -> LLM:
    """Open the door that ``spec`` names; close it, or use it as a context manager. ``keys``: of servers, by address.

    Raises CheckpointError, before anything heavy is imported where the folder alone shows the trouble, and
    LLMError if vLLM is not installed, or no server or cluster can be used.
    """
    from engine.llm.checkpoint import check_checkpoint

    checkpoint = check_checkpoint(Path(spec.checkpoint))
    if spec.door == "server":
        from engine.llm.server import ServerDoor

        return ServerDoor(spec, checkpoint, keys or {})
    if spec.door == "ray":
        from engine.llm.ray_door import RayDoor

        return RayDoor(spec, checkpoint)
    from engine.llm.vllm import VLLMDoor

    return VLLMDoor(spec, checkpoint)
