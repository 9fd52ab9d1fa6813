"""The end of the sandbox that lies inside: builds it, then runs programs in it. Started by sandbox.py as a script.

Standard library only, because it runs as ``python -S``: nothing of the project and no package is imported here.

Three processes: this one makes the namespaces and waits; the *keeper* is the first process in them, builds the file
system and answers requests; each *program* is a child of the keeper without any right. The keeper ends, and the kernel
then kills all that is left in its namespace, as soon as the other end of standard input is closed, however that end died.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
import sysconfig
import threading
import time
import types

REQUESTS, REPLIES = 0, 1

# linux/sched.h, linux/mount.h, linux/prctl.h
NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NET = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38

# Users that exist for one service only (systemd's range): they own no file, and a process each.
FIRST_USER, N_USERS = 61184, 4336
DEVICES = ("null", "zero", "random", "urandom")

libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The system does not let us isolate; the message says what failed and what to do."""


def call(name: str, *arguments: object, help: str = "") -> None:
    """A function of the C library. Raises Refused with its error."""
    given = [one.encode() if isinstance(one, str) else one for one in arguments]
    if getattr(libc, name)(*given) != 0:
        raise Refused(f"{name}: {os.strerror(ctypes.get_errno())}{help and '; '}{help}")


# Building


def enter(user: int, group: int) -> None:
    """Leave this process's namespaces, as root or as a user; a child of this process is the first in the new ones."""
    new = NEW_MOUNTS | NEW_PIDS | NEW_NET | NEW_IPC | NEW_UTS
    if os.geteuid() == 0:
        call("unshare", new, help="a container needs the capability SYS_ADMIN for it")
        return
    call(
        "unshare",
        new | NEW_USER,
        help="allow user namespaces (user.max_user_namespaces, kernel.unprivileged_userns_clone, the container's profile)",
    )
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def build(disk_mib: int) -> None:
    """A file system of Python's library and an empty working folder, and the rest of the old one out of reach."""
    call("mount", "none", "/", None, MS_REC | MS_PRIVATE, None)
    sources = {path: os.open(path, os.O_PATH) for path in shown() if os.path.exists(path)}
    help = "kernel.apparmor_restrict_unprivileged_userns=0, or a profile for it, lets users mount on Ubuntu"
    call("mount", "none", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=256k,mode=755", help=help)
    os.makedirs("/tmp/old")
    os.makedirs("/tmp/jail/tmp")
    for path, source in sources.items():
        bind(path, source)
    call(
        "mount",
        "none",
        "/tmp/jail/tmp",
        "tmpfs",
        MS_NOSUID | MS_NODEV,
        f"size={disk_mib}m,nr_inodes=2048,mode=1777",
    )
    os.chdir("/tmp")
    call("pivot_root", ".", "old")
    call("umount2", "/old", MNT_DETACH)
    call("mount", "none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, None)
    # Not the namespace's own root but a folder in it: in such a place the kernel lets nobody make user namespaces,
    # in which a program would have rights again.
    os.chroot("/jail")
    os.chdir("/tmp")


def shown() -> list[str]:
    """What of the system is seen inside: libraries, Python's own among them, and a few devices; outer folders first."""
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    library |= {os.path.dirname(os.path.realpath(path)) for path in library}
    system = [
        "/lib",
        "/lib32",
        "/lib64",
        "/usr/lib",
        "/usr/lib32",
        "/usr/lib64",
        "/etc/ld.so.cache",
        "/nix/store",
    ]
    wanted = system + sorted(library - {None}) + [f"/dev/{name}" for name in DEVICES]
    kept: list[str] = []
    for path in wanted:
        if not any(path == outer or path.startswith(outer + "/") for outer in kept):
            kept.append(path)
    return kept


def bind(path: str, source: int) -> None:
    """Show a folder or file of the system at its place in the jail, read-only; a symbolic link becomes one."""
    place = "/tmp/jail" + path
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), place)
        return
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(place)
    else:
        os.close(os.open(place, os.O_CREAT))
    call("mount", f"/proc/self/fd/{source}", place, None, MS_BIND | MS_REC, None)
    seal(place, keep_devices=path.startswith("/dev/"))
    os.close(source)


def seal(place: str, keep_devices: bool) -> None:
    """Make a mount, and those below it, read-only and without set-uid programs and devices."""
    wanted = MS_RDONLY | MS_NOSUID | (0 if keep_devices else MS_NODEV)  # the same bits as MOUNT_ATTR_…
    attributes = struct.pack("QQQQ", wanted, 0, 0, 0)
    number, folder, flags, size = (ctypes.c_long(n) for n in (SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, 32))
    call("syscall", number, folder, place, flags, attributes, size, help="it needs Linux 5.12 or newer")


# The program


def become_nobody(limits: dict, user: int, group: int) -> None:
    """Give up every right, for good, and accept the limits."""
    mib = 1 << 20
    for what, value in (
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["memory_mib"] * mib),
        (resource.RLIMIT_FSIZE, limits["disk_mib"] * mib),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(what, (value, value))
    for capability in range(64):  # more than there are: an unknown one is an error that means nothing
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    nothing = struct.pack("IiIIIIII", 0x20080522, 0, 0, 0, 0, 0, 0, 0)
    call("capset", nothing[:8], nothing[8:])
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


def execute(program: str) -> int:
    """Run the text as ``__main__``. Returns its exit code."""
    os.environ.clear()
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="replace")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace")
    sys.argv = ["solution.py"]
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # as ``site``, which is not loaded, would have done
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    code = 0
    try:
        exec(compile(program, "solution.py", "exec"), main.__dict__)
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    sys.stdout.flush()
    return code


def run(request: dict, limits: dict, user: int, group: int) -> dict:
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


def watch(child: int, reader: int, limits: dict) -> tuple[str, bytes]:
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
    status = end_all(child)
    if how == "ended":
        output += read(reader, most + 1 - len(output))
        if os.WIFSIGNALED(status):
            out_of_time = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
            how = "time" if out_of_time else "failed"
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


def end_all(child: int) -> int:
    """Kill every other process of the namespace. Returns how the child ended."""
    status = 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    while True:
        try:
            pid, said = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == child:
            status = said


# Talking to the other end


def receive() -> dict:
    """One message. Ends this process where the other end was closed."""
    length = int(read_exactly(8), 16)
    message: dict = json.loads(read_exactly(length))
    return message


def read_exactly(n: int) -> bytes:
    found = b""
    while len(found) < n:
        part = os.read(REQUESTS, n - len(found))
        if not part:
            os._exit(0)
        found += part
    return found


def reply(message: dict) -> None:
    data = json.dumps(message).encode()
    data = f"{len(data):08x}".encode() + data
    while data:
        data = data[os.write(REPLIES, data) :]


def keep(limits: dict, user: int, group: int) -> None:
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
