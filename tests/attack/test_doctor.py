# SPDX-License-Identifier: Apache-2.0
"""cloche doctor notices each wall that is taken away: deny.c does that from outside, as some hosts do."""

import json
import os
import subprocess

import pytest

from attack_support import BIN, HERE, as_user, assert_no_residue, compile_c, environment, need_binary, need_root, snapshot, trigger

pytestmark = pytest.mark.by_itself

NAMES = ["user", "own-uid", "pid", "mount", "network", "ipc", "uts", "cgroup-ns", "proc", "capabilities",
    "no_new_privs", "seccomp",
         "landlock", "memory", "processes", "cpu", "disk"]
ALWAYS_NEEDED = {"user", "mount", "pid", "seccomp", "no_new_privs"}

# (line, what is taken away, states that are right then, exit statuses, callers)
BOTH = ("root", "user")
TAKEN = [
    ("user", ["sysctl:max_user_namespaces=0"], {"missing"}, {4}, BOTH),
    ("user", ["chroot"], {"missing"}, {4}, BOTH),
    ("own-uid", ["one-uid"], {"weak"}, {3}, ("root",)),
    ("pid", ["sysctl:max_pid_namespaces=0"], {"missing"}, {4}, BOTH),
    ("mount", ["sysctl:max_mnt_namespaces=0"], {"missing"}, {4}, BOTH),
    ("mount", ["syscall:pivot_root=EPERM"], {"missing"}, {4}, BOTH),
    ("mount", ["syscall:open_tree=ENOSYS"], {"missing", "weak"}, {3, 4}, BOTH),
    ("network", ["sysctl:max_net_namespaces=0"], {"missing"}, {3, 4}, BOTH),
    ("ipc", ["sysctl:max_ipc_namespaces=0"], {"missing"}, {3, 4}, BOTH),
    ("uts", ["sysctl:max_uts_namespaces=0"], {"missing"}, {3, 4}, BOTH),
    ("cgroup-ns", ["sysctl:max_cgroup_namespaces=0"], {"missing", "weak"}, {3, 4}, BOTH),
    ("proc", ["proc-masked"], {"missing", "weak"}, {3}, BOTH),
    ("capabilities", ["syscall:capset=EPERM"], {"missing"}, {4}, BOTH),
    ("capabilities", ["syscall:prctl:24=EPERM"], {"missing", "weak"}, {3, 4}, BOTH),
    ("no_new_privs", ["syscall:prctl:38=EPERM"], {"missing"}, {4}, BOTH),
    ("seccomp", ["syscall:seccomp=EPERM", "syscall:prctl:22=EPERM"], {"missing"}, {4}, BOTH),
    ("landlock", ["syscall:landlock_create_ruleset=ENOSYS"], {"missing"}, {3, 4}, BOTH),
    ("landlock", ["syscall:landlock_restrict_self=EPERM"], {"missing"}, {3, 4}, BOTH),
    ("memory", ["no-sys"], {"weak"}, {3}, ("root",)),
    ("memory", ["sys-ro"], {"weak"}, {3}, ("root",)),
    ("cpu", ["no-sys"], {"weak"}, {3}, ("root",)),
    ("processes", ["no-sys", "syscall:prlimit64=EPERM"], {"missing"}, {4}, ("root",)),
    ("disk", ["syscall:fsopen=EPERM", "syscall:mount=EPERM"], {"missing"}, {4}, BOTH),
]
IDS = ["%s-%s-%s" % (name, "+".join(r.split("=")[0].split(":")[-1] for r in rules), w) for name, rules, _, _,
    who in TAKEN for w in who]


@pytest.fixture(scope="module")
def deny():
    """The helper, where an ordinary user can run it."""
    out = "/var/tmp/cloche-deny-%d" % os.getpid()
    yield compile_c(os.path.join(HERE, "deny.c"), out, "-D_GNU_SOURCE", "-std=gnu11")
    os.unlink(out)


def doctor(who, before=(), options=()):
    need_binary()
    known = snapshot()
    p = subprocess.run([*as_user(who), *before, BIN, "doctor", "--json", *options], env=environment(who),
        capture_output=True, text=True,
                       timeout=60, cwd="/")
    assert p.returncode != 125, p.stderr
    assert_no_residue(known)
    report = json.loads(p.stdout)
    return p.returncode, {w["name"]: w for w in report["protections"]}, report


def test_all_lines(who):
    """Every protection has its line, each with a state and, when it is not in full force, a remedy."""
    status, walls, report = doctor(who)
    assert sorted(walls) == sorted(NAMES)
    for w in walls.values():
        assert w["state"] in ("full", "weak", "missing") and w["what"] and w["detail"], w
        assert w["state"] == "full" or w["remedy"], w
    is_full = all(w["state"] == "full" for w in walls.values())
    assert status == (0 if is_full else 3)
    assert report["verdict"] == ("full" if is_full else "weaker") and report["message"] == ""
    if who == "user":
        assert walls["own-uid"]["state"] == "weak"


def test_root_holds_in_full():
    """On this host root gets every wall in full, or the rest of this suite proves less than it says."""
    need_root()
    status, walls, _ = doctor("root")
    less = [(w["name"], w["state"], w["detail"]) for w in walls.values() if w["state"] != "full"]
    if less and {n for n, _, _ in less} <= {"memory", "processes", "cpu"}:
        pytest.skip("needs: control groups; here: %s" % less)
    assert status == 0 and not less, less


@pytest.mark.parametrize("name, rules, states, statuses, caller", [(*row[:4], w) for row in TAKEN for w in row[4]],
    ids=IDS)
def test_taken_away(deny, name, rules, states, statuses, caller):
    need_binary()
    if caller == "root" or "chroot" in rules:
        need_root()
    before = [deny, *rules, "--"]
    status, walls, report = doctor(caller, before)
    assert status in statuses, report
    assert walls[name]["state"] in states, walls[name]
    assert walls[name]["detail"], walls[name]
    # Nothing takes disk quotas alone away: there, what is told is the mount that failed.
    assert walls[name]["remedy"] or name == "disk", walls[name]
    assert (report["message"] != "") == (status == 4), report


@pytest.mark.parametrize("name, rule", [("landlock", "syscall:landlock_create_ruleset=ENOSYS"), ("cgroup-ns",
    "sysctl:max_cgroup_namespaces=0"),
                                        ("user", "sysctl:max_user_namespaces=0")])
def test_runs_are_refused(deny, who, name, rule):
    """A wall that can't be had refuses the run by name, or it ran with a word in `warnings`; silence is never an answer."""
    need_binary()
    known = snapshot()
    p = subprocess.run([*as_user(who), deny, rule, "--", BIN, "trigger"],
        input=json.dumps({"script_content": "print('ran')"}),
                       env=environment(who), capture_output=True, text=True, timeout=60, cwd="/")
    assert_no_residue(known)
    result = json.loads(p.stdout)
    if result["status"] == "ok":
        assert name not in ALWAYS_NEEDED
        assert any(name in w for w in result["warnings"]), result
    else:
        assert (result["status"], result["return_code"], result["stdout"]) == ("internal_error", -125, "")
        assert name in result["message"], result


def test_missing_is_accepted_knowingly(deny, who):
    need_binary()
    p = subprocess.run([*as_user(who), deny, "syscall:landlock_create_ruleset=ENOSYS", "--", BIN, "trigger",
        "--allow-missing", "landlock"],
                       input=json.dumps({"script_content": "print('ran')"}), env=environment(who),
                           capture_output=True, text=True,
                       timeout=60, cwd="/")
    result = json.loads(p.stdout)
    assert (result["status"], result["stdout"]) == ("ok", "ran\n"), result
    assert any("landlock" in w for w in result["warnings"]), result


@pytest.mark.parametrize("name", sorted(ALWAYS_NEEDED))
def test_never_accepted(who, name):
    """The walls that can't be done without can't be waived."""
    need_binary()
    p = subprocess.run([*as_user(who), BIN, "trigger", "--allow-missing", name],
        input=json.dumps({"script_content": "print('ran')"}),
                       env=environment(who), capture_output=True, text=True, timeout=60, cwd="/")
    assert p.returncode in (2, 125) or json.loads(p.stdout)["status"] == "internal_error", p
    assert "ran\\n" not in p.stdout


def test_masked_proc_is_told(deny, who):
    """Without a fresh /proc (in some containers) scripts run, and every result says what is weaker."""
    need_binary()
    p = subprocess.run([*as_user(who), deny, "proc-masked", "--", BIN, "trigger"],
        input=json.dumps({"script_content": "print('ran')"}),
                       env=environment(who), capture_output=True, text=True, timeout=60, cwd="/")
    result = json.loads(p.stdout)
    assert (result["status"], result["stdout"]) == ("ok", "ran\n"), result
    assert any("proc" in w for w in result["warnings"]), result


def test_require(who):
    """--require refuses what is not there in full."""
    need_binary()
    result = trigger({"script_content": "print(1)"}, who, options=["--require", "seccomp,user"])
    assert result["status"] == "ok", result
    if who == "user":
        result = trigger({"script_content": "print(1)"}, who, options=["--require", "own-uid"])
        assert result["status"] == "internal_error" and "own-uid" in result["message"], result
