# SPDX-License-Identifier: Apache-2.0
"""client/python/cloche.py over HTTP, against a real door and a false one."""
import json
import os
import socket
import threading

import pytest

from client_support import client, servers  # noqa: F401
from harness import wait_for
from serving import Native, Server
from tls_proxy import TlsProxy

import cloche

OVER_HTTP = r"""
    token = sys.argv[2] or None
    SLEEP = "import os, time\nos.write(1, b'begun\\n')\ntime.sleep(300)"
    SCRIPT = "import os, time\nfor i in range(3): print(i, flush=True); time.sleep(0.2)\n" \
             "os.write(1, b'\\xff'); os.write(2, b'\\xc3'); time.sleep(0.1); os.write(2, b'\\xa9')"
    def check(parts):
        assert b"".join(d for s, d in parts if s == "stdout") == b"0\n1\n2\n\xff", parts
        assert b"".join(d for s, d in parts if s == "stderr") == b"\xc3\xa9", parts
    def nothing_runs():
        end = time.monotonic() + 20
        native = cloche.Client(sys.argv[3])
        while time.monotonic() < end:
            if cloche._finish_here(native._where.environments(), None)["server"]["running"] == 0:
                native.close()
                return True
            time.sleep(0.02)
        return False
    with cloche.Client(where, token=token) as c:
        r = c.run("import sys; print(len(sys.stdin.read())); sys.exit(3)", stdin="x" * 3_000_000, script_name="n.py")
        assert (r.stdout, r.status, r.return_code, r.script_name) == ("3000000\n", "error", 3, "n.py"), r
        r = c.run("print('y' * 900_000)", output="base64", files={"a": b"\0"}, artifacts=["a*"])
        assert r.ok and len(r.stdout_data) == 900_001
        e = raises(cloche.RequestError, c.run, "x", timeout=0)
        assert e.field == "timeout" and e.given == "0" and e.message == str(e)
        e = raises(cloche.RequestError, c.stream("x", timeout=0).result)
        assert e.field == "timeout"
        n = 0
        for r in c.map([f"print({i})" for i in range(40)], in_flight=4):
            assert r.stdout == f"{n}\n"
            n += 1
        assert n == 40 and 1 <= len(c._where._idle) <= 5, "connections are used again"
        before = fds()
        assert sum(c.run("pass").ok for _ in range(200)) == 200 and fds() == before
        with c.stream(SCRIPT.replace("0.2", "0.7")) as run:
            times, parts = [], []
            for part in run:
                times.append(time.monotonic()); parts.append(part)
            check(parts)
            assert times[-1] - times[0] > 0.3 and run.result().ok and run.result().stdout == ""
        with c.stream(SLEEP) as run:
            assert next(run) == ("stdout", b"begun\n")
            run.cancel()
            assert run.result().status == "cancelled"
        with c.stream(SLEEP) as run:
            run.cancel()
            assert run.result().status == "cancelled"
        with c.stream(SLEEP) as run:
            next(run)
        assert nothing_runs(), "leaving it ends it"
        raises(cloche.ServerError, cloche.Client(where, token=token, wait=0.3).run, SLEEP)
        assert nothing_runs()
        assert c.environments()[0]["name"] == "default"
        assert fds() <= before + 4
    async def main():
        async with cloche.AsyncClient(where, token=token) as c:
            assert [r.stdout async for r in c.map([f"print({i})" for i in range(20)])] == [f"{i}\n" for i in range(20)]
            r = await c.run("import sys; print(len(sys.stdin.read()))", stdin="x" * 3_000_000)
            assert r.stdout == "3000000\n"
            async with c.stream(SCRIPT) as run:
                check([part async for part in run])
                assert (await run.result()).ok
            task = asyncio.create_task(c.run(SLEEP))
            await asyncio.sleep(0.3)
            task.cancel()
            try:
                await task
                raise AssertionError("it was not cancelled")
            except asyncio.CancelledError:
                pass
            assert nothing_runs()
    asyncio.run(main())
"""


class Door(Server):
    """A server of @who's that speaks HTTP as well: its socket, its address, its owner's token"""

    def __init__(self, who):
        folder = who.folder()
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.address = f"127.0.0.1:{s.getsockname()[1]}"
        self.http = str(folder / "http.sock")
        super().__init__(who, folder / "cloche.sock", args=["--socket", str(folder / "cloche.sock"), "--http-socket",
                                                            self.http, "--listen", self.address])
        assert self.wait_log("event=http_ready"), self.lines
        self.token = (self.folder / "cloche/http-token").read_text().strip()


@pytest.fixture(scope="session")
def door(callers):
    with Door(callers["user"]) as d:
        yield d


def test_over_http_by_socket(door):
    client(door.who, f"http+unix:{door.http}", OVER_HTTP, "", door.path)


def test_over_http_by_tcp(door):
    client(door.who, f"http://{door.address}", OVER_HTTP, door.token, door.path)


def test_over_https(door):
    """Through a proxy that speaks TLS; its certificate is checked against what the system trusts, and its name is."""
    folder = door.who.folder()
    with TlsProxy(door.address, folder) as proxy:
        trusting = {"SSL_CERT_FILE": str(proxy.cert)}
        client(door.who, f"https://localhost:{proxy.port}", OVER_HTTP, door.token, door.path, env=trusting)
        assert proxy.handshakes > 4 and proxy.refusals == 0
        for host, env in ("localhost", {}), ("127.0.0.1", trusting):
            client(door.who, f"https://{host}:{proxy.port}", """
                e = raises(cloche.ServerError, cloche.Client(where, token=sys.argv[2]).run, "print(1)")
                assert "certificate" in str(e), e
                """, door.token, env=env)
        assert wait_for(lambda: proxy.refusals == 2), "no token went to a stranger"


def test_the_http_door_needs_its_token(door):
    client(door.who, f"http://{door.address}", """
        for token in (None, "cloche_" + "0" * 64):
            e = raises(cloche.ServerError, cloche.Client(where, token=token).run, "x")
            assert "token" in str(e) and "401" in str(e), e
        for server in ("http://203.0.113.9:7411", "/native.sock", None):
            raises(ValueError, cloche.Client, server, token="cloche_x")
        raises(ValueError, cloche.Client, "http://127.0.0.1", token="two words")
        raises(ValueError, cloche.Client, "http://127.0.0.1:1/path")
        raises(cloche.ServerError, cloche.Client("http://127.0.0.1:1").run, "x")
        raises(cloche.ServerError, cloche.Client("http+unix:/nowhere").run, "x")
    """)


def test_over_http_another_users_door_is_not_used(callers, door):
    if "root" not in callers:
        pytest.skip("needs: root, two users")
    with pytest.raises(cloche.ServerError, match="neither you nor root"):
        cloche.Client(f"http+unix:{door.http}").run("print(1)")


class FalseHttp:
    """An HTTP server that answers each connection's request with what it is given and hangs up"""

    def __init__(self, folder, answer):
        self.path = str(folder / "false-http.sock")
        self.answer = answer
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.s.bind(self.path)
        self.s.listen()
        self.asked = self.hung_up = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, _ = self.s.accept()
            except OSError:
                return
            with c:
                self.asked += 1
                c.recv(1 << 17)
                c.sendall(self.answer)
            self.hung_up += 1

    def close(self):
        self.s.shutdown(socket.SHUT_RDWR)
        self.s.close()


def chunked(body, last=b"0\r\n\r\n"):
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n%b" % (len(body), body, last)


def test_over_http_never_a_result_that_was_not_one(tmp_path, servers):
    with Native(next(iter(servers.values())).path) as n:
        whole = json.dumps(n.run({"script_content": "print(1)"}).obj).encode()
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
    event = b'{"event": "result", "result": %b}\n' % whole
    wrong = {
        "nothing": b"", "no HTTP": b"hello\r\n\r\n", "cut": ok % (len(whole), whole[:-1]), "no JSON": ok % (3, b"abc"),
        "no object": ok % (2, b"[]"), "cut chunk": chunked(whole)[:-9], "no last chunk": chunked(whole, b""),
        "a chunk without size": chunked(b"").replace(b"\r\n0", b"\r\nzz", 1),
        "500": b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", "401": b"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n",
        "a redirection": b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
        "endless head": b"HTTP/1.1 200 OK\r\n" + b"x" * 70000,
    }
    streams = {"no result": chunked(b'{"event": "accepted", "run_id": "0"}\n'),
               "no id": chunked(b'{"event": "accepted"}\n'),
               "cut": chunked(event[:-9]), "no JSON": chunked(b"x\n")}
    for ask, cases in ((lambda c: c.run("x"), wrong), (lambda c: c.stream("x").result(), streams)):
        for name, answer in cases.items():
            folder = tmp_path / str(len(os.listdir(tmp_path)))
            folder.mkdir()
            server = FalseHttp(folder, answer)
            with pytest.raises(cloche.ServerError):
                raise AssertionError(name, ask(cloche.Client(f"http+unix:{server.path}", patience=0)))
            assert server.asked == 1, "a request that may have run is not sent again"
            server.close()
    for answer in (ok % (len(whole), whole), chunked(whole),
                   b"HTTP/1.1 100 Continue\r\n\r\n" + ok % (len(whole), whole)):
        folder = tmp_path / str(len(os.listdir(tmp_path)))
        folder.mkdir()
        server = FalseHttp(folder, answer)
        c = cloche.Client(f"http+unix:{server.path}")
        for n in (1, 2):
            assert c.run("print(1)").stdout == "1\n", "also when it had hung up meanwhile"
            assert wait_for(lambda: server.hung_up == n)  # noqa: B023
        server.close()
    folder = tmp_path / "stream"
    folder.mkdir()
    server = FalseHttp(folder, chunked(b'{"event": "accepted", "run_id": "0"}\n' + event))
    assert cloche.Client(f"http+unix:{server.path}").stream("x").result().ok
    server.close()


@pytest.mark.parametrize("status, kind", [(429, cloche.BusyError), (503, cloche.BusyError), (400, cloche.RequestError),
                                          (413, cloche.RequestError), (422, cloche.RequestError)])
def test_over_http_refusals_have_their_kind(tmp_path, status, kind):
    error = {"field": "f", "given": "g", "allowed": "a", "message": "f: g"}
    body = json.dumps({"title": "t", "detail": "d", "error": error}).encode()
    server = FalseHttp(tmp_path, b"HTTP/1.1 %d X\r\nRetry-After: 2\r\nContent-Length: %d\r\n\r\n%b"
                       % (status, len(body), body))
    with pytest.raises(kind) as e:
        cloche.Client(f"http+unix:{server.path}", patience=0).run("x")
    if status == 422:
        assert (e.value.field, e.value.message) == ("f", "f: g")
    if kind is cloche.BusyError:
        assert e.value.retry_after == 2
    server.close()
