# SPDX-License-Identifier: Apache-2.0
"""The HTTP door for the tests, and a client whose every answer is held against the door's own OpenAPI description."""
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import threading
import time

import jsonschema

from harness import strict_json, wait_for
from serving import Daemon, Native, Server, request, until_warm

DOOR_USER = "cloche"
JSON = "application/json"
LINES = "application/x-ndjson"
EVENTS = "text/event-stream"
PROBLEM = "application/problem+json"
NS = '''mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && exec "$@"'''


def with_door_user(folder):
    """A command's prefix: root's door works as a user of its own, which this host need not have"""
    for name, line in (("passwd", f"{DOOR_USER}:x:60999:60999::/nonexistent:/usr/sbin/nologin\n"),
                       ("group", f"{DOOR_USER}:x:60999:\n")):
        text = pathlib.Path("/etc", name).read_text()
        kept = [entry for entry in text.splitlines(True) if not entry.startswith(DOOR_USER + ":")]
        (folder / name).write_text("".join(kept) + line)
    return ["/usr/bin/unshare", "-m", "/bin/sh", "-c", NS, str(folder)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Document:
    """openapi.json, as something that answers can be held against"""

    def __init__(self, doc):
        self.doc = doc
        self.schemas = doc["components"]["schemas"]
        for schema in self.schemas.values():
            jsonschema.Draft202012Validator.check_schema(schema)

    def check(self, schema, value):
        whole = {**schema, "components": {"schemas": self.schemas}}
        jsonschema.Draft202012Validator(whole).validate(value)

    def operation(self, method, path):
        for pattern, methods in self.doc["paths"].items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path) and (pattern == path or path not in self.doc["paths"]):
                return methods.get({"head": "get"}.get(method.lower(), method.lower()))
        return None

    def held(self, method, path, answer):
        """@answer is one that the description has"""
        op = self.operation(method, path.split("?")[0])
        if op is None or answer.status in (405, 404) and str(answer.status) not in op["responses"]:
            self.check({"$ref": "#/components/schemas/Problem"}, answer.json)
            assert answer.type == PROBLEM and answer.json["status"] == answer.status
            return
        found = op["responses"].get(str(answer.status))
        assert found, f"{method} {path}: {answer.status} is not in the description: {answer.body[:500]}"
        if "$ref" in found:
            found = self.doc["components"]["responses"][found["$ref"].rsplit("/", 1)[1]]
        for name in found.get("headers", {}):
            assert name in ("Location", "Retry-After") and "content" in found and answer.type != PROBLEM or \
                name.lower() in answer.headers or answer.status == 503, (name, answer)
        if method == "HEAD":
            assert answer.body == b""
            return
        if "content" not in found:
            assert answer.body == b"", answer
            return
        assert answer.type in found["content"], (method, path, answer)
        for value in answer.values():
            self.check(found["content"][answer.type]["schema"], value)


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {k.lower(): v for k, v in headers}
        assert len(self.headers) == len(headers), f"a header is there twice: {headers}"
        self.body = body

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:2000]!r}"

    @property
    def type(self):
        return self.headers.get("content-type", "").split(";")[0]

    @property
    def json(self):
        return strict_json(self.body)

    @property
    def lines(self):
        return [strict_json(line) for line in self.body.splitlines()]

    @property
    def events(self):
        """(name, data) of a text/event-stream"""
        found = []
        for block in self.body.decode().split("\n\n"):
            if block.strip():
                fields = dict(line.split(": ", 1) for line in block.split("\n"))
                found.append((fields["event"], strict_json(fields["data"])))
        return found

    def values(self):
        if self.type in (JSON, PROBLEM):
            return [self.json]
        if self.type == LINES:
            return self.lines
        return [data for _, data in self.events] if self.type == EVENTS else [self.body.decode()]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=60):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Door(Daemon):
    """cloche-door http of @who at a server of its own, ready"""

    def __init__(self, who, env=None, server_env=None, args=(), tcp=True):
        self.who = who
        before = with_door_user(who.folder()) if who.is_root else None
        self.server = Server(who, env={**(server_env or {}), **(env or {})}, before=before)
        self.folder = self.server.folder
        self.path = str(self.folder / "http.sock")
        self.port = free_port()
        self.args = ["--http-socket", self.path, *(["--listen", f"127.0.0.1:{self.port}"] if tcp else []), *args]
        self.env = {**self.server.env, **(env or {})}
        self.before = before or []
        self.local = threading.local()
        self.start()
        with Native(self.server.path) as n:  # the first moment is not what the tests of a door are about
            until_warm(lambda: n.run(request("pass")).mode)
        self.doc = Document(self.call("GET", "/openapi.json", checked=False).json)

    def command(self, *args):
        return [*self.before, *self.who.prefix(), str(self.who.binary.parent / "cloche-door"), "http", "--server",
                self.server.path, *map(str, args)]

    def start(self):
        self.watch(subprocess.Popen(self.command(*self.args), env=self.who.env(self.env), stderr=subprocess.PIPE, cwd="/",
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        assert wait_for(lambda: any("event=http_ready" in line for line in self.lines), 10), (self.p.poll(), self.lines)

    def __exit__(self, *exc):
        try:
            super().__exit__(*exc)
        finally:
            self.server.__exit__(*exc)

    @property
    def token(self):
        return (self.folder / "cloche/http-token").read_text().strip()

    def connection(self, tcp=False):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60) if tcp else UnixConnection(self.path)

    def socket(self, tcp=False):
        s = socket.create_connection(("127.0.0.1", self.port)) if tcp else socket.socket(socket.AF_UNIX)
        s.settimeout(30)
        if not tcp:
            s.connect(self.path)
        return s

    def call(self, method, path, body=None, headers=None, tcp=False, token=None, checked=True, kept=None):
        """One request, and its answer, which the description must have; @kept: a connection"""
        headers = dict(headers or {})
        if body is not None:
            if not isinstance(body, bytes):
                body = json.dumps(body).encode()
            headers.setdefault("Content-Type", JSON)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        c = kept or self.connection(tcp)
        try:
            c.request(method, path, body, headers)
            r = c.getresponse()
            answer = Answer(r.status, r.getheaders(), r.read())
        finally:
            if not kept:
                c.close()
        if checked:
            self.doc.held(method, path, answer)
        return answer

    def get(self, path, **kw):
        return self.call("GET", path, **kw)

    def run(self, script, accept=None, query="", headers=None, tcp=False, token=None, **fields):
        headers = {**(headers or {}), **({"Accept": accept} if accept else {})}
        return self.call("POST", "/v1/runs" + query, {"script_content": script, **fields}, headers, tcp, token)

    def runs(self, query="", **kw):
        """GET /v1/runs: a history that takes its time may put it off with 503"""
        answer = wait_for(lambda: (a := self.get("/v1/runs" + query, **kw)).status == 200 and a, 10)
        assert answer, f"/v1/runs{query}: no answer in 10 s"
        return answer.json

    def live(self, **kw):
        return self.runs(**kw)["live"]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.p.pid}/fd"))

    def memory(self):
        return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{self.p.pid}/status").read_text())[1]) * 1024

    def metric(self, line):
        """The value of one line of /metrics that is not from the second before"""
        time.sleep(1.05)
        text = self.get("/metrics").body.decode()
        found = re.search("^" + re.escape(line) + r" (\S+)$", text, re.M)
        return float(found[1]) if found else 0.0


def raw(s, data, seconds=30):
    """Send bytes as they are; everything that comes until the other side's end"""
    s.settimeout(seconds)
    if data:
        s.sendall(data)
    got = b""
    while True:
        try:
            more = s.recv(65536)
        except ConnectionResetError:
            return got
        if not more:
            return got
        got += more
