# SPDX-License-Identifier: Apache-2.0
"""Clients over HTTP that are out to harm: what they make the door hold is bounded, and others get theirs."""
import json
import os
import resource
import sqlite3
import threading
import time

import pytest

from doors import Door
from harness import wait_for
from test_http_tokens import Tokens
from test_http_wire import parse

MIB = 1 << 20
CONNECTIONS = 1024  # of each kind, at most
REQUEST_MAX = 256 * MIB
LONG = "open('a', 'wb').write(b'x' * {0}); open('b', 'wb').write(b'x' * {0})"


@pytest.fixture(scope="module")
def door(callers):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * CONNECTIONS, hard), hard))
    with Door(callers["user"]) as d:
        d.secret = Tokens(callers["user"], d.env).add("another")
        yield d
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def other(door):
    """The status that somebody else gets"""
    return door.run("print(1)", tcp=True, token=door.secret).status


def announce(door, size):
    """A request whose body does not come"""
    s = door.socket()
    s.sendall(f"POST /v1/runs HTTP/1.1\r\nContent-Type: application/json\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode())
    return s


def refused(s):
    answer = parse(s.recv(65536))[0]
    return answer.status, answer.headers.get("retry-after")


def close(sockets):
    for s in sockets:
        s.close()


def test_announced_bodies_leave_room_for_others(door):
    held = [announce(door, REQUEST_MAX) for _ in range(2)]
    try:
        with announce(door, REQUEST_MAX) as s:
            assert refused(s) == (503, "1")
        assert other(door) == 200
    finally:
        close(held)
    assert wait_for(lambda: door.run("print(1)").status == 200)


def test_answers_that_are_not_read_take_room(door):
    """Who leaves long answers where they are gets no more of them, and nobody else is kept from anything"""
    held = [announce(door, REQUEST_MAX), announce(door, REQUEST_MAX - 24 * MIB)]
    try:
        started = door.run(LONG.format(6 * MIB), query="?async=1", artifacts=["a", "b"]).json["run_id"]
        path = f"/v1/runs/{started}"
        assert wait_for(lambda: door.get(path).json["state"] == "done", 20)
        for _ in range(2):
            held.append(door.socket())
            held[-1].sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert held[-1].recv(15) == b"HTTP/1.1 200 OK"
        with door.socket() as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert refused(s) == (503, "1")
        assert other(door) == 200
    finally:
        close(held)
    assert wait_for(lambda: door.get(path).status == 200)


def test_idle_connections_make_room(door):
    held = [door.socket(tcp=True) for _ in range(CONNECTIONS + 50)]
    try:
        assert other(door) == 200
        assert door.run("print(1)").status == 200
        assert CONNECTIONS <= door.descriptors() <= CONNECTIONS + 30
    finally:
        close(held)


def test_nobody_has_all_connections(door):
    """Requests that do not go on, of one user, leave half of the connections to the others"""
    held = [announce(door, 10) for _ in range(CONNECTIONS // 2 + 1)]
    try:
        assert refused(held[-1]) == (503, "1")
        assert door.get("/v1/runs").status == 503
        # at the other kind of socket, where he has nothing, he is served
        assert door.run("print(1)", tcp=True, token=door.token).status == 200
        assert other(door) == 200
    finally:
        close(held)
    assert wait_for(lambda: door.run("print(1)").status == 200)


def test_who_leaves_in_the_middle_leaves_nothing(door):
    assert wait_for(lambda: door.metric("cloche_http_request_bytes") == 0, 10)
    before = door.descriptors()
    for i in range(20):
        with announce(door, 1000) as s:
            s.sendall(b"{" * i)
    assert wait_for(lambda: door.descriptors() <= before)
    assert door.metric("cloche_http_request_bytes") == 0


def test_a_long_look_at_the_history_is_given_up(door):
    """A pattern and names that are made for each other hold nobody up"""
    assert door.run("print(1)").status == 200
    path = door.server.env["CLOCHE_HISTORY_PATH"]
    assert wait_for(lambda: os.path.exists(path) and door.runs()["runs"])
    with sqlite3.connect(path, timeout=20) as db:
        now = int(time.time() * 1e6)
        db.executemany(
            "INSERT INTO runs (run_id, time, tenant, script_name, environment, mode, status, message, return_code, execution_ns,"
            " cpu_ns, queue_ns, stdout_bytes, stderr_bytes) VALUES (?, ?, ?, ?, 'default', 'cold', 'ok', '', 0, 1, 1, 1, 1, 1)",
            ((f"{i:032x}", now - i, f"uid-{os.geteuid()}", "a" * 255) for i in range(20000)))
    db.close()
    found = []
    thread = threading.Thread(target=lambda: found.append(door.get("/v1/runs?name=*" + "a" * 120 + "b")))
    thread.start()
    time.sleep(0.05)
    start = time.monotonic()
    assert door.get("/healthz").status == 200
    assert time.monotonic() - start < 8
    thread.join()
    assert found[0].status == 503 and "since" in found[0].json["detail"] and found[0].headers["retry-after"] == "1"
    assert len(door.runs("?limit=1000")["runs"]) == 1000


def test_results_that_are_kept_are_not_pushed_out_by_others(door):
    def start(**kw):
        """A result of 32 MiB"""
        script = "for n in 'abc': open(n, 'wb').write(b'x' * 8388608)"
        path = "/v1/runs/" + door.run(script, query="?async=1", artifacts=["a", "b", "c"], **kw).json["run_id"]
        assert wait_for(lambda: door.get(path, checked=False, **kw).json["state"] == "done", 20)
        return path

    def is_kept(path, **kw):
        """... by the door itself: the history would say whether it has the output"""
        answer = door.get(path, checked=False, **kw)
        return answer.status == 200 and "has_output" not in answer.json

    whole = {"tcp": True, "token": door.secret}
    modest = start(**whole)
    many = [start() for _ in range(8)]
    assert is_kept(modest, **whole) and is_kept(many[-1]) and not is_kept(many[0])


def test_a_line_of_a_batch_is_no_bomb(door):
    """Values cost more than their bytes: no more of them are read than a request may have"""
    line = b'{"request": [' + b"0," * (6 * MIB) + b"0]}"
    before = door.memory()
    answer = door.call("POST", "/v1/runs/batch", line, {"Content-Type": "application/x-ndjson"})
    assert answer.status == 200 and "flood" in answer.lines[0]["error"]["message"]
    assert door.memory() - before < 100 * MIB, json.dumps(answer.lines)[:200]
