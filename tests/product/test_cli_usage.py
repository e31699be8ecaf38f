# SPDX-License-Identifier: Apache-2.0
"""What the command line says and exits with before any sandbox is built."""
import json
import os
import subprocess

import re

import pytest

COMMANDS = ["run", "trigger", "batch", "doctor", "config"]


@pytest.fixture
def cloche(binary, tmp_path):
    """Call it with no configuration but what the test gives, in a folder of its own with one script."""
    (tmp_path / "ok.py").write_text("print('ran')\n")

    def call(*args, env=None, **kw):
        base = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([binary, *args], cwd=tmp_path, env={**base, **(env or {})}, stderr=subprocess.PIPE,
                              timeout=20, **kw)
    return call


def refused(p, status=2):
    """One line on standard error, nothing else anywhere; the line without "cloche: " """
    assert (p.returncode, p.stdout) == (status, b""), p
    line = p.stderr.decode()
    assert line.startswith("cloche: ") and line.count("\n") == 1 and line.endswith("\n"), line
    return line[len("cloche: "):-1]


def test_version(cloche):
    p = cloche("--version")
    assert p.returncode == 0 and p.stderr == b""
    name, version = p.stdout.decode().split()
    assert name == "cloche" and len(version.split(".")) == 3


def test_help(cloche):
    p = cloche("--help")
    assert p.returncode == 0 and p.stderr == b""
    text = p.stdout.decode()
    for command in COMMANDS:
        assert f"  cloche {command} " in text
    assert "Examples:" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(cloche, command):
    p = cloche(command, "--help")
    assert p.returncode == 0 and p.stderr == b""
    text = p.stdout.decode()
    assert text.startswith(f"Usage: cloche {command} ") and "Examples:" in text and "Exit status:" in text
    assert max(map(len, text.splitlines())) <= 120
    assert cloche(command, "-h").stdout == p.stdout


def test_without_a_command(cloche):
    p = cloche()
    assert p.returncode == 2 and p.stdout == b"" and b"Usage: cloche COMMAND" in p.stderr


@pytest.mark.parametrize("word", ["rum", "--rum", ""])
def test_unknown_command(cloche, word):
    line = refused(cloche(word))
    known = re.findall(r"^  cloche ([a-z]+) ", cloche("--help").stdout.decode(), re.M)
    assert len(known) >= 11 and f'"{word}"' in line and all(f" {c}," in line for c in known), line


@pytest.mark.parametrize("args,parts", [
    ((), ("SCRIPT is missing",)),
    (("--no-such", "ok.py"), ('"--no-such"',)),
    (("--no-such=1", "ok.py"), ('"--no-such"',)),
    (("-z", "ok.py"), ('"-z"',)),
    (("-qz", "ok.py"), ('"-z"',)),
    (("--json=yes", "ok.py"), ("--json", "takes no value")),
    (("--timeout",), ("--timeout is missing", "TIME")),
    (("-t",), ("--timeout is missing", "TIME")),
    (("--timeout", "ten", "ok.py"), ("--timeout", '"ten"', "250ms")),
    (("--timeout", "0", "ok.py"), ("--timeout", '"0"', "more than 0", "3600")),
    (("--timeout", "2h", "ok.py"), ("--timeout", '"2h"', "3600")),
    (("-m", "lots", "ok.py"), ("--memory", '"lots"', "512m")),
    (("-m", "1k", "ok.py"), ("--memory", '"1k"', "at least 16777216")),
    (("--cpus", "0", "ok.py"), ("--cpus", '"0"', "0.01")),
    (("--cpu-time", "-1", "ok.py"), ("--cpu-time", '"-1"')),
    (("--pids-limit", "1.5", "ok.py"), ("--pids-limit", '"1.5"', "whole number")),
    (("--disk", "", "ok.py"), ("--disk", '""')),
    (("--open-files", "1", "ok.py"), ("--open-files", '"1"', "at least 16")),
    (("--output-limit", "0", "ok.py"), ("--output-limit", '"0"')),
    (("-e", "PLAIN", "ok.py"), ("--env", '"PLAIN"', "NAME=VALUE")),
    (("-e", "1A=x", "ok.py"), ("--env", '"1A=x"')),
    (("--file", "absent", "ok.py"), ("--file", "absent", "No such file")),
    (("--file", "ok.py:../up", "ok.py"), ("--file", '"ok.py:../up"')),
    (("--stdin", "absent", "ok.py"), ("--stdin", "absent", "No such file")),
    (("--artifact", "*.png", "ok.py"), ("--artifact", '"*.png"', "--output", "--json")),
    (("--artifact", "../x", "--json", "ok.py"), None),
    (("--network", "host", "ok.py"), ("--network", '"host"', "loopback", "none")),
    (("--mode", "hot", "ok.py"), ("--mode", '"hot"', "auto, warm or cold")),
    (("--mode", "warm", "ok.py"), ("--mode", '"warm"', "no server")),
])
def test_run_refuses(cloche, args, parts):
    p = cloche("run", *args)
    if parts is None:
        error = json.loads(p.stdout)["error"]
        assert p.returncode == 2 and p.stderr == b"" and error["field"] == "--artifact" and "../x" in error["given"]
        return
    line = refused(p)
    assert all(part in line for part in parts), line


@pytest.mark.parametrize("args", [("--json", "--timeout", "0"), ("--timeout", "0", "--json"), ("--no-such", "--json"),
                                  ("--json", "--no-such")])
def test_run_refuses_as_json(cloche, args):
    p = cloche("run", *args, "ok.py")
    assert p.returncode == 2 and p.stderr == b"" and p.stdout.count(b"\n") == 1
    error = json.loads(p.stdout)["error"]
    assert set(error) == {"field", "given", "allowed", "message"} and all(error.values())
    assert error["field"] in error["message"] and error["allowed"] in error["message"]


def test_script_and_environment_that_are_not_there(cloche, tmp_path):
    assert refused(cloche("run", "absent.py"), 127) == "SCRIPT: absent.py: No such file or directory"
    assert "folder" in refused(cloche("run", "folder/absent.py"), 127)
    assert "Is a directory" in refused(cloche("run", "."), 126)
    assert '"absent"' in refused(cloche("run", "--environment", "absent", "ok.py"), 127)
    if os.geteuid() != 0:
        (tmp_path / "ok.py").chmod(0)
        assert "Permission denied" in refused(cloche("run", "ok.py"), 126)
    p = cloche("run", "--json", "absent.py")
    assert p.returncode == 127 and "absent.py" in json.loads(p.stdout)["error"]["message"]


def test_a_name_that_a_terminal_would_obey(cloche):
    line = refused(cloche("run", "\x1b[31mred\n.py"), 127)
    assert "\x1b" not in line and "red" in line


def test_a_name_that_is_not_utf8(cloche):
    p = cloche("run", "--json", b"\xff\xfe.py")
    assert p.returncode == 127 and json.loads(p.stdout)["error"]["given"]


@pytest.mark.parametrize("body,field", [
    ("", "request"), ("[]", "request"), ("{", "request"), ("{}", "script_content"),
    ('{"script_content": "1", "timeout": 0}', "timeout"), ('{"script_content": "1", "mode": "warm"}', "mode"),
    ('{"script_content": "1", "environment": "absent"}', "environment"),
])
def test_trigger_refuses(cloche, tmp_path, body, field):
    p = cloche("trigger", stdin=None, input=body.encode())
    assert p.returncode == 2 and p.stderr == b"" and p.stdout.count(b"\n") == 1
    error = json.loads(p.stdout)["error"]
    assert error["field"] == field and error["message"], error
    (tmp_path / "request.json").write_text(body)
    assert cloche("trigger", "--request", "request.json").stdout == p.stdout
    assert cloche("trigger", "--request", "-", stdin=None, input=body.encode()).stdout == p.stdout


@pytest.mark.parametrize("args", [("operand",), ("--request", "absent.json"), ("--json",), ("--request",)])
def test_trigger_usage(cloche, args):
    p = cloche("trigger", *args)
    assert p.returncode == 2 and p.stderr == b""
    assert args[-1] in json.loads(p.stdout)["error"]["message"]


@pytest.mark.parametrize("args,part", [
    ((), "FILE is missing"), (("absent.jsonl",), "absent.jsonl"), (("ok.py", "-j", "0"), "1 to 256"),
    (("ok.py", "--jobs", "many"), '"many"'), (("-j", "257", "ok.py"), '"257"'), (("ok.py", "two"), '"two"'),
])
def test_batch_usage(cloche, args, part):
    assert part in refused(cloche("batch", *args))


@pytest.mark.parametrize("args,part", [((), "argument is missing: check"), (("print",), '"print"'),
                                       (("check", "absent.ini"), "absent.ini")])
def test_config_usage(cloche, args, part):
    assert part in refused(cloche("config", *args))


def test_doctor_usage(cloche):
    assert '"operand"' in refused(cloche("doctor", "operand"))
    p = cloche("doctor", "--json", "operand")
    assert p.returncode == 2 and json.loads(p.stdout)["error"]["field"] == "argument"


def settings(p):
    assert (p.returncode, p.stderr) == (0, b""), p
    section, found = None, {}
    for line in p.stdout.decode().splitlines():
        if line.startswith("["):
            section = line[1:-1]
        elif line:
            key, value = line.split(" = ", 1)
            found[section, key] = value
    return found


def test_config_check_prints_what_it_would_read(cloche, tmp_path):
    text = ("[limits]\nmemory_bytes = 1g\nmax_memory_bytes = 2g\ntimeout = 1.5\ncpus = 0.5\n"
            "[environment science]\npython = /usr/bin/python3\npaths = /opt:/srv\nenv.A = x y\nmode = cold\n"
            "memory_bytes = 900m\n[screen]\nreject = ctypes, os.system\n[protect]\nrequire = landlock\n")
    (tmp_path / "one.ini").write_text(text)
    p = cloche("config", "check", "one.ini")
    found = settings(p)
    assert found["limits", "memory_bytes"] == str(1 << 30) and found["limits", "max_memory_bytes"] == str(2 << 30)
    assert found["limits", "timeout"] == "1.5" and found["limits", "cpus"] == "0.5"
    assert found["environment science", "memory_bytes"] == str(900 << 20)
    assert found["environment science", "env.A"] == "x y" and found["environment science", "paths"] == "/opt:/srv"
    assert found["screen", "reject"] == "ctypes, os.system" and found["protect", "require"] == "landlock"
    (tmp_path / "two.ini").write_bytes(p.stdout)
    assert cloche("config", "check", "two.ini").stdout == p.stdout


def test_precedence(cloche, tmp_path):
    """A variable over the user's file, the user's file over the default; CLOCHE_CONFIG in place of the user's file."""
    def memory(**env):
        return int(settings(cloche("config", "check", env=env))["limits", "memory_bytes"]) >> 20

    default = memory()
    (tmp_path / ".config/cloche").mkdir(parents=True)
    (tmp_path / ".config/cloche/cloche.ini").write_text("[limits]\nmemory_bytes = 101m\n")
    (tmp_path / "xdg/cloche").mkdir(parents=True)
    (tmp_path / "xdg/cloche/cloche.ini").write_text("[limits]\nmemory_bytes = 102m\n")
    (tmp_path / "own.ini").write_text("[limits]\nmemory_bytes = 103m\n")
    xdg, own = str(tmp_path / "xdg"), str(tmp_path / "own.ini")
    assert default not in (101, 102, 103, 104)
    assert memory() == 101
    assert memory(XDG_CONFIG_HOME=xdg) == 102
    assert memory(XDG_CONFIG_HOME="xdg") == 101, "a relative one is to be ignored"
    assert memory(XDG_CONFIG_HOME=xdg, CLOCHE_CONFIG=own) == 103
    assert memory(CLOCHE_CONFIG="") == default
    assert memory(CLOCHE_CONFIG=own, CLOCHE_LIMITS_MEMORY_BYTES="104m") == 104


def test_variables_name_sections(cloche):
    env = {"CLOCHE_ENVIRONMENT_DEFAULT_PYTHON": "/opt/p/bin/python3", "CLOCHE_SCREEN_REPORT": "ctypes",
           "CLOCHE_PROTECT_ALLOW_MISSING": "landlock", "CLOCHE_SOMEBODY_ELSES": "x"}
    found = settings(cloche("config", "check", env=env))
    assert found["environment default", "python"] == "/opt/p/bin/python3"
    assert found["screen", "report"] == "ctypes" and found["protect", "allow_missing"] == "landlock"


@pytest.mark.parametrize("text,parts", [
    ("[limits]\nmemory_bytes = much\n", ("own.ini:2", "memory_bytes", '"much"')),
    ("[limits]\nmax_memory_bytes = 1g\n", ("own.ini:2", "max_memory_bytes", "administrator")),
    ("[limits]\nmemry = 1\n", ("own.ini:2", "memry")),
    ("[limts]\n", ("own.ini:1", "limts")),
])
def test_a_bad_file_stops_every_command(cloche, tmp_path, text, parts):
    (tmp_path / "own.ini").write_text(text)
    env = {"CLOCHE_CONFIG": str(tmp_path / "own.ini")}
    for args in (("config", "check"), ("run", "ok.py"), ("batch", "ok.py"), ("doctor",)):
        line = refused(cloche(*args, env=env))
        assert all(part in line for part in parts), line
    p = cloche("trigger", env=env)
    assert p.returncode == 2 and parts[0] in json.loads(p.stdout)["error"]["message"]


def test_bad_variables_and_absent_file(cloche):
    line = refused(cloche("config", "check", env={"CLOCHE_LIMITS_MEMORY_BYTES": "3"}))
    assert "CLOCHE_LIMITS_MEMORY_BYTES" in line and '"3"' in line
    line = refused(cloche("config", "check", env={"CLOCHE_LIMITS_MEMRY_BYTES": "3"}))
    assert "CLOCHE_LIMITS_MEMRY_BYTES" in line
    assert "/absent.ini" in refused(cloche("config", "check", env={"CLOCHE_CONFIG": "/absent.ini"}))


def test_output_that_can_not_be_written(cloche):
    with open("/dev/full", "wb") as full:
        p = cloche("--help", stdout=full)
    assert p.returncode == 125 and b"standard output" in p.stderr
