# SPDX-License-Identifier: Apache-2.0
"""
The plain interpreter, as little apart from the host as a fair comparison allows: PID 1 of what unshare(1) made.

It gets a request on standard input (JSON) and answers with what happened (JSON).  The script runs as `python NAME` in
a /tmp of its own, as uid 1000 without capabilities, with a lo and no other network, and pipes for standard streams;
no filter, no Landlock, no control group, no rlimit is ours.  When its main process has ended, all others are killed.
"""
import base64
import ctypes
import fcntl
import hashlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time

UID = 1000
PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
LIBC = ctypes.CDLL(None, use_errno=True)


def mount_tmpfs(path, size):
    if LIBC.mount(b"tmpfs", path.encode(), b"tmpfs", 6, f"mode=1777,size={size}".encode()) != 0:  # nosuid, nodev
        raise OSError(ctypes.get_errno(), f"mount {path}")


def make_read_only(path):
    """As everything that a configuration lends to scripts is"""
    if LIBC.mount(path.encode(), path.encode(), None, 0x1000, None) != 0:  # bind
        raise OSError(ctypes.get_errno(), f"bind {path}")
    attributes = ctypes.create_string_buffer(struct.pack("QQQQ", 1, 0, 0, 0))  # set: read-only
    if LIBC.mount_setattr(-100, path.encode(), 0, attributes, 32) != 0:
        raise OSError(ctypes.get_errno(), f"mount_setattr {path}")


def bring_lo_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack_from("16sh", fcntl.ioctl(s, 0x8913, request))[1]
        fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", flags | 1))


def write_files(job):
    for name, body in {**job["files"], job["script_name"]: job["script_content"]}.items():
        path = os.path.join("/tmp", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(body)
        os.chown(path, UID, UID)
        while (path := os.path.dirname(path)) != "/tmp":
            os.chown(path, UID, UID)


def become_the_script(job, pipes):
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # what is ignored here would be inherited
    os.setsid()
    os.chdir("/tmp")
    for fd, own in enumerate((pipes[0][0], pipes[1][1], pipes[2][1])):
        os.dup2(own, fd)
    os.closerange(3, 256)
    for cap in range(64):
        LIBC.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0)
    LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if os.getuid() != UID:
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)
    os.execve(job["python"], [job["python"], "/tmp/" + job["script_name"], *job["args"]], job["environ"])


def wait(pid, fds, seconds):
    """Bytes of each of @fds, and the status (None: its time was up); all else in here is dead then."""
    kept = {fd: [] for fd in fds}
    poll = selectors.DefaultSelector()
    end = time.monotonic() + seconds
    main = os.pidfd_open(pid)
    poll.register(main, selectors.EVENT_READ)
    for fd in fds:
        poll.register(fd, selectors.EVENT_READ)
    is_over = is_late = False
    while len(poll.get_map()) > (0 if is_over else 1) or not is_over:
        left = end - time.monotonic()
        if left <= 0 and not is_over and not is_late:
            is_late = True
            os.kill(-1, signal.SIGKILL)
        for key, _ in poll.select(max(left, 0.01) if not is_late else None):
            if key.fd == main:
                is_over = True
                poll.unregister(main)
                if len(os.listdir("/proc/self/task")) == 1:
                    try:
                        os.kill(-1, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                continue
            data = os.read(key.fd, 1 << 16)
            kept[key.fd].append(data)
            if not data:
                poll.unregister(key.fd)
    status = None
    try:
        while True:
            found, raw = os.waitpid(-1, 0)
            if found == pid:
                status = os.waitstatus_to_exitcode(raw)
    except ChildProcessError:
        pass
    return [b"".join(kept[fd]) for fd in fds], None if is_late else status


def left_files(job):
    """Regular files below /tmp but inputs that are as they were; name -> (size, SHA-256)"""
    inputs = {**job["files"], job["script_name"]: job["script_content"]}
    found = {}
    for folder, _, names in os.walk("/tmp"):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as f:
                body = f.read()
            short = os.path.relpath(path, "/tmp")
            if short not in inputs or inputs[short].encode() != body:
                found[os.fsencode(short).decode("utf-8", "replace")] = (len(body), hashlib.sha256(body).hexdigest())
    return found


def main():
    job = json.load(sys.stdin)
    mount_tmpfs("/tmp", "64m")
    mount_tmpfs("/dev/shm", "64m")
    for path in job["paths"]:
        make_read_only(path)
    bring_lo_up()
    write_files(job)
    pipes = [os.pipe() for _ in range(3)]
    pid = os.fork()
    if pid == 0:
        try:
            become_the_script(job, pipes)
        finally:
            os._exit(125)
    for fd in (pipes[0][0], pipes[0][1], pipes[1][1], pipes[2][1]):
        os.close(fd)
    (out, err), status = wait(pid, (pipes[1][0], pipes[2][0]), job["timeout"])
    json.dump({"stdout": base64.b64encode(out).decode(), "stderr": base64.b64encode(err).decode(), "status": status,
               "files": left_files(job)}, sys.stdout)


main()
