# SPDX-License-Identifier: Apache-2.0
"""One script, three ways: by the plain interpreter, in a sandbox by a new interpreter, in a sandbox by a warm one."""
import base64
import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import time

PYTHON = "/usr/bin/python3"
WAYS = ("plain", "cold", "warm")
WALLS = (pathlib.Path(__file__).resolve().parent / "walls.py").read_text()  # as text: the caller may not reach the file
EVERY_FILE = ["**", ".*", "**/.*", ".*/**"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What of a run must be the same whichever way it was made."""
    status: object  # exit status, -N for signal N, or why the run was ended from outside
    stdout: bytes
    stderr: bytes
    files: dict = dataclasses.field(default_factory=dict)  # name -> (size, SHA-256)

    def differences(self, other):
        return [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != getattr(other, f.name)]


class NotWarm(Exception):
    """The run that was to be warm was not: nothing was compared."""


class NoAnswer(Exception):
    """A run hung, its timeout long over."""


class Three:
    """
    A server to run scripts cold and warm in, and the plain interpreter beside it.

    @binary: cloche; @prefix: what makes a command run as the caller wanted (setpriv ...); @env: its variables;
    @folder: to keep socket, log and configuration in; the caller's own; @paths: what scripts may read besides
    """

    def __init__(self, binary, folder, paths=(), prefix=(), env=None, is_root=None):
        self.binary, self.prefix, self.folder = str(binary), list(prefix), pathlib.Path(folder)
        self.paths = [str(p) for p in paths]
        self.socket = str(self.folder / "s.sock")
        self.is_root = os.geteuid() == 0 and not prefix if is_root is None else is_root
        config = self.folder / "cloche.ini"
        config.write_text("[environment default]\n" + (f"paths = {':'.join(self.paths)}\n" if self.paths else ""))
        self.env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.folder), "CLOCHE_CONFIG": str(config),
                    "XDG_RUNTIME_DIR": str(self.folder), **(env or {})}
        self.n_warm = self.n_cold_again = 0

    def __enter__(self):
        self.log = open(self.folder / "log", "wb")
        self.server = subprocess.Popen([*self.prefix, self.binary, "serve", "--socket", self.socket], env=self.env,
                                       stdin=subprocess.DEVNULL, stderr=self.log, cwd="/", start_new_session=True)
        end = time.monotonic() + 20
        while not self._is_warm():
            if self.server.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise NotWarm("no warm interpreter: " + self._tail())
            time.sleep(0.1)
        self.environ = json.loads(self.cold("import json, os; print(json.dumps(dict(os.environ)))").stdout)
        return self

    def __exit__(self, *exc):
        self.server.terminate()
        try:
            self.server.wait(20)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.log.close()

    def _tail(self):
        return (self.folder / "log").read_text(errors="replace")[-1500:]

    def _is_warm(self):
        try:
            return self._trigger({"script_content": "pass"})["mode"] == "warm"
        except (OSError, AssertionError):
            return False

    def _trigger(self, request):
        try:
            p = subprocess.run([*self.prefix, self.binary, "trigger", "--server", self.socket, "--request", "-"],
                               input=json.dumps(request).encode(), env=self.env, cwd="/", stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, timeout=request.get("timeout", 60) + 60)
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"{request}; the server: {self._tail()}") from None
        assert p.returncode == 0, (p.returncode, p.stdout[:500], p.stderr[-500:])
        return json.loads(p.stdout)

    def _cloche(self, mode, script, timeout=60, **fields):
        r = self._trigger({"script_content": script, "timeout": timeout, "mode": mode, "output": "base64",
                           "artifacts": EVERY_FILE, "script_name": "main.py", **fields})
        files = {}
        for a in r["artifacts"]:
            body = base64.b64decode(a["base64"]) if not a.get("left_out") else None
            files[a["name"]] = (a["size"], hashlib.sha256(body).hexdigest() if body is not None else a["left_out"])
        status = r["return_code"] if r["status"] in ("ok", "error", "signaled") else r["status"]
        if status == "internal_error":
            status += ": " + r["message"]
        out, err = (base64.b64decode(r[name]) for name in ("stdout_base64", "stderr_base64"))
        return r["mode"], Outcome(status, out, err, files)

    def cold(self, script, **fields):
        return self._cloche("cold", script, **fields)[1]

    def warm(self, script, **fields):
        """`auto`, held to be warm; tried again while its interpreter is being replaced."""
        for _ in range(20):
            mode, outcome = self._cloche("auto", script, **fields)
            if mode == "warm" or str(outcome.status).startswith("internal_error"):
                self.n_warm += 1
                return outcome
            self.n_cold_again += 1
            time.sleep(0.2)
        raise NotWarm("20 runs in a row went cold: " + self._tail())

    def plain(self, script, timeout=60, args=(), files=None, script_name="main.py", env=None, **others):
        """@others: what only a sandbox does"""
        job = {"script_content": script, "script_name": script_name, "timeout": timeout, "args": list(args),
               "files": files or {}, "python": PYTHON, "paths": self.paths, "environ": {**self.environ, **(env or {})}}
        user = [] if self.is_root else ["--user", "--keep-caps", "--map-user=1000", "--map-group=1000"]
        p = subprocess.run([*self.prefix, "unshare", *user, "--mount", "--net", "--pid", "--ipc", "--uts", "--fork",
                            "--kill-child", "--mount-proc", PYTHON, "-IS", "-c", WALLS],
                           input=json.dumps(job).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
                           env={"PATH": self.env["PATH"]}, timeout=timeout + 60)
        assert p.returncode == 0, (p.returncode, p.stderr[-1000:])
        r = json.loads(p.stdout)
        return Outcome("timeout" if r["status"] is None else r["status"], base64.b64decode(r["stdout"]),
                       base64.b64decode(r["stderr"]), {k: tuple(v) for k, v in r["files"].items()})

    def all(self, script, ways=WAYS, **fields):
        return {way: getattr(self, way)(script, **fields) for way in ways}
