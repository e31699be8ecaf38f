# SPDX-License-Identifier: Apache-2.0
"""Several tenants of one server: who they are, what is counted, and what none of them shares with another."""
import os
import re
import signal
import subprocess
import time

import pytest

from harness import REPO, strict_json, wait_for
from serving import (ACCEPTED, BUSY, FOREVER, OUTPUT, STREAM_INPUT, STREAM_OUTPUT, TELL_ID, TENANT, Native, Server, begun,
                     request, until_warm)


@pytest.fixture
def server(who):
    with Server(who) as s:
        yield s


def narrow(who, queue="20"):
    return Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": queue})


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
        pytest.skip("needs: root, a server that others may open")
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
        assert modest.run(request("pass", script_name="before")).status == "ok"
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
        assert order[:2] == ["before", "modest"] and sorted(order[2:]) == [f"crowd{i}" for i in range(5)]


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
        assert old["version"] == re.search(r"version: '([^']+)'", (REPO / "meson.build").read_text())[1]
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
        assert now["is_ready"] is True


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


TRACES = "import sys\nprint(hash('a'), id(sys.modules))"


def warm(n, script=TRACES, **fields):
    """The output of a warm run, once there can be one"""
    until_warm(lambda: n.run(request("pass")).mode)
    r = n.run(request(script, mode="warm", **fields))
    assert r.status == "ok", r.obj
    return r.stdout


def tenants_of(n):
    return sorted(x["tenant"] for x in n.stats()["supervisors"] if not x["is_ending"] and x["tenant"])


def test_two_tenants_share_no_zygote(who, server):
    """Seeds and layout of memory are those of an interpreter: equal within a tenant, another in the next."""
    with Native(server.path, "a") as a, Native(server.path, "a") as again, Native(server.path, "b") as b, \
            Native(server.path) as own:
        seen = [warm(n).split() for n in (a, again, b, own)]
        assert seen[0] == seen[1]
        for i in range(2):
            assert len({line[i] for line in seen}) == 3, seen
        assert tenants_of(own) == sorted(["a", "b", f"uid-{who.uid}"]) and len(server.supervisors()) == 3


def test_zygotes_that_are_shared(who):
    with Server(who, env={"CLOCHE_SERVER_SHARE_ZYGOTES": "yes"}) as s, Native(s.path, "a") as a, \
            Native(s.path, "b") as b, Native(s.path) as own:
        seen = {warm(n) for n in (a, b, own)}
        assert len(seen) == 1 and len(s.supervisors()) == 1
        (only,) = own.stats()["supervisors"]
        assert only["tenant"] is None


def test_users_of_roots_server_share_no_zygote(callers):
    if "root" not in callers:
        pytest.skip("needs: root, other users")
    root, user = callers["root"], callers["user"]
    with Server(root) as s, Native(s.path) as n:
        os.chmod(s.path, 0o666)
        mine = warm(n).split()
        path = user.file("pass")
        assert wait_for(lambda: b'"warm"' in user.cloche("run", "--json", "--server", s.path, path).stdout)
        p = user.run(TRACES, "--mode", "warm", "--server", s.path)
        assert p.returncode == 0 and not set(p.stdout.decode().split()) & set(mine)
        assert tenants_of(n) == sorted(["uid-0", f"uid-{user.uid}"])


def test_an_idle_tenants_supervisor_goes(who):
    with Server(who, env={"CLOCHE_SERVER_TENANT_IDLE": "300ms"}) as s, Native(s.path) as own:
        with Native(s.path, "a") as a:
            begun(a)
            assert tenants_of(own) == sorted(["a", f"uid-{who.uid}"])
            time.sleep(0.6)
            assert "a" in tenants_of(own), "one that runs is not idle"
        assert wait_for(lambda: tenants_of(own) == [f"uid-{who.uid}"] and len(s.supervisors()) == 1)
        with Native(s.path, "a") as a:
            assert a.run(request("print(2)")).stdout == "2\n", "and comes back"
        assert wait_for(lambda: len(s.supervisors()) == 1)


def test_so_many_tenants_at_a_time(who):
    """The one that is idle for longest makes room; whoever comes gets a run."""
    with Server(who) as s, Native(s.path) as own:
        for i in range(34):
            with Native(s.path, f"t{i}") as n:
                assert n.run(request(f"print({i})", mode="cold")).stdout == f"{i}\n"
        names = tenants_of(own)
        assert len(names) == 32 and "t0" not in names and "t33" in names
        assert wait_for(lambda: len(s.supervisors()) == 32)
        with Native(s.path, "t0") as n:
            assert n.run(request("print(0)", mode="cold")).stdout == "0\n"


def test_one_tenants_supervisor_dies_alone(who, server):
    with Native(server.path, "a") as a, Native(server.path, "b") as b, Native(server.path) as own:
        begun(a)
        begun(b)
        (pid,) = [x["pid"] for x in own.stats()["supervisors"] if x["tenant"] == "a"]
        os.kill(pid, 9)
        assert a.answer().status == "internal_error"
        assert a.run(request("print(1)")).stdout == "1\n", "it has another"
        b.cancel()
        assert b.answer().status == "cancelled"


def test_a_tenant_whose_supervisor_can_not_start(who):
    """It hears so at once; who has one goes on."""
    folder = who.folder()
    (folder / "bin").mkdir(mode=0o755)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    python = folder / "bin" / "python3"
    python.symlink_to("/usr/bin/python3")
    config = who.file(f"[environment default]\npython = {python}\n", "cloche.ini")
    with Server(who, env={"CLOCHE_CONFIG": str(config)}) as s, Native(s.path) as own:
        assert warm(own, "print(1)") == "1\n"
        python.unlink()
        with Native(s.path, "a") as a:
            r = a.run(request("print(2)"))
            assert r.status == "internal_error" and str(python) in r.message
            assert own.run(request("print(3)", mode="warm")).stdout == "3\n"
            python.symlink_to("/usr/bin/python3")
            assert wait_for(lambda: a.run(request("print(4)")).stdout == "4\n")


def test_settings_read_again_hold_for_all(who):
    config = who.file("[limits]\nopen_files = 100\n", "cloche.ini")
    script = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    with Server(who, env={"CLOCHE_CONFIG": str(config)}) as s, Native(s.path, "a") as a, Native(s.path, "b") as b:
        assert a.run(request(script)).stdout == "100\n"
        begun(b)
        config.write_text("[limits]\nopen_files = 120\n[server]\nshare_zygotes = yes\n")
        s.p.send_signal(signal.SIGHUP)
        assert s.wait_log("event=reloaded")
        assert a.run(request(script)).stdout == "120\n"
        assert len([x for x in a.stats()["supervisors"] if not x["is_ending"]]) == 1
        b.cancel()
        assert b.answer().status == "cancelled", "what ran went on"
        assert wait_for(lambda: len(s.supervisors()) == 1)
