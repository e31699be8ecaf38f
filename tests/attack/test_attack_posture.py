# SPDX-License-Identifier: Apache-2.0
"""What a process inside is and can reach, held against golden/posture.json.

The parts that are the same on every machine are compared word by word.  After a wanted change:
    CLOCHE_UPDATE_GOLDEN=1 python3 -m pytest tests/attack/test_attack_posture.py
and read the difference before it is committed.
"""

import json
import os

import pytest

from attack_support import HERE, need_binary, trigger

GOLDEN = os.path.join(HERE, "golden", "posture.json")
# Of /etc and /usr, what is there depends on the packages of the host; these are looked at by rule instead.
DEVICES = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
OURS = {"/", "/tmp", "/dev/shm", "/proc"}
# There only when the host has them.
OPTIONAL = {"/lib32", "/libx32", "/etc/alternatives", "/etc/fonts", "/etc/matplotlibrc", "/etc/mime.types",
            "/etc/protocols", "/etc/services", "/etc/localtime"}
COVERED = "/matplotlib/backends/backend_template.py"  # a file of ours over one of the host's, where it has matplotlib
SET_BY_US = {"RLIMIT_CORE", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE", "RLIMIT_RTPRIO",
    "RLIMIT_NICE",
             "RLIMIT_SIGPENDING"}  # the rest is the caller's
BY_RULE = ("namespaces", "status", "mounts", "raw_limits", "processes", "personality", "domain")


@pytest.fixture(scope="module")
def postures():
    """One run for each caller and door, kept."""
    return {}


@pytest.fixture
def posture(who, door, postures):
    need_binary()
    key = (who, door)
    if key not in postures:
        with open(os.path.join(HERE, "posture.py")) as f:
            text = f.read()
        result = trigger({"script_content": text, "script_name": "posture.py", "timeout": 60}, who)
        assert result["status"] == "ok" and result["stderr"] == "", result
        assert result["mode"] == ("cold" if door == "local" else "warm"), result["warnings"]
        postures[key] = json.loads(result["stdout"])
    return postures[key]


def stable(p):
    out = {k: v for k, v in p.items() if k not in BY_RULE}
    # The kind of file system below /usr and /dev is the host's affair, and so is noexec on its nodes.
    out["mounts"] = [[m["point"], m["type"] if m["point"] in OURS else "", sorted({"ro", "rw", "nosuid"} & set(m["options"]))]
                     for m in p["mounts"] if m["point"] not in OPTIONAL and not m["point"].endswith(COVERED)]
    out["list"] = {d: [n for n in names if os.path.join(d, n) not in OPTIONAL] if isinstance(names, list) else names
                   for d, names in p["list"].items()}
    out["limits"] = {k: v for k, v in p["limits"].items() if k in SET_BY_US}
    out["nice"] = p["nice"] - os.nice(0)  # as our caller has it, no more and no less
    out["cgroup"] = sorted({line.split(":")[-1] for line in p["cgroup"] if line})
    return out


def test_golden(posture):
    """The same for root and for an ordinary user: one golden file."""
    got = json.loads(json.dumps(stable(posture)))
    if os.environ.get("CLOCHE_UPDATE_GOLDEN") == "1":
        with open(GOLDEN, "w") as f:
            json.dump(got, f, indent=1, sort_keys=True)
            f.write("\n")
    with open(GOLDEN) as f:
        golden = json.load(f)
    for key in sorted(set(golden) | set(got)):
        assert got.get(key) == golden.get(key), key


def test_nobody(posture):
    s = posture["status"]
    assert s["Uid"] == ["1000"] * 4 and s["Gid"] == ["1000"] * 4
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(s[name], 16) == 0, name
    assert posture["capabilities_by_prctl"] == []
    assert s["NoNewPrivs"] == "1" and s["Seccomp"] == "2" and int(s["Seccomp_filters"]) >= 3
    assert s["TracerPid"] == "0" and s["Threads"] == "1" and int(s["SigBlk"], 16) == 0
    assert s["Umask"] == "0022"
    assert posture["personality"] == 0 and posture["dumpable"] == 1


def test_groups(who, posture):
    """Root leaves all groups; an ordinary user can't, and the caller here has none."""
    assert set(posture["status"]["Groups"]) <= {"1000", "65534"}
    if who == "root":
        assert posture["status"]["Groups"] in ([], ["1000"])


def test_namespaces_are_own(posture):
    for name, inode in posture["namespaces"].items():
        if name in ("time", "time_for_children"):
            continue  # no clock is changed, so none is made
        assert inode != os.readlink("/proc/self/ns/" + name), name
    assert {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} <= set(posture["namespaces"])


def test_only_pipes(posture):
    assert posture["descriptors"] == {"0": "pipe", "1": "pipe", "2": "pipe"}


def test_limits(posture):
    rows = {n: (soft, hard) for n, soft, hard in posture["raw_limits"]}
    assert len(rows) == 16
    assert rows[4] == (1, 1), "RLIMIT_CORE 0 would still start a crash handler that is a pipe"
    assert rows[13] == (0, 0) and rows[14] == (0, 0), "no nice value below 0, no real-time priority"
    assert rows[7] == (256, 256)
    assert 0 < rows[6][1] <= 4096


def test_mounts_are_tight(posture):
    """Each mount is nosuid and nodev but for device nodes, which are bound one by one; what is the host's is read-only."""
    for m in posture["mounts"]:
        assert "nosuid" in m["options"], m
        if m["point"] not in DEVICES:
            assert "nodev" in m["options"], m
        if m["point"] not in DEVICES | {"/tmp", "/dev/shm", "/proc"}:
            assert "ro" in m["options"], m
        for word in ("/home", "/root", "/var", "/run", "cloche"):
            assert word not in m["source"], m


def test_writable_is_little(posture):
    assert set(posture["writable"]) <= {"/tmp/", "/dev/shm/", "/dev/null", "/dev/zero", "/dev/full", "/dev/random",
        "/dev/urandom"}


def test_alone(posture):
    """No process but init, which hidepid hides too."""
    assert set(posture["processes"]) <= {"1"}
    assert posture["is_session_leader"] and posture["tty"] in ("No such file or directory", "No such device or address")


def test_no_group_path(posture):
    assert {line.split(":")[-1] for line in posture["cgroup"] if line} == {"/"}


def test_nothing_of_the_host(posture):
    for folder in ("home", "root", "var", "run", "boot", "mnt", "media", "srv", "opt", "sbin.d"):
        assert folder not in posture["list"]["/"]
    assert posture["list"]["/proc/sys"] == "No such file or directory"
    assert posture["hostname"] != os.uname().nodename
