# SPDX-License-Identifier: Apache-2.0
"""Every way in which the server, a part of it, or its client goes away; and new settings for one that stays."""
import json
import os
import signal
import time

import pytest

from harness import Result, cmdline, marked, strict_json, tree, wait_for
from serving import BUSY, FOREVER, STREAM_OUTPUT, Native, Server, begun, request, works

LONG = "import os, time\nos.write(1, b'x\\n')\ntime.sleep({})\nos.write(1, b'whole\\n')"


@pytest.fixture
def server(who):
    with Server(who) as s:
        yield s


def test_a_client_that_goes_away_cancels_its_run(server, residue):
    n = Native(server.path)
    n.start(request(FOREVER, args=[residue.mark], timeout=100, mode="cold"), STREAM_OUTPUT)
    assert n.take()[2] == b"begun\n" and marked(residue.mark)
    n.close()
    assert server.wait_log("event=run", "status=cancelled")
    assert wait_for(lambda: not marked(residue.mark)), "still running"
    works(server)


@pytest.mark.parametrize("door", ["run", "json", "trigger", "batch"])
def test_sigint_of_the_command_line(who, server, residue, door):
    body = json.dumps(request(FOREVER, args=[residue.mark], timeout=100, mode="cold"))
    args = {"run": ["run", "--server", server.path, "--mode", "cold", "-t", "100", who.file(FOREVER), residue.mark],
            "json": ["run", "--json", "--server", server.path, "--mode", "cold", "-t", "100", who.file(FOREVER), residue.mark],
            "trigger": ["trigger", "--server", server.path, "--request", who.file(body, "r.json")],
            "batch": ["batch", "--server", server.path, who.file(body + "\n", "r.jsonl")]}[door]
    p = who.popen(*args)
    assert wait_for(lambda: any(b"/tmp/" in cmdline(x) for x in residue.look(server.p.pid)
                                if x in marked(residue.mark)))
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=10)
    assert p.returncode == 130, (p.returncode, out, err)
    if door in ("json", "trigger"):
        assert Result(strict_json(out)).verdict == ("cancelled", -9)
    assert server.wait_log("event=run", "status=cancelled")
    assert wait_for(lambda: not marked(residue.mark))


def test_reader_of_the_command_line_goes_away(who, server):
    p = who.popen("run", "--server", server.path, who.file("while True: print('x' * 1000)"))
    p.stdout.read(10000)
    p.stdout.close()
    assert p.wait(10) == 130
    assert server.wait_log("event=run", "status=cancelled")


def test_supervisor_killed_in_flight(server):
    with Native(server.path) as a, Native(server.path) as b:
        begun(a)
        begun(b)
        (pid,) = server.supervisors()
        os.kill(pid, signal.SIGKILL)
        for n in (a, b):
            r = n.answer()
            assert r.verdict == ("internal_error", -125) and "retry" in r.message
            assert n.run(request("print(2)")).stdout == "2\n", "the same connection goes on"
    assert server.wait_log("event=supervisor_lost") and len(server.supervisors()) == 1


def test_supervisor_killed_while_nothing_ran(server):
    works(server)
    for _ in range(3):
        (pid,) = server.supervisors()
        os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: server.supervisors() not in ([pid], []))
        works(server)


def test_supervisor_killed_below(server):
    """The processes below the first one, which are those that build the sandboxes"""
    with Native(server.path) as n:
        begun(n)
        pids = [p for p in tree(server.p.pid) if p not in (server.p.pid, server.launcher(), *server.supervisors())]
        os.kill(pids[0], signal.SIGKILL)
        assert n.answer().verdict == ("internal_error", -125)
    works(server)


def test_the_server_is_killed(who, residue):
    server = Server(who)
    p = who.popen("run", "--json", "--server", server.path, "--mode", "cold", "-t", "100", who.file(FOREVER), residue.mark)
    assert wait_for(lambda: marked(residue.mark)[1:])
    time.sleep(0.2)
    residue.look(server.p.pid)
    server.p.kill()
    server.p.wait()
    out, err = p.communicate(timeout=10)
    assert p.returncode == 125 and Result(strict_json(out)).verdict == ("internal_error", -125), (out, err)
    residue.assert_none(may_leave_empty_cgroup=True)
    # a user's socket is still there: nobody answers, so the command line does it itself, and the next server takes the place
    assert wait_for(lambda: os.path.exists(server.path) != who.is_root), "root's launcher removes it"
    p = who.run("print(1)", env={"XDG_RUNTIME_DIR": str(server.folder)})
    assert (p.returncode, p.stdout) == (0, b"1\n")
    with Server(who, socket_path=server.path) as s:
        works(s)


def test_graceful_end(who, residue):
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1"}) as s:
        with Native(s.path) as a, Native(s.path) as b, Native(s.path) as idle:
            a.start(request(LONG.format(3)), STREAM_OUTPUT)
            assert a.take()[2] == b"x\n"
            residue.look(s.p.pid)
            b.start(request("pass"))
            assert wait_for(lambda: s.counts()["waiting"] == 1)
            s.p.send_signal(signal.SIGTERM)
            code, error = b.answer()
            assert code == BUSY and "stopped" in error["message"]
            assert not os.path.exists(s.path), "no new connections"
            assert a.take()[2] == b"whole\n" and a.answer().status == "ok"
            assert idle.take() is None
        assert s.stop() == 0 and s.wait_log("event=stopped")
    residue.assert_none()


@pytest.mark.parametrize("how", ["twice", "grace"])
def test_the_end_of_patience(who, residue, how):
    with Server(who, env={"CLOCHE_SERVER_GRACE": "300ms" if how == "grace" else "100"}) as s:
        with Native(s.path) as n:
            begun(n)
            residue.look(s.p.pid)
            start = time.monotonic()
            s.p.send_signal(signal.SIGTERM)
            if how == "twice":
                assert s.wait_log("event=stopping")
                s.p.send_signal(signal.SIGINT)
            assert n.answer().verdict == ("cancelled", -9)
            assert s.stop() == 0 and time.monotonic() - start < 15
    residue.assert_none()


def test_a_reader_that_never_reads_does_not_keep_the_end_away(who):
    with Server(who, env={"CLOCHE_SERVER_GRACE": "500ms"}) as s:
        with Native(s.path) as n:
            n.start(request("while True: print('x' * 60000)", timeout=60), STREAM_OUTPUT)
            time.sleep(0.5)
            start = time.monotonic()
            assert s.stop() == 0 and time.monotonic() - start < 15


def test_reload(who):
    config = who.file("[limits]\nopen_files = 100\n", "cloche.ini")
    script = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    with Server(who, env={"CLOCHE_CONFIG": str(config)}) as s:
        (first,) = s.supervisors()
        with Native(s.path) as a, Native(s.path) as b:
            assert b.run(request(script)).stdout == "100\n"
            a.start(request(LONG.format(3)), STREAM_OUTPUT)
            assert a.take()[2] == b"x\n"
            config.write_text("[limits]\nopen_files = 120\n[environment other]\npython = /usr/bin/python3\n")
            s.p.send_signal(signal.SIGHUP)
            assert s.wait_log("event=reloaded", "environments=2")
            assert b.run(request(script, environment="other")).stdout == "120\n"
            assert a.take()[2] == b"whole\n" and a.answer().status == "ok", "what ran goes on"
            assert wait_for(lambda: len(s.supervisors()) == 1 and s.supervisors() != [first]), "the old one has gone"
            config.write_text("[limits]\nopen_files = none-such\n")
            s.p.send_signal(signal.SIGHUP)
            assert s.wait_log("event=not_reloaded", "open_files")
            config.write_text("[environment default]\npython = /nonexistent/python3\n")
            s.p.send_signal(signal.SIGHUP)
            assert s.wait_log("event=not_reloaded", count=2)
            config.write_text("[protect]\nrequire = no-such-wall\n")
            s.p.send_signal(signal.SIGHUP)
            assert s.wait_log("event=not_reloaded", count=3)
            assert b.run(request(script, environment="other")).stdout == "120\n", "the old settings stay in force"


def test_nothing_is_left(who, residue):
    with Server(who) as s:
        with Native(s.path) as n:
            n.start(request(FOREVER, args=[residue.mark], timeout=100, mode="cold"), STREAM_OUTPUT)
            n.take()
            residue.look(s.p.pid)
        works(s)
        residue.look(s.p.pid)
    residue.assert_none()
