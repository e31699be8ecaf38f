# SPDX-License-Identifier: Apache-2.0
"""cloche mcp on standard input and output, as a client sees it; real clients are in test_mcp_clients.py."""
import fcntl
import json
import os
import signal
import subprocess
import time

import pytest

import mcp_client
from harness import BECOME_SLEEP, Residue, wait_for
from mcp_client import Stdio, message
from serving import Server


@pytest.fixture
def mcp(who):
    with Stdio(who, "--local") as m:
        yield m


def test_both_eras_in_one_process(who):
    with Stdio(who, "--local", hello=False) as m:
        found = m.ask("server/discover", modern=True)["result"]
        assert found["supportedVersions"] == [mcp_client.MODERN] and found["resultType"] == "complete"
        assert found["capabilities"] == {"tools": {}, "prompts": {}, "resources": {}}
        hello = m.hello()
        assert hello["protocolVersion"] == mcp_client.LEGACY and hello["capabilities"] == found["capabilities"]
        tools = m.ask("tools/list", modern=True)["result"]["tools"]
        assert tools == [m.tool] and m.tool["name"] == "run_python"
        assert m.call("print(1)")["structuredContent"]["stdout"] == "1\n"
        assert m.call("print(2)", modern=True)["structuredContent"]["stdout"] == "2\n"
        assert m.ask("ping")["result"] == {}
        assert m.ask("ping", modern=True)["error"]["code"] == -32601


@pytest.mark.parametrize("script, fields, status", [
    ("print('x' * 10)", {}, "ok"),
    ("", {}, None),
    ("raise SystemExit(7)", {}, "error"),
    ("1/0", {}, "error"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", {}, "signaled"),
    ("print('before', flush=True)\nwhile True: pass", {"timeout": 0.3}, "timeout"),
    ("while True: pass", {"limits": {"cpu_seconds": 0.3}}, "cpu_limit"),
    ("x = bytearray(200 << 20)", {"limits": {"memory_bytes": 64 << 20}}, "memory_limit"),
    ("while True: print('y' * 1000)", {"limits": {"output_bytes_hard": 1 << 20}}, "output_limit"),
    ("print(1)", {"timeout": 0}, None),
    ("print(1)", {"time_out": 1}, None),
    ("print(1)", {"environment": "nowhere"}, None),
    ("print(1)\0", {}, None),
    ("print('\ud800')", {}, None),
])
def test_every_outcome_keeps_the_promise(mcp, script, fields, status):
    result = mcp.call(script, **fields)
    if status is None:
        assert set(result["structuredContent"]) == {"error"}
    else:
        assert result["structuredContent"]["status"] == status


def test_rejected(who):
    with Stdio(who, "--local", env={"CLOCHE_SCREEN_REJECT": "ctypes"}) as m:
        result = m.call("import ctypes")
        assert result["structuredContent"]["status"] == "rejected" and result["isError"]
        assert "policy" in result["content"][0]["text"]


def test_a_lost_supervisor_is_no_lost_call(mcp, who):
    residue = Residue(who)
    mcp.start(BECOME_SLEEP, "lost", args=[residue.mark], timeout=100)
    residue.asleep(mcp.p.pid)
    supervisor = [int(p) for p in open(f"/proc/{mcp.p.pid}/task/{mcp.p.pid}/children").read().split()]
    assert len(supervisor) == 1
    os.kill(supervisor[0], signal.SIGKILL)
    obj = mcp_client.check_call(mcp.reply("lost")["result"], mcp.tool)
    assert obj["status"] == "internal_error"
    r = mcp.run("print('again')")
    assert r.stdout == "again\n", r
    assert mcp.close()[0] == 0
    residue.assert_none(may_leave_empty_cgroup=True)


ODD = r"""
import os
os.write(1, bytes(range(256)))
os.write(1, '\u2028\u2029\x85\r\n\x00{"jsonrpc": "2.0", "id": 1, "result": {}}\n'.encode())
os.write(2, b'\xff\xfe\n\xed\xa0\x80')
"""


def test_any_bytes_stay_in_their_line(mcp):
    r = mcp.run(ODD)
    assert '{"jsonrpc": "2.0", "id": 1, "result": {}}\n' in r.stdout and r.stdout_encoding_errors
    assert "\u2028\u2029\x85\r\n\0" in r.stdout
    text = mcp.call(ODD)["content"][0]["text"]
    assert not [ch for ch in text if ch < " " and ch not in "\n\t"]


def test_messages_that_are_none(mcp):
    for line, code in [(b"{\n", -32700), (b"\xff\n", -32700), (b"[]\n", -32600), (b"nonsense\n", -32700), (b"\0\n", -32700),
                       (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}\n', -32600)]:
        mcp.say(line)
        m = mcp.hear()
        assert m["error"]["code"] == code and "id" not in m, (line, m)
    mcp.say(b"\n  \r\n\t\n")
    mcp.say(b'{"jsonrpc": "2.0", "method": "notifications/unheard-of"}\r\n')
    assert mcp.run("print(1)").status == "ok"


def test_a_message_in_pieces_and_many_in_one(mcp):
    line = json.dumps(message("ping", id="piece")).encode() + b"\n"
    for i in range(len(line)):
        mcp.say(line[i:i + 1])
    assert mcp.reply("piece")["result"] == {}
    mcp.say(b"".join(json.dumps(message("ping", id=f"m{i}")).encode() + b"\n" for i in range(500)))
    assert all(mcp.reply(f"m{i}")["result"] == {} for i in range(500))


@pytest.mark.once
def test_calls_at_the_same_time(mcp):
    mcp.start("import time; time.sleep(4); print('slow')", "slow")
    mcp.start("print('quick')", "quick")
    first = mcp.hear()
    assert first["id"] == "quick", first
    assert mcp.reply("slow")["result"]["structuredContent"]["stdout"] == "slow\n"


def test_more_calls_than_places(mcp):
    for i in range(20):
        mcp.start(f"print({i})", i + 100)
    for i in range(20):
        assert mcp.reply(i + 100)["result"]["structuredContent"]["stdout"] == f"{i}\n"


def test_an_id_in_use(mcp):
    mcp.start("import time; time.sleep(2)", "same")
    mcp.start("print(1)", "same")
    assert mcp.reply("same")["error"]["code"] == -32600
    assert mcp.reply("same")["result"]["structuredContent"]["status"] == "ok"


@pytest.mark.once
def test_progress(mcp):
    mcp.start("import time; time.sleep(3.5)", "p", meta={"progressToken": "tok"}, timeout=60)
    assert "result" in mcp.reply("p")
    told = [m["params"] for m in mcp.heard]
    assert len(told) >= 3 and {m["method"] for m in mcp.heard} == {"notifications/progress"}
    assert all(t["progressToken"] == "tok" and t["total"] == 60 and t["message"] for t in told)
    assert mcp_client.is_growing(told), told
    mcp.heard.clear()
    mcp.run("import time; time.sleep(1.2)")
    assert not mcp.heard, "nobody asked"


def test_cancellation_ends_the_run_without_a_reply(mcp, who, residue):
    mcp.start(BECOME_SLEEP, "gone", args=[residue.mark], timeout=100)
    residue.asleep(mcp.p.pid)
    mcp.say(message("notifications/cancelled", {"requestId": "gone", "reason": "why not"}))
    assert wait_for(lambda: not [b for b in residue.left() if b[0] == "marked process"]), residue.left()
    assert mcp.ask("ping")["result"] == {}
    assert mcp.run("print('next')").stdout == "next\n"
    assert not mcp.heard
    mcp.say(message("notifications/cancelled", {"requestId": "never was"}))
    assert mcp.ask("ping")["result"] == {}


@pytest.mark.parametrize("how", ["eof", "term", "reader", "kill"])
def test_its_end_is_the_end_of_everything(who, residue, how):
    with Stdio(who, "--local") as m:
        m.start("print(1, flush=True)\n" + BECOME_SLEEP, 1, args=[residue.mark], timeout=100)
        residue.asleep(m.p.pid)
        if how == "eof":
            code, seconds = m.close()
            assert code == 0 and seconds < 10, (code, seconds)
        elif how == "reader":
            with Stdio(who, "--local", reads=False, hello=False) as deaf:
                deaf.p.stdout.close()
                deaf.say(message("ping", id=1))
                assert deaf.p.wait(20) == 0
            m.p.terminate()
        else:
            m.p.send_signal(signal.SIGTERM if how == "term" else signal.SIGKILL)
        assert m.p.wait(20) == (-9 if how == "kill" else 0)
        residue.assert_none(may_leave_empty_cgroup=how == "kill")


@pytest.mark.parametrize("how", ["reads at last", "leaves"])
def test_who_does_not_read_is_not_listened_to(who, how):
    with Stdio(who, "--local", reads=False, hello=False) as m:
        fcntl.fcntl(m.p.stdin, fcntl.F_SETFL, os.O_NONBLOCK)
        line = json.dumps(message("tools/list", id=1)).encode() + b"\n"
        sent, last, rest = 0, time.monotonic(), line
        while time.monotonic() - last < 0.5:  # as long as it takes anything
            try:
                n = os.write(m.p.stdin.fileno(), rest)
                sent, last, rest = sent + n, time.monotonic(), rest[n:] or line
            except BlockingIOError:
                time.sleep(0.01)
        asked = sent // len(line)
        assert 20 < asked < 20000, "it listened on and on"
        with open(f"/proc/{m.p.pid}/status") as f:
            memory = int(next(x for x in f if x.startswith("RssAnon")).split()[1])
        assert memory < 16384 or "ASAN_OPTIONS" in os.environ, f"{memory} KiB"
        if how == "leaves":
            code, seconds = m.close()
            assert code == 0 and seconds < 10, (code, seconds)
            return
        m.reader.start()
        for _ in range(asked):
            assert "result" in m.hear()


def test_descriptors_stay_as_they_were(who):
    """They may be shared with whoever started it"""
    with Stdio(who, "--local") as m:
        m.run("print('x' * 200000)")
        assert not fcntl.fcntl(m.p.stdin, fcntl.F_GETFL) & os.O_NONBLOCK
        for fd in (0, 1):
            with open(f"/proc/{m.p.pid}/fdinfo/{fd}") as f:
                flags = int(next(x for x in f if x.startswith("flags")).split()[1], 8)
            assert not flags & os.O_NONBLOCK, fd


@pytest.mark.parametrize("kind", ["pipe", "socket", "file"])
def test_whatever_the_descriptors_are(who, kind):
    line = json.dumps(message("tools/list", id="x")).encode() + b"\n"
    argv = [*who.prefix(), str(who.binary), "mcp", "--local"]
    if kind == "file":
        p = subprocess.run(argv, stdin=open(who.file(line.decode())), capture_output=True, env={}, timeout=10)
        out = p.stdout
        assert p.returncode == 0, p
    elif kind == "pipe":
        out = subprocess.run(argv, input=line, capture_output=True, env={}, timeout=10, check=True).stdout
    else:
        import socket
        ours, theirs = socket.socketpair()
        with ours, subprocess.Popen(argv, stdin=theirs, stdout=theirs, env={}) as p:
            theirs.close()
            ours.sendall(line)
            ours.settimeout(10)
            out = b""
            while not out.endswith(b"\n"):
                out += ours.recv(1 << 16)
            ours.shutdown(socket.SHUT_WR)
            assert p.wait(5) == 0
    assert json.loads(out)["result"]["tools"][0]["name"] == "run_python"


def test_an_empty_environment(who):
    with subprocess.Popen([*who.prefix(), str(who.binary), "mcp"], stdin=-1, stdout=-1, stderr=-1, env={}, cwd="/") as p:
        call = message("tools/call", {"name": "run_python", "arguments": {"script_content": "print(6 * 7)"}}, 1)
        p.stdin.write(json.dumps(call).encode() + b"\n")
        p.stdin.flush()
        assert json.loads(p.stdout.readline())["result"]["structuredContent"]["stdout"] == "42\n"
        p.stdin.close()
        assert p.stderr.read() == b""


def test_usage(who):
    assert b"run_python" in who.cloche("mcp", "--help").stdout
    for args in (["--what"], ["operand"], ["--local", "--server", "/x"]):
        p = who.cloche("mcp", *args)
        assert p.returncode == 2 and p.stdout == b"" and p.stderr.startswith(b"cloche"), p
    p = who.cloche("mcp", "--server", "/nonexistent.sock")
    assert p.returncode in (2, 125) and p.stdout == b"" and b"/nonexistent.sock" in p.stderr, p


def test_warm_after_the_first_moment(mcp):
    assert wait_for(lambda: mcp.run("print(1)").mode == "warm", step=0.1)


def test_at_a_server(who):
    with Server(who) as s:
        with Stdio(who, env=s.env) as m:
            assert m.run("print('there')").stdout == "there\n"
            assert s.wait_log("event=run", "status=ok")
            n = len(s.log("event=run"))
            m.start("import time; time.sleep(60)", "c")
            assert wait_for(lambda: s.counts()["running"] == 1)
            m.say(message("notifications/cancelled", {"requestId": "c"}))
            assert s.wait_log("event=run", "status=cancelled")
            assert not m.heard
            m.start("import time; time.sleep(60)", "d")
            assert wait_for(lambda: s.counts()["running"] == 1)
            assert s.stop(signal.SIGKILL) == -9
            obj = mcp_client.check_call(m.reply("d")["result"], m.tool)
            assert obj["status"] == "internal_error"
            assert m.run("print('on its own')").stdout == "on its own\n"
        with Stdio(who, "--local", env=s.env) as m:
            assert m.run("print('here')").stdout == "here\n"
        assert len(s.log("event=run")) == n + 1


def test_a_server_with_other_settings_is_not_used(who):
    with Server(who) as s:
        with Stdio(who, env={**s.env, "CLOCHE_LIMITS_MEMORY_BYTES": "64m"}) as m:
            assert m.run("print(1)").status == "ok"
        assert not s.log("event=run")
        with Stdio(who, "--server", s.path, env={"CLOCHE_LIMITS_MEMORY_BYTES": "64m"}) as m:
            assert m.run("print(1)").status == "ok"
            assert s.wait_log("event=run")
            s.stop()
            result = m.call("print(1)")
            assert result["isError"] and "try again" in result["content"][0]["text"]


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


def test_files_and_pictures(mcp):
    script = ("import base64\nopen('a.csv', 'w').write('x,y\\n1,2\\n')\n"
              "open('dot.png', 'wb').write(base64.b64decode(open('in').read()))\n"
              "open('fake.png', 'wb').write(b'\\x89PNG\\r\\n')\nopen('big.bin', 'wb').write(bytes(100000))")
    result = mcp.call(script, files={"in": DOT}, artifacts=["*"])
    text, *images = result["content"]
    assert [(i["mimeType"], i["data"]) for i in images] == [("image/png", DOT)]
    for line in ("File: a.csv, 8 bytes", "File: dot.png", "File: fake.png", "File: big.bin, 100000 bytes", "x,y\n1,2\n"):
        assert line in text["text"], text["text"]
    assert {a["name"] for a in result["structuredContent"]["artifacts"]} == {"a.csv", "dot.png", "fake.png", "big.bin"}


def test_a_figure_that_is_shown(mcp):
    result = mcp.call("import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()")
    text, image = result["content"]
    assert image["mimeType"] == "image/png" and len(image["data"]) > 2000 and "File: figure-1.png" in text["text"]


def test_long_output(mcp):
    result = mcp.call("import sys\nfor i in range(200000): print('line', i)\nprint('LAST', file=sys.stderr)")
    text = result["content"][0]["text"]
    assert "line 0\n" in text and "line 199999\n" in text and "LAST" in text and "characters left out" in text
    assert f"stdout, {result['structuredContent']['stdout_bytes']} bytes, cut" in text
    assert 9000 < len(text) < 10000


def test_large_messages(mcp):
    script = "import sys\nx = sys.stdin.read()\nprint(len(x), x == 'é' * 4000000)#" + "#" * 1000000
    assert mcp.run(script, stdin="é" * 4000000).stdout == "4000000 True\n"


def test_the_usual_timeout_is_the_one_that_is_told(who):
    with Stdio(who, "--local", env={"CLOCHE_LIMITS_TIMEOUT": "0.5"}) as m:
        assert m.tool["inputSchema"]["properties"]["timeout"]["default"] == 0.5
        r = m.run("while True: pass")
        assert r.status == "timeout" and 0.4 < r.execution_time < 8
    with Stdio(who, "--local") as m:
        assert m.tool["inputSchema"]["properties"]["timeout"]["default"] == 25
