# SPDX-License-Identifier: Apache-2.0
"""The HTTP door as the server's own process: started, started again, ended with it, and without rights."""
import http.client
import json
import os
import pwd
import re
import signal
import socket

import pytest

from harness import processes, tree, wait_for
from serving import Native, Server, name_of

ACCOUNT = "cloche:x:61180:61180::/nonexistent:/usr/sbin/nologin\n"
GROUP = "cloche:x:61180:\n"


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def ask(path, method, where, body=None):
    """(status, body); (0, None): nobody answers"""
    c = Unix(path)
    try:
        c.request(method, where, body, {"Content-Type": "application/json"} if body else {})
        r = c.getresponse()
        return r.status, json.loads(r.read() or b"null")
    except OSError:
        return 0, None
    finally:
        c.close()


def run(path, script):
    return ask(path, "POST", "/v1/runs", json.dumps({"script_content": script}).encode())


def account(folder):
    """What makes a program see a user `cloche`, in a mount namespace of its own: the machine is left as it is"""
    if os.path.exists("/etc/passwd") and "\ncloche:" in open("/etc/passwd").read():
        return None
    for name, line in (("passwd", ACCOUNT), ("group", GROUP)):
        (folder / name).write_text(open(f"/etc/{name}").read() + line)
        (folder / name).chmod(0o644)
    return ["/usr/bin/unshare", "--mount", "/bin/sh", "-ec",
            f"mount --bind {folder}/passwd /etc/passwd; mount --bind {folder}/group /etc/group; exec \"$@\"", "sh"]


class WithDoor(Server):
    def __init__(self, who, env=None, **kw):
        folder = who.folder()
        self.http = folder / "http.sock"
        before = account(folder) if who.is_root else None
        kept = folder / "history"
        kept.mkdir()
        os.chown(kept, *((pwd.getpwnam("cloche")[2:4] if not before else (61180, 61180)) if who.is_root else (who.uid, -1)))
        super().__init__(who, env={"CLOCHE_HTTP_SOCKET": str(self.http), "CLOCHE_HISTORY_PATH": str(kept / "h.db"),
                                   **(env or {})}, before=before, **kw)

    def doors(self):
        return [p for p in tree(self.p.pid) if name_of(p) == "cloche-door"]

    def is_open(self):
        return ask(self.http, "GET", "/healthz")[0] == 200


@pytest.fixture
def server(who):
    with WithDoor(who) as s:
        assert wait_for(s.is_open), s.lines
        yield s


def test_runs_come_in_by_http(who, server):
    code, r = run(server.http, "print(1)")
    assert code == 200 and (r["stdout"], r["status"]) == ("1\n", "ok")
    assert server.wait_log("event=run", r["run_id"], f"uid={os.geteuid()}") and len(server.doors()) == 1
    with Native(server.path) as n:
        assert len(n.stats()["supervisors"]) == 1, "by whichever door, it is the same tenant"
    (pid,) = server.doors()
    with open(f"/proc/{pid}/status") as f:
        status = dict(re.findall(r"(\w+):\t(.*)", f.read()))
    assert int(status["CapEff"], 16) == 0 and status["NoNewPrivs"] == "1"
    assert "0" not in status["Uid"].split() and (who.is_root or status["Uid"].split() == [str(who.uid)] * 4)


def test_a_group_for_the_socket(callers):
    """Whoever may open root's socket, its door may."""
    if "root" not in callers:
        pytest.skip("needs: root")
    with WithDoor(callers["root"], env={"CLOCHE_SERVER_GROUP": "daemon"}) as s:
        assert wait_for(s.is_open) and os.stat(s.path).st_gid == os.stat(s.http).st_gid == 1
        assert run(s.http, "print(4)")[1]["stdout"] == "4\n"


def test_it_is_started_again(server):
    for i in range(2):
        (pid,) = server.doors()
        os.kill(pid, signal.SIGKILL)
        assert server.wait_log("event=door_lost", f"failures={i + 1}")
        assert wait_for(lambda: server.is_open() and server.doors() not in ([], [pid]))
    assert run(server.http, "print(2)")[1]["stdout"] == "2\n"
    with Native(server.path) as n:
        assert n.run({"script_content": "print(3)"}).stdout == "3\n"


def test_it_ends_with_the_server(server):
    (pid,) = server.doors()
    assert server.stop() == 0
    assert pid not in processes() and not server.is_open() and not server.log("event=door_stuck")


def test_a_server_that_is_killed_takes_it_along(server):
    (pid,) = server.doors()
    assert server.stop(signal.SIGKILL) == -9
    assert wait_for(lambda: pid not in processes())


def test_a_door_that_can_not_listen(who):
    """The server serves; the door is tried again, ever later."""
    with WithDoor(who, env={"CLOCHE_HTTP_SOCKET": "/nonexistent/http.sock"}) as s:
        assert s.wait_log("event=door_lost", count=2) and s.log("/nonexistent/http.sock")
        with Native(s.path) as n:
            assert n.run({"script_content": "print(1)"}).stdout == "1\n"
        assert len(s.log("event=door_lost")) < 6


def test_no_door_without_settings(who):
    with Server(who) as s:
        assert s.wait_log("event=ready") and not [p for p in tree(s.p.pid) if name_of(p) == "cloche-door"]
        assert not s.log("event=door")


def test_roots_door_needs_a_user(callers):
    if "root" not in callers:
        pytest.skip("needs: root")
    if account(callers["root"].folder()) is None:
        pytest.skip("there is a user cloche")
    folder = callers["root"].folder()
    with Server(callers["root"], env={"CLOCHE_HTTP_SOCKET": str(folder / "http.sock")}) as s:
        assert s.wait_log("event=http", "user cloche") and s.wait_log("event=door_lost")
        with Native(s.path) as n:
            assert n.run({"script_content": "print(1)"}).stdout == "1\n"
