"""A grading process: the parent's end, which ends it after a hard limit, and the loop that runs in it.

Knows nothing of solutions or outcomes of rollouts; answers.py hands out the work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from multiprocessing import Pipe

from engine.errors import GraderError, InputError

START_LIMIT_S = 120
MEMORY_GIB = 4
"""Address space of a worker: an expression that would fill the machine becomes an error instead."""

# What sympy imports and computes on first use takes seconds on a busy machine: done before the first limit counts.
_WARM_UP = (
    (r"\sqrt{8}", r"2\sqrt{2}"),
    ("(1,2]", r"\{1,2\}"),
    ("x=2", "y"),
    (r"\frac{x}{2}+0.5", r"\text{so}"),
)


class Worker:
    """One process that compares answers, and the pipe to it. Raises GraderError if it does not start.

    Neither a fork of this process nor a spawned ``multiprocessing`` child, which would import whatever the main
    module is (a command, a test, a page) with all that it imports: this one imports math-verify and little else.
    """

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        with tempfile.TemporaryFile() as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "engine.grader_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
            theirs.close()
            try:
                self.receive(START_LIMIT_S)
            except (EOFError, OSError):
                self.stop()
                stderr.seek(0)
                said = stderr.read().decode(errors="replace").strip().splitlines()
                raise GraderError(
                    f"a grading worker did not start: {said[-1] if said else 'no message'}"
                ) from None

    def send(self, task: str, verifier: str, answer: str, reference: str, limit_s: float) -> None:
        """Hand in one job. Raises OSError if the worker died."""
        self._connection.send_bytes(json.dumps([task, verifier, answer, reference, limit_s]).encode())

    def answers_within(self, seconds: float) -> bool:
        """Whether the reply is there, waiting for it so long. Raises OSError if the worker died."""
        return self._connection.poll(seconds)

    def receive(self, limit_s: float) -> str | None:
        """The worker's reply. Raises TimeoutError after ``limit_s`` seconds, EOFError or OSError if it died."""
        if not self._connection.poll(max(0.0, limit_s)):
            raise TimeoutError
        reply: str | None = json.loads(self._connection.recv_bytes())
        return reply

    def stop(self) -> None:
        """Kill the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self._connection.close()


def serve(descriptor: int) -> None:
    """Answer (task, verifier, answer, reference, limit in seconds) with an outcome or a reason until the other end closes.

    Runs in the main thread of a process of its own, where a time limit can be a signal.
    """
    import logging
    import resource
    import signal
    from multiprocessing.connection import Connection

    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent ends its workers
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_GIB << 30, MEMORY_GIB << 30))
    logging.disable(logging.CRITICAL)
    for answer, reference in _WARM_UP:
        _reply("grade", "math", answer, reference)
    connection = Connection(descriptor)
    connection.send_bytes(b'"ready"')
    while True:
        try:
            task, name, answer, reference, limit_s = json.loads(connection.recv_bytes())
        except EOFError:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        # Ends this process by itself where the parent is no longer there to do it.
        seconds = int(used.ru_utime + used.ru_stime + limit_s) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        connection.send_bytes(json.dumps(_reply(task, name, answer, reference)).encode())


def _reply(task: str, name: str, answer: str, reference: str) -> str | None:
    from engine.verifiers import verifier

    way = verifier(name)
    if task == "check":
        return way.reference_problem(reference)
    try:
        return way.compare(answer, reference)
    except (GraderError, InputError):
        return "error"


if __name__ == "__main__":
    serve(int(sys.argv[1]))
