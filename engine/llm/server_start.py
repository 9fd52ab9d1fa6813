"""How a vLLM server is started so that the door fits it: the command line, and a process of it that ends whole.

For ``stepwiser llm-server``, the bench and the tests; a run starts no server. vLLM itself is not imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import httpx

from engine.errors import LLMError
from engine.llm.checkpoint import CheckpointInfo
from engine.llm.server_check import weights_name
from engine.llm.vllm import GIB, ONE_THREAD_BYTES, _cpu_options

if TYPE_CHECKING:
    from engine.llm import LLMSpec

MODULE = "vllm.entrypoints.openai.api_server"
"""``vllm serve`` does not work with the CPU build; this does with both."""
STOP_S = 15.0


def server_command(spec: LLMSpec, checkpoint: CheckpointInfo, host: str, port: int) -> list[str]:
    """Arguments of a server for ``checkpoint``, with the settings that the door in this process would have.

    Among its names is one that holds the weights' hash, so that a door anywhere knows what it serves. On a CPU, no
    prompt is prefilled in parts: a seeded one would kill the engine there. Raises CheckpointError for a checkpoint
    without a context.
    """
    options: dict[str, object] = {
        "model": checkpoint.path.resolve(),
        "dtype": spec.dtype,
        "max-model-len": spec.max_model_len,
        "max-num-seqs": spec.max_num_seqs,
        "load-format": "safetensors",
        "tensor-parallel-size": spec.tensor_parallel if spec.tensor_parallel > 1 else None,
        "gpu-memory-utilization": None if on_cpu() else spec.gpu_memory_utilization,
        "kv-cache-memory-bytes": int(spec.kv_cache_gib * GIB) if spec.kv_cache_gib else None,
        "block-size": spec.block_size,
        "host": host,
        "port": port,
    }
    flags = ["--enforce-eager"] * spec.enforce_eager
    if on_cpu():
        chosen = _cpu_options(spec, checkpoint)
        flags += ["--no-enable-chunked-prefill"] * (not chosen.pop("enable_chunked_prefill"))
        options |= {name.replace("_", "-"): value for name, value in chosen.items()}
        options["distributed-executor-backend"] = "uni"  # one process fewer, see server_environment
    named = [f"--{name}={value}" for name, value in options.items() if value is not None]
    name = spec.name or checkpoint.path.resolve().name
    names = ["--served-model-name", name, weights_name(checkpoint.content_hash)]
    return [sys.executable, "-m", MODULE, *named, *flags, *names]


def server_environment(spec: LLMSpec, checkpoint: CheckpointInfo, base: Mapping[str, str]) -> dict[str, str]:
    """``base`` with what vLLM reads from the environment alone. An API key it reads there too: VLLM_API_KEY."""
    environment = {
        **base,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if on_cpu():
        threads = spec.threads or (1 if checkpoint.weight_bytes < ONE_THREAD_BYTES else os.cpu_count() or 1)
        environment |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
    return environment


def on_cpu() -> bool:
    """Whether the installed vLLM is the CPU build."""
    try:
        return bool(version("vllm-cpu"))
    except PackageNotFoundError:
        return False


class ServerProcess:
    """A server in a process group of its own, which ends with it: a vLLM server alone would leave its engine behind.

    ``log``: where its output goes. Use it as a context manager, or call ``stop``.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path):
        self.log = log
        self._output: IO[bytes] = log.open("wb")
        self.process = subprocess.Popen(
            command,
            env=dict(environment),
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait_until_well(self, address: str, seconds: float) -> None:
        """Until ``address`` says that it is well. Raises LLMError with the log's end if it dies or takes too long."""
        last = time.monotonic() + seconds
        while time.monotonic() < last and self.process.poll() is None:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{address}/health", timeout=5, trust_env=False).status_code == 200:
                    return
            time.sleep(0.25)
        end = self.log.read_text(errors="replace")[-2000:]
        what = "ended" if self.process.poll() is not None else f"did not answer within {seconds:g} s"
        self.stop()
        raise LLMError(f"the server for {address} {what}; its log {self.log} ends:\n{end}")

    def signal(self, signum: int) -> None:
        """Send a signal to the server and all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signum)

    def stop(self) -> None:
        """End it: asked first, then killed, the whole group."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
        self.signal(signal.SIGKILL)
        self.process.wait()
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
