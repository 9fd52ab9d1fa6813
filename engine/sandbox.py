"""Runs Python programs that nobody trusts: the end outside. The end inside is sandbox_inside.py.

A sandbox is a set of Linux namespaces of its own (processes, mounts, network, IPC) with an empty file system: Python's
own library, read-only, and an empty working folder in memory. No network, no home folder, no store, no environment, no
way to write anywhere else or to see another process. Programs run without rights, under limits of processor and wall
time, memory, processes, files and output; whatever they started dies with them. Texts go in and out, never pickles.

Where the system cannot isolate, ``refusal`` says why and nothing is run. Not: which programs, and what they should print.
"""

from __future__ import annotations

import json
import os
import platform
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from engine.errors import GraderError

GRACE_S = 20.0
"""What starting, or tidying after a program, may take beyond its own limit, on a busy machine."""
_MOST_REPLY = 64 << 20


@dataclass(frozen=True)
class Limits:
    """What one program may use. ``memory_mib`` is of each of its processes; threads count as processes."""

    cpu_s: int = 5
    wall_s: float = 15.0
    memory_mib: int = 512
    processes: int = 8
    disk_mib: int = 16
    output_kib: int = 1024


@dataclass(frozen=True)
class Ran:
    """How a program ended, and what it printed.

    ``ended``: with exit code 0. ``failed``: an error, another exit code, or a signal. ``time``: over its processor or
    wall time. ``output``: it printed more than it may; what came before is kept.
    """

    how: Literal["ended", "failed", "time", "output"]
    stdout: str


class Sandbox:
    """One sandbox; ``run`` runs programs one after the other in its working folder. Use as a context manager.

    Raises GraderError where the system cannot isolate, with the reason.
    """

    def __init__(self, limits: Limits = Limits()) -> None:
        self.limits = limits
        if sys.platform != "linux":
            raise GraderError(f"programs can be isolated on Linux only, and this is {platform.system()}")
        with tempfile.TemporaryFile() as stderr:
            self._process = subprocess.Popen(
                [_python(), "-P", "-s", "-S", "-m", "engine.sandbox_inside"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                # a fixed hash seed: the same program, the same outcome
                env={"PYTHONHASHSEED": "0", "PYTHONPATH": str(Path(__file__).parents[1])},
                cwd="/",
                start_new_session=True,
            )
            try:
                started = self._ask(asdict(limits), GRACE_S)
            except GraderError:
                self.close()
                stderr.seek(0)
                said = stderr.read().decode(errors="replace").strip().splitlines()
                raise GraderError(
                    f"the sandbox did not start: {said[-1] if said else 'no message'}"
                ) from None
        if "refused" in started:
            self.close()
            raise GraderError(f"this system cannot isolate programs: {started['refused']}")

    def run(self, program: str, stdin: str = "") -> Ran:
        """Run a program's text as ``__main__``. Raises GraderError if the sandbox itself fails."""
        reply = self._ask({"program": program, "stdin": stdin}, self.limits.wall_s + GRACE_S)
        return Ran(reply["how"], reply["stdout"])

    def close(self) -> None:
        """End it, with everything that runs in it."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was not sent before it ended
                    pipe.close()
        self._process.wait()

    def _ask(self, message: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """One message and its reply, both JSON behind their length in eight hexadecimal digits."""
        assert self._process.stdin is not None and self._process.stdout is not None
        sent = json.dumps(message).encode()
        deadline = time.monotonic() + limit_s
        try:
            self._process.stdin.write(f"{len(sent):08x}".encode() + sent)
            self._process.stdin.flush()
            length = int(self._read(8, deadline), 16)
            if length > _MOST_REPLY:
                raise GraderError("the sandbox failed: its reply is too long")
            reply: dict[str, Any] = json.loads(self._read(length, deadline))
            return reply
        except (OSError, EOFError, ValueError) as problem:
            raise GraderError(f"the sandbox failed: {type(problem).__name__}: {problem}") from None

    def _read(self, n: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor, found = self._process.stdout.fileno(), b""
        while len(found) < n:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("no reply in time")
            part = os.read(descriptor, n - len(found))
            if not part:
                raise EOFError("it ended")
            found += part
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _python() -> str:
    """The interpreter itself, not a virtual environment's: only its library is to be seen in the sandbox."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = Path(sys.base_prefix, "bin", version)
    return str(own if own.exists() else Path(sys.executable).resolve())


_TRIAL = """
import os, socket
try:
    socket.create_connection(("127.0.0.1", PORT), 5)
    print("it reaches the network")
except OSError:
    pass
for place in ("/", "/usr", "/lib"):
    try:
        open(place + "/stepwiser-trial", "w").close()
        print("it can write to", place)
    except OSError:
        pass
if os.path.isdir(HOME) and any(not LIBRARY.startswith(f"{HOME}/{name}/") for name in os.listdir(HOME)):
    print("it sees the home folder")
if os.getpid() > 100:
    print("it sees the system's processes")
if os.getuid() == 0:
    print("it runs with root's rights")
"""


@cache
def refusal() -> str | None:
    """Why no program can be isolated here, found by trying: a program that looks for a way out; None if it is held."""
    import socket

    try:
        with socket.create_server(("127.0.0.1", 0)) as listening, Sandbox(Limits(wall_s=30.0)) as box:
            facts = {"PORT": listening.getsockname()[1], "HOME": str(Path.home()), "LIBRARY": os.__file__}
            found = box.run("".join(f"{name} = {value!r}\n" for name, value in facts.items()) + _TRIAL)
    except GraderError as problem:
        return str(problem)
    if found.how == "ended" and not found.stdout:
        return None
    return f"a program in the sandbox is not held: {found.stdout.strip()[:200] or found.how}"
