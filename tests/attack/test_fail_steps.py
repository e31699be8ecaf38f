# SPDX-License-Identifier: Apache-2.0
"""Each step of the set-up and of the lock-down is failed on purpose: the fault is told by name, and nothing is left.

Needs a build with -Dfail_steps=true: CLOCHE_BIN_FAIL names its program (default: <repository>/build-fail/cloche).
"""

import glob
import json
import os
import re
import subprocess

import pytest

from attack_support import BIN, REPO, as_user, assert_no_residue, environment, need_binary, snapshot

pytestmark = pytest.mark.by_itself

FAIL = os.environ.get("CLOCHE_BIN_FAIL", os.path.join(REPO, "build-fail", "cloche"))


# What an ordinary user's runs do not do: without control groups none is opened.
NOT_TAKEN = {"user": {"cgroup-open"}, "root": set()}
# Steps of the outside are told in words.
WORDS = {"clone": "user namespaces", "network": "network namespace", "sandbox": "sandbox's namespaces", "spawn": "start a process"}


def step_names():
    """Every name in the source: a new step is covered by itself."""
    names = set()
    for path in glob.glob(os.path.join(REPO, "src", "*", "*.c")):
        with open(path) as f:
            text = f.read()
        names.update(re.findall(r'step_is_failed_on_purpose\("([^"]+)"\)', text))
        if "step_is_failed_on_purpose(steps[" in text:
            table = text[text.index("steps[] = {"):]
            names.update(re.findall(r'\{ "([^"]+)",', table[:table.index("};")]))
    return sorted(names)


def run_failing(step, who, request):
    if not os.access(FAIL, os.X_OK):
        pytest.skip("no program that can fail on purpose at %s" % FAIL)
    before = snapshot()
    descriptors = len(os.listdir("/proc/self/fd"))
    p = subprocess.run([*as_user(who), FAIL, "trigger"], input=json.dumps(request), capture_output=True, text=True,
        timeout=60, cwd="/",
                       env=environment(who, **({"CLOCHE_FAIL_STEP": step} if step else {})))
    assert_no_residue(before)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    return p


def test_steps_are_known():
    assert len(step_names()) >= 25, step_names()


@pytest.mark.parametrize("step", step_names())
def test_each_step(who, step):
    request = {"script_content": "open('/tmp/a', 'w').write('x'); print('the script ran')", "files": {"data": "x"},
        "artifacts": ["a"],
               "timeout": 10}
    p = run_failing(step, who, request)
    result = json.loads(p.stdout)
    if step in ("collect", "artifacts") and result["status"] == "ok":
        assert not result["artifacts"] and result["warnings"], result
        return
    if step in NOT_TAKEN[who] and result["status"] == "ok":
        return
    assert (p.returncode, result["status"], result["return_code"]) == (0, "internal_error", -125), result
    assert "the script ran" not in result["stdout"]
    assert step in result["message"] or WORDS.get(step, step) in result["message"], "%r does not name the step %s" % (result["message"], step)


@pytest.mark.parametrize("step", step_names())
def test_doctor_tells(who, step):
    """With a step that fails, doctor ends soon, says that nothing can run, and still has a line for each protection."""
    if not os.access(FAIL, os.X_OK):
        pytest.skip("no program that can fail on purpose at %s" % FAIL)
    before = snapshot()
    p = subprocess.run([*as_user(who), FAIL, "doctor", "--json"], capture_output=True, text=True, timeout=30, cwd="/",
                       stdin=subprocess.DEVNULL, env=environment(who, CLOCHE_FAIL_STEP=step))
    assert_no_residue(before)
    report = json.loads(p.stdout)
    if step in ("exec", "files") or step in NOT_TAKEN[who]:
        assert p.returncode in (0, 3, 4), report  # not on doctor's way
        return
    assert (p.returncode, report["verdict"]) == (4, "none"), report
    assert step in report["message"] or WORDS.get(step, step) in report["message"], report["message"]
    assert len(report["protections"]) == 17, report


@pytest.mark.parametrize("step", ["namespaces", "filters"])
def test_exit_status_of_run(who, step, folder):
    """`cloche run` says 125 and gives the reason on standard error."""
    if not os.access(FAIL, os.X_OK):
        pytest.skip("no program that can fail on purpose at %s" % FAIL)
    path = os.path.join(folder, "s.py")
    with open(path, "w") as f:
        f.write("print('the script ran')")
    os.chmod(path, 0o644)
    p = subprocess.run([*as_user(who), FAIL, "run", path], capture_output=True, text=True, timeout=60,
                       env=environment(who, CLOCHE_FAIL_STEP=step))
    assert p.returncode == 125 and "ran" not in p.stdout and step in p.stderr, p


def test_without_a_step(who):
    """The same program, asked to fail nothing, works."""
    result = json.loads(run_failing(None, who, {"script_content": "print('the script ran')"}).stdout)
    assert (result["status"], result["stdout"]) == ("ok", "the script ran\n"), result


def test_the_product_can_not_fail_on_purpose():
    """The switch is compiled into test builds only."""
    need_binary()
    with open(os.path.join(os.path.dirname(BIN), "cloche-supervisor"), "rb") as f:
        assert b"CLOCHE_FAIL_STEP" not in f.read()
    p = subprocess.run([BIN, "trigger"], input=json.dumps({"script_content": "print(1)"}), capture_output=True,
        text=True, timeout=60,
                       env=environment("root" if os.geteuid() == 0 else "user", CLOCHE_FAIL_STEP="filters"))
    assert json.loads(p.stdout)["status"] == "ok"
