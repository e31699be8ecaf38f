# SPDX-License-Identifier: Apache-2.0
"""A server for the tests, and a client of its native socket that is not the product's own."""
import array
import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading

from harness import Result, cmdline, processes, strict_json, tree, wait_for

HEAD = struct.Struct("=IIII")
HELLO, RUN, INPUT, ENV, TENANT, STATS = 1, 2, 3, 4, 5, 6
WELCOME, DIFFERS, OUTPUT, RESULT, ERROR, ENV_REPLY, ACCEPTED, STATS_REPLY = 64, 65, 66, 67, 68, 69, 70, 71
STREAM_INPUT, STREAM_OUTPUT, TELL_ID = 1, 2, 4
BUSY = 4
VERSION = 1
INLINE = 61440
SLEEP = "import time\ntime.sleep({})\n"
FOREVER = "import os, time\nos.write(1, b'begun\\n')\ntime.sleep(300)\n"


class Daemon:
    """A program that stays; its log is read all the time"""

    def watch(self, p):
        self.p = p
        self.wanted = 0  # its exit status, unless a test causes another one
        self.text, self.reading, self.is_read = b"", threading.Lock(), False
        os.set_blocking(p.stderr.fileno(), False)
        self.reader = threading.Thread(target=self._read, args=(p,), daemon=True)
        self.reader.start()

    def _read(self, p):
        while not self.is_read:
            select.select([p.stderr], [], [])
            self._take()

    def _take(self):
        with self.reading:
            while not self.is_read:
                try:
                    more = os.read(self.p.stderr.fileno(), 65536)
                except BlockingIOError:
                    return
                self.text += more
                self.is_read = not more

    @property
    def lines(self):
        """Of its log, with all that it has written until now: a run's line is written before the answer is sent"""
        self._take()
        *whole, rest = self.text.split(b"\n")
        whole += [rest] if rest and self.is_read else []
        return [line.decode("utf-8", "backslashreplace") + "\n" for line in whole]

    def __enter__(self):
        return self

    def __exit__(self, kind=None, *_):
        status = self.stop()
        assert status == self.wanted or kind, f"it ended with {status}, not {self.wanted}: {self.lines}"

    def stop(self, number=signal.SIGTERM, seconds=20):
        """Its exit status"""
        if self.p.poll() is None:
            self.wanted = -number if number == signal.SIGKILL else 0
            self.p.send_signal(number)
            try:
                self.p.wait(seconds)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
                raise AssertionError(f"still there after {seconds} s: {self.lines}") from None
        self.reader.join(5)
        return self.p.returncode


class Server(Daemon):
    """cloche serve of @who, ready"""

    def __init__(self, who, socket_path=None, env=None, ready=True, args=None, **kw):
        self.who = who
        self.folder = who.folder()
        self.path = str(socket_path or self.folder / "cloche.sock")
        self.env = {"XDG_RUNTIME_DIR": str(self.folder), "CLOCHE_HISTORY_PATH": str(self.folder / "state/history.db"), **(env or {})}
        self.env = {k: v for k, v in self.env.items() if v is not None}
        args = ["--socket", self.path] if args is None else args
        self.watch(who.popen("serve", *args, env=self.env, **kw))
        if ready:
            assert self.wait_log("event=ready"), (self.p.poll(), self.lines)

    def kill(self):
        """SIGKILL; root's launcher then removes the socket, and the next server must not come in the middle of that"""
        self.stop(signal.SIGKILL)
        assert not self.who.is_root or wait_for(lambda: not os.path.exists(self.path)), "root's launcher removes it"

    def log(self, *words):
        return [line for line in self.lines if all(w in line for w in words)]

    def wait_log(self, *words, count=1, seconds=20):
        return wait_for(lambda: len(self.log(*words)) >= count, seconds)

    def launcher(self):
        """The process of root's server that has root's rights; 0: a user's server has none"""
        return next((p for p in tree(self.p.pid)[1:] if name_of(p) == "cloche-launcher"), 0)

    def supervisors(self):
        starter = self.launcher() or self.p.pid
        return [p for p in tree(starter) if parent(p) == starter and name_of(p) == "cloche-supervisor"[:15]]

    def memory(self):
        with open(f"/proc/{self.p.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) * 1024

    def descriptors(self):
        """Without those of the history, which its thread opens in its own time"""
        folder, n = f"/proc/{self.p.pid}/fd", 0
        for fd in os.listdir(folder):
            try:
                n += "/history.db" not in os.readlink(f"{folder}/{fd}")
            except FileNotFoundError:
                pass
        return n

    def counts(self):
        with Native(self.path) as n:
            return n.environments()["server"]


def parent(pid):
    return processes().get(pid, (0, 0))[0]


def insides(root):
    """The supervisors that build sandboxes, below @root; the inits that they make look alike"""
    return [p for p in tree(root) if cmdline(p).startswith(b"cloche-supervisor\0inside")
            and cmdline(parent(p)) == b"cloche-supervisor\0"]


def pid_namespace(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # it has just ended
        return ""


def zygotes(root):
    """Not their forks, which look alike but live in a sandbox's processes"""
    ours = {pid_namespace(p) for p in insides(root)} - {""}
    return [p for p in tree(root) if b"/tmp/main.py" in cmdline(p) and pid_namespace(p) in ours]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    except OSError:
        return ""


def request(script, **fields):
    return {"script_content": script, **fields}


class Native:
    """One connection"""

    def __init__(self, path, tenant=None):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.settimeout(60)
        self.s.connect(str(path))
        if tenant is not None:
            self.send(TENANT, tenant.encode())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.s.close()

    def send(self, kind, body=b"", flags=0, version=VERSION, fds=()):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.s.sendmsg([HEAD.pack(kind, version, 0, flags) + body], ancillary)

    def start(self, obj, flags=0):
        body = obj if isinstance(obj, bytes) else json.dumps(obj).encode()
        if len(body) <= INLINE:
            self.send(RUN, body, flags)
            return
        fd = memfd(body)
        self.send(RUN, flags=flags, fds=(fd,))
        os.close(fd)

    def take(self):
        """(type, code, body), or None at its end"""
        try:
            data, ancillary, flags, _ = self.s.recvmsg(1 << 17, socket.CMSG_SPACE(4))
        except ConnectionResetError:
            return None
        if not data:
            return None
        kind, version, code, _ = HEAD.unpack_from(data)
        body = data[HEAD.size:]
        for level, what, fds in ancillary:
            assert (level, what, body) == (socket.SOL_SOCKET, socket.SCM_RIGHTS, b"")
            with open(array.array("i", fds[:4])[0], "rb") as f:
                seals = fcntl.fcntl(f, fcntl.F_GET_SEALS)
                assert seals & (fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW), seals
                f.seek(0)
                body = f.read()
        assert version == VERSION
        return kind, code, body

    def answer(self):
        """The result, as an object held against the contract; or (code, error object)"""
        m = self.take()
        while m and m[0] == OUTPUT:
            m = self.take()
        assert m, "the connection was closed"
        obj = strict_json(m[2])
        if m[0] == ERROR:
            assert set(obj) == {"error"} and set(obj["error"]) == {"field", "given", "allowed", "message"}, obj
            return m[1], obj["error"]
        assert m[0] == RESULT
        return Result(obj)

    def run(self, obj, flags=0):
        self.start(obj, flags)
        return self.answer()

    def environments(self):
        self.send(ENV)
        kind, _, body = self.take()
        assert kind == ENV_REPLY
        return strict_json(body)

    def stats(self):
        self.send(STATS)
        kind, _, body = self.take()
        assert kind == STATS_REPLY
        return strict_json(body)

    def cancel(self):
        self.s.shutdown(socket.SHUT_WR)


def works(server):
    with Native(server.path) as n:
        r = n.run(request("print('works')"))
    assert (r.verdict, r.stdout) == (("ok", 0), "works\n")


def begun(n, **fields):
    """A run that says that it has begun"""
    n.start(request(FOREVER, timeout=100, **fields), STREAM_OUTPUT)
    assert n.take() == (OUTPUT, 1, b"begun\n")


def until_warm(mode, seconds=20):
    """@mode: of a run that is made for it"""
    assert wait_for(lambda: mode() == "warm", seconds, 0.1), f"never warm, in {seconds} s"


def on_terminal(who, *args, env=None, columns=80, **kw):
    """(exit status, what the terminal got): standard output and error, unless @kw has them elsewhere"""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.chmod(os.ttyname(theirs), 0o666)
    p = who.popen(*args, **{"stdout": theirs, "stderr": theirs, **kw}, env={"TERM": "xterm", **(env or {})})
    os.close(theirs)
    got = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the last one who had it open is gone
            data = b""
        if not data:
            break
        got += data
    os.close(ours)
    p.communicate(timeout=30)
    return p.returncode, got


def memfd(body, seals=fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW):
    fd = os.memfd_create("request", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as f:
        f.write(body)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
