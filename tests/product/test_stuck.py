# SPDX-License-Identifier: Apache-2.0
"""
Every wait has an end: a process of ours that stops answering costs a run at most.

With a build of -Dfail_steps=true (CLOCHE_BIN_FAIL, default: <repository>/build-fail/cloche), in which patience is two
seconds instead of forty.
"""
import contextlib
import json
import os
import signal
import subprocess
import time

import pytest

import harness
from harness import cmdline, tree, wait_for
from serving import Native, Server, insides, request, zygotes

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(60)"
TIMEOUT = 4.0  # in which the supervisor can be found and stopped


def stop_inside(root):
    found = wait_for(lambda: insides(root))
    assert found, [(p, cmdline(p)) for p in tree(root)]
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return found


@pytest.mark.once
@pytest.mark.parametrize("end", ["by itself", "SIGTERM"])
def test_a_supervisor_that_does_not_answer(hasty, residue, end):
    p = hasty.popen("trigger", "--local", stdin=subprocess.PIPE)
    p.stdin.write(json.dumps(request(SLEEP, timeout=TIMEOUT, args=[residue.mark])).encode())
    p.stdin.close()
    residue.script(p.pid)
    stop_inside(p.pid)
    start = time.monotonic()
    if end == "SIGTERM":
        p.send_signal(signal.SIGTERM)
    out = p.stdout.read()
    p.wait(20)
    assert time.monotonic() - start < 20
    if end == "by itself":
        r = harness.Result(harness.strict_json(out))
        assert r.status == "internal_error" and "does not answer" in r.message, r
    residue.assert_none(may_leave_empty_cgroup=True)


@pytest.mark.once
def test_a_batch_goes_on(hasty, residue):
    lines = [request(SLEEP, timeout=TIMEOUT, args=[residue.mark], script_name="stuck.py"),
             request("print(1)", script_name="late.py")]
    path = hasty.file("".join(json.dumps(line) + "\n" for line in lines), "requests.jsonl")
    p = hasty.popen("batch", "--local", path, "-j", "1")
    residue.script(p.pid)
    stop_inside(p.pid)
    out, err = p.communicate(timeout=30)
    statuses = [harness.Result(harness.strict_json(line)).status for line in out.splitlines()]
    assert statuses == ["internal_error"] * 2, (statuses, err)
    residue.assert_none(may_leave_empty_cgroup=True)


@pytest.mark.once
def test_a_server_replaces_it(hasty):
    with Server(hasty) as server:
        with Native(server.path) as n:
            assert n.run(request("print(1)")).stdout == "1\n"
            n.start(request(SLEEP, timeout=TIMEOUT))
            assert wait_for(lambda: server.counts()["running"] == 1)
            first = stop_inside(server.p.pid)
            start = time.monotonic()
            r = n.answer()
            assert r.status == "internal_error" and "does not answer" in r.message, r
            assert time.monotonic() - start < 20
            r = n.run(request("print(2)"))
            assert (r.status, r.stdout) == ("ok", "2\n"), r
        assert wait_for(lambda: not set(first) & set(tree(server.p.pid))), "the stuck one is ended"


@pytest.mark.once
def test_a_late_answer_hides_no_death(hasty):
    """Who asks what is kept ready waits half a second; what comes later is no sign of life."""
    with Server(hasty) as server, Native(server.path) as n:
        assert n.run(request("print(1)")).stdout == "1\n"
        first = stop_inside(server.p.pid)
        assert n.environments()["environments"][0]["zygote_age"] is None
        for pid in first:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.3)
        assert n.environments()["environments"][0]["zygote_age"] is not None
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: insides(server.p.pid) and not set(first) & set(insides(server.p.pid)))
        assert n.run(request("print(2)")).stdout == "2\n"


@pytest.mark.once
def test_a_client_that_went_away_from_a_stuck_run(hasty):
    with Server(hasty) as server:
        with Native(server.path) as n:
            n.start(request(SLEEP, timeout=600))
            assert wait_for(lambda: server.counts()["running"] == 1)
            stop_inside(server.p.pid)
        assert wait_for(lambda: server.counts()["running"] == 0)
        with Native(server.path) as n:
            assert n.run(request("print(2)")).stdout == "2\n"


def test_a_zygote_that_does_not_answer(hasty):
    """Who needs a fork of it goes cold; then there is another."""
    with Server(hasty) as server:
        with Native(server.path) as n:
            assert wait_for(lambda: n.run(request("print(1)")).mode == "warm")
            stuck = zygotes(server.p.pid)
            assert stuck
            for pid in stuck:
                os.kill(pid, signal.SIGSTOP)
            start = time.monotonic()
            results = [n.run(request("print(1)")) for _ in range(12)]  # more than are parked
            assert {r.status for r in results} == {"ok"}, results
            assert time.monotonic() - start < 20
            assert wait_for(lambda: n.run(request("print(1)")).mode == "warm")
        assert wait_for(lambda: not set(stuck) & set(tree(server.p.pid)))


@pytest.mark.once
def test_more_jobs_than_a_stuck_supervisor_s_socket_holds(hasty):
    """What it was given is lost with it, what waits is the next one's."""
    n_jobs = 120
    with Server(hasty, env={"CLOCHE_SERVER_MAX_RUNNING": str(n_jobs)}) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Native(server.path)) for _ in range(n_jobs)]
        assert clients[0].run(request("print(0)")).stdout == "0\n"
        first = stop_inside(server.p.pid)
        for n in clients:
            n.start(request("print(1)" + "#" * 3000, timeout=5))
        results = [n.answer() for n in clients]
        assert {r.status for r in results} == {"ok", "internal_error"}, {r.status for r in results}
        assert all("does not" in r.message for r in results if r.status != "ok")
        assert wait_for(lambda: not set(first) & set(tree(server.p.pid)))
