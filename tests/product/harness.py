# SPDX-License-Identifier: Apache-2.0
"""What the whole-product tests share: callers (root, an ordinary user), requests, results, and looking for residue."""
import base64
import ctypes
import json
import math
import os
import pathlib
import platform
import re
import signal
import struct
import subprocess
import time
import uuid

REPO = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("CLOCHE_SHARED") or REPO.parent / "shared")
MUST_WORK = os.environ.get("CLOCHE_MUST_WORK") == "1"
SYSTEM_PYTHON = "/usr/bin/python3"

for _number in signal.SIGHUP, signal.SIGINT, signal.SIGQUIT:  # a shell's background ignores them, and cloche goes by that
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

STATUSES = {"ok", "error", "signaled", "timeout", "cpu_limit", "memory_limit", "output_limit", "cancelled", "rejected",
            "internal_error"}
STOPPED_BY_US = {"timeout", "cpu_limit", "memory_limit", "output_limit", "cancelled"}
# Of a script whose first argument is a mark: Residue.asleep() sees it
BECOME_SLEEP = "import os, sys\nos.execv('/bin/sleep', ['sleep-' + sys.argv[1], '300'])\n"


def strict_json(text):
    """One JSON value; duplicate keys and NaN are no JSON."""
    def pairs(items):
        keys = [k for k, _ in items]
        assert len(keys) == len(set(keys)), f"duplicate keys in {keys}"
        return dict(items)

    def constant(name):
        raise AssertionError(f"{name} is not JSON")

    if isinstance(text, bytes):
        text = text.decode("utf-8")  # strict: the product promises valid UTF-8
    value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    text.encode("utf-8")
    return value


class Result:
    """A result object that has been held against the contract's section 2 when it was made."""

    def __init__(self, obj):
        self.obj = obj
        check_result(obj)

    def __getattr__(self, name):
        try:
            return self.obj[name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self):
        short = {k: (v[:300] + "..." if isinstance(v, str) and len(v) > 300 else v) for k, v in self.obj.items()}
        short["artifacts"] = [{k: v for k, v in a.items() if k != "base64"} for a in self.obj["artifacts"]]
        return f"Result({short})"

    @property
    def verdict(self):
        return self.status, self.return_code

    @property
    def lines(self):
        return self.stdout.splitlines()

    @property
    def is_sampled(self):
        return any("sampl" in w for w in self.warnings)

    def artifact(self, name):
        found = [a for a in self.artifacts if a["name"] == name]
        assert len(found) == 1, (name, self)
        return found[0]

    def artifact_bytes(self, name):
        return base64.b64decode(self.artifact(name)["base64"], validate=True)


def _is_int(v):
    return isinstance(v, int) and not isinstance(v, bool)


def _is_seconds(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) and v >= 0


def check_result(r):
    """Every result of every test passes here: names, types and what must agree with what."""
    for name in ("stdout", "stderr", "message", "script_name", "run_id", "mode", "status"):
        assert isinstance(r[name], str), (name, r[name])
    for name in ("execution_time", "cpu_time", "queue_time"):
        assert _is_seconds(r[name]), (name, r[name])
    assert isinstance(r["execution_time"], float), "execution_time is written as a float"
    for name in ("stdout_bytes", "stderr_bytes"):
        assert _is_int(r[name]) and r[name] >= 0, (name, r[name])
    for name in ("stdout_truncated", "stderr_truncated", "stdout_encoding_errors", "stderr_encoding_errors"):
        assert isinstance(r[name], bool), (name, r[name])
    assert _is_int(r["return_code"])
    assert r["peak_memory_bytes"] is None or _is_int(r["peak_memory_bytes"])
    assert r["denials"] is None or isinstance(r["denials"], list)
    assert isinstance(r["warnings"], list) and all(isinstance(w, str) and w for w in r["warnings"])
    assert r["status"] in STATUSES
    assert r["mode"] in ("cold", "warm")
    assert re.fullmatch(r"[0-9a-f]{32}", r["run_id"]), r["run_id"]
    _check_verdict(r)
    for a in r["artifacts"]:
        _check_artifact(a)


def _check_verdict(r):
    status, code, sig = r["status"], r["return_code"], r["signal"]
    assert (r["message"] == "") == (status == "ok"), (status, r["message"])
    assert sig is None or re.fullmatch(r"SIG[A-Z0-9+]+", sig), sig
    if status == "ok":
        assert (code, sig) == (0, None)
    elif status == "error":
        assert 1 <= code <= 255 and sig is None, (code, sig)
    elif status == "signaled":
        assert -64 <= code <= -1 and sig is not None, (code, sig)
    elif status in STOPPED_BY_US:
        assert code == -9, code
    else:
        assert code == -125 and sig is None, (code, sig)


def _check_artifact(a):
    assert isinstance(a["name"], str) and a["name"]
    assert _is_int(a["size"]) and a["size"] >= 0
    if a.get("left_out"):
        assert isinstance(a["left_out"], str)
        return
    assert len(base64.b64decode(a["base64"], validate=True)) == a["size"]
    assert re.fullmatch(r"[a-z]+/[A-Za-z0-9.+-]+.*", a["media_type"]), a["media_type"]


_LIBC = ctypes.CDLL(None, use_errno=True)
_MAKES_PROCESSES = {"x86_64": (56, 57, 58, 435), "aarch64": (220, 435)}[platform.machine()]


def forbid_processes():
    """Between fork and exec: fork, vfork, clone and clone3 are EPERM from here on, by a system call filter."""
    deny, allow = 0x00050001, 0x7fff0000
    program = [struct.pack("HBBI", 0x20, 0, 0, 0)]
    program += [struct.pack("HBBI", 0x15, len(_MAKES_PROCESSES) - i, 0, n) for i, n in enumerate(_MAKES_PROCESSES)]
    program += [struct.pack("HBBI", 0x06, 0, 0, allow), struct.pack("HBBI", 0x06, 0, 0, deny)]
    code = ctypes.create_string_buffer(b"".join(program))
    prog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    if _LIBC.prctl(38, 1, 0, 0, 0) != 0 or _LIBC.prctl(22, 2, prog, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Who:
    """A caller: root, or an ordinary user with a clean environment."""

    def __init__(self, name, uid, gid, home, binary):
        self.name, self.uid, self.gid, self.home, self.binary = name, uid, gid, home, binary

    def __repr__(self):
        return self.name

    @property
    def is_root(self):
        return self.uid == 0

    @property
    def mode(self):
        """Of a plain request's run; see via.py"""
        return "cold"

    def prefix(self):
        if self.uid == os.geteuid():
            return []
        return ["/usr/bin/setpriv", "--reuid", str(self.uid), "--regid", str(self.gid), "--clear-groups"]

    def env(self, extra=None):
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.home),
               "USER": self.name, "LOGNAME": self.name, "SHELL": "/bin/sh", "TERM": "dumb",
               "XDG_CONFIG_HOME": str(self.home / "no-config")}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        env.update(extra or {})
        return env

    def popen(self, *args, env=None, before=None, **kw):
        kw.setdefault("cwd", "/")
        kw.setdefault("start_new_session", True)
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([*(before or []), *self.prefix(), str(self.binary), *map(str, args)],
                                env=self.env(env), **kw)

    def cloche(self, *args, input=b"", timeout=60, **kw):
        """Run to the end; what it wrote and its exit status.  A hang is a failure, and leaves nothing of ours."""
        p = self.popen(*args, stdin=subprocess.PIPE, **kw)
        try:
            out, err = p.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            raise AssertionError(f"cloche {args}: still running after {timeout} s") from None
        return subprocess.CompletedProcess(args, p.returncode, out, err)

    def trigger_raw(self, request, *options, **kw):
        """@request: bytes as they are, or an object"""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        return self.cloche("trigger", *options, "--request", "-", input=body, **kw)

    def trigger(self, script, *options, wait=60, env_outside=None, **fields):
        """One valid request; its result, checked against the contract."""
        p = self.trigger_raw({"script_content": script, **fields}, *options, timeout=wait, env=env_outside)
        return self.take_result(p)

    def take_result(self, p, exits=(0,)):
        assert p.returncode in exits, (p.returncode, p.stdout[:2000], p.stderr[-2000:])
        assert p.stdout.endswith(b"\n") and p.stdout.count(b"\n") == 1, "one line: " + repr(p.stdout[:500])
        return Result(strict_json(p.stdout))

    def run(self, script, *options, args=(), input=b"", **kw):
        """cloche run with the script in a file of the caller's"""
        return self.cloche("run", *options, self.file(script), *args, input=input, **kw)

    def run_json(self, script, *options, args=(), exits=None, **kw):
        """@exits: expected exit statuses; unset: any"""
        p = self.run(script, "--json", *options, args=args, **kw)
        r = self.take_result(p, exits if exits is not None else range(256))
        return p.returncode, r

    def file(self, text, name="script.py", mode=0o644):
        folder = self.home / uuid.uuid4().hex[:12]
        folder.mkdir()
        path = folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        for p in (folder, path):
            os.chown(p, self.uid, self.gid)
        return path

    def folder(self):
        path = self.home / uuid.uuid4().hex[:12]
        path.mkdir()
        os.chown(path, self.uid, self.gid)
        return path

    def refused(self, request, *options):
        """A request that breaks a rule: its error object.  Nothing ran: no process could have been made."""
        p = self.trigger_raw(request, *options, timeout=30, preexec_fn=forbid_processes)
        assert p.returncode == 2, (p.returncode, p.stdout[:1000], p.stderr[-1000:])
        obj = strict_json(p.stdout)
        assert set(obj) == {"error"}, obj
        e = obj["error"]
        assert set(e) >= {"field", "given", "allowed", "message"} and all(isinstance(v, str) for v in e.values()), e
        return e

    def batch(self, requests, jobs=2, wait=120, exits=(0,)):
        """Results by script_name"""
        text = "".join(json.dumps(r) + "\n" for r in requests)
        p = self.cloche("batch", self.file(text, "requests.jsonl"), "-j", jobs, timeout=wait)
        assert p.returncode in exits, (p.returncode, p.stdout[-2000:], p.stderr[-2000:])
        results = [Result(strict_json(line)) for line in p.stdout.splitlines()]
        return {r.script_name: r for r in results}


def processes():
    """{pid: (parent, start time)} of this host"""
    table = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = pathlib.Path(entry.path, "stat").read_text()
        except OSError:
            continue
        rest = stat[stat.rindex(")") + 2:].split()
        if rest[0] not in "ZX":
            table[int(entry.name)] = (int(rest[1]), int(rest[19]))
    return table


def tree(root, table=None):
    """@root and everything below it, parents first"""
    table = table or processes()
    found, todo = [], [root]
    while todo:
        pid = todo.pop(0)
        if pid in table:
            found.append(pid)
        todo += sorted(p for p, (parent, _) in table.items() if parent == pid)
    return found


def cmdline(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def marked(mark):
    return [pid for pid in processes() if mark.encode() in cmdline(pid)]


def wait_for(claim, seconds=20.0, step=0.02):
    """The first true value of @claim(), or its last one; who shows that something does not come gives its seconds"""
    end = time.monotonic() + seconds
    while True:
        value = claim()
        if value or time.monotonic() > end:
            return value
        time.sleep(step)


NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


def namespaces(pid):
    found = set()
    for kind in NAMESPACES:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            pass
    return found


def mounts():
    return {line.split(" ", 1)[1] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()}


def cgroup_folders():
    """Folders of ours, wherever cgroup file systems are mounted; the name holds the owner's pid"""
    found = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        if right.split()[0] not in ("cgroup", "cgroup2"):
            continue
        for folder, names, _ in os.walk(left.split()[4].replace("\\040", " ")):
            for name in names:
                m = re.fullmatch(r"cloche-(\d+)-.*", name)
                if m:
                    found[os.path.join(folder, name)] = int(m.group(1))
    return found


def cgroup_population(folder):
    n = 0
    for where, _, files in os.walk(folder):
        if "cgroup.procs" in files:
            try:
                n += len(pathlib.Path(where, "cgroup.procs").read_text().split())
            except OSError:
                pass
    return n


class Residue:
    """Before and after: processes, namespaces, mounts, cgroup folders and files of one cloche and what it started."""

    def __init__(self, who):
        self.who = who
        self.mark = "mark-" + uuid.uuid4().hex
        self.mounts = mounts()
        self.files = self._files()
        self.folders = set(cgroup_folders())  # of long ago: their owners' pids may be given again
        self.host = namespaces(os.getpid())
        self.seen, self.namespaces, self.roots = {}, set(), set()
        self.until = None

    def _files(self):
        found = set()
        for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run"):
            for entry in os.scandir(folder):
                try:
                    uid = entry.stat(follow_symlinks=False).st_uid
                except OSError:
                    continue
                # others use these folders too: what can be ours has our name, the user's uid or one of a mapped range
                if entry.name.startswith(("cloche-bench-", "cloche-canary-")):
                    continue  # of the benchmark or the attacks, if they run at the same time
                if "cloche" in entry.name or self.mark in entry.name or uid >= 100000 or uid == (self.who.uid or -1):
                    found.add(entry.path)
        return found

    def look(self, root):
        """Note everything that is alive below @root now."""
        table = processes()
        self.roots.add(root)
        for pid in {*tree(root, table), *marked(self.mark)}:
            if pid in table:
                self.seen[pid] = table[pid][1]
                self.namespaces |= namespaces(pid) - self.host
        return [pid for pid in tree(root, table) if pid in table]

    def script(self, root, seconds=20.0):
        """Wait until the marked script runs; every process of ours is noted.  Return: the main process's pid"""
        def main():
            pids = [p for p in tree(root)[1:] if self.mark.encode() in cmdline(p) and b"\0/tmp/" in cmdline(p)]
            return pids[0] if pids else 0
        pid = wait_for(main, seconds)
        assert pid, f"the script did not start in {seconds} s: {[(p, cmdline(p)) for p in tree(root)]}"
        self.look(root)
        return pid

    def asleep(self, root, count=1):
        """Wait until so many scripts have done what stands before BECOME_SLEEP; every process of ours is noted."""
        name = b"sleep-" + self.mark.encode()
        assert wait_for(lambda: sum(cmdline(p).startswith(name) for p in marked(self.mark)) >= count), (
            [(p, cmdline(p)) for p in tree(root)])
        self.look(root)

    def left(self, may_leave_empty_cgroup=False):
        """Everything that should not be there any more; empty when all is well."""
        table = processes()
        bad = [("process", p, cmdline(p)) for p, start in self.seen.items() if table.get(p, (0, 0))[1] == start]
        bad += [("marked process", p, cmdline(p)) for p in marked(self.mark)]
        if self.namespaces:
            # the kernel gives numbers of namespaces again: what began after the end is somebody else's, and so is what
            # lives below a supervisor that never was ours
            others = {p for s in table if cmdline(s) == b"cloche-supervisor\0" and s not in self.seen for p in tree(s, table)}
            bad += [("in a sandbox's namespace", p, cmdline(p)) for p, (_, start) in table.items()
                    if (self.until is None or start <= self.until) and p not in others and namespaces(p) & self.namespaces]
        bad += [("mount", m) for m in mounts() - self.mounts]
        for folder, pid in cgroup_folders().items():
            if folder not in self.folders and (pid in self.seen or pid in self.roots):
                n = cgroup_population(folder)
                if n or not may_leave_empty_cgroup:
                    bad.append(("cgroup folder", folder, n))
        bad += [("file", f) for f in self._files() - self.files if not f.startswith(str(self.who.home))]
        return bad

    def assert_none(self, seconds=15.0, **kw):
        """@seconds: a busy machine's time to clear away, and less than scripts that must be ended sleep"""
        self.until = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        wait_for(lambda: not self.left(**kw), seconds, 0.05)
        bad = self.left(**kw)
        for kind, *rest in bad:  # be a good guest even when the product was not
            if "process" in kind:
                try:
                    os.kill(rest[0], 9)
                except OSError:
                    pass
        assert not bad, bad


def python_has(*modules):
    code = "import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))"
    return subprocess.run([SYSTEM_PYTHON, "-c", code, *modules], timeout=30).returncode == 0


notes = []  # for the end of the terminal's summary


def note(text):
    notes.append(text)
