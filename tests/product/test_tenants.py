# SPDX-License-Identifier: Apache-2.0
"""Several tenants of one server: who they are, what is counted, and what none of them shares with another."""
import os
import re
import subprocess
import time

import pytest

from harness import strict_json, wait_for
from serving import ACCEPTED, BUSY, OUTPUT, STREAM_INPUT, STREAM_OUTPUT, TELL_ID, TENANT, Native, Server, request

FOREVER = "import os, time\nos.write(1, b'begun\\n')\ntime.sleep(300)\n"


@pytest.fixture
def server(who):
    with Server(who) as s:
        yield s


def narrow(who, queue="20"):
    return Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": queue})


def begun(n):
    n.start(request(FOREVER, timeout=100), STREAM_OUTPUT)
    assert n.take() == (OUTPUT, 1, b"begun\n")


def accepted(n, obj, flags=0):
    """Start it; the id that was told"""
    n.start(obj, flags | TELL_ID)
    kind, _, body = n.take()
    assert kind == ACCEPTED and re.fullmatch(rb"[0-9a-f]{32}", body), (kind, body)
    return body.decode()


def test_the_id_that_was_told_is_the_results(who, server):
    with Native(server.path) as n:
        told = accepted(n, request("print(1)"))
        r = n.answer()
        assert (r.run_id, r.stdout) == (told, "1\n") and server.wait_log("event=run", told)
        again = accepted(n, request("print(2)"))
        assert again != told and n.answer().run_id == again
        n.start({"script_content": ""}, TELL_ID)
        assert n.answer()[1]["field"] == "script_content", "nothing is told of what is refused"
        assert n.run(request("print(3)")).run_id not in (told, again)


def test_the_id_holds_however_it_ends(who):
    with narrow(who) as s, Native(s.path) as block, Native(s.path) as waits:
        running = accepted(block, request(FOREVER, timeout=100), STREAM_OUTPUT)
        assert block.take() == (OUTPUT, 1, b"begun\n")
        told = accepted(waits, request("pass"))
        waits.cancel()
        r = waits.answer()
        assert (r.status, r.run_id) == ("cancelled", told)
        (pid,) = s.supervisors()
        os.kill(pid, 9)
        r = block.answer()
        assert (r.status, r.run_id) == ("internal_error", running)


def test_a_tenant_of_that_name(who, server):
    with Native(server.path, "token-a") as a, Native(server.path) as plain:
        assert a.run(request("print(1)")).stdout == "1\n"
        assert server.wait_log("event=run", "tenant=token-a") and len(server.log("event=run")) == 1
        names = {t["name"]: t for t in plain.stats()["tenants"]}
        assert names["token-a"]["connections"] == 1 and names[f"uid-{os.geteuid()}"]["connections"] == 1
        a.send(TENANT, b"token-b")
        assert a.run(request("print(2)")).stdout == "2\n" and server.wait_log("event=run", "tenant=token-b")
        plain.run(request("pass"))
        assert server.wait_log("event=run", count=3) and "tenant=" not in server.log("event=run")[2]


@pytest.mark.parametrize("name", [b"", b"x" * 65, b"a b", b"a\n", b"a/b", b"\xc3\xa9", b"a\0b"])
def test_names_that_are_none(server, name):
    with Native(server.path) as n:
        n.send(TENANT, name)
        assert n.take() is None
    assert server.wait_log("event=bad_client")


def test_nobody_changes_in_the_middle_of_a_run(server):
    with Native(server.path, "a") as n:
        n.start(request(FOREVER, timeout=100), STREAM_INPUT | STREAM_OUTPUT)
        assert n.take() == (OUTPUT, 1, b"begun\n")
        n.send(TENANT, b"b")
        assert n.take() is None


def test_only_the_trusted_speak_for_others(callers):
    if "root" not in callers:
        pytest.skip("needs root: a server that others may open")
    root, user = callers["root"], callers["user"]
    code = ("import socket, struct, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.connect(sys.argv[1])\n"
            "h = lambda k, b: struct.pack('=IIII', k, 1, 0, 0) + b\ns.settimeout(20)\n"
            "if sys.argv[2]: s.send(h(5, sys.argv[2].encode()))\n"
            "try: s.send(h(2, b'{\"script_content\": \"print(1)\"}')); print(len(s.recv(1 << 16)) > 0)\n"
            "except (BrokenPipeError, ConnectionResetError): print(False)")
    with Server(root) as s:
        os.chmod(s.path, 0o666)
        for name, works in (("", b"True\n"), ("token-a", b"False\n")):
            p = subprocess.run([*user.prefix(), "/usr/bin/python3", "-c", code, s.path, name], capture_output=True,
                               timeout=30, cwd="/")
            assert p.stdout == works, (name, p)
        assert s.wait_log("event=bad_client", f"uid={user.uid}") and not s.log("tenant=token-a")


def test_turns_between_named_tenants(who):
    """However much one asks for, the other's request is next, though the same door brings both."""
    with narrow(who) as s, Native(s.path, "greedy") as block, Native(s.path, "modest") as modest:
        begun(block)
        crowd = [Native(s.path, "greedy") for _ in range(5)]
        for i, n in enumerate(crowd):
            n.start(request("pass", script_name=f"crowd{i}"))
        assert wait_for(lambda: s.counts()["waiting"] == 5)
        modest.start(request("pass", script_name="modest"))
        assert wait_for(lambda: s.counts()["waiting"] == 6)
        block.close()
        assert modest.answer().status == "ok"
        for n in crowd:
            assert n.answer().status == "ok"
            n.close()
        order = [re.search(r'script="(\w+)"', line)[1] for line in s.log("event=run", "status=ok")]
        assert order[0] == "modest" and sorted(order[1:]) == [f"crowd{i}" for i in range(5)]


def test_a_named_tenant_gives_way(who):
    """The id was told, and the refusal comes all the same."""
    with narrow(who, "2") as s, Native(s.path, "a") as block, Native(s.path, "b") as other:
        begun(block)
        with Native(s.path, "a") as first, Native(s.path, "a") as second:
            accepted(first, request("pass"))
            assert wait_for(lambda: s.counts()["waiting"] == 1)
            accepted(second, request("pass"))
            accepted(other, request("print(1)"))
            code, error = second.answer()
            assert code == BUSY and error["field"] == "server"
            block.close()
            assert other.answer().stdout == "1\n" and first.answer().status == "ok"


def bucket(histogram, seconds, bounds):
    """How many were at most so long"""
    return sum(n for n, bound in zip(histogram["buckets"], bounds) if bound <= seconds)


def test_what_is_counted(who):
    with narrow(who, "1") as s, Native(s.path) as n, Native(s.path, "a") as b:
        old = n.stats()
        assert (old["pid"], old["runs"], old["refused"]) == (s.p.pid, [], {"busy": 0, "invalid": 0})
        assert old["version"] == strict_json(who.cloche("doctor", "--json").stdout).get("version", old["version"])
        assert abs(old["start_time"] - time.time()) < 60 and 0 <= old["uptime"] < 60
        for mode in ("cold", "cold", "auto"):
            n.run(request("import time\ntime.sleep(0.03)", mode=mode))
        n.run(request("1/0", mode="cold"))
        n.run({"script_content": ""})
        begun(b)
        with Native(s.path, "c") as c, Native(s.path, "c") as d:
            c.start(request("pass"))
            assert wait_for(lambda: s.counts()["waiting"] == 1)
            assert d.run(request("pass"))[0] == BUSY
            now = n.stats()
            assert (now["running"], now["waiting"], now["max_running"], now["queue_max"]) == (1, 1, 1, 1)
            assert {(t["name"], t["running"], t["waiting"]) for t in now["tenants"]} >= {("a", 1, 0), ("c", 0, 1)}
        runs = {(r["status"], r["mode"]): r["count"] for r in now["runs"]}
        assert sum(runs.values()) == 4 and runs[("error", "cold")] == 1 and runs[("ok", "cold")] >= 2
        assert now["refused"] == {"busy": 1, "invalid": 1}
        bounds = now["bucket_bounds"]
        assert bounds == [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
        for name in ("execution_time", "queue_time", "total_time"):
            h = now[name]
            assert h["count"] == sum(h["buckets"]) == 4 and len(h["buckets"]) == 16 and 0 < h["sum"] < 60, (name, h)
        assert bucket(now["execution_time"], 0.025, bounds) <= 1 and now["total_time"]["sum"] > 0.09
        assert now["is_ready"] is True and now["history"] is None


def test_what_is_told_of_supervisors(who, server):
    with Native(server.path) as n:
        assert wait_for(lambda: any(e["zygote_age"] is not None for e in n.environments()["environments"]))
        stats = n.stats()
        (mine,) = stats["supervisors"]
        assert [mine["pid"]] == server.supervisors() and mine["is_ready"] and not mine["is_ending"]
        assert 100_000 < mine["memory_bytes"] < 50_000_000 and mine["age"] > 0
        (env,) = mine["environments"]
        assert env["name"] == "default" and env["zygote_memory_bytes"] > 1_000_000
        walls = {w["name"]: w for w in stats["walls"]}
        assert walls["seccomp"]["state"] == "full" and set(walls["seccomp"]) == {"name", "state", "what", "detail", "remedy"}
        doctor = strict_json(who.cloche("doctor", "--json").stdout)
        assert [w["name"] for w in doctor["protections"]] == [w["name"] for w in stats["walls"]]
