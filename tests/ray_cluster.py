"""A Ray cluster of two nodes on this machine, with its job server, for the tests: token authentication, little memory.

The driver's environment is set while it runs, as on a machine that belongs to a cluster.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
STORE_BYTES = 80 * 2**20  # of shared memory for each node; Ray's least is 75 MiB


@dataclass
class RayCluster:
    """``cluster``: Ray's own test cluster; ``jobs``: address of the job server."""

    cluster: Any
    jobs: str
    token: str
    second: Any


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """Two nodes that claim three GPUs and one; this process is a driver on the first. Nothing of it is left behind.

    Three, so that a job on the first finds one free when both engines have come to lie there.
    """
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets' paths must be short
    token, port = secrets.token_hex(16), free_port()
    (Path(folder) / "token").write_text(token)
    (Path(folder) / "ray").mkdir()
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "RAY_TMPDIR": folder,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": f"{folder}/token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DEDUP_LOGS": "0",
            "PYTHONPATH": str(ROOT),  # jobs of the tests are modules of the tests
        }.items():
            patch.setenv(name, value)
        for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN"):
            patch.delenv(name, raising=False)
        import ray
        from ray._raylet import AuthenticationTokenLoader, Config
        from ray.cluster_utils import Cluster

        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()
        cluster = Cluster()
        try:
            head = {"include_dashboard": True, "dashboard_port": port}
            cluster.add_node(num_cpus=5, num_gpus=3, object_store_memory=STORE_BYTES, **head)
            second = cluster.add_node(num_cpus=2, num_gpus=1, object_store_memory=STORE_BYTES)
            patch.setenv("RAY_ADDRESS", cluster.address)
            yield RayCluster(cluster, f"http://127.0.0.1:{port}", token, second)
        finally:
            ours = [one for one in psutil.Process().children(recursive=True) if one.pid not in before]
            ray.shutdown()
            cluster.shutdown()
            _end(ours)
            shutil.rmtree(folder, ignore_errors=True)
    Config.initialize("")


def _end(processes: list[psutil.Process]) -> None:
    """What Ray started and did not end with its nodes, such as the parts of a dashboard that was killed."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, 10)
