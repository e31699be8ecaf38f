# SPDX-License-Identifier: Apache-2.0
"""The HTTP door, as its users see it.  doors.Door holds each answer against /openapi.json."""
import base64
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import time

import jsonschema
import pytest

from doors import EVENTS, JSON, LINES, PROBLEM, Door, UnixConnection, free_port, with_door_user
from harness import BECOME_SLEEP, Result, wait_for
from serving import Server


@pytest.fixture(scope="module")
def doors():
    found = {}
    yield found
    for d in found.values():
        d.__exit__()


@pytest.fixture
def door(who, doors):
    if who.name not in doors:
        doors[who.name] = Door(who)
    return doors[who.name]


def result(answer):
    assert answer.status == 200 and answer.type == JSON, answer
    return Result(answer.json)


def test_a_run(door):
    r = result(door.run("import sys\nprint(sys.argv, input())\nprint(1, file=sys.stderr)\nsys.exit(3)", args=["ä"],
                        stdin="in", script_name="one.py"))
    assert (r.verdict, r.stdout, r.stderr) == (("error", 3), "['/tmp/one.py', 'ä'] in\n", "1\n")
    assert (r.script_name, r.mode) == ("one.py", "warm")


def test_what_breaks_a_rule_is_told_field_by_field(door):
    for fields, field in (({"timeout": 0}, "timeout"), ({"tiemout": 1}, "tiemout"), ({"limits": {"cpus": 1e9}}, "limits"),
                          ({"environment": "nowhere"}, "environment"), ({"files": {"../a": ""}}, "files")):
        answer = door.run("print(1)", **fields)
        assert (answer.status, answer.type) == (422, PROBLEM)
        problem = answer.json
        assert problem["error"]["field"].startswith(field), problem
        assert problem["detail"] == problem["error"]["message"] and problem["type"].endswith(":request-refused")
    assert door.call("POST", "/v1/runs", b"nonsense").status == 422
    assert door.call("POST", "/v1/runs", b"").status == 422


def test_a_refusal_is_word_for_word_the_one_of_trigger(door, who):
    for request in ({"script_content": ""}, {"script_content": "x", "mode": "hot"}, {"script_content": "x", "args": [1]}):
        assert door.call("POST", "/v1/runs", request).json["error"] == who.refused(request, "--local")


def test_stream_as_lines(door):
    answer = door.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('ü')", accept=LINES, buffered=True)
    assert answer.status == 200 and answer.type == LINES
    first, *middle, last = answer.lines
    assert first["event"] == "accepted" and answer.headers["location"] == "/v1/runs/" + first["run_id"]
    assert "".join(e["text"] for e in middle if e["event"] == "stdout") == "out\nü\n"
    assert "".join(e["text"] for e in middle if e["event"] == "stderr") == "err\n"
    r = Result(last["result"])
    assert (r.status, r.run_id, r.stdout, r.stdout_bytes) == ("ok", first["run_id"], "", 7)


def test_stream_as_events(door):
    answer = door.run("print('a\\n\\nb', flush=True)", accept=EVENTS + ", application/json;q=0.5")
    assert answer.type == EVENTS
    assert [name for name, data in answer.events] == [data["event"] for _, data in answer.events]
    assert "".join(data["text"] for name, data in answer.events if name == "stdout") == "a\n\nb\n"
    assert answer.events[-1][1]["result"]["status"] == "ok"


def test_a_stream_cuts_no_character_and_loses_no_byte(door):
    script = ("import os, time\n"
              "for part in (b'\\xc3', b'\\xa4\\xf0\\x9f', b'\\x90\\x8d', b'\\xff\\xfe', b'ok', b'\\xe2\\x82'):\n"
              "    os.write(1, part); time.sleep(0.02)\n")
    events = door.run(script, accept=LINES).lines
    parts = [e for e in events if e["event"] == "stdout"]
    whole = b"".join(base64.b64decode(e["base64"]) if "base64" in e else e["text"].encode() for e in parts)
    assert whole == b"\xc3\xa4\xf0\x9f\x90\x8d\xff\xfeok\xe2\x82"
    assert parts[0]["text"] == "ä", "a character waits until it is whole"


def test_a_stream_of_what_is_refused_is_a_problem(door):
    answer = door.run("print(1)", accept=LINES, timeout=-1)
    assert (answer.status, answer.type) == (422, PROBLEM)


def test_a_line_comes_when_it_is_written(door):
    script = "import time\nfor i in range(6):\n    print(repr(time.monotonic()), flush=True)\n    time.sleep(0.5)\n"
    c = door.connection()
    c.request("POST", "/v1/runs", json.dumps({"script_content": script, "buffered": True}),
              {"Content-Type": JSON, "Accept": LINES})
    r = c.getresponse()
    late = []
    for line in r:
        now = time.monotonic()
        event = json.loads(line)
        if event["event"] == "stdout":
            late += [now - float(written) for written in event["text"].split()]
    c.close()
    # what waited for the next line or the end would be late by 500 ms; a busy machine makes some lines late, too
    assert len(late) == 6 and statistics.median(late) < 0.25 and min(late) < 0.02, late


@pytest.mark.once
def test_async(door):
    answer = door.run("import time\nprint(1)\ntime.sleep(4)\nprint(2)", query="?async=1")
    run_id = answer.json["run_id"]
    assert answer.status == 202 and answer.headers["location"] == f"/v1/runs/{run_id}"
    answer = door.get(f"/v1/runs/{run_id}")
    assert answer.json == {"run_id": run_id, "state": "running"}
    assert run_id in [x["run_id"] for x in door.live()]
    done = wait_for(lambda: (x := door.get(f"/v1/runs/{run_id}").json)["state"] == "done" and x)
    assert done and Result(done["result"]).stdout == "1\n2\n" and done["result"]["run_id"] == run_id
    assert run_id not in [x["run_id"] for x in door.live()]
    assert door.run("x", query="?async=1", timeout=0).status == 422
    assert door.call("DELETE", f"/v1/runs/{run_id}").status == 409


def test_cancel_by_id(door, residue):
    run_id = door.run("print('begun')\n" + BECOME_SLEEP, query="?async=1", args=[residue.mark]).json["run_id"]
    residue.asleep(door.server.p.pid)
    answer = door.call("DELETE", f"/v1/runs/{run_id}")
    assert (answer.status, answer.json["state"]) == (202, "cancelling")
    done = wait_for(lambda: (x := door.get(f"/v1/runs/{run_id}").json)["state"] == "done" and x)
    r = Result(done["result"])
    assert (r.verdict, r.stdout) == (("cancelled", -9), "begun\n")
    for name in ("0" * 32, "nonsense", "..", "%2e%2e"):
        assert door.call("DELETE", f"/v1/runs/{name}").status == 404
        assert door.get(f"/v1/runs/{name}").status == 404


def test_history(door):
    ids = [door.run(f"raise SystemExit({i % 2})", script_name=f"h{i}.py").json["run_id"] for i in range(4)]
    listed = wait_for(lambda: (x := door.runs("?name=h?.py"))["runs"][3:] and x)
    assert listed["is_kept"] and [x["run_id"] for x in listed["runs"]] == ids[::-1]
    page = door.runs("?name=h?.py&limit=3")
    rest = door.runs(f"?name=h?.py&limit=3&cursor={page['next']}")
    assert [x["run_id"] for x in page["runs"] + rest["runs"]] == ids[::-1] and rest["next"] is None
    assert {x["status"] for x in door.runs("?status=error&name=h?.py")["runs"]} == {"error"}
    assert len(door.runs("?since=1h&name=h?.py")["runs"]) == 4
    shown = door.get(f"/v1/runs/{ids[0]}").json
    assert shown["state"] == "done" and shown["result"]["run_id"] == ids[0]
    for query in ("limit=0", "limit=1001", "since=yesterday", "status=bad", "cursor=nonsense", "colour=red", "name=%zz"):
        answer = door.get("/v1/runs?" + query)
        assert answer.status == 400 and answer.json["detail"], query


def lines(*requests):
    return b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in requests)


def batch(door, body, kind=LINES, **kw):
    return door.call("POST", "/v1/runs/batch", body, {"Content-Type": kind}, **kw)


def test_batch(door):
    answer = batch(door, lines({"script_content": "print(1)"}, b"", b"  \r", b"nonsense", {"script_content": "print(2)", "x": 1},
                               {"id": "z", "request": {"script_content": "import sys\nprint(sys.stdin.read())", "stdin": "request"}},
                               {"id": 7, "request": {"script_content": "x"}}, {"script_content": "raise SystemExit(9)"}))
    assert answer.status == 200 and answer.type == LINES
    found = {x["line"]: x for x in answer.lines}
    assert sorted(found) == [1, 4, 5, 6, 7, 8] and len(answer.lines) == 6
    assert Result(found[1]["result"]).stdout == "1\n" and Result(found[8]["result"]).verdict == ("error", 9)
    assert found[6]["id"] == "z" and Result(found[6]["result"]).stdout == "request\n"
    assert [found[n]["error"]["field"] for n in (4, 5, 7)] == ["request", "x", "request"]


def test_batch_of_one_script_with_many_inputs(door):
    body = {"script_content": "print(int(input()) ** 2)", "stdins": ["3", {"base64": "NA=="}, "x"], "timeout": 10}
    found = {x["line"]: Result(x["result"]) for x in batch(door, body, JSON).lines}
    assert [found[n].stdout for n in (1, 2, 3)] == ["9\n", "16\n", ""] and found[3].status == "error"
    assert batch(door, {"script_content": "x", "stdins": []}, JSON).body == b""
    for wrong in ({"script_content": "x"}, {"script_content": "x", "stdins": "a"}, [], {"stdins": ["a"], "stdin": "b"}):
        assert batch(door, wrong, JSON).status == 422
    assert batch(door, b"[" * 100000, JSON).status == 422
    first = batch(door, {"stdins": ["a"]}, JSON).lines[0]
    assert first["error"]["field"] == "script_content"


def test_a_batch_is_longer_than_the_queue(who):
    with Door(who, server_env={"CLOCHE_SERVER_QUEUE_MAX": "1", "CLOCHE_SERVER_MAX_RUNNING": "1"}) as door:
        answer = batch(door, lines(*[{"script_content": f"print({i})"} for i in range(30)]))
        assert sorted(x["line"] for x in answer.lines) == list(range(1, 31))
        assert all(x["result"]["status"] == "ok" for x in answer.lines)
        # ... while who asks for one run is told at once
        held = door.connection()
        held.request("POST", "/v1/runs", '{"script_content": "import time; time.sleep(60)"}', {"Content-Type": JSON})
        other = door.connection()
        assert wait_for(lambda: len(door.live()) == 1)
        other.request("POST", "/v1/runs", '{"script_content": "print(1)"}', {"Content-Type": JSON})
        assert wait_for(lambda: len(door.live()) == 2)
        begin = time.monotonic()
        answer = door.run("print(2)")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1") and time.monotonic() - begin < 10
        assert answer.json["type"].endswith(":busy")
        held.close()
        other.close()


def test_environments_and_capabilities(door):
    names = [e["name"] for e in door.get("/v1/environments").json["environments"]]
    assert names == ["default"]
    found = door.get("/v1/capabilities").json
    walls = {w["name"]: w["state"] for w in found["walls"]}
    assert walls["user"] == "full" and len(walls) > 5
    assert found["limits"]["memory_bytes"]["default"] == 512 << 20 and found["max_timeout"] == 3600


def test_health_and_readiness(who):
    with Door(who) as door:
        assert door.get("/healthz").json == {"status": "ok"} and door.get("/readyz").json == {"status": "ready"}
        door.server.stop()
        assert door.get("/healthz").status == 200
        assert wait_for(lambda: door.get("/readyz").status == 503)
        answer = door.run("print(1)")
        assert answer.status == 503 and "retry-after" in answer.headers
        assert door.get("/v1/environments").status == 503 and door.get("/v1/capabilities").status == 503
        assert "cloche_up 0" in door.get("/metrics").body.decode()


SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"(?:,(?!\})|(?=\})))*\})? '
                    r'(-?[0-9.]+(?:[eE][-+]?[0-9]+)?|[+-]Inf|NaN)')


def metrics(text):
    """What promtool would say: names, types before samples, no sample twice, histograms whole"""
    types, samples = {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert line.split(" ", 3)[3]
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types and kind in ("counter", "gauge", "histogram"), line
            assert (kind == "counter") == name.endswith("_total"), line
            types[name] = kind
            continue
        m = SAMPLE.fullmatch(line)
        assert m, line
        base = re.sub(r"_(bucket|sum|count)$", "", m[1]) if m[1] not in types else m[1]
        assert base in types and (types[base] == "histogram") == (base != m[1]), line
        assert m[1] + (m[2] or "") not in samples, line
        samples[m[1] + (m[2] or "")] = float(m[4])
    for phase in ("queue", "execution", "total"):
        buckets = [v for k, v in samples.items() if k.startswith(f'cloche_run_phase_seconds_bucket{{phase="{phase}"')]
        assert buckets == sorted(buckets) and len(buckets) == 16
        assert samples[f'cloche_run_phase_seconds_bucket{{phase="{phase}",le="+Inf"}}'] == \
            samples[f'cloche_run_phase_seconds_count{{phase="{phase}"}}'] == buckets[-1]
    return samples


def test_metrics(door):
    door.run("print(1)")
    door.run("print(1)", timeout=0)
    time.sleep(1.05)  # what it says is a second old at most
    answer = door.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = metrics(answer.body.decode())
    assert found['cloche_runs_total{status="ok",mode="warm"}'] >= 1 and found['cloche_refused_total{reason="invalid"}'] >= 1
    assert found['cloche_http_requests_total{route="/v1/runs",method="POST",status="200"}'] >= 1
    assert found["cloche_max_running"] >= 1 and found["cloche_up"] == 1
    assert found['cloche_zygotes{environment="default"}'] >= 1


def test_methods(door):
    assert door.call("PUT", "/v1/runs", b"").headers["allow"] == "GET, HEAD, POST, OPTIONS"
    assert door.call("POST", "/healthz", b"").headers["allow"] == "GET, HEAD, OPTIONS"
    assert door.call("GET", "/v1/runs/batch").headers["allow"] == "POST, OPTIONS"
    assert door.call("GET", "/mcp").status == 405 and door.call("DELETE", "/mcp").status == 405
    answer = door.call("OPTIONS", "/v1/runs", checked=False)
    assert (answer.status, answer.headers["allow"], answer.body) == (204, "GET, HEAD, POST, OPTIONS", b"")
    head = door.call("HEAD", "/v1/environments")
    assert head.status == 200 and int(head.headers["content-length"]) > 10
    assert door.get("/nowhere").status == 404 and door.get("/v1/runs/").status == 404


def test_content_type(door):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""):
        answer = door.call("POST", "/v1/runs", b'{"script_content": "x"}', {"Content-Type": kind})
        assert answer.status == 415, kind
    assert door.call("POST", "/v1/runs", b'{"script_content": "print(1)"}',
                     {"Content-Type": "Application/JSON; charset=utf-8"}).status == 200
    assert batch(door, b"x\n", "text/plain").status == 415


def test_the_description_is_sound(door):
    doc = door.doc.doc
    text = str(doc)
    assert doc["openapi"] == "3.1.0" and re.fullmatch(r"\d+\.\d+\.\d+", doc["info"]["version"])
    for ref in re.findall(r"'\$ref': '#/components/(\w+)/(\w+)'", text):
        assert ref[1] in doc["components"][ref[0]], ref
    ids = [op["operationId"] for path in doc["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids)) == 12
    request = doc["components"]["schemas"]["Request"]
    assert set(request["properties"]) == {"script_content", "script_name", "timeout", "stdin", "args", "env", "files", "artifacts",
                                          "environment", "limits", "network", "mode", "buffered", "output"}
    with pytest.raises(jsonschema.ValidationError):
        door.doc.check({"$ref": "#/components/schemas/Result"}, {"stdout": ""})


def test_a_server_that_dies_and_comes_back(who):
    with Door(who) as door:
        held = door.connection()
        held.request("POST", "/v1/runs", '{"script_content": "import time; time.sleep(60)"}', {"Content-Type": JSON})
        assert wait_for(lambda: len(door.live()) == 1)
        door.server.kill()
        r = held.getresponse()
        lost = Result(json.loads(r.read()))
        assert (r.status, lost.verdict) == (200, ("internal_error", -125)) and "went away" in lost.message
        assert re.fullmatch("[0-9a-f]{32}", lost.run_id)
        assert door.run("print(1)").status == 503
        door.server.__init__(who, socket_path=door.server.path, env=door.env, before=door.before or None)
        assert door.run("print(1)").json["stdout"] == "1\n"


def test_the_end(who, residue):
    """SIGTERM lets what is under way end; the rest is not held up by it, and nothing is left."""
    with Door(who) as door:
        held = door.connection()
        held.request("POST", "/v1/runs", '{"script_content": "import time; time.sleep(3); print(1)"}',
                     {"Content-Type": JSON})
        assert wait_for(lambda: len(door.live()) == 1)
        idle = door.socket()
        door.p.send_signal(signal.SIGTERM)
        assert idle.recv(10) == b"", "an idle connection is closed"
        r = held.getresponse()
        assert r.status == 200 and Result(json.loads(r.read())).stdout == "1\n" and r.getheader("Connection") == "close"
        assert door.stop() == 0


def test_killed(who, residue):
    with Door(who) as door:
        held = door.connection()
        held.request("POST", "/v1/runs", '{"script_content": "import time; time.sleep(60)"}', {"Content-Type": JSON})
        assert wait_for(lambda: len(door.live()) == 1)
        assert door.stop(signal.SIGKILL) == -9
        assert wait_for(lambda: door.server.counts()["running"] == 0), "its runs go with it"
        door.start()
        assert door.run("print(1)").json["stdout"] == "1\n"


def test_root_s_rights_are_given_up(callers):
    if "root" not in callers:
        pytest.skip("needs: root, who has rights to give up")
    with Door(callers["root"]) as door:
        text = open(f"/proc/{door.p.pid}/status").read()
        status = dict(line.split(":\t", 1) for line in text.splitlines())
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"60999"}
        assert status["Groups"].split() in ([], ["60999"]), "the group of the server's socket at most"
        assert [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5
        assert status["NoNewPrivs"] == "1"
        assert door.run("print(1)").json["status"] == "ok"


def test_wrong_starts(who):
    with Door(who, tcp=False) as door:
        for args, word in ((["--listen", "0.0.0.0:0"], "loopback"), (["--listen", "127.0.0.1"], "HOST:PORT"),
                           (["--http-socket", door.path], "somebody answers"), ([], "neither"),
                           (["--http-socket", "/etc/passwd"], "no socket")):
            p = subprocess.run(door.command(*args), env=who.env(door.env), capture_output=True, timeout=20)
            assert p.returncode in (2, 125) and word in p.stderr.decode(), (args, p)


def test_a_server_has_a_door(who, residue):
    """cloche serve --http-socket --listen: its door is there with it, comes back when it dies, and ends with it"""
    folder = who.folder()
    path, port = folder / "http.sock", free_port()
    before = with_door_user(who.folder()) if who.is_root else None
    args = ["--socket", folder / "native.sock", "--http-socket", path, "--listen", f"127.0.0.1:{port}"]
    with Server(who, socket_path=folder / "native.sock", args=args, before=before) as server:
        assert server.wait_log("event=http_ready")
        pid = int(re.search(r"event=http_ready pid=(\d+)", "".join(server.lines))[1])
        c = UnixConnection(str(path))
        c.request("POST", "/v1/runs", '{"script_content": "print(6 * 7)"}', {"Content-Type": JSON})
        assert Result(json.loads(c.getresponse().read())).stdout == "42\n"
        c.close()
        token = (server.folder / "cloche/http-token").read_text().strip()
        tcp = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        tcp.request("GET", "/v1/capabilities", headers={"Authorization": f"Bearer {token}"})
        assert tcp.getresponse().status == 200
        tcp.close()
        os.kill(pid, signal.SIGKILL)
        assert server.wait_log("event=http_ready", count=2)
        c = UnixConnection(str(path))
        c.request("GET", "/readyz")
        assert c.getresponse().status == 200
        c.close()
        assert server.stop() == 0
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=2)


@pytest.mark.parametrize("args, word", [
    (["--listen", "7411"], "--listen"), (["--listen", "0.0.0.0:7411x y"], "--listen"), (["--http-socket", ""], "--http-socket"),
])
def test_serve_refuses_what_is_no_address(who, args, word):
    p = who.cloche("serve", *args)
    assert p.returncode == 2 and word in p.stderr.decode(), p
