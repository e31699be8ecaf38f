# SPDX-License-Identifier: Apache-2.0
"""--help, the man page and the completion tell of the same options; what the pages show is true."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
MAN = REPO / "docs/man/cloche.1.scd"
COMPLETION = REPO / "packaging/completion/cloche.bash"
COMMANDS = ["run", "trigger", "batch", "doctor", "config", "serve", "env", "bench", "mcp", "history", "token"]
LONG = r"--[a-z][a-z-]*"


def from_help(binary, command):
    text = subprocess.run([binary, command, "--help"], capture_output=True, text=True, timeout=20, check=True).stdout
    found = {}
    for line in text.splitlines():
        m = re.match(rf"  (-\w)?,? +({LONG})( \S+)?  ", line)
        if m:
            found[m[2]] = ((m[1] or ""), (m[3] or "").strip())
    assert "--help" in found
    return found


def from_man(command):
    text = MAN.read_text()
    section = re.search(rf"^## cloche {command}\n(.*?)(?=^#)", text, re.M | re.S)[1]
    found = {}
    for line in section.splitlines():
        if not line.startswith("*-"):
            continue
        for m in re.finditer(rf"(?:\*(-\w)\*, )?\*({LONG})\*(?: ([^,*]+))?", line):
            found[m[2]] = ((m[1] or ""), (m[3] or "").replace("_", "").strip())
    return found


def complete(*words):
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cloche; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    p = subprocess.run(["bash", "--norc", "-c", script, "bash", str(COMPLETION), "cloche", *words], capture_output=True,
                       text=True, timeout=20)
    assert p.returncode == 0 and p.stderr == "", p
    return set(p.stdout.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_man_agree(binary, command):
    assert from_man(command) == from_help(binary, command)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_completion_agree(binary, command):
    assert complete(command, "--") == set(from_help(binary, command))


def test_synopsis_names_every_command(binary):
    helped = subprocess.run([binary, "--help"], capture_output=True, text=True, timeout=20, check=True).stdout
    synopsis = re.search(r"# SYNOPSIS\n(.*?)# DESCRIPTION", MAN.read_text(), re.S)[1]
    assert set(re.findall(r"^  cloche ([a-z]+) ", helped, re.M)) == set(COMMANDS)
    assert set(re.findall(r"^\*cloche (\w+)", synopsis, re.M)) == set(COMMANDS)
    assert complete("") == set(COMMANDS) | {"--help", "--version"}


def test_completion_of_values():
    assert complete("run", "--mode", "") == {"auto", "warm", "cold"}
    assert complete("run", "--network", "l") == {"loopback"}
    assert complete("config", "") == {"check"}
    assert complete("run", "--ti") == {"--timeout"}


def test_completion_leaves_the_scripts_options_alone():
    assert complete("run", "job.py", "--") == set()
    assert complete("run", "--", "--") == set()
    assert complete("run", "-t", "10", "--json", "--ti") == {"--timeout"}
    assert complete("run", "--timeout", "=", "10", "--ti") == {"--timeout"}
    assert complete("run", "-t", "10", "job.py", "--ti") == set()


@pytest.mark.parametrize("page", sorted(p.name for p in (REPO / "docs/man").glob("*.scd")))
def test_man_pages_build(page):
    assert shutil.which("scdoc"), "scdoc is needed to build the man pages"
    text = (REPO / "docs/man" / page).read_bytes()
    p = subprocess.run(["scdoc"], input=text, capture_output=True, timeout=20)
    assert p.returncode == 0 and p.stdout and p.stderr == b"", p.stderr
    assert page[:-4].rsplit(".", 1)[1] == re.match(rb"[\w.-]+\((\d)\)", text)[1].decode()


def test_the_example_of_cloche_ini_is_valid(binary, tmp_path):
    text = (REPO / "docs/man/cloche.ini.5.scd").read_text()
    (tmp_path / "cloche.ini").write_text(re.search(r"```\n(.*?)```", text, re.S)[1])
    p = subprocess.run([binary, "config", "check", tmp_path / "cloche.ini"], capture_output=True, text=True, timeout=20)
    assert p.returncode == 0 and p.stderr == "" and "[environment science]" in p.stdout, p


def test_cloche_ini_names_every_limit(binary):
    """The settings that `config check` prints are those that the page explains."""
    printed = subprocess.run([binary, "config", "check", "/dev/null"], capture_output=True, text=True, timeout=20,
                             check=True).stdout
    page = (REPO / "docs/man/cloche.ini.5.scd").read_text().replace("\\", "")
    keys = re.findall(r"^(\w+) = ", printed, re.M)
    assert "memory_bytes" in keys and "python" in keys
    for key in keys:
        assert f"*{key}*" in page, key


@pytest.mark.parametrize("section", ["limits", "environment NAME", "screen", "protect", "server", "http", "history"])
def test_cloche_ini_has_the_settings_that_there_are(binary, tmp_path, section):
    """Those that a refusal of an unknown one names are those below the section's heading; [limits] is for all."""
    file = tmp_path / "cloche.ini"
    file.write_text(f"[{section}]\nnothing_like_this = 1\n")
    said = subprocess.run([binary, "config", "check", file], capture_output=True, text=True, timeout=20, check=False).stderr
    known = set(said.split("known are ")[1].strip().removesuffix(", ...").split(", "))
    page = (REPO / "docs/man/cloche.ini.5.scd").read_text().replace("\\", "")
    below = page.split(f"# [{section}]\n")[1].split("\n# ")[0]
    explained = set(re.findall(r"\*([\w.]+)\*", "\n".join(re.findall(r"^\*.*\*$", below, re.M))))
    if section == "environment NAME":
        known = {"env.K" if k == "env.NAME" else k for k in known if k not in limits_of(page)}
    elif said.strip().endswith("..."):
        known |= explained & {"max_script_bytes"}
    assert known == explained


def limits_of(page):
    return set(re.findall(r"\*(\w+)\*", page.split("# [limits]\n")[1].split("\n# ")[0]))


def test_the_example_request():
    request = json.loads((REPO / "examples/hello_world.json").read_text())
    assert request == {"script_content": "print('Hello from Python!')\nimport sys\nsys.exit(1)",
                       "script_name": "hello_world.py", "timeout": 10}
