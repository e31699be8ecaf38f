# SPDX-License-Identifier: Apache-2.0
"""Clients of the native socket that are out to harm: what they make the server hold is bounded, and others get theirs."""
import json
import os
import select
import subprocess
import sys
import threading

import pytest

from harness import wait_for
from serving import BUSY, RESULT, Native, Server, begun, request

MIB = 1 << 20
CONNECTIONS = 1024  # that the server takes in all
HOLD = """import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
held = []
for _ in range(int(sys.argv[2])):
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    held[-1].connect(sys.argv[1])
print("held", flush=True)
sys.stdin.read()"""

ASK = """import socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(struct.pack("=IIII", 6, 1, 0, 0))
print(s.recv(1 << 17)[16:].decode())"""


def padded(size):
    text = json.dumps(request("pass"))
    return (text[:-1] + " " * (size - len(text)) + "}").encode()


def test_answers_that_are_not_taken_do_not_pile_up(who):
    """A long answer is a file in memory: whoever leaves it there gets no second one"""
    long = request("print('x' * 100000)")
    with Server(who) as s:
        with Native(s.path) as n:
            for _ in range(3):
                assert len(n.run(long).stdout) == 100001
            n.start(long)
            assert select.select([n.s], [], [], 30)[0]
            n.start(long)
            assert s.wait_log("event=bad_client")
            assert n.take()[0] == RESULT and n.take() is None
        with Native(s.path) as n:
            assert n.run(long).status == "ok"


def test_large_requests_give_way(who):
    """The room for requests that wait is shared by their bytes, too"""
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1"}) as s, Native(s.path) as block:
        begun(block)
        greedy = [Native(s.path, "greedy") for _ in range(3)]
        for n in greedy:
            n.start(padded(85 * MIB))
        assert wait_for(lambda: s.counts()["waiting"] == 3)
        with Native(s.path, "modest") as modest:
            modest.start(padded(2 * MIB))
            assert select.select([n.s for n in greedy], [], [], 10)[0] == [greedy[2].s]
            code, error = greedy[2].answer()
            assert code == BUSY and "try again" in error["message"]
            with Native(s.path, "greedy") as more:
                assert more.run(padded(85 * MIB))[0] == BUSY
            block.close()
            assert modest.answer().status == "ok"
        for n in greedy[:2]:
            assert n.answer().status == "ok"
        for n in greedy:
            n.close()


@pytest.fixture
def for_all(callers):
    """Root's server, for everybody"""
    if "root" not in callers:
        pytest.skip("needs: root, who can be several users")
    with Server(callers["root"]) as s:
        os.chmod(s.path, 0o666)
        for folder in (s.folder, *s.folder.parents):
            os.chmod(folder, folder.stat().st_mode | 0o111)
        yield s


def test_nobody_is_told_of_other_tenants(for_all):
    with Native(for_all.path, "token-secret-project") as n:
        assert n.run(request("pass")).status == "ok"
        assert "token-secret-project" in json.dumps(n.stats())
        text = subprocess.run([sys.executable, "-c", ASK, for_all.path], user=50002, group=50002, extra_groups=[], check=True,
                              stdout=subprocess.PIPE, timeout=20).stdout
    stats = json.loads(text)
    assert [t["name"] for t in stats["tenants"]] == ["uid-50002"] and b"secret-project" not in text
    assert stats["runs"] and len(stats["supervisors"]) >= 2


def test_nobody_has_all_connections(for_all):
    hold = [subprocess.Popen([sys.executable, "-c", HOLD, for_all.path, str(CONNECTIONS)], user=uid, group=uid, extra_groups=[],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE) for uid in (50001, 50002, 50003)]
    try:
        assert [p.stdout.readline() for p in hold] == [b"held\n"] * 3
        with Native(for_all.path) as n:
            assert n.run(request("pass")).status == "ok"
    finally:
        for p in hold:
            p.communicate()


def test_a_supervisor_is_for_whoever_waits(callers):
    """There are fewer supervisors than tenants, none of whom ever rests: the one who has none gets one all the same"""
    env = {"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_POOL_MAX": "0", "CLOCHE_SERVER_POOL_MIN": "0"}
    over = threading.Event()
    done = [0] * 32

    def ask_on_and_on(i):
        with Native(s.path, f"busy-{i}") as one, Native(s.path, f"busy-{i}") as two:
            one.start(request("pass"))
            while not over.is_set():
                two.start(request("pass"))
                one.answer()
                done[i] += 1
                one, two = two, one
            one.answer()

    with Server(callers["user"], env=env) as s:
        threads = [threading.Thread(target=ask_on_and_on, args=(i,)) for i in range(len(done))]
        for t in threads:
            t.start()
        try:
            assert wait_for(lambda: sum(map(bool, done)) >= 31, 20)
            with Native(s.path, "late") as n:
                n.s.settimeout(20)
                assert n.run(request("print(1)")).stdout == "1\n"
            assert wait_for(lambda: all(done), 20)
        finally:
            over.set()
            for t in threads:
                t.join()
