# SPDX-License-Identifier: Apache-2.0
"""What one client of the doors gets is bounded and worded for its reader; what nobody asks for costs nothing."""
import json
import pathlib
import re
import sys
import time

import pytest

import mcp_client
from doors import EVENTS, JSON, LINES, Door
from harness import REPO, strict_json, wait_for
from mcp_client import LEGACY, message
from test_http_tokens import Tokens

sys.path.insert(0, str(REPO / "client/python"))

import cloche  # noqa: E402

MIB = 1 << 20
MANY = 100_000
ANSWERS_MAX = 8 * MIB  # of what is not taken; the answers to MANY lines are more than twice that


@pytest.fixture(scope="module")
def door(callers):
    user = callers["user"]
    with Door(user, env={"XDG_CONFIG_HOME": str(user.folder())}) as d:
        d.tokens = Tokens(user, d.env)
        yield d


def begin_batch(door, body):
    """A batch under way, whose answer nobody reads yet"""
    c = door.connection()
    c.request("POST", "/v1/runs/batch", body, {"Content-Type": LINES})
    return c


def slowest(door, until):
    """The longest that somebody else has waited for an answer until @until()"""
    longest = 0.0
    while not until():
        begin = time.monotonic()
        assert door.get("/healthz").status == 200
        longest = max(longest, time.monotonic() - begin)
    return longest


def call(door, token=None, progress=None, **arguments):
    """tools/call over HTTP: its answer"""
    params = {"name": "run_python", "arguments": arguments}
    if progress is not None:
        params["_meta"] = {"progressToken": progress}
    headers = {"Accept": f"{JSON}, {EVENTS}", "MCP-Protocol-Version": LEGACY}
    return door.call("POST", "/mcp", message("tools/call", params, 1), headers, tcp=token is not None, token=token)


@pytest.mark.parametrize("line", [b'{"request":1}', b'{"request":1,"id":"a"}'])
def test_lines_that_are_refused_wait_for_their_reader(door, line):
    secret = door.tokens.add(f"other-{len(line)}")
    before = door.memory()
    c = begin_batch(door, (line + b"\n") * MANY)
    try:
        assert door.run("print(1)", tcp=True, token=secret).json["stdout"] == "1\n"
        assert slowest(door, lambda end=time.monotonic() + 1: time.monotonic() > end) < 6
        assert door.memory() - before < len(line) * MANY * 2 + ANSWERS_MAX
        answer = c.getresponse()
        found = [strict_json(text) for text in answer.read().splitlines()]
    finally:
        c.close()
    numbers = [x["line"] for x in found]
    assert len(numbers) == MANY and set(numbers) == set(range(1, MANY + 1))
    assert all(x["error"]["field"] == "request" for x in found)


def test_blank_lines_are_passed_over_a_few_at_a_time(door):
    """The last of very many is still run"""
    body = b"\n" * (15 * MIB) + json.dumps({"script_content": "print(7)"}).encode()
    found = door.call("POST", "/v1/runs/batch", body, {"Content-Type": LINES}).lines
    assert [(x["line"], x["result"]["stdout"]) for x in found] == [(15 * MIB + 1, "7\n")]


def test_a_call_over_a_token_s_limit_is_not_wrong(door):
    secret = door.tokens.add("single", "--max-concurrent", "1")
    run_id = door.run("import time; time.sleep(20)", query="?async=1", tcp=True, token=secret).json["run_id"]
    try:
        result = call(door, secret, script_content="print(1)").json["result"]
    finally:
        door.call("DELETE", f"/v1/runs/{run_id}", tcp=True, token=secret)
    assert result["isError"] and result["structuredContent"]["error"]["field"] == "token"
    text = result["content"][0]["text"]
    assert "refused, nothing ran: token: " in text and "The call itself is not wrong." in text and "Mend" not in text
    assert wait_for(lambda: not call(door, secret, script_content="print(1)").json["result"]["isError"])
    wrong = call(door, secret, script_content="print(1)", timeout=-1).json["result"]
    assert "Mend the named argument" in wrong["content"][0]["text"]


def test_a_stream_of_a_call_has_each_header_once(door):
    answer = call(door, progress="p", script_content="print(1)")  # which Answer looks at
    assert answer.type == EVENTS and answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("mark", ["\u0085", "\u2028", "\u2029"])
def test_what_a_client_has_chosen_breaks_no_line(door, mark):
    """... of those that some readers end at such characters"""
    told = call(door, progress=f"p{mark}", script_content="print(1)")
    assert [m["params"]["progressToken"] for _, m in told.events if "params" in m] == [f"p{mark}"]
    uri = message("resources/read", {"uri": f"u{mark}"}, f"i{mark}")
    asked = {**mcp_client.META, "io.modelcontextprotocol/protocolVersion": f"v{mark}"}
    version = message("tools/list", {"_meta": asked}, 2)
    refused = [door.call("POST", "/mcp", m, headers={"Accept": JSON}) for m in (uri, version)]
    assert refused[0].json["error"]["data"]["uri"] == f"u{mark}" and refused[0].json["id"] == f"i{mark}"
    for answer in (told, *refused):
        assert mark not in answer.body.decode(), answer


def test_an_idle_door_does_not_wake_up(door):
    status = pathlib.Path(f"/proc/{door.p.pid}/status")

    def switches():
        return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", status.read_text(), re.M)[1])

    def sleeps():
        before = switches()
        time.sleep(2)
        return switches() - before <= 2

    assert wait_for(sleeps, 30), "what was asked before has ended by now"


class False_:
    """In the place of a client's server: its answers are none"""

    def __init__(self, *answers):
        self.answers = iter(answers)

    def run(self, body, is_streamed, control):
        control.ended()
        return next(self.answers)
        yield


def test_an_answer_that_is_no_result_ends_no_map():
    client = cloche.Client()
    client._where = False_({}, None, {"status": 1})
    found = list(client.map(["a", "b", "c"], errors="return"))
    assert [type(x) for x in found] == [cloche.ServerError] * 3
    client._where = False_([], [])
    assert sorted(n for n, _ in client.as_completed(["a", "b"], errors="return")) == [0, 1]
    client._where = False_({})
    with pytest.raises(cloche.ServerError):
        list(client.map(["a"]))
