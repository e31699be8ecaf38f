# SPDX-License-Identifier: Apache-2.0
"""
The skill and the plugin: the rules by which agents load them, and every command that the skill teaches, run for real.

The rules are those of nanobot's loaders, of the Agent Skills validators and of the layout that such loaders share, in
our own words.
"""
import json
import re
import stat
import subprocess
import unicodedata

import pytest
import strictyaml
import yaml

from harness import REPO, STATUSES, Result, strict_json

SKILL = REPO / "skill/python-script-trigger"
PLUGIN = REPO / "plugin"
TEXT = (SKILL / "SKILL.md").read_text(encoding="utf-8")
NANOBOT_KEYS = {"name", "description", "metadata", "always", "license", "allowed-tools"}
SPEC_KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}


def frontmatter(text):
    m = re.match(r"^---\s*\r?\n(.*?)\r?\n---\s*\r?\n?", text, re.S)
    assert m, "it begins with a frontmatter"
    return m[1], text[m.end():]


def check_skill(folder):
    """By all loaders' rules at once"""
    text = (folder / "SKILL.md").read_text(encoding="utf-8")
    head, _ = frontmatter(text)
    meta = yaml.safe_load(head)
    strict = strictyaml.load(head).data  # no flow style, anchors, tags, duplicate keys
    assert set(meta) == set(strict) and set(meta) <= NANOBOT_KEYS & SPEC_KEYS, set(meta)
    name, description = meta["name"], meta["description"]
    assert name == folder.name == unicodedata.normalize("NFKC", name) and len(name) <= 64
    assert re.fullmatch(r"(?!.*--)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", name)
    assert isinstance(description, str) and 1 <= len(description.strip()) <= 1024
    assert not set("<>") & set(description) and "todo" not in description.lower()
    assert {p.name for p in folder.iterdir()} <= {"SKILL.md", "scripts", "references", "assets"}
    return meta


def test_every_loader_takes_it():
    meta = check_skill(SKILL)
    nanobot = meta["metadata"]["nanobot"]
    assert isinstance(nanobot, dict) and nanobot["requires"]["bins"] == ["cloche"] and nanobot["emoji"] == "🐍"
    assert meta["metadata"]["risk"] == "medium" and nanobot["category"] == "execution"
    assert set(nanobot["tags"]) >= {"scripting", "python", "automation"}
    assert not nanobot.get("always"), "read when it is needed"


@pytest.mark.parametrize("change", [
    ("name: python-script-trigger", "name: other-name"), ("---\n", "```skill\n---\n"),
    ("license:", "compatibility: x\nlicense:"), ("    tags:", "    tags: [a]\n    more:"),
    ("license:", "always: true\nlicense:"), ("description: Runs", "description: <b>Runs"),
])
def test_the_rules_refuse(tmp_path, change):
    folder = tmp_path / "python-script-trigger"
    folder.mkdir()
    (folder / "SKILL.md").write_text(TEXT.replace(*change, 1))
    with pytest.raises((AssertionError, strictyaml.YAMLError)):
        check_skill(folder)


def test_the_body_is_short_and_says_what_it_must():
    body = frontmatter(TEXT)[1]
    assert len(body.splitlines()) < 150
    for word in ("script_content", "script_name", "timeout", "stdout", "stderr", "return_code", "execution_time",
                 "denials", "--artifact", "cloche trigger", "cloche run"):
        assert word in body, word
    told = {word for line in body.splitlines() if line.startswith("| `")
            for word in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert told == STATUSES, told ^ STATUSES


def blocks(text):
    """(file name or None, language, content) of each fenced block"""
    found = re.findall(r"(?:^`([\w./-]+)`:\n\n)?^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    assert len(found) == text.count("\n```") // 2
    return [(name or None, language, content) for name, language, content in found]


def test_every_command_of_it_works(who):
    """As nanobot's exec tool runs them: bash, no standard input, an environment of almost nothing"""
    folder, home = who.folder(), who.folder()
    bin_folder = who.folder()
    (bin_folder / "cloche").symlink_to(who.binary)
    ran, compared, last = 0, 0, None
    for name, language, content in blocks(TEXT):
        if name:
            (folder / name).write_text(content)
            (folder / name).chmod(0o644)
        elif language == "bash":
            last = subprocess.run([*who.prefix(), "/bin/bash", "-c", content], cwd=folder, stdin=subprocess.DEVNULL,
                                  env={"HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "PYTHONUNBUFFERED": "1",
                                       "PATH": f"{bin_folder}:/usr/bin:/bin"}, capture_output=True, timeout=60)
            ran += 1
        elif language == "text":
            assert last.returncode == 0 and last.stdout.decode() == content, last
            compared += 1
        elif language == "json":
            obj = strict_json(last.stdout)
            Result(obj)
            shown = json.loads(content)
            assert {k: obj[k] for k in shown} == shown, last
            assert last.returncode == 0
            compared += 1
        else:
            raise AssertionError(f"what is to be done with a block of {language}?")
    assert (ran, compared) == (4, 4)


def test_the_exit_statuses_that_it_tells(who):
    for script, status in (("import sys; sys.exit(7)", 7), ("import time; time.sleep(9)", 124)):
        assert who.run(script, "-t", "2").returncode == status
    assert who.run("while True: print('x' * 1000)", "--output-limit", "100k").returncode == 137
    p = who.trigger_raw({"script_content": "x", "timeout": 0})
    assert p.returncode == 2 and set(strict_json(p.stdout)["error"]) >= {"field", "given", "allowed", "message"}


def plugin_copy(tmp_path):
    """As docs/integrations.md says: the links become files"""
    folder = tmp_path / "plugins/cloche"
    folder.parent.mkdir(parents=True)
    subprocess.run(["cp", "-rL", str(PLUGIN), str(folder)], check=True)
    return folder


def test_the_plugin_is_one_that_nanobot_installs(tmp_path):
    folder = plugin_copy(tmp_path)
    manifest = json.loads((folder / "plugin.json").read_text())
    assert manifest["$schema"] == "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
    assert re.fullmatch(r"(?!.*(?:--|\.\.))[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", manifest["name"])
    assert len(manifest["name"]) <= 64
    version = re.search(r"version: '([^']+)'", (REPO / "meson.build").read_text())[1]
    assert manifest["version"] == version and manifest["description"]
    extension = manifest["extensions"]["dev.nanobot"]
    assert re.fullmatch(r"#[0-9a-fA-F]{6}", extension["accentColor"])
    assert all(isinstance(p, str) for p in extension["permissions"])
    mcp = json.loads((folder / "mcp.json").read_text())
    assert mcp.keys() == {"$schema", "mcpServers"}
    assert mcp["$schema"] == "https://agent-plugins.org/schemas/1.0.0/mcp.schema.json"
    (server,) = mcp["mcpServers"].values()
    assert server.keys() <= {"type", "command", "args", "env", "cwd"} and server["type"] == "stdio"
    assert re.fullmatch(r"[^\s/\\]+", server["command"]), "a bare name, found by PATH"
    skills = list((folder / "skills").iterdir())
    assert [s.name for s in skills] == ["python-script-trigger"]
    check_skill(skills[0])
    for path in folder.rglob("*"):
        kind = path.lstat().st_mode
        assert stat.S_ISREG(kind) or stat.S_ISDIR(kind), f"{path} leads out of the package"


def test_all_of_it_is_installed(binary):
    if not (binary.parent / "meson-info").is_dir():  # an installation itself
        share = binary.parent.parent / "share/cloche"
        assert (share / "skill/python-script-trigger/SKILL.md").read_text(encoding="utf-8") == TEXT
        check_skill(share / "plugin/skills/python-script-trigger")
        return
    p = subprocess.run(["meson", "introspect", "--installed", str(binary.parent)], capture_output=True, check=True,
                       timeout=60)
    to = {k: v.split("/share/cloche/")[1] for k, v in json.loads(p.stdout).items() if "/share/cloche/" in v}
    for name in ("skill/python-script-trigger/SKILL.md", "plugin/plugin.json", "plugin/mcp.json"):
        assert to.pop(str(REPO / name)) == name
    assert to.pop(str(REPO / "client/python/cloche.py")) == "python/cloche.py"
    assert to["python-script-trigger"] == "plugin/skills/python-script-trigger"


def rpc(p, obj):
    p.stdin.write(json.dumps(obj).encode() + b"\n")
    p.stdin.flush()
    return json.loads(p.stdout.readline())


def test_the_plugins_server_answers(who, tmp_path):
    """Started as nanobot starts it: the command by PATH, six variables, the plugin's folder"""
    (server,) = json.loads((PLUGIN / "mcp.json").read_text())["mcpServers"].values()
    bin_folder = who.folder()
    (bin_folder / "cloche").symlink_to(who.binary)
    p = subprocess.Popen([*who.prefix(), "/usr/bin/env", "-i", f"PATH={bin_folder}:/usr/bin:/bin", f"HOME={who.home}",
                          f"USER={who.name}", f"LOGNAME={who.name}", "SHELL=/bin/sh", "TERM=dumb", server["command"],
                          *server["args"]], cwd=who.folder(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    try:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        said = rpc(p, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        assert said["result"]["protocolVersion"] == "2025-11-25", said
        p.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        tools = rpc(p, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"]["tools"]
        assert [t["name"] for t in tools] == ["run_python"]
        call = {"name": "run_python", "arguments": {"script_content": "print(6 * 7)"}}
        said = rpc(p, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})["result"]
        assert said["structuredContent"]["stdout"] == "42\n" and "42" in said["content"][0]["text"], said
        p.stdin.close()
        assert p.wait(10) == 0
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
        p.stdout.close()
        p.stderr.close()
