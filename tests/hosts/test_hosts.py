# SPDX-License-Identifier: Apache-2.0
"""Each hard host: a run works in full, or by weaker means that are named, or stops with the cause and the remedy.

The table in docs/hosts.md is what these tests saw.  CLOCHE_WRITE_HOSTS=1 writes it: with the rows of this machine, and for
hosts that only the guest of `make check-vm` is, with those that it left in build/vm/out (CLOCHE_HOSTS_ROWS, there).
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import attack_support as support
from hosts import HOSTS, IS_INSTALLED

TABLE = pathlib.Path(support.REPO) / "docs/hosts.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
IDS = [f"{h.name}-{w}" for h in HOSTS for w in h.callers]
PAIRS = [(h, w) for h in HOSTS for w in h.callers]
SOON = 2 if IS_INSTALLED else 1  # seconds until even an emulated host has started a script
rows = {}


@pytest.fixture(scope="module")
def place():
    """A folder that both callers reach, with what takes walls away."""
    support.need_binary()
    folder = tempfile.mkdtemp(prefix="cloche-hosts-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    support.compile_c(os.path.join(support.REPO, "tests/attack/deny.c"), os.path.join(folder, "deny"), "-D_GNU_SOURCE", "-std=gnu11")
    if not IS_INSTALLED:  # a build tree may lie where a caller or a host has nothing
        os.mkdir(os.path.join(folder, "bin"))
        for name in ("cloche", "cloche-supervisor", "_cloche.abi3.so"):
            shutil.copy(os.path.join(os.path.dirname(os.path.realpath(support.BIN)), name), os.path.join(folder, "bin", name))
            os.chmod(os.path.join(folder, "bin", name), 0o755)
    yield folder
    home = os.path.join(folder, "home-user")
    if os.path.exists(home):
        before = [*support.as_user("user"), "env", f"HOME={home}", f"XDG_RUNTIME_DIR={home}", "podman"]
        subprocess.run([*before, "unshare", "rm", "-rf", home + "/.local"], cwd="/", stderr=subprocess.DEVNULL)
        subprocess.run([*before, "system", "migrate"], cwd="/", stderr=subprocess.DEVNULL)  # ends what it left running
    shutil.rmtree(folder, ignore_errors=True)


def program(place):
    return support.BIN if IS_INSTALLED else os.path.join(place, "bin/cloche")


def call(host, who, place, *args, request=None):
    words = host.words(who, place)
    before = support.snapshot()
    p = subprocess.run([*words, program(place), *args], input=json.dumps(request) if request else "", cwd="/",
                       env=host.env(who), capture_output=True, text=True, timeout=120)
    support.assert_no_residue(before)
    assert p.stdout.startswith("{"), (p.returncode, p.stdout[-1000:], p.stderr[-2000:])
    return p.returncode, json.loads(p.stdout)


def trigger(host, who, place, script, **more):
    code, result = call(host, who, place, "trigger", request={"script_content": script, **more})
    assert code == 0
    support.assert_well_formed(result)
    return result


def bare(who, place):
    """What a plain run lacks on this machine; a hard host is told apart from it."""
    p = subprocess.run([*support.as_user(who), program(place), "doctor", "--json"], env=support.environment(who), capture_output=True,
                       text=True, timeout=60, cwd="/")
    return {w["name"]: w for w in json.loads(p.stdout)["protections"]}


def write_row(host, who, place, code, report):
    plain = bare(who, place)
    less = [w for w in report["protections"] if w["state"] != "full" and w["detail"] != plain[w["name"]]["detail"]]
    if code == 4:
        outcome, detail = "stops", report["message"]
    elif less:
        outcome = "weaker"
        detail = "; ".join(f"{w['name']}: {w['detail']}" for w in less)
    else:
        outcome, detail = "as without", ""
    rows[f"{host.name}-{who}"] = f"| {host.what} | {who} | {outcome} | {detail.replace('|', '/')} |\n"


@pytest.mark.parametrize("host, who", PAIRS, ids=IDS)
def test_host(host, who, place):
    if who == "root":
        support.need_root()
    code, report = call(host, who, place, "doctor", "--json")
    assert code in (0, 3, 4)
    for w in report["protections"]:
        assert w["state"] == "full" or (w["detail"] and (w["remedy"] or code == 4)), w
    r = trigger(host, who, place, "import os, sys\nprint('ran', os.getuid())\nsys.exit(3)")
    write_row(host, who, place, code, report)
    if code == 4:
        assert host.says and all(word in report["message"] for word in host.says), report["message"]
        assert all(word in r["message"] for word in host.says), r["message"]
        assert (r["status"], r["stdout"], r["return_code"]) == ("internal_error", "", -125)
        missing = [w for w in report["protections"] if w["state"] == "missing"]
        assert any(w["remedy"] for w in missing), report
        return
    assert not host.says, "it is said to stop here"
    assert (r["status"], r["stdout"], r["return_code"]) == ("error", "ran 1000\n", 3), r
    for w in report["protections"]:
        assert w["state"] == "full" or any(x.startswith(w["name"]) for x in r["warnings"]), (w, r["warnings"])
    check_limits(host, who, place)


def check_limits(host, who, place):
    """Nothing half-works: what the table calls working ends a run that goes too far."""
    r = trigger(host, who, place, "print('before', flush=True)\nimport time\ntime.sleep(60)", timeout=SOON)
    assert (r["status"], r["stdout"]) == ("timeout", "before\n"), r
    r = trigger(host, who, place, "x = []\nimport time\nfor i in range(400): x.append(bytearray(1 << 20)); time.sleep(0.002)",
                limits={"memory_bytes": 128 << 20})
    if any(w.startswith("memory: by RLIMIT_DATA") for w in r["warnings"]):  # it is Python then that ends the script
        assert r["status"] == "error" and "MemoryError" in r["stderr"], r
    else:
        assert r["status"] == "memory_limit", r
    r = trigger(host, who, place, "import os, time\nn = 0\ntry:\n  while n < 40:\n    if os.fork() == 0: time.sleep(5); os._exit(0)\n    n += 1\n"
                "except OSError: pass\nprint(n < 16)", limits={"processes": 16})
    assert (r["status"], r["stdout"]) == ("ok", "True\n"), r
    r = trigger(host, who, place, "import os\ntry:\n  open('/tmp/x', 'wb').write(bytes(32 << 20))\nexcept OSError as e: print(e.errno)",
                limits={"disk_bytes": 8 << 20})
    assert (r["status"], r["stdout"]) == ("ok", "28\n"), r


def test_table():
    """docs/hosts.md says what was seen here."""
    if os.environ.get("CLOCHE_HOSTS_ROWS"):
        pathlib.Path(os.environ["CLOCHE_HOSTS_ROWS"]).write_text(json.dumps(rows))
    if len(rows) < len(IDS) and os.environ.get("CLOCHE_WRITE_HOSTS") != "1":
        known = {f"{h.name}-{w}" for h, w in PAIRS if h.is_same}
        if not known <= set(rows) and not support.IS_ROOT:
            pytest.skip("needs: root, for all rows of the table")
        assert known <= set(rows), f"hosts that were not tried: {sorted(known - set(rows))}"
    head, rest = TABLE.read_text().split(BEGIN)
    table, tail = rest.split(END)
    if os.environ.get("CLOCHE_WRITE_HOSTS") == "1":
        guest = pathlib.Path(support.REPO) / "build/vm/out/hosts-rows.json"
        guest = json.loads(guest.read_text()) if guest.exists() else {}
        old = {tuple(line.split("|")[1:3]): line + "\n" for line in table.splitlines()[2:]}
        lines = [rows.get(f"{h.name}-{w}") or guest.get(f"{h.name}-{w}") or old.get((f" {h.what} ", f" {w} "))
                 or f"| {h.what} | {w} | ? | |\n" for h, w in PAIRS]
        TABLE.write_text(head + BEGIN + "| host | caller | runs | what is weaker, or why it stops |\n|---|---|---|---|\n" + "".join(lines)
                         + END + tail)
        return
    for host, who in PAIRS:
        row = rows.get(f"{host.name}-{who}")
        assert not host.is_same or row in table, f"docs/hosts.md has not: {row}"
