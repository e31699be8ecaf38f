# SPDX-License-Identifier: Apache-2.0
"""POST /mcp as a client sees it, byte by byte; real clients are in test_mcp_clients.py."""
import http.client
import json
import socket
import time

import jsonschema
import pytest

import mcp_client
from harness import Residue, strict_json, wait_for
from mcp_client import LEGACY, MODERN, message
from mcp_door import Door

BOTH = "application/json, text/event-stream"


@pytest.fixture(scope="module")
def door(callers):
    with Door(callers["user"]) as d:
        yield d


def modern_headers(m, **more):
    name = m.get("params", {}).get("name")
    return {"MCP-Protocol-Version": MODERN, "Mcp-Method": m["method"], **({"Mcp-Name": name} if name else {}), **more}


def call(script, id=1, token=None, **arguments):
    params = {"name": "run_python", "arguments": {"script_content": script, **arguments}}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return message("tools/call", params, id)


def modern_call(script, id=1, token=None, **arguments):
    m = call(script, id, token, **arguments)
    m["params"]["_meta"] = {**mcp_client.META, **m["params"].get("_meta", {})}
    return m


def events(text):
    """The messages of a stream, each an event of one line"""
    blocks = text.decode().split("\n\n")
    assert blocks.pop() == ""
    found = []
    for block in blocks:
        name, data = block.split("\n")
        assert name == "event: message" and data.startswith("data: ")
        found.append(strict_json(data[6:]))
    return found


@pytest.fixture(scope="module")
def tool(door):
    status, _, text = door.post(message("tools/list", id=1))
    assert status == 200
    return strict_json(text)["result"]["tools"][0]


def test_both_eras(door, tool):
    status, headers, text = door.post(call("print(6 * 7)"))
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert mcp_client.check_call(strict_json(text)["result"], tool)["stdout"] == "42\n"
    m = modern_call("print(6 * 7)", "id of text")
    status, _, text = door.post(m, **modern_headers(m))
    answer = strict_json(text)
    assert status == 200 and answer["id"] == "id of text"
    assert mcp_client.check_call(answer["result"], tool, modern=True)["stdout"] == "42\n"


def test_a_script_that_fails_and_a_request_that_is_refused(door, tool):
    for fields, is_error in [({"script": "1/0"}, False), ({"script": "1", "timeout": 0}, True),
                             ({"script": "while True: pass", "timeout": 0.2}, True)]:
        status, _, text = door.post(call(**fields))
        result = strict_json(text)["result"]
        mcp_client.check_call(result, tool)
        assert status == 200 and result["isError"] is is_error


@pytest.mark.parametrize("accept, streams", [(BOTH, True), ("application/json", False)])
def test_progress_is_a_stream_for_who_takes_one(door, tool, accept, streams):
    status, headers, text = door.post(call("import time; time.sleep(2.5)", 9, token=77), Accept=accept)
    assert status == 200
    if not streams:
        assert headers["Content-Type"] == "application/json" and strict_json(text)["id"] == 9
        return
    assert headers["Content-Type"] == "text/event-stream" and headers["X-Accel-Buffering"] == "no"
    *told, last = events(text)
    told = [m["params"] for m in told]
    assert len(told) >= 2 and {t["progressToken"] for t in told} == {77} and mcp_client.is_growing(told), told
    assert last["id"] == 9
    mcp_client.check_call(last["result"], tool)


def test_odd_output_in_a_stream(door, tool):
    script = "import os; os.write(1, bytes(range(256)) + '\\u2028\\x85\\r\\n\\n\\nevent: x\\ndata: y\\n\\n'.encode())"
    _, _, text = door.post(call(script, 3, token=1))
    result = events(text)[-1]["result"]
    assert "event: x\ndata: y\n\n" in mcp_client.check_call(result, tool)["stdout"]


def test_notifications_have_no_answer(door):
    for m in (message("notifications/initialized"), message("notifications/cancelled", {"requestId": 5}),
              {"jsonrpc": "2.0", "id": 4, "result": {}}):
        status, _, text = door.post(m)
        assert (status, text) == (202, b"")


def test_what_is_no_message(door):
    for body, status, code in [(b"{", 400, -32700), (b"[]", 400, -32600), (b"\xff", 400, -32700),
                               (json.dumps(message("ping", {"x": "y" * 70000}, 1)).encode(), 413, -32600)]:
        got, headers, text = door.post(body)
        assert (got, headers["Content-Type"]) == (status, "application/json")
        assert strict_json(text)["error"]["code"] == code


def test_headers_must_say_what_the_message_says(door):
    m = modern_call("print(1)")
    for change in ({"Mcp-Name": "other"}, {"Mcp-Method": "tools/list"}, {"MCP-Protocol-Version": LEGACY}):
        status, _, text = door.post(m, **{**modern_headers(m), **change})
        assert (status, strict_json(text)["error"]["code"]) == (400, -32020)
    status, _, text = door.post(message("nonsense", id=1, modern=True), **modern_headers({"method": "nonsense"}))
    assert (status, strict_json(text)["error"]["code"]) == (404, -32601)
    status, _, text = door.post(message("ping", id=1), **{"MCP-Protocol-Version": "1999-01-01"})
    assert status == 400


def test_who_may_ask(door):
    m = message("ping", id=1)
    assert door.post(m)[0] == 200
    assert door.post(m, Authorization="Bearer cloche_" + "0" * 64)[0] == 401
    assert door.post(m, Origin="http://evil.example")[0] == 403
    assert door.post(m, Host="evil.example")[0] in (403, 421)
    assert door.post(m, **{"Content-Type": "text/plain"})[0] == 415
    for method in ("GET", "DELETE"):
        status, headers, _ = door.ask(method, "/mcp")
        assert status == 405 and "POST" in headers["Allow"]


def test_sessions_are_names(door):
    hello = message("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}, 1)
    names = [door.post(hello)[1]["Mcp-Session-Id"] for _ in range(2)]
    assert names[0] != names[1] and all(len(n) == 32 and set(n) <= set("0123456789abcdef") for n in names)
    assert door.post(message("ping", id=1), **{"Mcp-Session-Id": names[0]})[0] == 200
    assert door.post(message("ping", id=1), **{"Mcp-Session-Id": "not-one-of-ours"})[0] == 404


def open_call(door, m, **headers):
    c = http.client.HTTPConnection("127.0.0.1", door.port, timeout=30)
    c.request("POST", "/mcp", json.dumps(m), {"Content-Type": "application/json", "Accept": BOTH, **door.headers, **headers})
    return c


def is_idle(door):
    return wait_for(lambda: door.server.counts()["running"] == 0)


@pytest.mark.parametrize("token", [None, 5])
def test_cancelled_in_its_own_session_alone(door, token):
    mine, other = {"Mcp-Session-Id": "a" * 32}, {"Mcp-Session-Id": "b" * 32}
    c = open_call(door, call("import time; time.sleep(100)", 1, token=token, timeout=100), **mine)
    assert wait_for(lambda: door.server.counts()["running"] == 1)
    for headers in (other, {}):
        assert door.post(message("notifications/cancelled", {"requestId": 1}), **headers)[0] == 202
    assert door.post(message("notifications/cancelled", {"requestId": "1"}), **mine)[0] == 202
    time.sleep(0.2)
    assert door.server.counts()["running"] == 1
    assert door.post(message("notifications/cancelled", {"requestId": 1}), **mine)[0] == 202
    answer = c.getresponse()
    assert answer.status == 200 and [m for m in events(answer.read()) if "id" in m] == []
    assert is_idle(door)
    c.close()


@pytest.mark.parametrize("token", [None, "t"])
def test_who_goes_away_has_no_run(door, callers, token):
    residue = Residue(callers["user"])
    m = modern_call("import time; time.sleep(100)", token=token, args=[residue.mark], timeout=100)
    c = open_call(door, m, **modern_headers(m))
    assert wait_for(lambda: door.server.counts()["running"] == 1)
    c.sock.shutdown(socket.SHUT_RDWR)
    c.close()
    assert is_idle(door)
    residue.assert_none()


def test_many_at_the_same_time(door, tool):
    calls = [open_call(door, call(f"print({i})", i)) for i in range(20)]
    for i, c in enumerate(calls):
        answer = strict_json(c.getresponse().read())
        assert answer["id"] == i and answer["result"]["structuredContent"]["stdout"] == f"{i}\n"
        c.close()


def test_a_server_that_is_gone(callers):
    with Door(callers["user"]) as d:
        assert d.post(call("print(1)"))[0] == 200
        d.server.stop()
        status, _, text = d.post(call("print(1)"))
        result = strict_json(text)["result"]
        assert status == 200 and result["isError"] and "try again" in result["content"][0]["text"]


def test_the_tool_fits_its_own_schema(tool):
    jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
    jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
    assert len(tool["description"].encode()) < 2048
