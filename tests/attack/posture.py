# SPDX-License-Identifier: Apache-2.0
"""Runs inside: prints what this process is, can reach and can write, as one JSON object."""
import ctypes
import json
import os
import platform
import resource
import socket
import stat
import sys


def status():
    with open("/proc/self/status") as f:
        lines = dict(line.rstrip("\n").split(":", 1) for line in f)
    wanted = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
        "Seccomp_filters",
              "SigBlk", "Umask", "TracerPid", "Threads")
    return {k: lines[k].split() if k in ("Uid", "Gid", "Groups") else lines[k].strip() for k in wanted if k in lines}


def namespaces():
    return {n: os.readlink("/proc/self/ns/" + n) for n in sorted(os.listdir("/proc/self/ns"))}


def descriptors():
    """Found by asking for each number, not by a listing, which needs a descriptor itself."""
    found = {}
    for fd in range(4096):
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            continue
        found[str(fd)] = "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else oct(mode)
    return found


def limits():
    names = sorted(n for n in dir(resource) if n.startswith("RLIMIT_"))
    return {n: list(resource.getrlimit(getattr(resource, n))) for n in names if n != "RLIMIT_OFILE"}


def raw_limits():
    """All sixteen, those that Python has no name for too."""
    libc = ctypes.CDLL(None, use_errno=True)
    pair = (ctypes.c_uint64 * 2)()
    out = []
    for n in range(16):
        if libc.prlimit(0, n, None, pair) == 0:
            out.append([n, *(-1 if v == 2**64 - 1 else v for v in pair)])
    return out


def mounts():
    rows = []
    with open("/proc/self/mountinfo") as f:
        for line in f:
            left, right = line.rstrip("\n").split(" - ")
            words = left.split()
            rows.append({"point": words[4], "source": words[3], "options": sorted(words[5].split(",")),
                "type": right.split()[0]})
    return sorted(rows, key=lambda r: r["point"])


def writable():
    """Folders where a file can be made, and files that can be opened for writing, by trying."""
    found = []
    for top, folders, files in os.walk("/"):
        folders[:] = [d for d in folders if os.path.join(top, d) not in ("/proc",
            ) and not os.path.islink(os.path.join(top, d))]
        try:
            path = os.path.join(top, ".posture")
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.unlink(path)
            found.append(top + "/")
        except OSError:
            pass
        for name in files if not top.startswith("/usr/") else files[:3]:
            path = os.path.join(top, name)
            if os.path.islink(path) or path == sys.argv[0]:
                continue
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                found.append(path)
            except OSError:
                pass
    return sorted(found)


def listing(path):
    try:
        return sorted(os.listdir(path))
    except OSError as e:
        return os.strerror(e.errno)


def terminal():
    try:
        return os.open("/dev/tty", os.O_RDWR)
    except OSError as e:
        return os.strerror(e.errno)


def processes():
    return sorted(n for n in os.listdir("/proc") if n.isdigit() and int(n) != os.getpid())


libc = ctypes.CDLL(None, use_errno=True)
print(json.dumps({
    "status": status(), "namespaces": namespaces(), "descriptors": descriptors(), "limits": limits(),
    "raw_limits": raw_limits(),
    "mounts": mounts(), "writable": writable(), "cwd": os.getcwd(), "env": sorted(os.environ), "argv": sys.argv,
    "is_session_leader": os.getsid(0) == os.getpid(), "tty": terminal(), "dumpable": libc.prctl(3, 0, 0, 0, 0),
    "personality": libc.personality(0xffffffff), "cgroup": open("/proc/self/cgroup").read().split("\n"),
    "hostname": socket.gethostname(), "domain": platform.uname().node, "processes": processes(),
    "capabilities_by_prctl": [n for n in range(64) if libc.prctl(23, n, 0, 0, 0) == 1],
    "nice": os.nice(0), "scheduler": os.sched_getscheduler(0),
    "list": {d: listing(d) for d in ("/", "/dev", "/etc", "/tmp", "/dev/shm", "/sys", "/proc/sys")},
    "user": __import__("pwd").getpwuid(os.getuid()).pw_name, "path": sys.path[0], "encoding": sys.stdout.encoding,
}))
