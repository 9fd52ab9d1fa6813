"""The one door to language models: ``base`` says what a door is, one file for each door.

No stage knows which door it has. ``open_llm`` opens the door that a recipe names. The scripted stand-in
(``scripted``) is for tests, which construct it themselves: no recipe can name it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.llm.base import LLM


class LLMSpec(BaseModel):
    """Which language model, and how it is served. Part of a recipe; every field does something."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    door: Literal["vllm"] = Field("vllm", description="How the LLM is served: vLLM in the run's own process")
    checkpoint: str = Field(min_length=1, description="Folder of the checkpoint (safetensors)")
    name: str | None = Field(
        None, min_length=1, description="What the pages call it; empty: the folder's name"
    )
    max_model_len: int | None = Field(
        None, ge=16, description="Context in tokens, prompt and answer together; empty: the checkpoint's own"
    )
    max_num_seqs: int = Field(256, ge=1, le=4096, description="Completions worked on at once")
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
        description="Threads of this process (CPU only); empty: one below 64 MiB of weights, else every core",
    )
    block_size: int | None = Field(
        None,
        ge=1,
        description="Tokens a cache block; empty: 32 on a CPU (128 shares too little), vLLM's choice on a GPU",
    )


def open_llm(spec: LLMSpec) -> LLM:
    """Open the door that ``spec`` names; close it, or use it as a context manager.

    Raises CheckpointError, before anything heavy is imported where the folder alone shows the trouble, and
    LLMError if vLLM is not installed.
    """
    from engine.llm.checkpoint import check_checkpoint
    from engine.llm.vllm import VLLMDoor

    return VLLMDoor(spec, check_checkpoint(Path(spec.checkpoint)))
