"""The sandbox's walls: namespaces, a file system of its own, and the giving up of every right. Linux on two processors.

Standard library only, and used only by sandbox_inside.py, in processes made for it: these functions change the process
that calls them for good.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import stat
import struct
import sysconfig
from typing import Any

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
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
SECCOMP_MODE_FILTER = 2

# Users that exist for one service only (systemd's range): they own no file, and a process each.
FIRST_USER, N_USERS = 61184, 4336
DEVICES = ("null", "zero", "random", "urandom")

# {machine: (its AUDIT_ARCH, system calls)}: shmget shmat shmctl semget msgget mq_open memfd_create memfd_secret, add_key
# request_key keyctl, ptrace process_vm_readv process_vm_writev, unshare setns mount, bpf userfaultfd perf_event_open
# io_uring_setup io_uring_enter io_uring_register (arch/x86/entry/syscalls/syscall_64.tbl, asm-generic/unistd.h).
FORBIDDEN = {
    "x86_64": (0xC000003E, (29, 30, 31, 64, 68, 240, 319, 447, 248, 249, 250, 101, 310, 311, 272, 308, 165, 321, 323, 298, 425, 426, 427)),
    "aarch64": (0xC00000B7, (194, 196, 195, 190, 186, 180, 279, 447, 217, 218, 219, 117, 270, 271, 97, 268, 40, 280, 282, 241, 425, 426, 427)),
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The system does not let us isolate; the message says what failed and what to do."""


def call(name: str, *arguments: object, help: str = "") -> None:
    """A function of the C library. Raises Refused with its error."""
    given = [one.encode() if isinstance(one, str) else one for one in arguments]
    if getattr(libc, name)(*given) != 0:
        raise Refused(f"{name}: {os.strerror(ctypes.get_errno())}{help and '; '}{help}")


def enter(user: int, group: int) -> None:
    """Leave this process's namespaces, as root or as a user; a child of this process is the first in the new ones."""
    if platform.machine() not in FORBIDDEN:
        raise Refused(
            f"only {' and '.join(FORBIDDEN)} processors are supported, and this is {platform.machine()}"
        )
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


def become_nobody(limits: dict[str, Any], user: int, group: int) -> None:
    """Give up every right, for good, and accept the limits."""
    mib = 1 << 20
    for what, value in (
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["memory_mib"] * mib),
        (resource.RLIMIT_FSIZE, limits["disk_mib"] * mib),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_NOFILE, 32),
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
    forbid()


def forbid() -> None:
    """Take away kernel functions that no solution needs: memory that no limit counts, and parts of the kernel with a
    history of holes. They fail with EPERM; another processor's calls end the program."""
    processor, forbidden = FORBIDDEN[platform.machine()]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ, …
    kill, refuse, allow = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
    steps = [(load, 0, 0, 4), (equal, 1, 0, processor), (give, 0, 0, kill), (load, 0, 0, 0)]
    steps += [(at_least, 0, 1, 0x40000000), (give, 0, 0, kill)]  # the x32 twins of x86-64's calls
    for number in forbidden:
        steps += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    steps.append((give, 0, 0, allow))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)
