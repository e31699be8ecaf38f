# SPDX-License-Identifier: Apache-2.0
"""The server: the same results as without it, fair turns, bounds, and every way in which one of the two goes away."""
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from harness import Result, forbid_processes, marked, strict_json, tree, wait_for
from serving import (BUSY, DIFFERS, FOREVER, INPUT, OUTPUT, RESULT, RUN, STREAM_INPUT, STREAM_OUTPUT, Native, Server, begun,
                     memfd, request)

MIB = 1 << 20
VARIES = {"mode", "run_id", "execution_time", "cpu_time", "queue_time", "peak_memory_bytes"}
SLEEP = "import time\ntime.sleep({})\n"
A_SECOND = "import os, time\nos.write(1, b'x\\n')\ntime.sleep({})\nos.write(1, b'whole\\n')"


@pytest.fixture
def server(who):
    with Server(who) as s:
        yield s


@pytest.fixture
def narrow(who):
    """One run at a time"""
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": "20"}) as s:
        yield s


def works(server):
    with Native(server.path) as n:
        r = n.run(request("print('works')"))
    assert (r.verdict, r.stdout) == (("ok", 0), "works\n")


def same(a, b):
    def fixed(r):
        obj = {k: v for k, v in r.obj.items() if k not in VARIES}
        obj["warnings"] = [w for w in r.warnings if not w.startswith("mode: ")]
        return obj
    assert fixed(a) == fixed(b)


REQUESTS = {
    "ok": request("print('héllo')", script_name="named.py", args=["a", "é"], env={"A": "b"}),
    "error": request("import sys\nsys.exit(7)"),
    "raises": request("def f():\n    1/0\nf()"),
    "signal": request("import os\nos.kill(os.getpid(), 15)"),
    "timeout": request("print('x')\nimport time\ntime.sleep(60)", timeout=0.4),
    "output": request("while True: print('x' * 1000)", limits={"output_bytes_hard": 100000, "output_bytes": 50}),
    "bytes": request("import sys\nsys.stdout.buffer.write(bytes(range(256)))", output="base64"),
    "stdin": request("print(input())", stdin="line\n"),
    "files": request("print(open('d/x').read())\nopen('out.bin','wb').write(bytes(300000))\n"
                     "open('big','wb').write(bytes(9<<20))",
                     files={"d/x": {"base64": "eHl6"}}, artifacts=["out*", "big"]),
    "network": request("import socket\ntry: socket.socket()\nexcept OSError as e: print(e.errno)", network="none"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_results_are_those_of_a_run_without_it(who, server, name):
    here = who.take_result(who.trigger_raw(REQUESTS[name], "--local"))
    there = who.take_result(who.trigger_raw(REQUESTS[name], "--server", server.path))
    if name == "timeout" or name == "output":  # the message has the value that was reached
        assert here.message.split(":")[1] == there.message.split(":")[1]
        here.obj["message"] = there.obj["message"]
        here.obj["stdout_bytes"] = there.obj["stdout_bytes"] = 0
        if name == "output":
            here.obj["stdout"] = there.obj["stdout"] = ""
    same(here, there)
    assert server.wait_log("event=run", there.run_id)
    assert not server.log(here.run_id)


@pytest.mark.parametrize("bad", [b"", b"{", b'{"script_content": ""}', b'{"script_content": "x", "timeout": 0}',
                                 b'{"script_content": "x", "limits": {"memory_bytes": 1}}', b'{"script_content": "x", "zzz": 1}',
                                 b'{"script_content": "x", "environment": "none-such"}', b"\xff"])
def test_refusals_are_those_of_a_run_without_it(who, server, bad):
    here = who.trigger_raw(bad, "--local")
    there = who.trigger_raw(bad, "--server", server.path)
    assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)
    assert there.returncode == 2


@pytest.mark.parametrize("script", ["print('x')", "import sys\nsys.stderr.write('e')\nsys.exit(9)",
                                    "import os\nos.kill(os.getpid(), 9)", "import time\ntime.sleep(9)"])
def test_run_is_the_same(who, server, script):
    options = ("--timeout", "0.5", "-m", "100m", "--cpus", "0.5", "-e", "A=b", "--network", "none", "--buffered")
    here = who.run(script, "--local", *options, args=("a", "b"))
    there = who.run(script, "--server", server.path, *options, args=("a", "b"))
    assert (here.returncode, here.stdout) == (there.returncode, there.stdout)
    said = [b"".join(x for x in p.stderr.splitlines(True) if b"warning: mode:" not in x) for p in (here, there)]
    assert said[0].split(b"after")[0] == said[1].split(b"after")[0]
    assert server.wait_log("event=run") and len(server.log("event=run")) == 1


def test_what_options_ask_for_arrives(who, server):
    script = ("import json, os, resource, sys\n"
              "print(json.dumps([sys.argv[1:], os.environ['A'], resource.getrlimit(resource.RLIMIT_NOFILE)[0],"
              " os.environ['PYTHON_CPU_COUNT'], open('f').read()]))\nopen('made', 'w').write('m')")
    out = who.folder()
    given = who.file("body", "f")
    p = who.run(script, "--server", server.path, "-e", "A=é=1", "--open-files", "77", "--cpus", "2.5", "--file", given,
                "-o", out, args=("1", "é"))
    assert p.returncode == 0, p
    assert json.loads(p.stdout) == [["1", "é"], "é=1", 77, "3", "body"]
    assert (out / "made").read_text() == "m" and [f.name for f in out.iterdir()] == ["made"]


def test_batch_goes_there(who, server):
    lines = [json.dumps(request(f"print({i})", script_name=f"n{i}.py")) for i in range(12)] + ["{"]
    p = who.cloche("batch", "-j", "4", "--server", server.path, "-", input="\n".join(lines).encode())
    got = {o["line"]: o for o in map(strict_json, p.stdout.splitlines())}
    assert p.returncode == 2 and set(got) == set(range(1, 14))
    assert all(got[i + 1]["stdout"] == f"{i}\n" for i in range(12)) and "error" in got[13]
    assert server.wait_log("event=run") and len(server.log("event=run")) >= 0


def test_a_busy_server_is_asked_again_by_batch(who):
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": "1"}) as s:
        lines = "".join(json.dumps(request(f"print({i})")) + "\n" for i in range(8))
        p = who.cloche("batch", "-j", "8", "--server", s.path, "-", input=lines.encode())
        assert p.returncode == 0 and sorted(strict_json(x)["line"] for x in p.stdout.splitlines()) == list(range(1, 9))
        assert s.wait_log("event=refused", 'field="server"')


def test_it_is_found_by_itself(who, server):
    env = {"XDG_RUNTIME_DIR": str(server.folder)}
    r = who.trigger("print(1)", env_outside=env)
    assert server.wait_log(r.run_id)
    _, r = who.run_json("print(1)", env=env)
    assert server.wait_log(r.run_id)
    r = who.trigger("print(1)", "--local", env_outside=env)
    assert r.status == "ok" and not server.log(r.run_id)


def test_its_usual_place(who):
    if who.is_root:
        s = Server(who, args=["--socket", "/run/cloche-test-none/x"], ready=False)
        assert s.p.wait(10) == 2 and wait_for(lambda: s.log("/run/cloche-test-none"))
        return
    with Server(who, args=[]) as s:
        path = s.folder / "cloche.sock"
        assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, who.uid)
        assert s.wait_log(who.trigger("print(1)", env_outside=s.env).run_id)
    assert not path.exists()


def test_other_settings_are_not_used(who, server):
    """Whoever has set something for his runs gets it, server or not; one that is named has its own settings."""
    env = {"XDG_RUNTIME_DIR": str(server.folder), "CLOCHE_LIMITS_OPEN_FILES": "99"}
    script = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    p = who.run(script, "-v", env=env)
    assert p.stdout == b"99\n" and b"its settings are not those that hold here: running here" in p.stderr
    assert not server.log("event=run")
    p = who.run(script, "--server", server.path, env=env)
    assert p.stdout == b"256\n" and server.wait_log("event=run")


@pytest.mark.parametrize("option,value", [("--require", "seccomp"), ("--allow-missing", "landlock"),
                                          ("--screen-report", "ctypes"), ("--screen-reject", "ctypes")])
def test_walls_are_the_servers_own_affair(who, server, option, value):
    for choice in ({"env": {"XDG_RUNTIME_DIR": str(server.folder)}}, {}):
        options = [] if choice else ["--server", server.path]
        p = who.run("print(1)", *options, option, value, **choice)
        assert p.returncode == 2 and p.stdout == b"", p
        assert option.encode() in p.stderr and b"--local" in p.stderr
    p = who.run("print(1)", "--local", option, value, env={"XDG_RUNTIME_DIR": str(server.folder)})
    assert (p.returncode, p.stdout) == (0, b"1\n")


def test_a_server_that_is_not_there(who):
    p = who.run("print(1)", "--server", "/nonexistent/cloche.sock")
    assert p.returncode == 125 and b"/nonexistent/cloche.sock" in p.stderr and p.stdout == b""
    p = who.run("print(1)", "--server", "/nonexistent/cloche.sock", "--local")
    assert p.returncode == 2 and b"--local" in p.stderr
    p = who.run("print(1)", env={"XDG_RUNTIME_DIR": "/nonexistent"})
    assert (p.returncode, p.stdout, p.stderr) == (0, b"1\n", p.stderr) and b"server" not in p.stderr


def test_nothing_is_started_where_there_is_a_server(who, server):
    body = json.dumps(request("print(1)")).encode()
    p = who.trigger_raw(body, "--server", server.path, preexec_fn=forbid_processes)
    assert who.take_result(p).stdout == "1\n"


def test_bytes_that_json_can_not_carry(who, server):
    script = who.file("import os, sys\nprint(os.fsencode(sys.argv[1]))")
    env = {"XDG_RUNTIME_DIR": str(server.folder)}
    p = who.cloche("run", script, b"\xff\xfe".decode("utf-8", "surrogateescape"), env=env)
    assert (p.returncode, p.stdout) == (0, b"b'\\xff\\xfe'\n") and not server.log("event=run")
    p = who.cloche("run", "--server", server.path, script, b"\xff".decode("utf-8", "surrogateescape"))
    assert p.returncode == 2 and b"UTF-8" in p.stderr


def test_time_in_the_queue_is_told(narrow):
    with Native(narrow.path) as a, Native(narrow.path) as b:
        a.start(request(SLEEP.format(0.8)))
        b.start(request("pass"))
        first, second = a.answer(), b.answer()
    assert second.status == "ok" and first.queue_time < 0.5 < second.queue_time < 3
    assert second.execution_time < 0.5


def finished(server, names):
    """The order in which runs with these script names ended"""
    wait_for(lambda: all(server.log("event=run", f'script="{n}"') for n in names), 20)
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
        wait_for(lambda: narrow.counts()["waiting"] == 6)
        single.start(request("pass", script_name="single"))
        wait_for(lambda: narrow.counts()["waiting"] == 7)
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
    with Server(user, env={"CLOCHE_SERVER_MAX_RUNNING": "1"}) as s:
        lines = "".join(json.dumps(request(SLEEP.format(0.1), script_name=f"many{i}")) + "\n" for i in range(12))
        p = user.popen("batch", "-j", "12", "--server", s.path, user.file(lines, "many.jsonl"))
        assert wait_for(lambda: s.counts()["waiting"] >= 10)
        with Native(s.path) as n:  # as root
            assert n.run(request("pass", script_name="other")).status == "ok"
        before = len(s.log("event=run", "many"))
        p.communicate(timeout=60)
        assert before <= 3 and s.wait_log("event=run", "many", count=12)
        assert s.wait_log("event=run", "other", "uid=0")


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


def test_a_client_that_goes_away_cancels_its_run(server, residue):
    n = Native(server.path)
    n.start(request(FOREVER, args=[residue.mark], timeout=100, mode="cold"), STREAM_OUTPUT)
    assert n.take()[2] == b"begun\n" and marked(residue.mark)
    n.close()
    assert server.wait_log("event=run", "status=cancelled")
    assert wait_for(lambda: not marked(residue.mark)), "still running"
    works(server)


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


@pytest.mark.parametrize("door", ["run", "json", "trigger", "batch"])
def test_sigint_of_the_command_line(who, server, residue, door):
    body = json.dumps(request(FOREVER, args=[residue.mark], timeout=100, mode="cold"))
    args = {"run": ["run", "--server", server.path, "--mode", "cold", "-t", "100", who.file(FOREVER), residue.mark],
            "json": ["run", "--json", "--server", server.path, "--mode", "cold", "-t", "100", who.file(FOREVER), residue.mark],
            "trigger": ["trigger", "--server", server.path, "--request", who.file(body, "r.json")],
            "batch": ["batch", "--server", server.path, who.file(body + "\n", "r.jsonl")]}[door]
    p = who.popen(*args)
    assert wait_for(lambda: any(b"/tmp/" in open(f"/proc/{x}/cmdline", "rb").read() for x in residue.look(server.p.pid)
                                if x in marked(residue.mark)))
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=10)
    assert p.returncode == 130, (p.returncode, out, err)
    if door in ("json", "trigger"):
        assert Result(strict_json(out)).verdict == ("cancelled", -9)
    assert server.wait_log("event=run", "status=cancelled")
    assert wait_for(lambda: not marked(residue.mark))


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
            a.start(request(A_SECOND.format(1)), STREAM_OUTPUT)
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
            assert s.stop() == 0 and time.monotonic() - start < 4
    residue.assert_none()


def test_reload(who):
    config = who.file("[limits]\nopen_files = 100\n", "cloche.ini")
    script = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    with Server(who, env={"CLOCHE_CONFIG": str(config)}) as s:
        (first,) = s.supervisors()
        with Native(s.path) as a, Native(s.path) as b:
            assert b.run(request(script)).stdout == "100\n"
            a.start(request(A_SECOND.format(1.5)), STREAM_OUTPUT)
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


def test_whom_it_serves(callers):
    if "root" not in callers:
        pytest.skip("needs: root, other users")
    root, user = callers["root"], callers["user"]
    with Server(user) as s:
        works(s)  # root may
        p = root.run("print(1)", "--server", s.path)
        assert p.returncode == 125 and p.stdout == b"" and b"neither you nor root" in p.stderr
        p = root.run("print(1)", "-v", env={"XDG_RUNTIME_DIR": str(s.folder)})
        assert p.stdout == b"1\n" and b"neither you nor root" in p.stderr and b"running here" in p.stderr
        assert s.wait_log("event=run")
        n_runs = len(s.log("event=run"))
        os.chmod(s.path, 0o666)
        code = ("import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.connect(sys.argv[1])\n"
                "s.settimeout(10)\ntry: s.send(sys.stdin.buffer.read()); print(s.recv(100))\n"
                "except (BrokenPipeError, ConnectionResetError): print(b'')")
        p = subprocess.run(["/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                            "/usr/bin/python3", "-c", code, s.path], capture_output=True, timeout=30, cwd="/",
                           input=bytes([RUN, 0, 0, 0, 1, 0, 0, 0, *bytes(8)]) + b'{"script_content": "pass"}')
        assert p.stdout == b"b''\n", p
        assert len(s.log("event=run")) == n_runs == 1
    with Server(root) as s:
        assert os.stat(s.path).st_mode & 0o777 == 0o660
        p = user.run("print(1)", "--server", s.path)
        assert p.returncode == 125 and b"Permission denied" in p.stderr
        p = user.run("print(1)", "-v", env={"XDG_RUNTIME_DIR": str(s.folder)})
        assert p.stdout == b"1\n" and b"Permission denied" in p.stderr
        assert not s.log("event=run")
        os.chmod(s.path, 0o666)  # root's socket serves whom its mode lets in
        assert user.run("print(1)", "--server", s.path).stdout == b"1\n" and s.wait_log("event=run", f"uid={user.uid}")


def test_the_group_of_roots_socket(callers):
    if "root" not in callers:
        pytest.skip("needs: root")
    root = callers["root"]
    with Server(root, env={"CLOCHE_SERVER_GROUP": "daemon"}) as s:
        st = os.stat(s.path)
        assert (st.st_uid, st.st_gid, st.st_mode & 0o777) == (0, 1, 0o660)
    s = Server(root, env={"CLOCHE_SERVER_GROUP": "no-such-group"}, ready=False)
    assert s.p.wait(10) == 2 and wait_for(lambda: s.log("no-such-group"))


def test_two_servers(who, server):
    second = Server(who, socket_path=server.path, ready=False)
    assert second.p.wait(10) == 125 and wait_for(lambda: second.log("another server has it"))
    works(server)


def test_places_where_it_does_not_listen(who):
    folder = who.folder()
    taken = folder / "taken.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(str(taken))
        other.listen(1)
        os.chmod(taken, 0o666)
        s = Server(who, socket_path=taken, ready=False)
        assert s.p.wait(10) == 125 and wait_for(lambda: s.log("somebody answers"))
    plain = who.file("precious", "plain.sock")
    s = Server(who, socket_path=plain, ready=False)
    assert s.p.wait(10) == 2 and wait_for(lambda: s.log("no socket")) and plain.read_text() == "precious"
    folder.chmod(0o777)
    s = Server(who, socket_path=folder / "x.sock", ready=False)
    assert s.p.wait(10) == 2 and wait_for(lambda: s.log("written by others"))
    s = Server(who, socket_path="relative.sock", ready=False)
    assert s.p.wait(10) == 2 and wait_for(lambda: s.log("absolute"))
    s = Server(who, socket_path="/" + "x" * 200, ready=False)
    assert s.p.wait(10) == 2


@pytest.mark.parametrize("text,words", [("[server]\nmax_running = 0\n", "max_running"), ("[server]\nx = 1\n", "server.x"),
                                        ("[protect]\nrequire = no-such-wall\n", "no-such-wall"),
                                        ("[environment default]\npython = /nonexistent/python3\n", "/nonexistent/python3")])
def test_settings_it_does_not_start_with(who, text, words):
    s = Server(who, env={"CLOCHE_CONFIG": str(who.file(text, "cloche.ini"))}, ready=False)
    assert s.p.wait(10) in (2, 125) and wait_for(lambda: s.log(words)), s.lines
    assert not os.path.exists(s.path)


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
        assert len(ids) == 60 and server.descriptors() == before
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
        assert i == 0 or time.monotonic() - start < 1
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
            assert time.monotonic() - start < 2
        assert server.memory() - memory < 8 * MIB
        total, kind = 0, OUTPUT
        while kind == OUTPUT:
            kind, _, body = slow.take()
            total += len(body) if kind == OUTPUT else 0
    assert kind == RESULT and total == 640 * 65536 + 4
    r = Result(strict_json(body))
    assert r.status == "ok" and r.stdout == "" and r.stdout_bytes == total


def test_a_reader_that_never_reads_does_not_keep_the_end_away(who):
    with Server(who, env={"CLOCHE_SERVER_GRACE": "500ms"}) as s:
        with Native(s.path) as n:
            n.start(request("while True: print('x' * 60000)", timeout=60), STREAM_OUTPUT)
            time.sleep(0.5)
            start = time.monotonic()
            assert s.stop() == 0 and time.monotonic() - start < 6


def test_reader_of_the_command_line_goes_away(who, server):
    p = who.popen("run", "--server", server.path, who.file("while True: print('x' * 1000)"))
    p.stdout.read(10000)
    p.stdout.close()
    assert p.wait(10) == 130
    assert server.wait_log("event=run", "status=cancelled")


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


def test_env(who):
    config = who.file("[environment other]\npython = /usr/bin/python3\npreload = json, os.path\nmode = cold\n", "cloche.ini")
    env = {"CLOCHE_CONFIG": str(config)}
    with Server(who, env=env) as s:
        here = strict_json(who.cloche("env", "--json", "--local", env=env).stdout)
        there = strict_json(who.cloche("env", "--json", "--server", s.path).stdout)
        assert here["environments"] == there["environments"] and here["server"] is None
        assert there["server"]["pid"] == s.p.pid and there["server"]["running"] == 0
        assert [e["name"] for e in here["environments"]] == ["default", "other"]
        other = here["environments"][1]
        assert (other["python"], other["mode"], other["preload"]) == ("/usr/bin/python3", "cold", ["json", "os.path"])
        assert other["version"] == "%d.%d" % sys.version_info[:2] and other["zygote_age"] is None
        text = who.cloche("env", "--server", s.path).stdout.decode()
        assert "other" in text and "json os.path" in text and str(s.p.pid) in text


def test_a_missing_module_is_told(who):
    config = who.file("[environment science]\npython = /usr/bin/python3\npreload = no_such_thing.part, json\n", "cloche.ini")
    env = {"CLOCHE_CONFIG": str(config)}
    with Server(who, env=env) as s:
        script = "import sys\nprint('e', file=sys.stderr)\nimport no_such_thing"
        here = who.trigger(script, "--local", env_outside=env)
        there = who.trigger(script, "--server", s.path)
        same(here, there)
        assert '"science"' in here.message and "no_such_thing" in here.message and here.status == "error"
        with Native(s.path) as n:
            assert n.run(request(script), STREAM_OUTPUT).message == here.message
        r = who.trigger("import nobody_has_this", "--server", s.path)
        assert "science" not in r.message


def test_warm_is_refused_with_a_reason_where_it_can_not_be_had(who):
    p = who.run("pass", "--local", "--mode", "warm")
    assert p.returncode == 2 and b"warm needs a server" in p.stderr


def test_service_manager(who):
    folder = who.folder()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        os.chmod(folder / "notify", 0o777)
        manager.settimeout(10)
        with Server(who, env={"NOTIFY_SOCKET": str(folder / "notify")}) as s:
            assert manager.recv(100) == b"READY=1"
            s.p.send_signal(signal.SIGHUP)
            assert manager.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=") and manager.recv(100) == b"READY=1"
            assert s.stop() == 0 and manager.recv(100) == b"STOPPING=1"


def test_socket_of_the_service_manager(who):
    folder = who.folder()
    path = folder / "given.sock"
    opener = ("import os, socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.bind(sys.argv[1])\n"
              "os.chmod(sys.argv[1], 0o666)\ns.listen(9)\nos.dup2(s.fileno(), 3)\nos.set_inheritable(3, True)\n"
              "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\nos.execv(sys.argv[2], sys.argv[2:])")
    s = Server(who, socket_path=path, args=[], before=["/usr/bin/python3", "-c", opener, str(path)]
               + ([] if who.prefix() else ["/usr/bin/env"]))
    with s:
        works(s)
        assert s.stop() == 0 and path.exists(), "it is the manager's to remove"


def test_the_log_is_marked_for_the_journal(who):
    r, w = os.pipe()
    st = os.fstat(w)
    p = who.popen("serve", "--socket", who.folder() / "j.sock", stderr=w, env={"JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino}"})
    os.close(w)
    with open(r, "rb") as f:
        line = f.readline()
        while line.startswith(b"<4>event=no_history "):  # root's, without a user of its own
            line = f.readline()
        assert line.startswith(b"<6>event=ready ")
        p.terminate()
        assert p.wait(10) == 0


def test_a_log_that_nobody_reads(who):
    r, w = os.pipe()
    folder = who.folder()
    p = who.popen("serve", "--socket", folder / "l.sock", stderr=w)
    try:
        assert wait_for(lambda: (folder / "l.sock").exists())
        with Native(folder / "l.sock") as n:
            for _ in range(700):  # more than a pipe holds
                assert n.run({"script_content": ""})[1]["field"] == "script_content"
            assert n.run(request("print(1)", script_name="n" * 255)).stdout == "1\n"
            for _ in range(600):
                n.run({"script_content": ""})
            assert n.run(request("print(1)")).stdout == "1\n"
    finally:
        p.terminate()
        assert p.wait(10) == 0
        os.close(r)
        os.close(w)


def test_a_scripts_text_is_not_logged(server):
    with Native(server.path) as n:
        n.run(request("print('private-text')\nraise SystemExit('private-text')", args=["private-text"],
                      env={"A": "private-text"}, stdin="private-text", script_name="a\u202eb.py"))
    assert server.wait_log("event=run") and not server.log("private-text")


def test_nothing_is_left(who, residue):
    with Server(who) as s:
        with Native(s.path) as n:
            n.start(request(FOREVER, args=[residue.mark], timeout=100, mode="cold"), STREAM_OUTPUT)
            n.take()
            residue.look(s.p.pid)
        works(s)
        residue.look(s.p.pid)
    residue.assert_none()
