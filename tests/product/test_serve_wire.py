# SPDX-License-Identifier: Apache-2.0
"""The native socket: large requests, broken rules, and input and output that go through as they come."""
import json
import os
import subprocess
import sys
import time

import pytest

from harness import Result, strict_json, wait_for
from serving import (DIFFERS, FOREVER, INPUT, OUTPUT, RESULT, RUN, SLEEP, STREAM_INPUT, STREAM_OUTPUT, Native, Server,
                     memfd, request, works)

MIB = 1 << 20


@pytest.fixture
def server(who):
    with Server(who) as s:
        yield s


def test_a_large_request_comes_as_a_memfd(server):
    script = "x = '" + "y" * 900_000 + "'\nprint(len(x), len(open('f').read()))\nprint('z' * 300000)"
    with Native(server.path) as n:
        r = n.run(request(script, files={"f": "w" * 3_000_000}))
    assert r.stdout == "900000 3000000\n" + "z" * 300000 + "\n"


@pytest.mark.parametrize("what", ["unsealed", "file", "two"])
def test_only_a_sealed_memfd_is_taken(server, tmp_path, what):
    body = json.dumps(request("pass")).encode()
    path = tmp_path / "r"
    path.write_bytes(body)
    fd = os.open(path, os.O_RDONLY) if what == "file" else memfd(body, 0) if what == "unsealed" else memfd(body)
    with Native(server.path) as n:
        n.send(RUN, fds=(fd, fd) if what == "two" else (fd,))
        os.close(fd)
        assert n.take() is None
    assert server.wait_log("event=bad_client")
    works(server)


def test_clients_that_break_the_rules(server):
    works(server)  # from then on the next run's channel is there
    before = server.descriptors()

    def closes(*messages):
        with Native(server.path) as n:
            for m in messages:
                n.s.send(m)
            got = n.take()
            while got and got[0] in (OUTPUT, RESULT):
                got = n.take()
            assert got is None or (got[0] == DIFFERS and n.take() is None), got

    def head(kind, version=1, flags=0, body=b""):
        return kind.to_bytes(4, "little") + version.to_bytes(4, "little") + bytes(4) + flags.to_bytes(4, "little") + body

    run = head(RUN, body=json.dumps(request(SLEEP.format(0.2))).encode())
    assert sys.byteorder == "little"
    closes(b"x")
    closes(b"x" * 15)
    closes(os.urandom(100))
    closes(head(99))
    closes(head(0))
    closes(head(RESULT))
    closes(head(1))
    closes(head(RUN, version=2, body=b"{}"))
    closes(b"x" * 100000)
    with Native(server.path) as n:
        n.s.send(head(RUN, flags=STREAM_INPUT, body=json.dumps(request(FOREVER)).encode()))
        n.s.send(run)  # a second one while the first is under way
        assert n.take() is None
    with Native(server.path) as n:
        n.send(INPUT, b"nobody asked for it")
        assert n.run(request("print(1)")).stdout == "1\n"
    works(server)
    assert wait_for(lambda: server.descriptors() <= before), "descriptors are left"


def test_many_runs_on_one_connection(server):
    works(server)
    with Native(server.path) as n:
        n.run(request("pass"))  # taken in by now, and the one before is gone
        before, memory = server.descriptors(), server.memory()
        ids = {n.run(request(f"print({i})", stdin="x" * 1000)).run_id for i in range(60)}
        assert len(ids) == 60 and wait_for(lambda: server.descriptors() <= before)
    assert server.memory() - memory < 4 * MIB


def test_16_mib_of_standard_input(who, server):
    script = "import hashlib, sys\nd = sys.stdin.buffer.read()\nprint(len(d), hashlib.sha256(d).hexdigest())"
    data = os.urandom(16 * MIB)
    here = who.run(script, "--local", input=data)
    there = who.run(script, "--server", server.path, input=data)
    assert (there.returncode, there.stdout) == (0, here.stdout) and here.stdout.startswith(b"16777216 ")
    r = who.trigger(script, "--server", server.path, stdin="x" * (16 * MIB))
    assert r.stdout.startswith("16777216 ")


def test_input_that_nobody_reads(who, server):
    p = who.run("print('done')", "--server", server.path, input=b"x" * (8 * MIB))
    assert (p.returncode, p.stdout) == (0, b"done\n")


def test_input_and_output_go_through_as_they_come(who, server):
    script = who.file("import sys\nfor line in sys.stdin:\n    print(line.upper(), end='')\n")
    p = who.popen("run", "-q", "--server", server.path, script, stdin=subprocess.PIPE)
    for i in range(20):
        start = time.monotonic()
        p.stdin.write(b"line %d\n" % i)
        p.stdin.flush()
        assert p.stdout.readline() == b"LINE %d\n" % i
        assert i == 0 or time.monotonic() - start < 8
    p.stdin.close()
    assert p.wait(10) == 0 and p.stdout.read() == b"" and p.stderr.read() == b""


def test_much_output_through_a_slow_reader(server):
    """What a client does not read stops its own script, costs the server little, and nobody else anything."""
    works(server)
    memory = server.memory()
    script = "import sys\nfor i in range(640): sys.stdout.write('x' * 65536)\nprint('end')"
    with Native(server.path) as slow:
        slow.start(request(script, timeout=60), STREAM_OUTPUT)
        time.sleep(0.5)
        for _ in range(5):
            start = time.monotonic()
            works(server)
            assert time.monotonic() - start < 8
        assert server.memory() - memory < 8 * MIB
        total, kind = 0, OUTPUT
        while kind == OUTPUT:
            kind, _, body = slow.take()
            total += len(body) if kind == OUTPUT else 0
    assert kind == RESULT and total == 640 * 65536 + 4
    r = Result(strict_json(body))
    assert r.status == "ok" and r.stdout == "" and r.stdout_bytes == total


def test_a_connection_costs_the_others_nothing(server):
    """Clients that connect and do nothing, or half of something"""
    idle = [Native(server.path) for _ in range(100)]
    for n in idle[50:]:
        n.start(request("print(input())"), STREAM_INPUT)
    works_at = time.monotonic()
    for n in idle[50:]:
        n.send(INPUT, b"x\n")
        n.send(INPUT)
    for n in idle[50:]:
        assert n.answer().stdout == "x\n"
    assert time.monotonic() - works_at < 40
    works(server)
    for n in idle:
        n.close()
    assert wait_for(lambda: server.descriptors() < 40)
