# SPDX-License-Identifier: Apache-2.0
"""docs/integrations.md and examples/: every set-up is parsed, every command and example is run."""
import json
import re
import shutil
import socket
import subprocess
import tomllib

import pytest

from harness import REPO, SYSTEM_PYTHON, python_has, strict_json
from serving import Server

PAGE = (REPO / "docs/integrations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S)
SCRIPTS = {"judge.py", "rl_loop.py", "plots.py"}


def section(name):
    m = re.search(rf"^(#+) {re.escape(name)}\n(.*?)(?=^#{{1,3}} |\Z)", PAGE, re.M | re.S)
    assert m, name
    return [strict_json(b) for kind, b in re.findall(r"^```(\w+)\n(.*?)^```$", m[2], re.M | re.S) if kind == "json"]


def test_every_set_up_can_be_parsed():
    assert len(BLOCKS) == PAGE.count("\n```") // 2
    servers = 0
    for kind, text in BLOCKS:
        if kind == "json":
            obj = strict_json(text)
        elif kind == "toml":
            obj = tomllib.loads(text)
        else:
            assert kind in ("bash", "python", "text"), kind
            continue
        found = (obj.get("tools", {}).get("mcpServers") or obj.get("mcpServers") or obj.get("servers")
                 or obj.get("mcp_servers") or {})
        for name, server in found.items():
            servers += 1
            assert name == "cloche"
            if "command" in server:
                assert (server["command"], server["args"]) == ("/usr/bin/cloche", ["mcp"])
                assert server.get("type", "stdio") == "stdio"
            else:
                assert server["url"].endswith("/mcp")
                assert server["headers"]["Authorization"].startswith("Bearer cloche_")
    assert servers == 8


def test_each_client_has_its_own_form():
    skill, = section("The skill")
    assert isinstance(skill["tools"]["exec"]["timeout"], int)
    for name in ("The MCP server", "Over HTTP"):
        for obj in section(name):
            (server,) = obj["tools"]["mcpServers"].values()
            assert server["toolTimeout"] >= 60
            assert set(server) <= {"command", "args", "env", "cwd", "toolTimeout", "type", "enabledTools", "url",
                                   "headers"}
    assert section("Over HTTP")[0]["tools"]["ssrfWhitelist"] == ["127.0.0.1/32"]
    assert "servers" in section("VS Code")[0] and "mcpServers" in section("Cursor")[0]
    (codex,) = [tomllib.loads(text) for kind, text in BLOCKS if kind == "toml"]
    assert codex["mcp_servers"]["cloche"]["tool_timeout_sec"] >= 60


def test_what_it_names_is_there():
    for name in re.findall(r"`((?:skill|plugin|client|examples)(?:/[\w.-]+)*)`", PAGE):
        assert (REPO / name).exists(), name
    for name in SCRIPTS:
        assert f"examples/{name}" in PAGE


def environment(who):
    """PYTHONPATH and PATH as the page says, and a folder to work in"""
    folder = who.folder()
    shutil.copy(REPO / "client/python/cloche.py", folder)
    (folder / "cloche").symlink_to(who.binary)
    for path in (REPO / "examples").glob("*.py"):
        shutil.copy(path, folder)
    for path in folder.glob("*.py"):
        path.chmod(0o644)
    return folder, who.env({"PYTHONPATH": str(folder), "PATH": f"{folder}:/usr/bin:/bin", "PYTHONWARNINGS": "error",
                            "PYTHONDONTWRITEBYTECODE": "1"})


def run(who, argv, folder, env, timeout=60):
    p = subprocess.run([*who.prefix(), *map(str, argv)], cwd=folder, env=env, capture_output=True, text=True,
                       timeout=timeout, stdin=subprocess.DEVNULL)
    assert p.stderr == "", p.stderr[-3000:]
    return p


@pytest.fixture(scope="module")
def door(callers):
    """The ordinary user's server speaks HTTP: its address and token"""
    with socket.create_server(("127.0.0.1", 0)) as s:
        address = f"127.0.0.1:{s.getsockname()[1]}"
    path = callers["user"].folder() / "cloche.sock"
    with Server(callers["user"], path, args=["--socket", str(path), "--listen", address]) as server:
        assert server.wait_log("event=http_ready"), server.lines
        yield {"CLOCHE": address, "TOKEN": (server.folder / "cloche/http-token").read_text().strip()}


def test_its_commands_and_programs_work(who, door):
    folder, env = environment(who)
    env.update(door)
    last, ran = None, []
    for kind, text in BLOCKS:
        if kind in ("bash", "python"):
            argv = ["/bin/bash", "-c", text] if kind == "bash" else [SYSTEM_PYTHON, "-c", text]
            last = run(who, argv, folder, env)
            assert last.returncode == 0
            ran.append(kind)
        elif kind == "text":
            assert last.stdout == text
        elif kind == "json" and last and last.stdout.startswith("{"):
            obj = strict_json(last.stdout)
            assert json.loads(text).items() <= obj.items()
            last = None
    assert ran == ["python", *["bash"] * 4]


@pytest.fixture(params=["server", "no server"])
def where(who, request):
    """What an example takes as its last argument"""
    if request.param == "no server":
        yield []
        return
    with Server(who) as s:
        yield [s.path]


def test_examples_are_short():
    assert {p.name for p in (REPO / "examples").glob("*.py")} == SCRIPTS
    for name in SCRIPTS:
        assert len((REPO / "examples" / name).read_text().splitlines()) < 60, name


def test_the_judge(who, where):
    folder, env = environment(who)
    cases = {"1-right": ("2 3", "5"), "2-wrong": ("2 2", "5"), "3-slow": ("slow", ""), "4-crash": ("x", ""),
             "5-much": ("much", "")}
    for name, (given, wanted) in cases.items():
        (folder / f"{name}.in").write_text(given)
        (folder / f"{name}.out").write_text(wanted)
    (folder / "solution.py").write_text("line = input()\nwhile line == 'slow': pass\nif line == 'much':\n"
                                        "    while True: print('x' * 9999)\nprint(sum(map(int, line.split())))\n")
    p = run(who, [SYSTEM_PYTHON, "judge.py", "solution.py", ".", *where], folder, env)
    verdicts = [line.split(": ")[1].split(",")[0] for line in p.stdout.splitlines()[:-1]]
    assert verdicts == ["accepted", "wrong answer", "time limit", "runtime error", "too much output"], p.stdout
    assert p.stdout.splitlines()[-1] == "1 of 5 accepted" and p.returncode == 1


def test_the_loop_learns(who, where):
    folder, env = environment(who)
    p = run(who, [SYSTEM_PYTHON, "rl_loop.py", *where], folder, env)
    rewards = [float(r) for r in re.findall(r"mean reward ([\d.]+)", p.stdout)]
    assert p.returncode == 0 and len(rewards) == 6 and rewards[-1] > rewards[0], p.stdout
    assert p.stdout.splitlines()[-1] == "best: return max(numbers)"


def test_the_plots(who, where):
    if not python_has("matplotlib"):
        pytest.skip("matplotlib is not installed (tools/deps.sh test)")
    folder, env = environment(who)
    p = run(who, [SYSTEM_PYTHON, "plots.py", "got", *where], folder, env)
    lines = p.stdout.splitlines()
    assert p.returncode == 0 and lines[0] == "highest: 394"
    assert sorted(lines[1:]) == ["got/figure-1.png", "got/figure-2.png", "got/visits.svg"], p.stdout
    assert (folder / "got/figure-1.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert b"<svg" in (folder / "got/visits.svg").read_bytes()
