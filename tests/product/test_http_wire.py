# SPDX-License-Identifier: Apache-2.0
"""HTTP as bytes: what is malformed, slow, too large or gone is bounded, refused or noticed, and harms nobody else."""
import json
import os
import re
import socket
import struct
import subprocess
import time

import pytest

from doors import JSON, LINES, Answer, Door, raw
from harness import wait_for


@pytest.fixture(scope="module")
def door(callers):
    with Door(callers["user"]) as d:
        yield d


def parse(data):
    """The answers in what came, in order"""
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = [tuple(line.split(": ", 1)) for line in lines]
        length = int(dict(headers).get("Content-Length", 0))
        found.append(Answer(int(first.split(" ")[1]), headers, rest[:length]))
        data = rest[length:]
    return found


def post(body, *headers, path="/v1/runs", version="1.1"):
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", f"Content-Type: {JSON}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


RUN = json.dumps({"script_content": "print(1)"}).encode()
SLEEP = json.dumps({"script_content": "import time; time.sleep(60)"}).encode()


def status(door, data):
    """Of the one answer, after which the connection is closed"""
    with door.socket() as s:
        answers = parse(raw(s, data))
    assert len(answers) == 1, answers
    return answers[0].status


@pytest.mark.parametrize("data, wanted", [
    (b"nonsense\r\n\r\n", 400),
    (b"GET /healthz\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\nHost: a\n\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nA: b\0\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nA: b\rX: c\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
    (b"GET  /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"G\x00T /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /healthz HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    (b"GET /healthz HTTP/1.10\r\nHost: a\r\n\r\n", 505),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 64 + b"\r\n", 431),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nA: " + b"b" * 20000, 431),
    (b"GET /" + b"a" * 20000, 431),
    (post(RUN, "Content-Length: 3"), 400),
    (post(RUN).replace(b"Content-Length: ", b"Content-Length: +"), 400),
    (post(RUN).replace(b"Content-Length: ", b"Content-Length: 99999999999999999999"), 400),
    (post(RUN, "Transfer-Encoding: chunked"), 400),
    (post(RUN).replace(b"Content-Length: ", b"Transfer-Encoding: gzip, "), 501),
    (post(RUN).replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nA: ").replace(RUN, b"zz\r\n"), 400),
    (post(RUN).replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nA: ").replace(RUN, b"1\r\nabc\r\n"), 400),
    (post(RUN).replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nA: ").replace(RUN, b"fffffffff\r\n"), 400),
    (post(RUN).replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nA: ").replace(RUN, b"1;" + b"x" * 5000), 400),
    (post(RUN, "Expect: 200-ok"), 417),
    (post(b"", "Content-Length: 0"), 400),
    (post(b"x").replace(b"Content-Length: 1", b"Content-Length: 268435457"), 413),
    (post(b"x", path="/v1/runs/batch").replace(b"Content-Length: 1", b"Content-Length: 16777217"), 413),
])
def test_malformed(door, data, wanted):
    assert status(door, data) == wanted
    assert door.get("/healthz").status == 200


def test_an_early_answer_arrives_although_the_body_goes_on(door):
    with door.socket() as s:
        head = post(b"", path="/v1/runs/batch").replace(b"Content-Length: 0", b"Content-Length: 16777217")
        got = raw(s, head + b"x" * (1 << 20))
    assert parse(got)[0].status == 413


def test_chunks(door):
    body = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(RUN[i:i + 7]), RUN[i:i + 7]) for i in range(0, len(RUN), 7))
    data = post(RUN, "Connection: close").replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nA: ").replace(RUN, body)
    with door.socket() as s:
        answer = parse(raw(s, data + b"0\r\nTrailer: x\r\n\r\n"))[0]
    assert answer.status == 200 and answer.json["stdout"] == "1\n"


def test_byte_by_byte(door):
    data = post(RUN, "Connection: close")
    with door.socket() as s:
        for i in range(0, len(data) - 1):
            s.sendall(data[i:i + 1])
        assert parse(raw(s, data[-1:]))[0].json["stdout"] == "1\n"


def test_keep_alive(door):
    c = door.connection()
    for i in range(50):
        assert door.call("POST", "/v1/runs", {"script_content": f"print({i})"}, kept=c).json["stdout"] == f"{i}\n"
        assert door.get("/nowhere", kept=c).status == 404
        assert door.call("POST", "/v1/runs", b"nonsense", kept=c).status == 422
    with door.socket() as s:
        s.sendall(b"\r\n".join([b"GET /healthz HTTP/1.0", b"Connection: keep-alive", b"", b""]))
        assert b"Connection: keep-alive" in s.recv(4096)
        assert len(parse(raw(s, b"GET /healthz HTTP/1.0\r\n\r\n"))) == 1
    c.close()


def test_absolute_target(door):
    with door.socket() as s:
        got = raw(s, b"GET http://localhost/healthz HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n")
    assert parse(got)[0].status == 200


def test_continue(door):
    with door.socket() as s:
        data = post(RUN, "Expect: 100-continue", "Connection: close")
        s.sendall(data[:-len(RUN)])
        assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert parse(raw(s, RUN))[0].json["stdout"] == "1\n"
    assert status(door, post(RUN, "Expect: 100-continue").replace(JSON.encode(), b"text/html")[:-len(RUN)]) == 415


def test_pipelining_is_refused_politely(door):
    """Who does not wait for the answer gets that answer whole, and is told by it that the rest was not read."""
    with door.socket() as s:
        answers = parse(raw(s, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 5))
    assert len(answers) == 1 and answers[0].status == 200 and answers[0].headers["connection"] == "close"
    with door.socket() as s:
        s.sendall(post(json.dumps({"script_content": "import time; time.sleep(1); print(1)"}).encode()))
        time.sleep(0.1)
        answers = parse(raw(s, post(RUN) * 3))
    assert len(answers) == 1 and answers[0].json["stdout"] == "1\n" and answers[0].headers["connection"] == "close"


@pytest.fixture
def hasty_door(callers):
    with Door(callers["user"], env={"CLOCHE_HTTP_PATIENCE": "1"}) as d:
        yield d


def test_a_slow_head_a_slow_body_and_silence(hasty_door):
    """Nobody holds a connection by dripping into it."""
    begin = time.monotonic()
    slow = hasty_door.socket()
    slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ")
    silent = hasty_door.socket()
    body = hasty_door.socket()
    body.sendall(post(RUN)[:-5])
    dripped = 0
    slow.settimeout(0.05)
    while time.monotonic() - begin < 10:
        try:
            slow.sendall(b"x")
            dripped += 1
            if slow.recv(4096, socket.MSG_PEEK):
                break
        except (BlockingIOError, TimeoutError):
            continue
        except OSError:
            break
    assert parse(raw(slow, b"", 10))[0].status == 408 and 0.8 < time.monotonic() - begin < 10 and dripped > 1
    assert raw(silent, b"", 10) == b"" and time.monotonic() - begin < 10
    assert parse(raw(body, b"", 20))[0].status == 408 and time.monotonic() - begin < 15  # it gets three times as long
    for s in (slow, silent, body):
        s.close()


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("how", ["close", "shutdown", "reset"])
@pytest.mark.parametrize("accept", [JSON, LINES])
def test_a_client_that_goes_away_cancels_its_run(door, tcp, how, accept):
    s = door.socket(tcp)
    token = door.token
    s.sendall(post(SLEEP, f"Accept: {accept}", f"Authorization: Bearer {token}"))
    assert wait_for(lambda: len(door.live(token=token)) == 1 and door.server.counts()["running"] == 1)
    if how == "shutdown":
        s.shutdown(socket.SHUT_WR)
    elif how == "reset":
        reset(s)
    else:
        s.close()
    assert wait_for(lambda: not door.live(token=token) and door.server.counts()["running"] == 0)
    s.close()


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_holding_a_request_costs_nothing(door):
    """The end of a held connection is waited for, not looked for; half an end neither."""
    s = door.socket()
    s.sendall(post(SLEEP) + b"and more")
    assert wait_for(lambda: len(door.live()) == 1)
    before = cpu_seconds(door.p.pid)
    time.sleep(0.5)
    assert cpu_seconds(door.p.pid) - before < 0.1
    s.close()
    assert wait_for(lambda: not door.live())


def test_a_batch_ends_with_its_client(door):
    s = door.socket()
    s.sendall(post(b"\n".join([SLEEP] * 50), path="/v1/runs/batch").replace(JSON.encode(), LINES.encode()))
    assert wait_for(lambda: door.server.counts()["running"] + door.server.counts()["waiting"] >= 2)
    s.close()
    assert wait_for(lambda: door.server.counts()["running"] + door.server.counts()["waiting"] == 0)


def test_who_does_not_read_holds_up_his_script_alone(door):
    flood = json.dumps({"script_content": "import os\nwhile True: os.write(1, b'x' * 65536)", "timeout": 30,
                        "limits": {"output_bytes_hard": 1 << 40}}).encode()
    before = door.memory()
    s = door.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    s.sendall(post(flood, f"Accept: {LINES}"))
    assert wait_for(lambda: len(door.live()) == 1)
    time.sleep(0.5)
    assert door.memory() - before < 16 << 20
    assert door.run("print(1)").json["stdout"] == "1\n"
    got = 0
    while got < 32 << 20:  # what was held up goes on
        got += len(s.recv(1 << 20))
    s.close()
    assert wait_for(lambda: not door.live())


def test_a_large_request_and_a_large_result(door):
    script = "import sys\nd = sys.stdin.read()\nprint(len(d), d == 'ä' * (len(d)))\nsys.stdout.write('y' * 700_000)"
    r = door.run(script, stdin="ä" * (6 << 20)).json
    assert r["stdout"].startswith(f"{6 << 20} True\n") and r["stdout_bytes"] > 700_000


def test_nothing_is_left_behind(door):
    """Of requests, good ones and bad ones, neither memory nor descriptors stay."""
    def some():
        for _ in range(60):
            door.run("print(1)")
            door.run("print(1)", accept=LINES)
            status(door, b"nonsense\r\n\r\n")
            with door.socket() as s:
                s.sendall(post(SLEEP))
    some()
    assert wait_for(lambda: not door.live())
    before = door.memory(), door.descriptors()
    some()
    assert wait_for(lambda: not door.live() and door.descriptors() <= before[1] + 2)
    assert door.memory() - before[0] < 2 << 20


def test_curl(door):
    """Another client than Python's: one connection for three requests, a stream as it comes"""
    out = subprocess.run(["curl", "-sv", "--unix-socket", door.path, *["http://localhost/healthz"] * 3], capture_output=True,
                         timeout=20)
    assert out.stdout == b'{"status": "ok"}' * 3 and re.findall(rb"Re-using existing connection", out.stderr)
    out = subprocess.run(["curl", "-sN", "--json", RUN.decode(), "-H", f"Accept: {LINES}", "-H", f"Authorization: Bearer {door.token}",
                          f"http://localhost:{door.port}/v1/runs"], capture_output=True, timeout=20)
    assert [json.loads(line)["event"] for line in out.stdout.splitlines()][-1] == "result", out
