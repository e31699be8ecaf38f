# SPDX-License-Identifier: Apache-2.0
"""The HTTP door of a server of its own, for the tests of POST /mcp."""
import contextlib
import http.client
import json
import pathlib
import socket
import subprocess
import threading

from harness import wait_for
from serving import Server


class Forwarder:
    """TCP for a client that has no place for a token: every byte to the Unix socket, whose peer is known"""

    def __init__(self, path):
        self.path = str(path)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            other = socket.socket(socket.AF_UNIX)
            other.connect(self.path)
            for a, b in ((one, other), (other, one)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    @staticmethod
    def _copy(a, b):
        try:
            while data := a.recv(1 << 16):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            for s in (a, b):
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)


class Door:
    """The HTTP door of a server, on a port of its own; its user's own token"""

    def __init__(self, who):
        self.server = Server(who)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.tokenless = Forwarder(self.server.folder / "http.sock")
        origins = ", ".join(f"http://{host}:{self.tokenless.port}" for host in ("127.0.0.1", "localhost"))
        self.log = open(self.server.folder / "door.log", "w+")
        self.p = subprocess.Popen([*who.prefix(), who.binary.parent / "cloche-door", "http", "--server", self.server.path,
                                   "--listen", f"127.0.0.1:{self.port}", "--http-socket", self.server.folder / "http.sock"],
                                  env=who.env({**self.server.env, "CLOCHE_HTTP_ALLOWED_ORIGINS": origins}), stderr=self.log)
        token = self.server.folder / "cloche/http-token"
        assert wait_for(lambda: "event=http_ready" in pathlib.Path(self.log.name).read_text() or self.p.poll() is not None)
        self.token = token.read_text().strip()
        self.headers = {"Authorization": f"Bearer {self.token}"}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.tokenless.listener.close()
        self.p.terminate()
        code = self.p.wait(15)
        self.log.close()
        self.server.stop()
        assert code == 0, code

    def post(self, body, **headers):
        """Status, headers and body of the answer to one message"""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", "/mcp", body, **{"Content-Type": "application/json",
                                                 "Accept": "application/json, text/event-stream", **headers})

    def ask(self, method, path, body=None, **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request(method, path, body, {**self.headers, **headers})
        answer = c.getresponse()
        text = answer.read()
        c.close()
        return answer.status, answer.headers, text
