# SPDX-License-Identifier: Apache-2.0
"""The installed package under systemd: units for the system and for a user, sessions, scopes."""

import glob
import http.client
import json
import os
import pwd
import socket
import subprocess
import time

import pytest

import attack_support as support

CLOCHE = "/usr/bin/cloche"
OK = json.dumps({"script_content": "print('ran')"})
SLOW = json.dumps({"script_content": "import time\ntime.sleep(30)"})


@pytest.fixture(autouse=True, scope="module")
def booted():
    support.need_root()
    if not os.path.isdir("/run/systemd/system"):
        pytest.skip("needs: systemd")
    if not os.path.exists("/lib/systemd/system/cloche.socket") or not os.path.exists(CLOCHE):
        pytest.skip("needs: systemd with the package installed")


def run(*argv, timeout=90, **popen):
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, cwd="/", **popen)


def must(*argv, **popen):
    p = run(*argv, **popen)
    assert p.returncode == 0, (argv, p.returncode, p.stdout[-1500:], p.stderr[-1500:])
    return p.stdout


def wait_for(claim, seconds=30):
    end = time.monotonic() + seconds
    while not claim() and time.monotonic() < end:
        time.sleep(0.1)
    return claim()


def group_of(unit, *words):
    return "/sys/fs/cgroup" + must(*words, "systemctl", *(["--user"] if words else []), "show", "-P", "ControlGroup", unit).strip()


@pytest.fixture(scope="module")
def user():
    """An ordinary user with a manager of his own: the words that make a command his, as in his login."""
    account = support.ensure_user()
    must("loginctl", "enable-linger", support.USER)
    run_dir = f"/run/user/{account.pw_uid}"
    assert wait_for(lambda: os.path.exists(run_dir + "/bus"))
    yield ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups", "--", "env", "-i", "PATH=/usr/bin:/bin",
           f"HOME={account.pw_dir}", f"XDG_RUNTIME_DIR={run_dir}", f"DBUS_SESSION_BUS_ADDRESS=unix:path={run_dir}/bus"]
    run("loginctl", "disable-linger", support.USER)


@pytest.fixture
def server():
    must("systemctl", "start", "cloche.socket")
    yield
    run("systemctl", "stop", "cloche.socket", "cloche.service")
    run("systemctl", "reset-failed", "cloche.service", "cloche.socket")
    assert not os.path.exists("/run/cloche/cloche.sock")
    assert not glob.glob("/sys/fs/cgroup/system.slice/**/cloche-*", recursive=True)


def remote(*words, request=OK):
    """A run at a server, and nowhere else."""
    return json.loads(must(*words, CLOCHE, "trigger", "--server", "/run/cloche/cloche.sock", input=request))


def test_doctor_under_the_unit():
    """Everything in full under the unit's hardening."""
    out = "/run/cloche-doctor.json"
    unit = open("/lib/systemd/system/cloche.service").read().replace("Type=notify", "Type=oneshot")
    unit = unit.replace("ExecStart=/usr/bin/cloche serve", f"ExecStart=/usr/bin/cloche doctor --json\nStandardOutput=truncate:{out}")
    unit = unit.replace("Requires=cloche.socket\n", "").replace("After=cloche.socket\n", "")
    path = "/run/systemd/system/cloche-doctor.service"
    with open(path, "w") as f:
        f.write(unit)
    try:
        must("systemctl", "daemon-reload")
        p = run("systemctl", "start", "cloche-doctor.service")
        report = json.loads(open(out).read())
        less = [w for w in report["protections"] if w["state"] != "full"]
        assert p.returncode == 0 and not less and report["verdict"] == "full", (report, p.stderr)
    finally:
        os.unlink(path)
        run("systemctl", "daemon-reload")


def test_units_are_in_order(user):
    must("systemd-analyze", "verify", "--man=no", "/lib/systemd/system/cloche.service", "/lib/systemd/system/cloche.socket")
    must(*user, "systemd-analyze", "verify", "--man=no", "--user", "/usr/lib/systemd/user/cloche.service", "/usr/lib/systemd/user/cloche.socket")


def test_socket_activation(server):
    assert must("systemctl", "is-active", "cloche.socket").strip() == "active"
    assert run("systemctl", "is-active", "cloche.service").stdout.strip() == "inactive"
    r = remote()
    assert (r["status"], r["stdout"], r["warnings"]) == ("ok", "ran\n", []), r
    assert must("systemctl", "is-active", "cloche.service").strip() == "active"


def test_who_may(server, user):
    """Root and the group; nobody else."""
    p = run(*user, CLOCHE, "trigger", "--server", "/run/cloche/cloche.sock", input=OK)
    assert '"status": "ok"' not in p.stdout and (p.returncode != 0 or "internal_error" in p.stdout), p
    p = json.loads(must(*user, CLOCHE, "trigger", input=OK))  # by itself, then
    assert p["status"] == "ok"
    must("usermod", "-a", "-G", "cloche", support.USER)
    try:
        assert remote(*user)["status"] == "ok"
    finally:
        must("gpasswd", "-d", support.USER, "cloche")


def slot_of(base):
    return wait_for(lambda: [s for s in glob.glob(base + "/cloche-*/s*") if open(s + "/cgroup.procs").read()])


def test_runs_are_below_the_unit(server):
    remote()
    base = group_of("cloche.service")
    p = subprocess.Popen([CLOCHE, "trigger", "--server", "/run/cloche/cloche.sock"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/")
    p.stdin.write(SLOW.encode())
    p.stdin.close()
    try:
        assert slot_of(base), must("systemd-cgls", "--no-pager", "/system.slice")
        assert open(base + "/cgroup.procs").read() == ""
    finally:
        p.kill()
        p.wait()


def test_limit_of_the_unit(server):
    """MemoryMax= of the unit holds for all runs; a run that it ends is that run's verdict, and the server stays."""
    remote()
    pid = must("systemctl", "show", "-P", "MainPID", "cloche.service")
    must("systemctl", "set-property", "--runtime", "cloche.service", "MemoryMax=150M")
    try:
        r = remote(request=json.dumps({"script_content": "x = [bytearray(1 << 20) for i in range(400)]"}))
        assert r["status"] == "memory_limit", r
        assert remote()["status"] == "ok"
        assert must("systemctl", "show", "-P", "MainPID", "cloche.service") == pid
    finally:
        must("systemctl", "set-property", "--runtime", "cloche.service", "MemoryMax=")


def test_reload(server):
    """A new supervisor beside the old one, in the same unit; limits go on by control group."""
    for _ in range(3):
        remote()
        must("systemctl", "reload", "cloche.service")
        time.sleep(1)
        r = remote()
        assert (r["status"], r["warnings"]) == ("ok", []), r
    base = group_of("cloche.service")
    assert wait_for(lambda: len(glob.glob(base + "/cloche-*")) == 1), must("systemd-cgls", "--no-pager", "/system.slice")


class Http(http.client.HTTPConnection):
    """To the server's Unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect("/run/cloche/http.sock")


def test_http_and_history(server):
    """The unit's hardening leaves the door its socket and the server its database; neither has rights."""
    path = "/etc/cloche/cloche.ini"
    os.makedirs("/etc/cloche", exist_ok=True)
    assert not os.path.exists(path)
    with open(path, "w") as f:
        f.write("[http]\nsocket = /run/cloche/http.sock\n")
    try:
        remote()
        assert wait_for(lambda: os.path.exists("/run/cloche/http.sock"))
        c = Http("localhost", timeout=60)
        c.request("POST", "/v1/runs", OK, {"Content-Type": "application/json"})
        r = json.loads(c.getresponse().read())
        c.close()
        assert (r["status"], r["stdout"], r["warnings"]) == ("ok", "ran\n", []), r
        assert wait_for(lambda: r["run_id"] in must(CLOCHE, "history", "--json"))
        assert os.stat("/var/lib/cloche/history.db").st_uid == pwd.getpwnam("cloche").pw_uid
        for pid in must("pgrep", "-u", "cloche").split():
            with open(f"/proc/{pid}/status") as f:
                assert "CapEff:\t0000000000000000" in f.read()
    finally:
        os.unlink(path)


def parent_of(pid):
    """Its name"""
    with open(f"/proc/{pid}/status") as f:
        parent = dict(line.split(":\t") for line in f.read().splitlines() if line.startswith("PPid:"))["PPid"]
    with open(f"/proc/{parent}/comm") as f:
        return f.read().strip()


def test_supervisor_killed(server):
    """The next one takes the place of a killed one, and sweeps what it left."""
    remote()
    base = group_of("cloche.service")
    supervisors = [pid for pid in must("pgrep", "cloche-supervis").split() if parent_of(pid) in ("cloched", "cloche-launcher")]
    assert supervisors
    for pid in supervisors:
        os.kill(int(pid), 9)
    def is_back():
        p = run(CLOCHE, "trigger", "--server", "/run/cloche/cloche.sock", input=OK)
        r = json.loads(p.stdout) if p.stdout.startswith("{") else {}
        return r.get("status") == "ok" and r["warnings"] == []
    assert wait_for(is_back)
    assert wait_for(lambda: len(glob.glob(base + "/cloche-*")) == 1), must("systemd-cgls", "--no-pager", "/system.slice")


def test_stop_while_running(server):
    remote()
    p = subprocess.Popen([CLOCHE, "trigger", "--server", "/run/cloche/cloche.sock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
    p.stdin.write(SLOW)
    p.stdin.close()
    assert slot_of(group_of("cloche.service"))
    must("systemctl", "stop", "cloche.socket", "cloche.service")
    p.stdout.read()
    p.wait(timeout=30)
    left = [line for line in run("ps", "-e", "-o", "stat=,args=").stdout.splitlines() if "cloche" in line and line[0] != "Z"
            and "pytest" not in line]
    assert not left, left


def detail(text, name="memory"):
    return {w["name"]: w for w in json.loads(text)["protections"]}[name]


def test_user_unit(user):
    must(*user, "systemctl", "--user", "start", "cloche.socket")
    try:
        r = json.loads(must(*user, CLOCHE, "trigger", input=OK))
        assert r["status"] == "ok" and not [w for w in r["warnings"] if not w.startswith("own-uid")], r
        assert must(*user, "systemctl", "--user", "is-active", "cloche.service").strip() == "active"
        base = group_of("cloche.service", *user)
        assert len(glob.glob(base + "/cloche-*/sup")) == 1, base
    finally:
        run(*user, "systemctl", "--user", "stop", "cloche.socket", "cloche.service")


def test_user_scope(user):
    """The line that doctor prints as the remedy is one."""
    w = detail(run(*user, "systemd-run", "-q", "--user", "--scope", "-p", "Delegate=yes", CLOCHE, "doctor", "--json").stdout)
    assert "control group (v2)" in w["detail"], w


def test_login_shell(user):
    """A session's scope can't make groups: sampling, and the remedy to type."""
    p = run("su", "-l", support.USER, "-c", CLOCHE + " doctor --json")
    w = detail(p.stdout)
    assert w["state"] == "weak" and "sampling" in w["detail"], w
    assert "systemd-run --user --scope -p Delegate=yes" in w["remedy"], w


def test_root_in_a_service():
    w = detail(must("systemd-run", "-q", "--pipe", "--wait", "-p", "Delegate=yes", CLOCHE, "doctor", "--json"))
    assert "control group (v2)" in w["detail"], w


def test_user_is_real(user):
    assert must(*user, "id", "-u").strip() == str(pwd.getpwnam(support.USER).pw_uid) != "0"
