"""Two vLLM servers on this machine: how long a healthy one has fewer draws than its target while work waits.

Measured over a rollout run with grader and store, and again while one of the two is killed on the way. On one machine
the two share its cores: the share says how well they are fed, not how fast a cluster is.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from app.bench import Bar, conclude
from app.bench.rollouts import Bench
from app.settings import Settings
from engine.checkpoints import resolve_checkpoint
from engine.llm import LLMSpec
from engine.llm.checkpoint import CheckpointInfo, check_checkpoint
from engine.llm.server import ServerDoor
from engine.llm.server_member import ServerUse
from engine.llm.server_start import ServerProcess, server_command, server_environment
from engine.pipeline.rolling import roll_out

EACH = 64
"""Draws in flight on each server."""
START_S = 600.0


def servers(settings: Settings, policy: str, console: Console) -> int:
    """Bar: short of work at most 5 % of the time in which work waits, in both measurements."""
    checkpoint = check_checkpoint(resolve_checkpoint(policy, settings.home))
    spec = LLMSpec(checkpoint=str(checkpoint.path), name=policy, max_num_seqs=EACH, kv_cache_gib=1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stepwiser-bench-")))
        started = stack.enter_context(_two_servers(spec, checkpoint, folder))
        served = LLMSpec(**spec.model_dump() | {"door": "server", "servers": tuple(started)})
        llm = stack.enter_context(ServerDoor(served, checkpoint, {}))
        bench = Bench(llm, folder, problems=60, trajectories=2, m=16)
        ctx = bench.fresh("servers")
        before = [replace(use) for use in llm.use]
        result = roll_out(ctx, llm)
        whole = _since(before, llm.use)
        requests = bench.requests()
        before, answered = [replace(use) for use in llm.use], 0
        for count, completions in enumerate(llm.stream(requests)):
            answered += len(completions)
            if count == len(requests) // 3:
                list(started.values())[1].signal(signal.SIGKILL)
        killed = _since(before, llm.use)
    rows = [
        ("draws", f"{sum(use.draws for use in whole):,} with both servers, {answered:,} while one is killed"),
        ("rollouts, tokens/s", f"{result['tokens_per_s']:,.0f}"),
    ]
    for name, uses in (("both", whole), ("one killed", killed)):
        for use in uses:
            rows.append(
                (
                    f"{name}: {use.address}",
                    f"{use.draws:,} draws, {use.handed_on} requests handed on, short of work {use.below_s:.2f} of "
                    f"{use.up_s:.2f} s",
                )
            )
    bars = [
        Bar(f"share short of work, {name}", _share(uses), 0.05, "<=")
        for name, uses in (("two servers", whole), ("one killed on the way", killed))
    ]
    return conclude(console, "servers", rows, bars)


def _share(uses: list[ServerUse]) -> float:
    """Of the server that fared worst."""
    return max(use.below_s / use.up_s for use in uses if use.up_s)


def _since(before: list[ServerUse], now: list[ServerUse]) -> list[ServerUse]:
    """What was added to each server's figures."""
    return [
        ServerUse(
            a.address,
            a.up_s - b.up_s,
            a.below_s - b.below_s,
            a.draws - b.draws,
            a.tokens - b.tokens,
            a.handed_on - b.handed_on,
            a.downs - b.downs,
        )
        for a, b in zip(now, before, strict=True)
    ]


@contextmanager
def _two_servers(
    spec: LLMSpec, checkpoint: CheckpointInfo, folder: Path
) -> Iterator[dict[str, ServerProcess]]:
    """Two servers by address, started at the same time and ended with all their processes."""
    environment = server_environment(spec, checkpoint, os.environ)
    started: dict[str, ServerProcess] = {}
    try:
        for _ in range(2):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = int(free.getsockname()[1])
            command = server_command(spec, checkpoint, "127.0.0.1", port)
            started[f"http://127.0.0.1:{port}"] = ServerProcess(command, environment, folder / f"{port}.log")
        for address, server in started.items():
            server.wait_until_well(address, START_S)
        yield started
    finally:
        for server in started.values():
            server.stop()
