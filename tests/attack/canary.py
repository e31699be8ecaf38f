# SPDX-License-Identifier: Apache-2.0
"""Things of the host that an attack wants: each records when it was touched."""

import ctypes
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from attack_support import IS_ROOT, PYTHON, USER, as_user, ensure_user, is_alive

IPC_CREAT, IPC_RMID = 0o1000, 0


class Canaries:
    def __init__(self):
        self.token = secrets.token_hex(16)
        self.folder = tempfile.mkdtemp(prefix="cloche-canary-", dir="/var/tmp")
        os.chmod(self.folder, 0o777)
        self.hits = []
        self.victim = None
        self._sockets = []
        self._shm = -1
        self._files()
        self._listeners()
        self._memory()

    def _put(self, name, data, mode):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(data)
        os.chmod(path, mode)
        return path

    def _files(self):
        self.secret = self._put("secret", self.token, 0o644)
        self.write_me = self._put("write-me", self.token, 0o666)
        self.suid = os.path.join(self.folder, "id")
        shutil.copy("/usr/bin/id", self.suid)
        os.chmod(self.suid, 0o4755)

    def _listeners(self):
        self.abstract = "cloche-canary-" + secrets.token_hex(8)
        self.unix = os.path.join(self.folder, "socket")
        for family, kind, where in (
                (socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),
                (socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0)),
                (socket.AF_INET6, socket.SOCK_STREAM, ("::", 0)),
                (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.abstract),
                (socket.AF_UNIX, socket.SOCK_STREAM, self.unix)):
            s = socket.socket(family, kind)
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            s.bind(where)
            if kind == socket.SOCK_STREAM:
                s.listen(16)
            self._sockets.append(s)
            threading.Thread(target=self._serve, args=(s, kind), daemon=True).start()
        os.chmod(self.unix, 0o777)
        self.tcp, self.udp, self.tcp6 = (self._sockets[i].getsockname()[1] for i in range(3))

    def _serve(self, s, kind):
        """Answers with the token, so that the control knows that it got through."""
        while True:
            try:
                if kind == socket.SOCK_DGRAM:
                    data, peer = s.recvfrom(64)
                    self.hits.append(("udp", data))
                    s.sendto(self.token.encode(), peer)
                else:
                    peer, _ = s.accept()
                    self.hits.append(("stream", s.getsockname()))
                    peer.sendall(self.token.encode())
                    peer.close()
            except OSError:
                return

    def _memory(self):
        """A SysV segment and a POSIX one that anybody may read."""
        self.shm_key = secrets.randbelow(1 << 30) + 1
        self.posix_shm = "/dev/shm/cloche-canary-" + secrets.token_hex(8)
        with open(self.posix_shm, "w") as f:
            f.write(self.token)
        os.chmod(self.posix_shm, 0o666)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        self._shm = libc.shmget(self.shm_key, 4096, IPC_CREAT | 0o666)
        if self._shm >= 0:
            at = libc.shmat(self._shm, None, 0)
            ctypes.memmove(at, self.token.encode(), len(self.token))
            libc.shmdt(ctypes.c_void_p(at))

    def start_victim(self, who):
        """A process of @who's own, with the token in its environment."""
        self.end_victim()
        self.victim = subprocess.Popen(as_user(who) + [PYTHON, "-c", "import time; time.sleep(600)"],
            start_new_session=True,
                                       env={"TOKEN": self.token}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while time.monotonic() < end:  # setpriv has to become python before anybody looks
            with open("/proc/%d/comm" % self.victim.pid) as f:
                if f.read().startswith("python3"):
                    return
            time.sleep(0.01)
        raise AssertionError("the victim did not start")

    def end_victim(self):
        if self.victim:
            self.victim.kill()
            self.victim.wait()
            self.victim = None

    def params(self):
        return {"dir": self.folder, "secret": self.secret, "write_me": self.write_me, "suid": self.suid,
            "unix": self.unix,
                "abstract": self.abstract, "tcp": self.tcp, "udp": self.udp, "tcp6": self.tcp6,
                "token_reversed": self.token[::-1], "shm_key": self.shm_key, "posix_shm": self.posix_shm,
                "pid": self.victim.pid if self.victim else 0, "hostname": socket.gethostname(), "user": USER,
                "addresses": addresses()}

    def reset(self):
        self.hits.clear()
        for path in (self.write_me, self.secret, self.posix_shm):
            with open(path, "w") as f:
                f.write(self.token)
        for name in os.listdir(self.folder):
            if name not in ("secret", "write-me", "id", "socket"):
                path = os.path.join(self.folder, name)
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

    def assert_untouched(self):
        assert not self.hits, "a listener of the host was reached: %s" % self.hits
        for path in (self.write_me, self.secret, self.posix_shm):
            with open(path) as f:
                assert f.read() == self.token, "%s was changed" % path
        extra = set(os.listdir(self.folder)) - {"secret", "write-me", "id", "socket"}
        assert not extra, "files appeared on the host: %s" % extra
        if self.victim:
            assert self.victim.poll() is None and is_alive(self.victim.pid), "a process of the host was killed"

    def close(self):
        self.end_victim()
        for s in self._sockets:
            s.close()
        if self._shm >= 0:
            ctypes.CDLL(None).shmctl(self._shm, IPC_RMID, None)
        os.unlink(self.posix_shm)
        shutil.rmtree(self.folder)


def addresses():
    """The host's own addresses besides loopback, without asking anybody outside."""
    out = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    return [a for a in out if "." in a]


def prepare_user():
    if IS_ROOT:
        ensure_user()
