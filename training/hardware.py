"""How a run's process is started on the hardware that its recipe names. Light: the worker's process loads no torch.

One process as it is; several whole copies on a CPU by torch's launcher; several on GPUs by accelerate with the
configuration of the recipe's sharding. What the processes then do is the trainer's.
"""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from engine.recipes import Recipe
from training.parts import Hardware


def launch_command(
    hardware: Hardware | None,
    run_id: int,
    attempt: int,
    *,
    module: str = "app.worker",
    gpu: bool | None = None,
) -> list[str]:
    """The command that works on a run: ``python -m module run ID ATTEMPT``, under a launcher for several processes.

    ``hardware``: None for kinds that train nothing; ``gpu``: asked of the machine where it is None.
    """
    run = [module, "run", str(run_id), str(attempt)]
    if hardware is None or hardware.processes == 1:
        return [sys.executable, "-m", *run]
    if hardware.sharding == "ddp" and not (has_gpu() if gpu is None else gpu):
        torch_launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        return [*torch_launcher, "--nproc_per_node", str(hardware.processes), "--module", *run]
    accelerate = [sys.executable, "-m", "accelerate.commands.launch"]
    config = ["--config_file", str(accelerate_config(hardware))]
    return [*accelerate, *config, "--num_processes", str(hardware.processes), "--module", *run]


def accelerate_config(hardware: Hardware) -> Path:
    """accelerate's configuration for the recipe's sharding."""
    return Path(__file__).with_name("accelerate") / f"{hardware.sharding}.yaml"


def hardware_of(recipe: Recipe) -> Hardware | None:
    """The recipe's hardware; None for kinds that train nothing."""
    hardware = getattr(recipe, "hardware", None)
    return hardware if isinstance(hardware, Hardware) else None


def has_gpu() -> bool:
    """Whether an NVIDIA driver is installed here: asked without loading torch."""
    return shutil.which("nvidia-smi") is not None


def missing(hardware: Hardware, *, gpu: bool | None = None, generates: bool = True) -> list[str]:
    """What the recipe's hardware needs and this machine lacks, in words. ``generates``: whether completions are drawn
    while training; a supervised trainer needs no vLLM."""
    there = has_gpu() if gpu is None else gpu
    lacks = []
    if hardware.processes > 1 and hardware.sharding != "ddp" and not there:
        lacks.append(
            f"GPUs: hardware.sharding {hardware.sharding} cuts weights over GPUs, and there is none here"
        )
    if hardware.sharding == "deepspeed" and hardware.processes > 1 and find_spec("deepspeed") is None:
        lacks.append("the deepspeed package, for hardware.sharding deepspeed")
    if generates and there and hardware.vllm == "auto" and find_spec("vllm") is None:
        lacks.append("vLLM, for hardware.vllm auto: install the [gpu] extra, or set hardware.vllm to off")
    return lacks
