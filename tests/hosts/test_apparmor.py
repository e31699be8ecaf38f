# SPDX-License-Identifier: Apache-2.0
"""The AppArmor profile: in order for the parser, and cloche works in it."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

import attack_support as support
from hosts import IS_INSTALLED

PROFILE = pathlib.Path(support.REPO) / "packaging/apparmor/cloche"


def text_for_this_parser():
    """Before AppArmor 4 there is no rule "userns", and nothing forbids what it allows."""
    text = PROFILE.read_text()
    assert "  userns,\n" in text and "abi <abi/4.0>," in text
    if not os.path.exists("/etc/apparmor.d/abi/4.0"):
        text = text.replace("  userns,\n", "").replace("abi <abi/4.0>,", "abi <abi/3.0>,")
    return text


def parse(*options):
    if not shutil.which("apparmor_parser"):
        pytest.skip("needs: apparmor's parser")
    return subprocess.run(["apparmor_parser", "-K", *options], input=text_for_this_parser(), capture_output=True, text=True, timeout=60)


def test_in_order():
    p = parse("-Q", "-N")
    assert (p.returncode, p.stdout) == (0, "cloche\n"), p.stderr


def test_names_all_programs():
    """Each program that makes a user namespace, or starts what does."""
    p = parse("-Q", "-D", "rule-exprs")
    rule = re.search(r"^rule: (\S+)  ->", p.stdout + p.stderr, re.MULTILINE)
    for name in ("bin/cloche", "libexec/cloche/cloched", "libexec/cloche/cloche-door", "libexec/cloche/cloche-supervisor"):
        assert re.fullmatch(rule[1], "/usr/" + name), (name, rule[1])
    assert not re.fullmatch(rule[1], "/usr/bin/python3")


@pytest.fixture
def loaded():
    support.need_root()
    if not IS_INSTALLED or not shutil.which("aa-enabled") or subprocess.run(["aa-enabled", "--quiet"]).returncode != 0:
        pytest.skip("needs: apparmor in the kernel, and the package installed")
    p = parse("-r")
    assert p.returncode == 0, p.stderr
    yield
    assert parse("-R").returncode == 0


def label_of(pid):
    return pathlib.Path(f"/proc/{pid}/attr/apparmor/current").read_text().strip()


def test_works_in_it(who, loaded):
    p = subprocess.Popen([*support.as_user(who), support.BIN, "run", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         env=support.environment(who), cwd="/")
    p.stdin.write("import time\nprint('here', flush=True)\ntime.sleep(5)\n")
    p.stdin.close()
    assert p.stdout.readline() == "here\n"
    labels = {label_of(pid) for pid in [p.pid, *support.descendants()] if os.path.exists(f"/proc/{pid}/exe")
              and os.path.basename(os.path.realpath(f"/proc/{pid}/exe")).startswith("cloche")}
    assert labels and all(label.startswith("cloche (unconfined)") for label in labels), labels
    assert p.wait(timeout=60) == 0
    p.stdout.close()
    report = subprocess.run([*support.as_user(who), support.BIN, "doctor", "--json"], env=support.environment(who), cwd="/",
                            capture_output=True, text=True, timeout=60)
    assert json.loads(report.stdout)["verdict"] in ("full", "weaker") and report.returncode in (0, 3), report


def test_reloaded_while_it_runs(loaded):
    """An upgrade of the package loads the profile again under a running server."""
    p = subprocess.Popen([support.BIN, "run", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         env=support.environment("root"), cwd="/")
    p.stdin.write("import time\nprint('here', flush=True)\ntime.sleep(1)\nprint('end')\n")
    p.stdin.close()
    assert p.stdout.readline() == "here\n"
    start = time.monotonic()
    assert parse("-r").returncode == 0
    assert p.stdout.read() == "end\n" and p.wait(timeout=60) == 0, time.monotonic() - start
    p.stdout.close()
