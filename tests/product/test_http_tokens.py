# SPDX-License-Identifier: Apache-2.0
"""Who may ask over the network, for whom, how much, and by which names."""
import json
import os
import re
import stat
import time

import pytest

from doors import JSON, LINES, Door
from harness import strict_json, wait_for
from serving import until_warm


class Tokens:
    """cloche token of @who"""

    def __init__(self, who, env):
        self.who, self.env = who, env

    def command(self, *args, status=0):
        p = self.who.cloche("token", *args, env=self.env)
        assert p.returncode == status, p
        return p.stdout.decode() if status == 0 else p.stderr.decode()

    def add(self, name, *options):
        text = self.command("add", name, *options)
        assert re.fullmatch("cloche_[0-9a-f]{64}\n", text), text
        return text.strip()


@pytest.fixture(scope="module")
def user(callers):
    return callers["user"]


@pytest.fixture(scope="module")
def door(user):
    env = {"XDG_CONFIG_HOME": str(user.folder()), "CLOCHE_ENVIRONMENT_OTHER_PYTHON": "/usr/bin/python3",
           "CLOCHE_HTTP_ALLOWED_HOSTS": "run.example.org, strict.example.org:80",
           "CLOCHE_HTTP_ALLOWED_ORIGINS": "https://run.example.org"}
    with Door(user, env=env) as d:
        yield d


@pytest.fixture
def tokens(user, door):
    return Tokens(user, door.env)


def test_add_list_remove(user, tokens, door):
    secret = tokens.add("one", "--max-concurrent", "3", "--rate", "30/m", "--environments", "default,other", "--expires", "30d")
    path = os.path.join(door.env["XDG_CONFIG_HOME"], "cloche/tokens.json")
    kept = open(path).read()
    info = os.stat(path)
    assert stat.S_IMODE(info.st_mode) == 0o600 and info.st_uid == user.uid
    assert secret not in kept and secret.removeprefix("cloche_") not in kept, "only the hash is kept"
    listed = tokens.command("list")
    assert "one" in listed and "max-concurrent 3" in listed and "rate 0.5/s" in listed and "default,other" in listed
    found = strict_json(tokens.command("list", "--json"))["tokens"]
    assert len(found) == 1 and set(found[0]) == {"name", "created", "expires", "max_concurrent", "rate", "environments"}
    assert abs(found[0]["expires"] - time.time() - 30 * 86400) < 60
    assert "one already" in tokens.command("add", "one", status=2)
    tokens.command("remove", "one")
    assert tokens.command("list") == "" and "there is none" in tokens.command("remove", "one", status=127)


@pytest.mark.parametrize("args, word", [
    (["add"], "NAME"), (["add", "a b"], "NAME"), (["add", "x" * 49], "NAME"), (["add", "a", "--rate", "fast"], "--rate"),
    (["add", "a", "--rate", "0"], "--rate"), (["add", "a", "--rate", "-1/s"], "--rate"), (["add", "a", "--rate", "nan"], "--rate"),
    (["add", "a", "--max-concurrent", "0"], "--max-concurrent"), (["add", "a", "--expires", "soon"], "--expires"),
    (["add", "a", "--expires", "99999d"], "--expires"), (["add", "a", "--environments", ","], "--environments"),
    (["add", "a", "b"], "argument"), (["list", "a"], "argument"), (["remove"], "NAME"), (["frobnicate"], "argument"), ([], "argument"),
    (["list", "--rate", "1"], "--rate"), (["add", "a", "--json"], "--json"),
])
def test_wrong_usage(tokens, args, word):
    assert word in tokens.command(*args, status=2)


def test_tcp_needs_a_token(door, tokens):
    secret = tokens.add("tcp")
    for path in ("/v1/runs", "/v1/environments", "/v1/capabilities", "/metrics", "/openapi.json", "/nowhere"):
        answer = door.get(path, tcp=True, checked=path != "/nowhere")
        assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer"), path
    assert door.run("print(1)", tcp=True).status == 401
    assert door.call("POST", "/mcp", {}, tcp=True).status == 401
    for path in ("/healthz", "/readyz"):
        assert door.get(path, tcp=True).status == 200, "open to probes"
    for wrong in (secret[:-1] + ("0" if secret[-1] != "0" else "1"), secret + "0", secret.upper(), "cloche_", "x", "a" * 5000):
        assert door.run("print(1)", tcp=True, token=wrong).status == 401, wrong
    for header in (f"Basic {secret}", secret, f"Bearer  {secret}x", "Bearer", ""):
        assert door.run("print(1)", tcp=True, headers={"Authorization": header}).status == 401, header
    assert door.run("print(1)", tcp=True, token=secret).json["stdout"] == "1\n"
    # a wrong token is wrong at the Unix socket as well, where none would have done
    assert door.run("print(1)", token="cloche_x").status == 401


def test_the_body_of_who_may_not_ask_is_not_read(door):
    before = door.memory()
    with door.socket(tcp=True) as s:
        s.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 200000000\r\n\r\n")
        assert s.recv(12) == b"HTTP/1.1 401"
    assert door.memory() - before < 4 << 20


def test_a_change_is_seen_at_once(door, tokens):
    secret = tokens.add("brief")
    assert door.run("print(1)", tcp=True, token=secret).status == 200
    tokens.command("remove", "brief")
    assert door.run("print(1)", tcp=True, token=secret).status == 401
    short = tokens.add("short", "--expires", "5")
    assert door.run("print(1)", tcp=True, token=short).status == 200
    assert wait_for(lambda: door.run("print(1)", tcp=True, token=short).status == 401, 15, 0.2)
    assert "expired" in tokens.command("list")


def test_a_damaged_file_changes_nothing(door, tokens):
    secret = tokens.add("kept")
    assert door.run("print(1)", tcp=True, token=secret).status == 200
    path = os.path.join(door.env["XDG_CONFIG_HOME"], "cloche/tokens.json")
    good = open(path).read()
    digits = good.replace('"sha256": "', '"sha256": "0')
    try:
        for bad in ("nonsense", "{}", '{"tokens": [{"name": "a"}]}', digits, good.replace('"kept"', '"k t"')):
            with open(path, "w") as f:
                f.write(bad)
            assert door.run("print(1)", tcp=True, token=secret).status == 200, bad
            assert "not as" in tokens.command("list", status=2), bad
    finally:
        with open(path, "w") as f:
            f.write(good)
    assert door.run("print(1)", tcp=True, token=secret).status == 200
    assert wait_for(lambda: any("event=tokens" in line for line in door.lines))
    assert len([line for line in door.lines if "event=tokens" in line]) == 1, "strangers must not fill the log"


def test_the_local_users_token(door, user):
    path = door.folder / "cloche/http-token"
    info = os.stat(path)
    assert stat.S_IMODE(info.st_mode) == 0o600 and info.st_uid == user.uid
    answer = door.run("print(1)", tcp=True, token=door.token)
    assert answer.json["stdout"] == "1\n"
    run_id = answer.json["run_id"]
    kept = wait_for(lambda: (a := door.get(f"/v1/runs/{run_id}", tcp=True, token=door.token)).status == 200 and a.json)
    assert kept["tenant"] == f"uid-{user.uid}", "it is that user, by whichever door"


def test_a_token_sees_its_own_runs_alone(door, tokens):
    one, two = tokens.add("left"), tokens.add("right")
    slow = "import time; time.sleep(20)"
    run_id = door.run(slow, query="?async=1", tcp=True, token=one).json["run_id"]
    assert [x["run_id"] for x in door.live(tcp=True, token=one)] == [run_id]
    assert door.live(tcp=True, token=two) == [] and run_id not in str(door.live())
    for other in (two, door.token):
        assert door.get(f"/v1/runs/{run_id}", tcp=True, token=other).status == 404
        assert door.call("DELETE", f"/v1/runs/{run_id}", tcp=True, token=other).status == 404
    assert door.call("DELETE", f"/v1/runs/{run_id}", tcp=True, token=one).status == 202
    state = wait_for(lambda: (x := door.get(f"/v1/runs/{run_id}", tcp=True, token=one).json)["state"] == "done" and x)
    assert state["result"]["status"] == "cancelled"
    assert wait_for(lambda: door.runs(tcp=True, token=one)["runs"])
    assert door.runs(tcp=True, token=two)["runs"] == []
    assert {x["tenant"] for x in door.runs(tcp=True, token=one)["runs"]} == {"token-left"}


def test_two_tokens_share_no_interpreter(door, tokens):
    """Each tenant has a zygote of its own: what one run could learn of its memory's layout says nothing of another's"""
    one, two = tokens.add("alpha"), tokens.add("beta")

    def warm(secret):
        """What a warm run says, as soon as there are any"""
        until_warm(lambda: door.run("pass", tcp=True, token=secret).json["mode"])
        return door.run("print(hash('a'))", tcp=True, token=secret, mode="warm").json["stdout"]

    left, right = {warm(one) for _ in range(3)}, {warm(two) for _ in range(3)}
    assert len(left) == len(right) == 1 and left != right


def test_environments(door, tokens):
    secret = tokens.add("narrow", "--environments", "other")
    assert [e["name"] for e in door.get("/v1/environments", tcp=True, token=secret).json["environments"]] == ["other"]
    assert door.run("print(1)", tcp=True, token=secret, environment="other").json["stdout"] == "1\n"

    def told(**how):
        return set(re.findall(r'environment="(\w+)"', door.get("/metrics", tcp=True, **how).body.decode()))
    assert wait_for(lambda: told(token=door.token) >= {"default", "other"}), "whoever may use all is told of all"
    assert told(token=secret) == {"other"}
    for fields in ({}, {"environment": "default"}):
        answer = door.run("print(1)", tcp=True, token=secret, **fields)
        assert answer.status == 422 and answer.json["error"]["field"] == "environment", fields
    for body in (b'{"script_content": "x", "environment": "other", "environment": "default"}', b"nonsense", b'["other"]',
                 b'{"environment": 1}', b"[" * 200000, b'{"script_content": "x", "environment": "other"'):
        assert door.call("POST", "/v1/runs", body, tcp=True, token=secret).status == 422, body[:80]
    lines = b'{"script_content": "print(1)", "environment": "other"}\n{"script_content": "print(1)"}\n'
    found = {x["line"]: x for x in door.call("POST", "/v1/runs/batch", lines, {"Content-Type": LINES}, tcp=True, token=secret).lines}
    assert found[1]["result"]["stdout"] == "1\n" and found[2]["error"]["field"] == "environment"


def test_max_concurrent(door, tokens):
    secret = tokens.add("few", "--max-concurrent", "1")
    run_id = door.run("import time; time.sleep(20)", query="?async=1", tcp=True, token=secret).json["run_id"]
    answer = door.run("print(1)", tcp=True, token=secret)
    assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1 and answer.json["type"].endswith(":limit")
    assert door.run("print(1)", tcp=True, token=door.token).status == 200, "nobody else's affair"
    door.call("DELETE", f"/v1/runs/{run_id}", tcp=True, token=secret)
    assert wait_for(lambda: door.run("print(1)", tcp=True, token=secret).status == 200)
    body = json.dumps({"script_content": "print(input())", "stdins": [str(i) for i in range(6)]}).encode()
    answer = door.call("POST", "/v1/runs/batch", body, tcp=True, token=secret)
    assert sorted(x["result"]["stdout"] for x in answer.lines) == [f"{i}\n" for i in range(6)], "a batch waits"


def test_rate(door, tokens):
    secret = tokens.add("slow", "--rate", "4/s")
    begin = time.monotonic()
    asked = [door.connection(tcp=True) for _ in range(20)]  # all before the first answer, however slow that is
    headers = {"Content-Type": JSON, "Authorization": f"Bearer {secret}"}
    for c in asked:
        c.request("POST", "/v1/runs", '{"script_content": "print(1)"}', headers)
    statuses = [c.getresponse().status for c in asked]
    for c in asked:
        c.close()
    most = 5 + 4 * (time.monotonic() - begin)
    assert set(statuses) == {200, 429} and 4 <= statuses.count(200) <= most, (statuses, most)
    begin = time.monotonic()
    body = {"script_content": "print(input())", "stdins": ["x"] * 8}
    answer = door.call("POST", "/v1/runs/batch", body, tcp=True, token=secret)
    took = time.monotonic() - begin
    assert [x["result"]["stdout"] for x in answer.lines] == ["x\n"] * 8, "a batch is not refused"
    assert took > 0.9, "... and keeps to it"


def test_fair_between_tokens(user):
    """One token's hundred runs do not keep another's one waiting"""
    with Door(user, env={"XDG_CONFIG_HOME": str(user.folder()), "CLOCHE_SERVER_MAX_RUNNING": "1"}) as door:
        tokens = Tokens(user, door.env)
        many, one = tokens.add("many"), tokens.add("one")
        body = json.dumps({"script_content": "import time; time.sleep(0.5)", "stdins": [""] * 60}).encode()
        c = door.connection(tcp=True)
        c.request("POST", "/v1/runs/batch", body, {"Content-Type": JSON, "Authorization": f"Bearer {many}"})
        assert wait_for(lambda: door.server.counts()["waiting"] >= 3)
        begin = time.monotonic()
        assert door.run("print(1)", tcp=True, token=one).status == 200
        assert time.monotonic() - begin < 15
        c.close()


def test_host_is_one_of_ours(door, tokens):
    """A page whose name was bound to 127.0.0.1 (DNS rebinding) sends its own name"""
    def status(host, **kw):
        return door.call("GET", "/healthz", headers={"Host": host}, tcp=True, **kw).status
    for host in ("localhost", f"localhost:{door.port}", "LocalHost", f"127.0.0.1:{door.port}", "[::1]", "[::1]:80", "run.example.org",
                 "RUN.example.org:443", "strict.example.org:80"):
        assert status(host) == 200, host
    for host in ("evil.example.org", "localhost.evil.org", "127.0.0.1.evil.org", "strict.example.org", "strict.example.org:81", "",
                 "run.example.org.", "0.0.0.0", "localhost:1:2", "evil@localhost"):
        assert status(host) == 421, host
    assert door.call("GET", "/v1/runs", headers={"Host": "evil.example.org"}, tcp=True, token=door.token).status == 421
    assert door.call("GET", "/healthz", headers={"Host": "anything"}).status == 200, "no page reaches a Unix socket"


def test_origin(door):
    for tcp in (True, False):
        for origin, wanted in (("https://run.example.org", 200), ("https://evil.example.org", 403), ("null", 403),
                               ("http://run.example.org", 403), ("http://localhost", 403)):
            assert door.run("print(1)", tcp=tcp, token=door.token, headers={"Origin": origin}).status == wanted, origin
    assert "access-control-allow-origin" not in door.get("/healthz", headers={"Origin": "https://run.example.org"}).headers


def test_modes_of_the_sockets(who):
    with Door(who) as door:
        assert stat.S_IMODE(os.stat(door.path).st_mode) == (0o660 if who.is_root else 0o600)
        assert os.stat(door.path).st_uid == who.uid
        door.stop()
        door.start()  # what the last one has left is no hindrance
        assert door.get("/healthz").status == 200
