"""The sandbox holds programs that try to get out: network, files, rights, other processes, and every limit."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine import sandbox
from engine.errors import GraderError
from engine.sandbox import Limits, Ran, Sandbox

ROOT = Path(__file__).parents[1]
PATIENT = Limits(cpu_s=20, wall_s=60.0, output_kib=64)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    if reason := sandbox.refusal():
        pytest.skip(reason)
    with Sandbox(PATIENT) as box:
        yield box


def printed(box: Sandbox, program: str, stdin: str = "") -> str:
    ran = box.run(textwrap.dedent(program), stdin)
    assert ran.how == "ended", ran
    return ran.stdout


def test_a_program_reads_and_prints_text(box: Sandbox) -> None:
    assert printed(box, "print(input()[::-1])\nprint('é😀')", "ü日😀\n") == "😀日ü\né😀\n"
    assert printed(box, "import sys; print(len(sys.stdin.read()))", "x" * 3_000_000) == "3000000\n"
    assert (
        printed(box, "print(__name__, list(__import__('os').environ), exit.__name__)") == "__main__ [] exit\n"
    )
    assert printed(box, "import decimal, sqlite3, asyncio, heapq, ssl; print(1)") == "1\n"
    assert printed(box, "import threading as t\nt.Thread(target=lambda: print('late')).start()") == "late\n"
    assert printed(box, "print(*{'a', 'b', 'c', 'd'})") == printed(box, "print(*{'a', 'b', 'c', 'd'})")


@pytest.mark.parametrize(
    "program",
    [
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint(input())",
        "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer, encoding='utf-8')\nprint(input())",
        "import io, sys\nout, sys.stdout = sys.stdout, io.StringIO()\nprint(input(), file=out)",
        "import atexit\natexit.register(lambda: print(input()))",
        "from concurrent.futures import ThreadPoolExecutor as P\npool = P(1)\nprint(pool.submit(input).result())",
        "import sys, threading as t\nt.Thread(target=lambda: print(input())).start()\nsys.exit()",
        "import sys\nprint(input())\nsys.stdout.close()",
    ],
)
def test_a_program_ends_as_python_does(box: Sandbox, program: str) -> None:
    """What it printed by another stream, behind its end or beside a pool of threads is all there."""
    assert box.run(program, "7\n") == Ran("ended", "7\n")


def test_annotations_are_read_as_python_reads_them(box: Sandbox) -> None:
    assert printed(box, "def f(x: int): pass\nprint(f.__annotations__['x'] is int)") == "True\n"
    assert box.run("def f(x: List[int]): pass").how == "failed"


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("1/0", "failed"),
        ("(", "failed"),
        ("import sys; sys.exit(3)", "failed"),
        ("raise SystemExit('no')", "failed"),
        ("import os; os.kill(os.getpid(), 9)", "failed"),
        ("import ctypes; ctypes.string_at(0)", "failed"),
        ("import sys; sys.exit()", "ended"),
        ("print(bytearray(2**31))", "failed"),
        ("while True: print('x' * 1000)", "output"),
    ],
)
def test_how_programs_end(box: Sandbox, program: str, how: str) -> None:
    ran = box.run(program)
    assert ran.how == how
    assert len(ran.stdout) <= PATIENT.output_kib << 10


def test_no_network(box: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), 5).close()  # out here it answers
        program = f"""
            import socket
            for family, place in (
                (socket.AF_INET, {server.getsockname()!r}),
                (socket.AF_INET, ("192.0.2.1", 53)),
                (socket.AF_INET6, ("::1", 80)),
                (socket.AF_UNIX, "/tmp/.s.PGSQL.5432"),
            ):
                try:
                    socket.socket(family).connect(place)
                    print("connected to", place)
                except OSError:
                    pass
            print(*(name for _, name in socket.if_nameindex()))
            """
        assert printed(box, program) == "lo\n"


def test_only_its_own_folder_can_be_written_and_little_be_read(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("secret")
    program = f"""
        import os
        for place in ("/", "/dev", "/etc", "/lib", "/usr", "/usr/lib", os.path.dirname(os.__file__)):
            try:
                open(place + "/mine", "w")
                print("wrote into", place)
            except OSError:
                pass
        for place in ({str(tmp_path)!r}, {str(ROOT)!r}, {str(Path.home() / ".ssh")!r}, "/proc", "/sys", "/etc/passwd"):
            if os.path.exists(place):
                print("sees", place)
        open("mine", "w").write("kept")
        print(os.getcwd(), os.listdir(), sorted(os.listdir("/dev")))
        print([n for n in range(256) if os.path.exists(f"/dev/fd/{{n}}")])
        for n in range(3, 256):
            try:
                os.fstat(n)
                print("descriptor", n, "is open")
            except OSError:
                pass
        """
    assert printed(box, program) == "/tmp ['mine'] ['null', 'random', 'urandom', 'zero']\n[]\n"
    assert not Path("/tmp/mine").exists()


def test_no_rights_and_no_way_to_get_them(box: Sandbox) -> None:
    program = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        for name, *given in (
            ("unshare", 0x10000000), ("unshare", 0x20000), ("mount", b"none", b"/tmp", b"tmpfs", 0, None),
            ("umount2", b"/tmp", 2), ("chroot", b"/tmp"), ("ptrace", 16, 1, 0, 0), ("setuid", 0), ("setgid", 0),
            ("setgroups", 0, None), ("mknod", b"/tmp/disk", 0o60600, 0x800), ("shmget", 1, 4096, 0o1600),
            ("memfd_create", b"more", 0), ("kill", -1, 0), ("sethostname", b"x", 1), ("nice", -5),
        ):
            if getattr(libc, name)(*given) >= 0:
                print(name, "is allowed")
        pid = libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        print(pid, os.getuid() > 0, os.getgroups(), os.getppid())
        """
    groups = [] if os.geteuid() == 0 else os.getgroups()
    assert printed(box, program).replace("65534, ", "") == f"-1 True {groups} 1\n"


def test_processor_and_wall_time_end_a_program() -> None:
    if reason := sandbox.refusal():
        pytest.skip(reason)
    with Sandbox(Limits(cpu_s=1, wall_s=60.0)) as box:
        assert box.run("print(1, flush=True)\nwhile True: pass") == Ran("time", "1\n")
    with Sandbox(Limits(cpu_s=20, wall_s=1.0)) as box:
        assert box.run("import time; time.sleep(1000)").how == "time"
        assert box.run("print(2)") == Ran("ended", "2\n")  # and the sandbox goes on


def test_disk_and_processes_are_limited_and_nothing_is_left_behind(box: Sandbox) -> None:
    fill = """
        n = 0
        try:
            for place in range(100):
                n += open(f"big{place}", "wb").write(bytes(1 << 20))
        except OSError:
            pass
        print(n >> 20)
        """
    assert 0 < int(printed(box, fill)) <= PATIENT.disk_mib
    assert box.run("import os, glob\nfor name in glob.glob('big*'): os.remove(name)").how == "ended"
    bomb = """
        import os, time
        n = 0
        try:
            while n < 1000:
                if os.fork() == 0:
                    time.sleep(1000)
                n += 1
        except OSError:
            pass
        print(n)
        """
    assert 0 < int(printed(box, bomb)) <= PATIENT.processes
    daemon = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)
        print("done")
        """
    assert printed(box, daemon) == "done\n"
    assert len(psutil.Process(box._process.pid).children(recursive=True)) == 1  # the keeper alone


def test_everything_dies_with_the_process_that_opened_it(tmp_path: Path) -> None:
    if reason := sandbox.refusal():
        pytest.skip(reason)
    program = "from engine.sandbox import *; Sandbox(Limits(20, 600.0)).run('import time; time.sleep(1000)')"
    opener = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    try:
        own = psutil.Process(opener.pid)
        while len(inside := own.children(recursive=True)) < 3:  # the starter, the keeper, the program
            assert opener.poll() is None
            time.sleep(0.02)
        opener.send_signal(signal.SIGKILL)
    finally:
        opener.kill()
        opener.wait()
    gone, left = psutil.wait_procs(inside, timeout=60)
    assert (len(gone), left) == (3, [])


def test_a_user_without_rights_is_isolated_too() -> None:
    """As another user, by another interpreter: through a user namespace, which root does without."""
    python = shutil.which("python3.11", path="/usr/bin:/usr/local/bin")
    if os.geteuid() != 0 or python is None:
        pytest.skip("takes root, to become another user, and an interpreter that the other user may start")
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from engine import sandbox; print(sandbox.refusal())"
    )
    given = {"user": 12345, "group": 12345, "extra_groups": [], "env": {"HOME": "/home/other"}, "cwd": "/"}
    ran = subprocess.run([python, "-B", "-c", program], capture_output=True, text=True, **given)  # type: ignore[call-overload]
    if "user.max_user_namespaces" in ran.stdout or "Permission denied" in ran.stderr:
        pytest.skip(ran.stdout + ran.stderr)
    assert (ran.stdout, ran.stderr) == ("None\n", "")


def test_a_system_that_cannot_isolate_refuses_and_says_why() -> None:
    """Root without the capability to make namespaces, as in a container."""
    if os.geteuid() != 0:
        pytest.skip("takes root, to give up a capability")
    program = """
        import ctypes, os, sys
        if ctypes.CDLL(None).prctl(24, 21, 0, 0, 0) == 0:  # PR_CAPBSET_DROP, CAP_SYS_ADMIN
            os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
        """
    inner = """
        from engine import sandbox
        from engine.answers import Grader, Reference
        print(sandbox.refusal())
        with Grader() as grader:
            grader.grade_many([("```python\\nprint(1)\\n```", Reference('{"tests": ["1"]}', "code"), "stop")])
        """
    command = [sys.executable, "-c", textwrap.dedent(program), textwrap.dedent(inner)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    reason = "this system cannot isolate programs: unshare: Operation not permitted; a container needs the capability SYS_ADMIN for it"
    assert ran.stdout == reason + "\n"
    assert f"problems of the verifier 'code' cannot be graded here: {reason}" in ran.stderr


def test_a_sandbox_that_fails_is_a_named_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if reason := sandbox.refusal():
        pytest.skip(reason)
    with Sandbox() as own, pytest.raises(GraderError, match="the sandbox failed"):
        own._process.kill()
        own._process.wait()  # by then the keeper, which could still have answered, is to die too
        own.run("print(1)")
    monkeypatch.setattr(sandbox, "_python", lambda: "/bin/false")
    with pytest.raises(GraderError, match="the sandbox did not start: no message"):
        Sandbox()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(GraderError, match="on Linux only"):
        Sandbox()
