"""What this machine has: cores, memory, GPUs with their memory. Asks psutil and nvidia-smi; loads no library of a GPU."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

import psutil

GIB = 2**30
_QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits"]


@dataclass(frozen=True)
class Gpu:
    """Memory in bytes."""

    name: str
    total: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.total - self.used)

    def __str__(self) -> str:
        return f"{self.name}, {self.free / GIB:.0f} of {self.total / GIB:.0f} GiB free"


@dataclass(frozen=True)
class Machine:
    """Memory in bytes; ``memory_free`` is what can be had without swapping."""

    cores: int
    memory_total: int
    memory_free: int
    gpus: tuple[Gpu, ...]


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """nvidia-smi's lines "name, total MiB, used MiB"; a line that is none (no permission, "[N/A]") is left out."""
    found = []
    for line in text.splitlines():
        name, _, numbers = line.partition(",")
        parts = [part.strip() for part in numbers.split(",")]
        if len(parts) == 2 and all(part.isdecimal() for part in parts):
            found.append(Gpu(name.strip(), int(parts[0]) * 2**20, int(parts[1]) * 2**20))
    return tuple(found)


def attached_gpus() -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that nvidia-smi names; empty without it, or where it fails or hangs."""
    if shutil.which("nvidia-smi") is None:
        return ()
    try:
        asked = subprocess.run(_QUERY, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse_gpus(asked.stdout)


def this_machine() -> Machine:
    """What the process that asks can use right now."""
    memory = psutil.virtual_memory()
    return Machine(psutil.cpu_count() or 1, memory.total, memory.available, attached_gpus())
