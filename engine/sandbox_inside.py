"""The end of the sandbox that lies inside: builds it, then runs programs in it. Started by sandbox.py.

Standard library only, because it runs as ``python -S``: no package is imported here.

Three processes: this one makes the namespaces and waits; the *keeper* is the first process in them, builds the file
system and answers requests; each *program* is a child of the keeper without any right. The keeper ends, and the kernel
then kills all that is left in its namespace, as soon as the other end of standard input is closed, however that end died.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
import types
from typing import Any

from engine.sandbox_walls import (
    FIRST_USER,
    N_USERS,
    PR_SET_PDEATHSIG,
    Refused,
    become_nobody,
    build,
    call,
    enter,
)

REQUESTS, REPLIES = 0, 1

# The program


def execute(program: str) -> int:
    """Run the text as ``__main__``. Returns its exit code."""
    os.environ.clear()
    # under both names, as Python has them: a program that puts another stream in place of one leaves it open
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", errors="replace")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = printed = os.fdopen(1, "w", encoding="utf-8", errors="replace")  # type: ignore[misc]
    sys.argv = ["solution.py"]
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # as ``site``, which is not loaded, would have done
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    code = 0
    try:
        exec(compile(program, "solution.py", "exec", dont_inherit=True), main.__dict__)
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    threading._shutdown()  # type: ignore[attr-defined]  # as Python ends: threads and their pools, then what atexit has
    atexit._run_exitfuncs()
    for stream in (sys.stdout, printed):
        if not stream.closed:
            stream.flush()
    return code


def run(request: dict[str, Any], limits: dict[str, Any], user: int, group: int) -> dict[str, Any]:
    """Run one program as a child, until it ends or a limit is reached; then end all that it started."""
    stdin = os.memfd_create("stdin")
    with open(stdin, "wb", closefd=False) as file:
        file.write(request["stdin"].encode("utf-8", "replace"))
    os.lseek(stdin, 0, os.SEEK_SET)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(stdin, 0)
            os.dup2(writer, 1)
            os.dup2(os.open("/dev/null", os.O_RDWR), 2)
            os.closerange(3, 1024)
            become_nobody(limits, user, group)
            code = execute(request["program"])
        finally:
            os._exit(code & 255)
    os.close(stdin)
    os.close(writer)
    how, output = watch(child, reader, limits)
    os.close(reader)
    return {"how": how, "stdout": output.decode("utf-8", "replace")}


def watch(child: int, reader: int, limits: dict[str, Any]) -> tuple[str, bytes]:
    """Read what the program prints until it ends or has to be ended."""
    deadline = time.monotonic() + limits["wall_s"]
    most = limits["output_kib"] << 10
    ended = os.pidfd_open(child)
    waiting = select.poll()
    waiting.register(REQUESTS, 0)  # only that it was closed
    waiting.register(ended, select.POLLIN)
    waiting.register(reader, select.POLLIN)
    output, how = b"", ""
    os.set_blocking(reader, False)
    while not how:
        left = deadline - time.monotonic()
        ready = dict(waiting.poll(max(0, int(left * 1000) + 1)))
        if REQUESTS in ready:
            os._exit(0)
        output += read(reader, most + 1 - len(output))
        if len(output) > most:
            how = "output"
        elif ended in ready:
            how = "ended"
        elif left <= 0:
            how = "time"
        elif ready.get(reader, 0) & select.POLLHUP:
            waiting.unregister(reader)
    os.close(ended)
    status, seconds = end_all(child)
    if how == "ended":
        output += read(reader, most + 1 - len(output))
        if os.WIFSIGNALED(status):
            how = "time" if seconds > limits["cpu_s"] - 0.5 else "failed"
        elif os.WEXITSTATUS(status):
            how = "failed"
        elif len(output) > most:
            how = "output"
    return how, output[:most]


def read(descriptor: int, most: int) -> bytes:
    """What is there now, up to ``most`` bytes."""
    found = b""
    while len(found) < most:
        try:
            part = os.read(descriptor, most - len(found))
        except BlockingIOError:
            break
        if not part:
            break
        found += part
    return found


def end_all(child: int) -> tuple[int, float]:
    """Kill every other process of the namespace. Returns how the child ended, and its processor seconds."""
    status, seconds = 0, 0.0
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            pid, said, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return status, seconds
        if pid == child:
            status, seconds = said, used.ru_utime + used.ru_stime
        elif pid == 0:
            time.sleep(0.001)


# Talking to the other end


def receive() -> dict[str, Any]:
    """One message. Ends this process where the other end was closed."""
    length = int(read_exactly(8), 16)
    message: dict[str, Any] = json.loads(read_exactly(length))
    return message


def read_exactly(n: int) -> bytes:
    found = b""
    while len(found) < n:
        part = os.read(REQUESTS, n - len(found))
        if not part:
            os._exit(0)
        found += part
    return found


def reply(message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    data = f"{len(data):08x}".encode() + data
    while data:
        data = data[os.write(REPLIES, data) :]


def keep(limits: dict[str, Any], user: int, group: int) -> None:
    """The keeper's life."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the only one that a program could send here with effect
    try:
        build(limits["disk_mib"])
        os.setsid()
    except (Refused, OSError) as problem:
        reply({"refused": str(problem)})
        return
    reply({"started": True})
    while True:
        request = receive()
        reply(run(request, limits, user, group))


def main() -> None:
    limits = receive()
    user, group = os.getuid(), os.getgid()
    if user == 0:
        user = group = FIRST_USER + os.getpid() % N_USERS
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # where memory runs out, these programs go first
        enter(user, group)
    except (Refused, OSError) as problem:
        reply({"refused": str(problem)})
        return
    keeper = os.fork()
    if keeper == 0:
        keep(limits, user, group)
        os._exit(0)
    os.waitpid(keeper, 0)


if __name__ == "__main__":
    main()
