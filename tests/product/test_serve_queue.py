# SPDX-License-Identifier: Apache-2.0
"""The server's queue: fair turns, bounds, and who leaves it."""
import contextlib
import json
import os

import pytest

from harness import strict_json, wait_for
from serving import BUSY, FOREVER, SLEEP, Native, Server, begun, request, works


@pytest.fixture
def narrow(who):
    """One run at a time"""
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": "20"}) as s:
        yield s


def test_a_busy_server_is_asked_again_by_batch(who):
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": "1"}) as s:
        lines = "".join(json.dumps(request(f"print({i})")) + "\n" for i in range(8))
        p = who.cloche("batch", "-j", "8", "--server", s.path, "-", input=lines.encode())
        assert p.returncode == 0 and sorted(strict_json(x)["line"] for x in p.stdout.splitlines()) == list(range(1, 9))
        assert s.wait_log("event=refused", 'field="server"')


def test_time_in_the_queue_is_told(narrow):
    with Native(narrow.path) as a, Native(narrow.path) as b:
        a.start(request(SLEEP.format(2)))
        b.start(request("pass"))
        first, second = a.answer(), b.answer()
    assert second.status == "ok" and first.queue_time < 1 < second.queue_time < 10
    assert second.execution_time < 3


def finished(server, names):
    """The order in which runs with these script names ended"""
    assert wait_for(lambda: all(server.log("event=run", f'script="{n}"') for n in names)), (names, server.lines)
    order = [line.split('script="')[1].split('"')[0] for line in server.log("event=run")]
    return [n for n in order if n in names]


def test_turns_between_connections(narrow):
    """Who opens many connections at once does not go before one that waits its turn."""
    with Native(narrow.path) as block, Native(narrow.path) as single:
        assert single.run(request("pass", script_name="before")).status == "ok"
        begun(block)
        crowd = [Native(narrow.path) for _ in range(6)]
        for i, n in enumerate(crowd):
            n.start(request("pass", script_name=f"crowd{i}"))
        assert wait_for(lambda: narrow.counts()["waiting"] == 6)
        single.start(request("pass", script_name="single"))
        assert wait_for(lambda: narrow.counts()["waiting"] == 7)
        block.close()
        assert single.answer().status == "ok"
        for n in crowd:
            assert n.answer().status == "ok"
            n.close()
    names = ["single"] + [f"crowd{i}" for i in range(6)]
    assert finished(narrow, names) == names, "first who was served longest ago, then in the order of arrival"


def test_turns_between_users(callers):
    """However much a user asks for, the other's request is next."""
    if "root" not in callers:
        pytest.skip("needs: root, two users")
    user = callers["user"]
    with Server(user, env={"CLOCHE_SERVER_MAX_RUNNING": "1"}) as s, Native(s.path) as n:  # as root
        assert n.run(request("pass", script_name="before")).status == "ok"
        many = [f"many{i}" for i in range(13)]
        first = user.file(json.dumps(request(FOREVER, timeout=100, script_name="many0")), "first.json")
        block = user.popen("trigger", "--server", s.path, "--request", first)
        assert wait_for(lambda: s.counts()["running"] == 1)
        lines = "".join(json.dumps(request("pass", script_name=n)) + "\n" for n in many[1:])
        p = user.popen("batch", "-j", "12", "--server", s.path, user.file(lines, "many.jsonl"))
        assert wait_for(lambda: s.counts()["waiting"] == 12)
        n.start(request("pass", script_name="other"))
        assert wait_for(lambda: s.counts()["waiting"] == 13)
        block.terminate()
        assert n.answer().status == "ok"
        block.communicate(timeout=30)
        p.communicate(timeout=60)
        assert finished(s, [*many, "other"])[:2] == ["many0", "other"] and len(s.log("event=run", "many")) == 13
        assert s.log("event=run", "other", "uid=0")


def test_a_user_who_fills_the_queue_gives_way(callers):
    if "root" not in callers:
        pytest.skip("needs: root, two users")
    user = callers["user"]
    with Server(user, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": "4"}) as s:
        with Native(s.path) as block:
            begun(block)
            path = user.file(json.dumps(request("pass", script_name="many")), "r.json")
            many = [user.popen("trigger", "--server", s.path, "--request", path) for _ in range(4)]
            assert wait_for(lambda: s.counts()["waiting"] == 4)
            with Native(s.path) as n:
                n.start(request("pass", script_name="other"))
                assert wait_for(lambda: any(p.poll() is not None for p in many))
                block.close()
                assert n.answer().status == "ok"
        assert sorted(p.wait(30) for p in many) == [0, 0, 0, 125]


def test_the_queue_is_bounded(who):
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": "2"}) as s:
        with Native(s.path) as block, Native(s.path) as a, Native(s.path) as b, Native(s.path) as c:
            begun(block)
            a.start(request("pass"))
            b.start(request("pass"))
            assert wait_for(lambda: s.counts()["waiting"] == 2)
            code, error = c.run(request("pass"))
            assert code == BUSY and error["field"] == "server" and "try again" in error["message"]
            if who.uid == os.geteuid():  # another user would be given a place
                p = who.trigger_raw(request("pass"), "--server", s.path)
                assert p.returncode == 125 and strict_json(p.stdout)["error"]["field"] == "server"
                p = who.run("pass", "--server", s.path)
                assert p.returncode == 125 and p.stdout == b"" and b"busy" in p.stderr
            block.close()
            assert a.answer().status == b.answer().status == "ok"
            assert c.run(request("pass")).status == "ok", "a refused client may ask again"


def test_a_client_that_goes_away_leaves_the_queue(narrow):
    with Native(narrow.path) as block:
        begun(block)
        n = Native(narrow.path)
        n.start(request("pass", script_name="gone"))
        assert wait_for(lambda: narrow.counts()["waiting"] == 1)
        n.close()
        assert wait_for(lambda: narrow.counts()["waiting"] == 0)
    assert narrow.wait_log("event=run", "status=cancelled")
    works(narrow)
    assert not narrow.log('script="gone"')


def test_cancelled_by_its_client(narrow):
    """A shut-down sending half: the result still comes, whether the run was under way or waited."""
    with Native(narrow.path) as block, Native(narrow.path) as n:
        begun(block)
        n.start(request("pass", script_name="waits"))
        assert wait_for(lambda: narrow.counts()["waiting"] == 1)
        n.cancel()
        r = n.answer()
        assert r.verdict == ("cancelled", -9) and r.script_name == "waits"
        block.cancel()
        assert block.answer().verdict == ("cancelled", -9)
        assert block.take() is None and n.take() is None
    works(narrow)


def test_more_jobs_at_once_than_a_supervisor_s_socket_holds(who):
    """They wait; the supervisor that is only behind is not given up."""
    n_jobs = 150
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": str(n_jobs)}) as s, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Native(s.path)) for _ in range(n_jobs)]
        for n in clients:
            n.start(request("print('in time')" + "#" * 3000))
        assert {(r.status, r.stdout) for r in (n.answer() for n in clients)} == {("ok", "in time\n")}
        assert not s.log("event=supervisor_lost"), s.lines
