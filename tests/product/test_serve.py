# SPDX-License-Identifier: Apache-2.0
"""The server: the same results as without it."""
import json
import sys

import pytest

from harness import forbid_processes, strict_json, wait_for
from serving import STREAM_OUTPUT, Native, Server, request

VARIES = {"mode", "run_id", "execution_time", "cpu_time", "queue_time", "peak_memory_bytes"}


@pytest.fixture
def server(who):
    with Server(who) as s:
        yield s


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
    "timeout": request("print('x')\nimport time\ntime.sleep(60)", timeout=1.5),
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
    options = ("--timeout", "2", "-m", "100m", "--cpus", "0.5", "-e", "A=b", "--network", "none", "--buffered")
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


def test_env(who):
    config = who.file("[environment other]\npython = /usr/bin/python3\npreload = json, os.path\nmode = cold\n", "cloche.ini")
    env = {"CLOCHE_CONFIG": str(config)}
    with Server(who, env=env) as s:
        here = strict_json(who.cloche("env", "--json", "--local", env=env).stdout)
        there = strict_json(who.cloche("env", "--json", "--server", s.path).stdout)
        assert here["environments"] == there["environments"] and here["server"] is None
        assert there["server"]["pid"] == s.p.pid and there["server"]["running"] == 0
        assert [e["name"] for e in here["environments"]] == ["default", "other"]
        assert {"json", "re", "hashlib"} < set(here["environments"][0]["preload"])
        other = here["environments"][1]
        assert (other["python"], other["mode"], other["preload"]) == ("/usr/bin/python3", "cold", ["json", "os.path"])
        assert other["version"] == "%d.%d" % sys.version_info[:2] and other["zygote_age"] is None
        text = who.cloche("env", "--server", s.path).stdout.decode()
        assert "other" in text and "json os.path" in text and str(s.p.pid) in text


@pytest.mark.parametrize("preload, mode", [(None, "cold"), ("", "warm"), ("json", "warm")])
def test_what_is_preloaded(who, preload, mode):
    """The modules that `cloche env` tells, by their names' effect: a script that has one of them goes cold."""
    config = who.file("[environment default]\n" + ("" if preload is None else f"preload = {preload}\n"), "cloche.ini")
    env = {"CLOCHE_CONFIG": str(config)}
    with Server(who, env=env) as s, Native(s.path) as n:
        assert wait_for(lambda: n.run(request("print(1)")).mode == "warm")
        assert n.run(request("print(1)", script_name="statistics.py")).mode == mode
        told = strict_json(who.cloche("env", "--json", "--server", s.path).stdout)["environments"][0]["preload"]
        assert ("statistics" in told) == (mode == "cold")
    shown = who.cloche("config", "check", config).stdout.decode()
    assert who.cloche("config", "check", who.file(shown, "again.ini")).stdout.decode() == shown
    assert ("\npreload =\n" in shown) == (preload == "")


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
