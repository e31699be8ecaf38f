# SPDX-License-Identifier: Apache-2.0
"""
Run Python scripts that nobody has reviewed, each in a fresh sandbox, and learn how they ended.

One script:

    >>> import cloche
    >>> cloche.run("print(6 * 7)").stdout
    '42\\n'
    >>> r = cloche.run("import sys; sys.exit(3)", timeout=5)
    >>> r.status, r.return_code, r.ok
    ('error', 3, False)

A script that fails, is killed or runs out of a limit is no exception: that is what a Result tells (its `status`,
`message`, `return_code`).  Result.check() makes an exception of it for those who want one.  Exceptions are for what
went wrong around it: RequestError (the request breaks a rule; nothing ran), BusyError (no room now; nothing ran),
ServerError (no result came).  A Result is always one that came whole from where the run was made.

Where that is, is the first argument of Client and AsyncClient, or of set_default() for the functions of this module:

    None                     a server of yours or root's at its usual place ($XDG_RUNTIME_DIR/cloche.sock, then
                             /run/cloche/cloche.sock); where there is none, the program `cloche` builds the sandbox
    "/path/cloche.sock"      the native socket of this server.  Its owner must be root or you, here and above
    "http://127.0.0.1:7411"  a server's HTTP door, with token=; https:// where a proxy speaks TLS for it
    "http+unix:/path"        the same on a Unix socket
    "program"                the program `cloche`, found by PATH; "program:/path/cloche": this one

Many scripts, at most eight at a time; the second keyword of a pair is any field of a request:

    client = cloche.Client()
    for result in client.map(({"script_content": s, "timeout": 5} for s in scripts), in_flight=8): ...
    for n, result in client.as_completed(scripts, in_flight=8): ...          # n: which of them, from 0

The same for asyncio; a task that is cancelled cancels its run:

    async with cloche.AsyncClient() as client:
        result = await client.run("print(1)")
        async for n, result in client.as_completed(scripts): ...

Output as it comes (from a server alone; it is then not in the result):

    with client.stream("for i in range(3): print(i)") as run:
        for stream, data in run:                                              # "stdout" or "stderr", bytes
            ...
        result = run.result()

Files in and out:

    r = cloche.run(script, files={"in.csv": pathlib.Path("sales.csv")}, artifacts=["*.png"])
    r.save_artifacts("charts")

Clients may be shared by threads and survive fork(); connections are used again.  Needs Python 3.9 and nothing else.
"""
from __future__ import annotations

import array
import asyncio
import base64
import collections
import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import random
import re
import select
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import urllib.parse
from typing import (TYPE_CHECKING, Any, AsyncGenerator, AsyncIterator, Callable, Deque, Dict, Generator, Iterable,
                    Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, TypedDict, TypeVar, Union,
                    overload)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Artifact", "ArtifactError", "AsyncClient", "AsyncRun", "BusyError", "Client", "ClocheError", "Denial",
           "Fields", "Outcome", "Request", "RequestError", "Result", "Run", "RunError", "ServerError", "amap", "arun",
           "map", "run", "set_default"]

Content = Union[str, bytes, "os.PathLike[str]"]
OnOutput = Callable[[str, bytes], Any]


class Fields(TypedDict, total=False):
    """
    What a request may say besides its script.  What is left out has the server's default.

    script_name   a plain file name; the script runs as /tmp/<script_name> ("unnamed_script.py")
    timeout       seconds of wall clock, from the start of the script (60)
    stdin         text, bytes, or a pathlib.Path whose content it is (empty)
    args          sys.argv[1:]
    env           variables; nothing of this process's environment is ever passed
    files         name to text, bytes or pathlib.Path: written beside the script before it starts
    artifacts     patterns of files to hand back, such as "*.png" or "out/**"
    environment   which configured Python ("default")
    limits        memory_bytes, cpu_seconds, cpus, processes, disk_bytes, disk_files, open_files, output_bytes,
                  output_bytes_hard
    network       "loopback" (a private 127.0.0.1, nothing else) or "none"
    mode          "auto", "warm" (a fork of an interpreter that is ready) or "cold" (a new one)
    buffered      True: Python buffers its output, and what it holds is lost at a timeout
    output        "base64": Result.stdout_data and stderr_data are there, exact where text can't be
    """
    script_name: str
    timeout: float
    stdin: Content
    args: Sequence[str]
    env: Mapping[str, str]
    files: Mapping[str, Content]
    artifacts: Sequence[str]
    environment: str
    limits: Mapping[str, float]
    network: str
    mode: str
    buffered: bool
    output: str


class Request(Fields):
    """A whole request, for map() and as_completed(): a dict with "script_content" and any of Fields."""
    script_content: str


class ClocheError(Exception):
    """Whatever this module raises of its own"""


class RequestError(ClocheError):
    """The request breaks a rule; nothing ran.  `message` is whole in itself; `field`, what was `given`, `allowed`."""

    def __init__(self, message: str, field: str = "", given: str = "", allowed: str = "") -> None:
        super().__init__(message)
        self.message, self.field, self.given, self.allowed = message, field, given, allowed


class BusyError(ClocheError):
    """There is no room for one more now, for longer than the client's patience; nothing ran."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ServerError(ClocheError):
    """No result came: no server and no program, one that is not to be trusted, or one that went away."""


class RunError(ClocheError):
    """By Result.check() alone: the script did not end with 0; `result` has it all."""

    def __init__(self, result: Result) -> None:
        last = result.stderr.strip().splitlines()[-1:]
        super().__init__(": ".join([f"{result.script_name}: {result.message}", *last]))
        self.result = result


class ArtifactError(ClocheError):
    """An artifact can't be saved: it was left out, or its name leads elsewhere."""


@dataclasses.dataclass(frozen=True)
class Denial:
    """Something that the sandbox refused, as the kernel saw it"""
    action: str
    detail: str
    count: int
    hint: str


@dataclasses.dataclass(frozen=True)
class Artifact:
    """
    A file that the script left.  `left_out` says why it has no content ("" if it has); `media_type` goes by the suffix.
    The name is the script's choice: use save(), not open(artifact.name).
    """
    name: str
    size: int
    media_type: str
    left_out: str
    content: str = dataclasses.field(repr=False)
    """base64, as it came"""

    @property
    def data(self) -> bytes:
        if self.left_out:
            raise ArtifactError(f"{self.name!r} was left out: {self.left_out}")
        return base64.b64decode(self.content, validate=True)

    def save(self, folder: Union[str, "os.PathLike[str]"], overwrite: bool = False) -> str:
        """
        Write it below `folder`, which is made when it is not there, and return its path.  Never outside: names with
        ".." are refused and no link below `folder` is followed.  FileExistsError when it is there, unless `overwrite`.
        """
        data, parts = self.data, self.name.split("/")
        if any(p in ("", ".", "..") or "\0" in p for p in parts):
            raise ArtifactError(f"{self.name!r} is no name to save to")
        os.makedirs(folder, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=fd)
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                os.close(fd)
                fd = below
            _write_whole(fd, parts[-1], data, overwrite)
        except OSError as e:
            if isinstance(e, FileExistsError):
                raise
            raise ArtifactError(f"{self.name!r} can't be saved in {os.fspath(folder)!r}: {e.strerror}") from e
        finally:
            os.close(fd)
        return os.path.join(folder, *parts)


def _write_whole(folder: int, name: str, data: bytes, overwrite: bool) -> None:
    """The file is there whole or not at all"""
    temporary = f".cloche-{os.getpid()}-{random.getrandbits(64):016x}" if overwrite else name
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)
    try:
        with open(fd, "wb") as f:
            f.write(data)
        if overwrite:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


@dataclasses.dataclass(frozen=True)
class Result:
    """
    How one run ended.

    status        ok; error (exited with another status); signaled (killed by a signal that cloche did not send);
                  timeout, cpu_limit, memory_limit, output_limit (reached that limit); cancelled; rejected (screening
                  refused it, it did not run); internal_error (cloche's or the host's fault: may be tried again)
    message       why, in a sentence; "" if ok
    return_code   the exit status, or minus the signal's number, or -125 where nothing ran
    times         seconds.  execution_time: from the script's start to its end; queue_time: from arrival to start
    stdout_bytes  how many bytes were written in all; more than are here if stdout_truncated
    denials       what the sandbox refused; None where nothing observes it
    raw           the whole object as it came
    """
    stdout: str
    stderr: str
    return_code: int
    execution_time: float
    status: str
    message: str
    signal: Optional[str]
    script_name: str
    run_id: str
    mode: str
    cpu_time: float
    peak_memory_bytes: Optional[int]
    queue_time: float
    stdout_bytes: int
    stderr_bytes: int
    stdout_truncated: bool
    stderr_truncated: bool
    stdout_encoding_errors: bool
    stderr_encoding_errors: bool
    artifacts: List[Artifact] = dataclasses.field(repr=False)
    denials: Optional[List[Denial]]
    warnings: List[str] = dataclasses.field(repr=False)
    raw: Dict[str, Any] = dataclasses.field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def check(self) -> Result:
        """Itself if it is ok, else RunError"""
        if not self.ok:
            raise RunError(self)
        return self

    @property
    def stdout_data(self) -> bytes:
        """What was kept of standard output, byte for byte; for requests with output="base64" """
        return self._raw("stdout")

    @property
    def stderr_data(self) -> bytes:
        return self._raw("stderr")

    def _raw(self, name: str) -> bytes:
        try:
            return base64.b64decode(self.raw[name + "_base64"], validate=True)
        except KeyError:
            raise ClocheError(f'{name} came as text: ask with output="base64"') from None

    def artifact(self, name: str) -> Artifact:
        """The one of this name, or KeyError"""
        for a in self.artifacts:
            if a.name == name:
                return a
        raise KeyError(name)

    def save_artifacts(self, folder: Union[str, "os.PathLike[str]"], overwrite: bool = False) -> List[str]:
        """Artifact.save() for each that was not left out; their paths"""
        return [a.save(folder, overwrite) for a in self.artifacts if not a.left_out]


_REQUIRED = [f.name for f in dataclasses.fields(Result) if f.name != "raw"]


def _result(obj: Any) -> Result:
    try:
        known = {name: obj[name] for name in _REQUIRED}
        known["artifacts"] = [Artifact(a["name"], a["size"], a.get("media_type") or "", a.get("left_out") or "",
                                       a.get("base64") or "") for a in obj["artifacts"]]
        if obj["denials"] is not None:
            known["denials"] = [Denial(d["action"], d["detail"], d["count"], d["hint"]) for d in obj["denials"]]
        kinds = (("status", str), ("stdout", str), ("stderr", str), ("return_code", int))
        wrong = [name for name, kind in kinds if not isinstance(obj[name], kind)]
        if wrong:
            raise TypeError(wrong)
    except (KeyError, TypeError, AttributeError) as e:
        raise ServerError(f"what came is no result: {e!r}") from e
    return Result(raw=obj, **known)


def _text(data: Union[bytes, str]) -> Any:
    try:
        return json.loads(data)
    except ValueError as e:
        raise ServerError(f"what came is no JSON: {e}") from e


def _refuse(obj: Any, is_busy: bool, is_ours: bool) -> NoReturn:
    """The exception for an error object"""
    error = obj.get("error") if isinstance(obj, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise ServerError("what came is neither a result nor an error")
    if is_busy:
        raise BusyError(error["message"])
    if is_ours:
        raise RequestError(error["message"], *(str(error.get(k, "")) for k in ("field", "given", "allowed")))
    raise ServerError(error["message"])


def _content(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        with open(value, "rb") as f:
            value = f.read()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode("ascii")}
    return value


def _join(script_content: str, fields: Fields) -> Dict[str, Any]:
    return {"script_content": script_content, **dict(fields)}


def _encode(request: Union[str, Mapping[str, Any]]) -> bytes:
    """The request's JSON.  What a field may be is for the server to say: names and values are passed on."""
    obj: Dict[str, Any] = {"script_content": request} if isinstance(request, str) else dict(request)
    if "stdin" in obj:
        obj["stdin"] = _content(obj["stdin"])
    if isinstance(obj.get("files"), Mapping):
        obj["files"] = {name: _content(value) for name, value in obj["files"].items()}
    if isinstance(obj.get("env"), Mapping):
        obj["env"] = dict(obj["env"])
    if isinstance(obj.get("limits"), Mapping):
        obj["limits"] = dict(obj["limits"])
    return json.dumps(obj).encode("ascii")


# A conversation with a server is written once, as a generator (a "flow"): it yields what it has to wait for and, when
# asked to, output as it comes; it returns the object that it was for.  Client and AsyncClient differ in how they wait.
# Closing a flow gives up: its connection is closed, by which the server ends the run.

class _Wait:
    """Until `fd` has one of `events`, or until the time `until`"""
    __slots__ = ("fd", "events", "until")

    def __init__(self, fd: int, events: int, until: Optional[float] = None) -> None:
        self.fd, self.events, self.until = fd, events, until


class _Call:
    """Something that blocks: where there is an event loop, in a thread"""
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


class _Output(NamedTuple):
    stream: str
    data: bytes


_T = TypeVar("_T")
_Step = Union[_Wait, _Call, _Output]
_Flow = Generator[_Step, Any, _T]


class _Control:
    """The reins of one run, held by another thread or task"""

    def __init__(self) -> None:
        self.is_cancelled = False
        self._stop: Optional[Callable[[], None]] = None
        self._lock = threading.Lock()

    def cancel(self) -> None:
        with self._lock:
            self.is_cancelled = True
            if self._stop:
                self._stop()

    def started(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stop = stop
            if self.is_cancelled:
                stop()

    def ended(self) -> bool:
        """From now on cancel() touches nothing: the connection may be another run's.  Return: whether it has before"""
        with self._lock:
            self._stop = None
            return self.is_cancelled


class _Stale(Exception):
    """A connection that was kept is of no use any more, and nothing was sent."""


class _Absent(Exception):
    """Nobody is there."""


def _check_peer(s: socket.socket, path: str) -> None:
    uid = struct.unpack("=iII", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if uid not in (0, os.geteuid()):
        raise ServerError(f"server {path}: belongs to user {uid}, neither you nor root: not used")


def _connect_unix(kind: int, path: str) -> _Flow[socket.socket]:
    s = socket.socket(socket.AF_UNIX, kind)
    try:
        s.setblocking(False)
        until = time.monotonic() + 2
        while True:
            try:
                s.connect(path)
                break
            except BlockingIOError:  # its backlog is full, and that can't be waited for
                if time.monotonic() > until:
                    raise BusyError(f"server {path}: takes no more connections") from None
                yield _Wait(-1, 0, time.monotonic() + 0.01)
            except OSError as e:
                raise _Absent(f"server {path}: {e.strerror or e}") from e
        _check_peer(s, path)
        return s
    except BaseException:
        s.close()
        raise


_HEAD = struct.Struct("=IIII")
_VERSION, _DATA_MAX = 1, 61440
_RUN, _ENV = 2, 4
_OUTPUT, _RESULT, _ERROR, _ENV_REPLY = 66, 67, 68, 69
_STREAM_OUTPUT = 2
_BUSY, _CALLERS = 4, (1, 2, 3)
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class _Native:
    """A connection to a server's native socket: messages of a head and a body; long bodies are sealed memory files."""

    def __init__(self, s: socket.socket) -> None:
        self.s = s
        self.is_used = False
        self.is_usable = True

    def close(self) -> None:
        self.is_usable = False
        self.s.close()

    def is_alive(self) -> bool:
        return _is_silent(self.s)

    def _send(self, kind: int, flags: int, body: bytes) -> _Flow[None]:
        head, ancillary, fd = _HEAD.pack(kind, _VERSION, 0, flags), [], -1
        try:
            if len(body) > _DATA_MAX:
                fd = os.memfd_create("request", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
                with open(fd, "wb", closefd=False) as f:
                    f.write(body)
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
                ancillary, body = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))], b""
            while True:
                try:
                    self.s.sendmsg([head, body], ancillary, socket.MSG_NOSIGNAL)
                    return
                except BlockingIOError:
                    yield _Wait(self.s.fileno(), select.POLLOUT)
        finally:
            if fd >= 0:
                os.close(fd)

    def _receive(self) -> _Flow[Tuple[int, int, bytes]]:
        fds = array.array("i")
        while True:
            try:
                data, ancillary, flags, _ = self.s.recvmsg(_HEAD.size + _DATA_MAX, socket.CMSG_SPACE(4), _CMSG_CLOEXEC)
                break
            except BlockingIOError:
                yield _Wait(self.s.fileno(), select.POLLIN)
            except ConnectionResetError:  # told once; what was sent before can still be read
                continue
        for level, what, passed in ancillary:
            if (level, what) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(passed[:len(passed) - len(passed) % 4])
        try:
            if not data:
                raise ServerError("the server went away in the middle of a run")
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(data) < _HEAD.size:
                raise ServerError("the server speaks another protocol")
            kind, version, code, _ = _HEAD.unpack_from(data)
            if version != _VERSION:
                raise ServerError("the server is of another version")
            return kind, code, _sealed(fds[0]) if fds else data[_HEAD.size:]
        finally:
            for fd in fds:
                os.close(fd)

    def _ask(self, kind: int, flags: int, body: bytes) -> _Flow[None]:
        try:
            yield from self._send(kind, flags, body)
        except (BrokenPipeError, ConnectionResetError):
            if self.is_used:
                raise _Stale from None
            # it may have turned us away with a word
        except OSError as e:
            raise ServerError(f"ask the server: {e.strerror}") from e

    def run(self, body: bytes, is_streamed: bool, control: _Control) -> _Flow[Any]:
        self.is_usable = False  # until the answer is here whole
        yield from self._ask(_RUN, _STREAM_OUTPUT if is_streamed else 0, body)
        control.started(self.cancel)
        yield _Wait(self.s.fileno(), select.POLLIN)
        while True:
            kind, code, data = yield from self._receive()
            if kind == _OUTPUT and code in (1, 2):
                yield _Output("stdout" if code == 1 else "stderr", data)
            elif kind in (_RESULT, _ERROR):
                break
            else:
                raise ServerError(f"the server sent a message of an unknown kind, {kind}")
        self.is_usable = not control.ended()
        if kind == _ERROR:
            _refuse(_text(data), code == _BUSY, code in _CALLERS)
        return _text(data)

    def environments(self) -> _Flow[Any]:
        self.is_usable = False
        yield from self._ask(_ENV, 0, b"")
        kind, _, data = yield from self._receive()
        if kind != _ENV_REPLY:
            raise ServerError("the server did not answer with its environments")
        self.is_usable = True
        return _text(data)

    def cancel(self) -> None:
        with contextlib.suppress(OSError):
            self.s.shutdown(socket.SHUT_WR)


def _is_silent(s: socket.socket) -> bool:
    """A server has nothing to say to who did not ask: readable is its end."""
    p = select.poll()
    p.register(s, select.POLLIN)
    return not p.poll(0)


_CMSG_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)


def _sealed(fd: int) -> bytes:
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise ServerError("the server sent a text that could change while it is read")
    with open(fd, "rb", closefd=False) as f:
        f.seek(0)
        return f.read()


class _Program:
    """A run by the program `cloche` itself, which builds the sandbox"""
    is_used = is_usable = False

    def __init__(self, program: str) -> None:
        self.program = program

    def close(self) -> None:
        pass

    def is_alive(self) -> bool:
        return False

    def _output_of(self, args: List[str], body: bytes, control: _Control) -> _Flow[Tuple[int, bytes, str]]:
        with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as words:
            request.write(body)
            request.seek(0)
            try:
                p = subprocess.Popen([self.program, *args], stdin=request, stdout=subprocess.PIPE, stderr=words)
            except OSError as e:
                raise ServerError(f"start {self.program}: {e.strerror}") from e
            assert p.stdout is not None
            fd, parts = p.stdout.fileno(), []
            os.set_blocking(fd, False)
            control.started(p.terminate)
            try:
                while True:
                    yield _Wait(fd, select.POLLIN)
                    try:
                        part = os.read(fd, 1 << 20)
                    except BlockingIOError:
                        continue
                    if not part:
                        break
                    parts.append(part)
                status = p.wait()
            finally:
                control.ended()
                p.stdout.close()
                if p.poll() is None:
                    p.terminate()  # it ends the run before itself
                    try:
                        p.wait(5)
                    except subprocess.TimeoutExpired:
                        p.kill()
                        p.wait()
            words.seek(0)
            return status, b"".join(parts), words.read(4096).decode("utf-8", "replace").strip()

    def run(self, body: bytes, is_streamed: bool, control: _Control) -> _Flow[Any]:
        if is_streamed:
            raise ServerError("output as it comes needs a server: start `cloche serve`")
        status, text, words = yield from self._output_of(["trigger", "--request", "-"], body, control)
        if not text:
            raise ServerError(f"{self.program} trigger: exit status {status}: {words or 'no result'}")
        obj = _text(text)
        if isinstance(obj, dict) and "error" in obj:
            error = obj["error"] if isinstance(obj["error"], dict) else {}
            _refuse(obj, error.get("field") == "server", status in (2, 126, 127))
        return obj

    def environments(self) -> _Flow[Any]:
        status, text, words = yield from self._output_of(["env", "--json"], b"", _Control())
        if status != 0:
            raise ServerError(f"{self.program} env: exit status {status}: {words}")
        return _text(text)


class _Http:
    """A connection to a server's HTTP door"""

    def __init__(self, s: socket.socket, where: _HttpWhere) -> None:
        self.s, self.where = s, where
        self.is_used = False
        self.is_usable = True
        self.room, self.got = bytearray(1 << 16), bytearray()  # to read into; what came and was not looked at yet
        self.left: Optional[int] = None  # of the body, or of its chunk; None: until the end of the connection
        self.is_chunked = self.is_last = self.is_cut = False

    def close(self) -> None:
        self.is_usable = False
        self.s.close()

    def is_alive(self) -> bool:
        return _is_silent(self.s)

    def _try(self, call: Callable[[], int], events: int) -> _Flow[Optional[int]]:
        """What can be done when the socket is ready; None: it was waited for, once more"""
        try:
            return call()
        except BlockingIOError:
            yield _Wait(self.s.fileno(), select.POLLIN | events)
        except ssl.SSLWantReadError:
            yield _Wait(self.s.fileno(), select.POLLIN)
        except ssl.SSLWantWriteError:
            yield _Wait(self.s.fileno(), select.POLLOUT)
        return None

    def _send(self, data: bytes) -> _Flow[None]:
        view, offset = memoryview(data), 0
        try:
            while offset < len(view):
                sent = yield from self._try(lambda: self.s.send(view[offset:offset + (1 << 18)]), select.POLLOUT)
                offset += sent or 0
                if sent is None and not self.where.is_tls and not _is_silent(self.s):
                    break  # it answers already: it does not want the rest
            self.is_cut = offset < len(view)
        except (BrokenPipeError, ConnectionResetError):
            if self.is_used and offset == 0:
                raise _Stale from None
            self.is_cut = True  # it may have refused with a word, before all was sent

    def _fill(self) -> _Flow[bool]:
        """False: the end of the connection"""
        while True:
            try:
                n = yield from self._try(lambda: self.s.recv_into(self.room), 0)
            except OSError as e:
                raise ServerError(f"the server went away in the middle of an answer: {e.strerror or e}") from e
            if n is not None:
                self.got += memoryview(self.room)[:n]
                return n > 0

    def _line(self) -> _Flow[bytes]:
        while True:
            end = self.got.find(b"\n")
            if end >= 0:
                line = bytes(self.got[:end]).rstrip(b"\r")
                del self.got[:end + 1]
                return line
            if len(self.got) > 65536 or not (yield from self._fill()):
                raise ServerError("the server went away, or does not speak HTTP")

    def _head(self) -> _Flow[Tuple[int, Dict[str, str]]]:
        status = 100
        while 100 <= status < 200:
            first = (yield from self._line()).split(b" ", 2)
            if len(first) < 2 or not first[0].startswith(b"HTTP/1.") or not first[1].isdigit():
                raise ServerError("the server does not speak HTTP")
            status, headers = int(first[1]), {}
            while True:
                line = yield from self._line()
                if not line:
                    break
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
        self.is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length", "")
        self.left = 0 if self.is_chunked else int(length) if length.isdigit() else None
        self.is_last = first[0] != b"HTTP/1.1" or self.left is None or headers.get("connection", "").lower() == "close"
        return status, headers

    def _part(self) -> _Flow[bytes]:
        """The next of the body; b"": its end"""
        if self.is_chunked and self.left == 0:
            size = (yield from self._line()).split(b";")[0].strip()
            try:
                self.left = int(size, 16)
            except ValueError:
                raise ServerError("the server sent a chunk without a size") from None
            if self.left == 0:
                while (yield from self._line()):
                    pass
                self.is_chunked = False
                return b""
        if self.left == 0:
            return b""
        if not self.got and not (yield from self._fill()):
            if self.left is None:
                return b""
            raise ServerError("the server went away in the middle of an answer")
        n = len(self.got) if self.left is None else min(self.left, len(self.got))
        part = bytes(self.got[:n])
        del self.got[:n]
        if self.left is not None:
            self.left -= n
            if self.is_chunked and self.left == 0:
                yield from self._line()
        return part

    def _rest(self) -> _Flow[bytes]:
        parts: List[bytes] = []
        while True:
            part = yield from self._part()
            if not part:
                self.is_usable = not (self.is_last or self.is_cut or self.got)
                return b"".join(parts)
            parts.append(part)

    def ask(self, method: str, path: str, body: bytes = b"", accept: str = "application/json") -> _Flow[int]:
        """The status of an answer whose body comes by _part() or _rest(); exceptions for refusals"""
        self.is_usable = False
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.where.host}", f"Accept: {accept}"]
        if self.where.token:
            lines.append(f"Authorization: Bearer {self.where.token}")
        if method == "POST":
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        yield from self._send("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        status, headers = yield from self._head()
        if 200 <= status < 300:
            return status
        text = yield from self._rest()
        try:
            problem = json.loads(text)
        except ValueError:
            problem = {}
        if not isinstance(problem, dict):
            problem = {}
        words = problem.get("detail") or problem.get("title") or f"HTTP status {status}"
        if status in (429, 503):
            after = headers.get("retry-after", "")
            raise BusyError(words, float(after) if after.isdigit() else 0.0)
        if status == 422 and "error" in problem:
            _refuse(problem, False, True)
        if status in (400, 413, 422):
            raise RequestError(words)
        raise ServerError(f"{words} (HTTP status {status})")

    def run(self, body: bytes, is_streamed: bool, control: _Control) -> _Flow[Any]:
        if not is_streamed:
            yield from self.ask("POST", "/v1/runs", body)
            return _text((yield from self._rest()))
        yield from self.ask("POST", "/v1/runs", body, "application/x-ndjson")
        lines = bytearray()
        while True:
            part = yield from self._part()
            if not part:
                raise ServerError("the server ended the stream without a result")
            lines += part
            while b"\n" in part:
                line, _, lines = lines.partition(b"\n")
                part = lines
                event = _text(bytes(line))
                kind = event.get("event") if isinstance(event, dict) else None
                if kind == "accepted":
                    self._may_be_cancelled(event.get("run_id"), control)
                elif kind in ("stdout", "stderr"):
                    exact = event.get("base64")
                    yield _Output(kind, base64.b64decode(exact) if exact else event["text"].encode("utf-8"))
                elif kind == "result":
                    yield from self._rest()
                    return event.get("result")
                elif kind == "error":
                    yield from self._rest()
                    _refuse(event, event["error"].get("field") == "server", True)

    def _may_be_cancelled(self, run_id: Any, control: _Control) -> None:
        if not isinstance(run_id, str) or not run_id.isalnum():
            raise ServerError("the server gave the run no id")

        def delete() -> None:
            with contextlib.suppress(ClocheError, _Absent, OSError):
                other = _finish_here(self.where.open(), time.monotonic() + 5)
                try:
                    _finish_here(other.ask("DELETE", f"/v1/runs/{run_id}"), time.monotonic() + 5)
                finally:
                    other.close()

        control.started(lambda: threading.Thread(target=delete, daemon=True).start())

    def environments(self) -> _Flow[Any]:
        yield from self.ask("GET", "/v1/environments")
        return _text((yield from self._rest()))


class _HttpWhere:
    """An HTTP door's address, and how to get there"""

    def __init__(self, url: str, token: Optional[str]) -> None:
        self.token = token
        if token is not None and not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ValueError("token: one word of ASCII")
        self.path, self.is_tls = "", False
        if url.startswith("http+unix:"):
            self.path, self.host = url[len("http+unix:"):], "localhost"
            return
        parts = urllib.parse.urlsplit(url)
        if not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise ValueError(f"server {url}: http://HOST:PORT or https://HOST:PORT")
        self.is_tls, self.host, self.name = parts.scheme == "https", parts.netloc, parts.hostname
        self.port = parts.port or (443 if self.is_tls else 7411)
        if token and not self.is_tls and not re.fullmatch(r"localhost|127\.[\d.]+|::1", self.name):
            raise ValueError(f"server {url}: the token would go through the network for all to read; use https")

    def open(self) -> _Flow[_Http]:
        if self.path:
            return _Http((yield from _connect_unix(socket.SOCK_STREAM, self.path)), self)
        try:
            found = yield _Call(lambda: socket.getaddrinfo(self.name, self.port, type=socket.SOCK_STREAM))
        except OSError as e:
            raise ServerError(f"server {self.host}: {e.strerror or e}") from e
        failed = 0
        for family, kind, protocol, _, address in found:
            s = socket.socket(family, kind, protocol)
            try:
                s.setblocking(False)
                failed = s.connect_ex(address)
                if failed == errno.EINPROGRESS:
                    yield _Wait(s.fileno(), select.POLLOUT)
                    failed = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if failed == 0:
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    return _Http((yield from self._tls(s)) if self.is_tls else s, self)
            except BaseException:
                s.close()
                raise
            s.close()
        raise ServerError(f"server {self.host}: {os.strerror(failed)}")

    def _tls(self, s: socket.socket) -> _Flow[socket.socket]:
        tls = ssl.create_default_context().wrap_socket(s, server_hostname=self.name, do_handshake_on_connect=False)
        while True:
            try:
                tls.do_handshake()
                return tls
            except ssl.SSLWantReadError:
                yield _Wait(tls.fileno(), select.POLLIN)
            except ssl.SSLWantWriteError:
                yield _Wait(tls.fileno(), select.POLLOUT)
            except OSError as e:
                tls.close()
                raise ServerError(f"server {self.host}: {e}") from e


_Link = Union[_Native, _Http, _Program]


class _Where:
    """Where runs are made, and the connections that wait for the next one"""

    def __init__(self, server: Optional[str], token: Optional[str], patience: float) -> None:
        self.patience = patience
        self._pid = os.getpid()
        self._idle: Deque[_Link] = collections.deque()  # append and pop are atomic: no lock, so none is held at a fork
        self._name = "" if server is None else os.fspath(server)
        is_http = self._name.startswith(("http://", "https://", "http+unix:"))
        self._http = _HttpWhere(self._name, token) if is_http else None
        if token is not None and not is_http:
            raise ValueError("token: for a server at http:// or https:// alone")
        if self._name.startswith("program:") and not os.access(self._name[8:], os.X_OK):
            raise ServerError(f"{self._name[8:]} is no program")

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    __del__ = close

    def _kept(self) -> Optional[_Link]:
        if self._pid != os.getpid():
            self.close()  # the parent's; closed here, still open there
            self._pid = os.getpid()
        while self._idle:
            try:
                link = self._idle.pop()
            except IndexError:
                break
            if link.is_alive():
                link.is_used = True
                return link
            link.close()
        return None

    def _connect(self) -> _Flow[_Link]:
        if self._name == "program" or self._name.startswith("program:"):
            return _Program(_find_program(self._name[8:]))
        if self._name:
            try:
                if self._http:
                    return (yield from self._http.open())
                return _Native((yield from _connect_unix(socket.SOCK_SEQPACKET, self._name)))
            except _Absent as e:
                raise ServerError(str(e)) from e
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        for path in ([os.path.join(runtime, "cloche.sock")] if runtime else []) + ["/run/cloche/cloche.sock"]:
            with contextlib.suppress(_Absent, ServerError):  # not there, or somebody else's: the next place
                return _Native((yield from _connect_unix(socket.SOCK_SEQPACKET, path)))
        return _Program(_find_program(""))

    def _with(self, use: Callable[[_Link], _Flow[_T]]) -> _Flow[_T]:
        while True:
            link = self._kept() or (yield from self._connect())
            try:
                return (yield from use(link))
            except _Stale:
                continue
            finally:
                if link.is_usable and self._pid == os.getpid():
                    self._idle.append(link)
                else:
                    link.close()

    def run(self, body: bytes, is_streamed: bool, control: _Control) -> _Flow[Any]:
        until, pause = time.monotonic() + self.patience, 0.01
        while True:
            try:
                return (yield from self._with(lambda link: link.run(body, is_streamed, control)))
            except BusyError as e:
                now = time.monotonic()
                if now >= until or control.is_cancelled:
                    raise
                yield _Wait(-1, 0, min(until, now + max(e.retry_after, pause) * (0.5 + random.random())))
                pause = min(1.0, pause * 2)

    def environments(self) -> _Flow[Any]:
        return (yield from self._with(lambda link: link.environments()))


def _find_program(path: str) -> str:
    found = path or shutil.which("cloche")
    if not found:
        raise ServerError("no server is there, nor the program `cloche`: start `cloche serve`, or name a server")
    return found


# How this thread waits.

def _until(deadline: Optional[float], step: _Wait) -> Optional[float]:
    ends = [t for t in (deadline, step.until) if t is not None]
    return min(ends) if ends else None


def _late() -> ServerError:
    return ServerError("no answer within the time that the client waits (wait); the run was given up")


def _step_here(step: _Step, deadline: Optional[float]) -> Any:
    if isinstance(step, _Call):
        return step.call()
    if isinstance(step, _Wait):
        end = _until(deadline, step)
        p = select.poll()
        if step.fd >= 0:
            p.register(step.fd, step.events)
        ready = p.poll(None if end is None else max(0.0, end - time.monotonic()) * 1000)
        if not ready and deadline is not None and time.monotonic() >= deadline:
            raise _late()
    return None


def _finish_here(flow: _Flow[_T], deadline: Optional[float], on_output: Optional[OnOutput] = None) -> _T:
    value = None
    try:
        while True:
            step = flow.send(value)
            if isinstance(step, _Output) and on_output:
                on_output(step.stream, step.data)
            value = _step_here(step, deadline)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


# How a task waits.

async def _step_there(step: _Step, deadline: Optional[float]) -> Any:
    loop = asyncio.get_running_loop()
    if isinstance(step, _Call):
        return await loop.run_in_executor(None, step.call)
    if isinstance(step, _Output):
        return None
    end = _until(deadline, step)
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    timer = loop.call_later(max(0.0, end - time.monotonic()), wake) if end is not None else None
    try:
        if step.fd >= 0 and step.events & select.POLLIN:
            loop.add_reader(step.fd, wake)
        if step.fd >= 0 and step.events & select.POLLOUT:
            loop.add_writer(step.fd, wake)
        await ready
    finally:
        if step.fd >= 0:
            loop.remove_reader(step.fd)
            loop.remove_writer(step.fd)
        if timer:
            timer.cancel()
    if deadline is not None and time.monotonic() >= deadline:
        raise _late()
    return None


async def _finish_there(flow: _Flow[_T], deadline: Optional[float], on_output: Optional[OnOutput] = None) -> _T:
    value = None
    try:
        while True:
            step = flow.send(value)
            if isinstance(step, _Output) and on_output:
                on_output(step.stream, step.data)
            value = await _step_there(step, deadline)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


class _Progress:
    """What Run and AsyncRun share: a flow under way, and what came of it"""

    def __init__(self, where: _Where, body: bytes, deadline: Optional[float]) -> None:
        self._control = _Control()
        self._flow = where.run(body, True, self._control)
        self._deadline = deadline
        self._value: Any = None
        self._obj: Any = None
        self._failed: Optional[BaseException] = None
        self._is_over = False

    def _next(self) -> Optional[_Step]:
        """None: it is over"""
        if self._is_over:
            return None
        try:
            step = self._flow.send(self._value)
        except StopIteration as stop:
            self._is_over, self._obj = True, stop.value
            return None
        except BaseException as e:
            self._fail(e)
            raise
        self._value = None
        return step

    def _fail(self, e: BaseException) -> None:
        if not self._is_over:
            self._is_over, self._failed = True, e
            self._flow.close()

    def _result(self) -> Result:
        if self._failed:
            raise self._failed
        return _result(self._obj)

    def cancel(self) -> None:
        """Ask for its end, from any thread; a result with status "cancelled" follows unless it has ended by itself."""
        self._control.cancel()


class Run(_Progress):
    """A run whose output is taken as it comes: an iterator of ("stdout" or "stderr", bytes), then result()"""

    def __iter__(self) -> Iterator[Tuple[str, bytes]]:
        return self

    def __next__(self) -> Tuple[str, bytes]:
        while True:
            step = self._next()
            if step is None:
                raise StopIteration
            if isinstance(step, _Output):
                return step.stream, step.data
            try:
                self._value = _step_here(step, self._deadline)
            except BaseException as e:
                self._fail(e)
                raise

    def result(self) -> Result:
        """Wait for it; output that was not taken yet is dropped."""
        for _ in self:
            pass
        return self._result()

    def close(self) -> None:
        """Leave it; if it is still under way, it is ended and there is no result."""
        self._fail(ClocheError("the run was left before its end"))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRun(_Progress):
    """Run for asyncio: `async for stream, data in run`, then `await run.result()`"""

    def __aiter__(self) -> AsyncRun:
        return self

    async def __anext__(self) -> Tuple[str, bytes]:
        while True:
            step = self._next()
            if step is None:
                raise StopAsyncIteration
            if isinstance(step, _Output):
                return step.stream, step.data
            try:
                self._value = await _step_there(step, self._deadline)
            except BaseException as e:
                self._fail(e)
                raise

    async def result(self) -> Result:
        async for _ in self:
            pass
        return self._result()

    def close(self) -> None:
        self._fail(ClocheError("the run was left before its end"))

    async def __aenter__(self) -> AsyncRun:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


Outcome = Union[Result, ClocheError]
_AnyRequest = Union[str, Request, Mapping[str, Any]]
_IN_FLIGHT = max(4, 2 * (os.cpu_count() or 1))
_AHEAD = 8  # map() lets so many times in_flight end before the one that is next


class _Batch:
    """Many flows in one thread: which are under way, what ended, and when one more may begin"""

    def __init__(self, requests: Iterable[_AnyRequest], in_flight: int, is_ordered: bool) -> None:
        if in_flight < 1:
            raise ValueError("in_flight: at least 1")
        self.source = enumerate(requests)
        self.in_flight, self.is_ordered, self.next = in_flight, is_ordered, 0
        self.done: Dict[int, Outcome] = {}
        self.is_exhausted = False

    def more(self, n_active: int) -> Optional[Tuple[int, _AnyRequest]]:
        """The next request, if there is one and it may begin"""
        if self.is_exhausted or n_active >= self.in_flight or len(self.done) >= _AHEAD * self.in_flight:
            return None
        for found in self.source:
            return found
        self.is_exhausted = True
        return None

    def take(self) -> Iterator[Tuple[int, Outcome]]:
        """What may be handed out now"""
        while self.done:
            n = self.next if self.is_ordered else next(iter(self.done))
            if n not in self.done:
                return
            self.next = n + 1
            yield n, self.done.pop(n)


def _raise_or_give(outcome: Outcome, errors: str) -> Any:
    if isinstance(outcome, ClocheError) and errors != "return":
        raise outcome
    return outcome


class _Base:
    def __init__(self, server: Optional[str] = None, *, token: Optional[str] = None, patience: float = 30.0,
                 wait: Optional[float] = None) -> None:
        self._where = _Where(server, token, patience)
        self._wait = wait

    def _deadline(self) -> Optional[float]:
        return None if self._wait is None else time.monotonic() + self._wait

    def _flow(self, request: _AnyRequest, is_streamed: bool = False) -> _Flow[Any]:
        return self._where.run(_encode(request), is_streamed, _Control())


class Client(_Base):
    """
    Runs scripts for threads.

    server     where, as the module's text has it
    token      who asks, over HTTP; by TCP it is always needed
    patience   seconds for which a request that finds no room is tried again, before BusyError
    wait       seconds after which a call gives up waiting, ends its run and raises ServerError; None: as long as it
               takes.  (The script's own limit is the request's `timeout`.)

    A context manager, or close() it; a closed client opens connections again when it is used again.
    """

    def run(self, script_content: str, *, on_output: Optional[OnOutput] = None, **fields: Unpack[Fields]) -> Result:
        """
        One run; `fields` are those of Fields.

        on_output(stream, data) gets what the script writes as it comes: "stdout" or "stderr", and bytes.  The result
        has none of it then.  An exception of its ends the run.
        """
        flow = self._flow(_join(script_content, fields), on_output is not None)
        return _result(_finish_here(flow, self._deadline(), on_output))

    def stream(self, script_content: str, **fields: Unpack[Fields]) -> Run:
        """One run whose output is taken as it comes; use it in a `with` statement."""
        return Run(self._where, _encode(_join(script_content, fields)), self._deadline())

    @overload
    def map(self, requests: Iterable[_AnyRequest], *, in_flight: int = ...) -> Iterator[Result]: ...
    @overload
    def map(self, requests: Iterable[_AnyRequest], *, in_flight: int = ..., errors: str) -> Iterator[Outcome]: ...

    def map(self, requests: Iterable[_AnyRequest], *, in_flight: int = _IN_FLIGHT,
            errors: str = "raise") -> Iterator[Any]:
        """
        A Result for each request, in their order.  At most `in_flight` runs at a time; `requests` may be endless, they
        are taken as runs end.  A script or a dict (Request) each.

        errors="return": what would be raised (RequestError, ...) stands in the place of its result, and the others go
        on.  Leaving the loop early ends what is under way.
        """
        for _, outcome in self._batch(_Batch(requests, in_flight, True)):
            yield _raise_or_give(outcome, errors)

    @overload
    def as_completed(self, requests: Iterable[_AnyRequest], *,
                     in_flight: int = ...) -> Iterator[Tuple[int, Result]]: ...
    @overload
    def as_completed(self, requests: Iterable[_AnyRequest], *, in_flight: int = ...,
                     errors: str) -> Iterator[Tuple[int, Outcome]]: ...

    def as_completed(self, requests: Iterable[_AnyRequest], *, in_flight: int = _IN_FLIGHT,
                     errors: str = "raise") -> Iterator[Tuple[int, Any]]:
        """As map(), but each as soon as it has ended, with the number of its request, from 0."""
        for n, outcome in self._batch(_Batch(requests, in_flight, False)):
            yield n, _raise_or_give(outcome, errors)

    def _batch(self, b: _Batch) -> Iterator[Tuple[int, Outcome]]:
        crowd = _Crowd(b)
        try:
            while True:
                while (found := b.more(len(crowd.waits))) is not None:
                    crowd.begin(found[0], self._flow(found[1]), self._deadline())
                yield from b.take()
                if not crowd.waits and b.is_exhausted and not b.done:
                    return
                if crowd.waits:
                    crowd.wait()
        finally:
            crowd.close()

    def environments(self) -> List[Dict[str, Any]]:
        """The Pythons that scripts may use: name, python, version, mode, preload, ..."""
        return _environments(_finish_here(self._where.environments(), self._deadline()))

    def close(self) -> None:
        self._where.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _environments(obj: Any) -> List[Dict[str, Any]]:
    found = obj.get("environments") if isinstance(obj, dict) else None
    if not isinstance(found, list):
        raise ServerError("what came is no list of environments")
    return found


class _Crowd:
    """The flows of a batch, each with what it waits for"""

    def __init__(self, batch: _Batch) -> None:
        self.batch = batch
        self.waits: Dict[int, Tuple[_Flow[Any], _Wait, Optional[float]]] = {}

    def begin(self, n: int, flow: _Flow[Any], deadline: Optional[float]) -> None:
        """As far as it comes without waiting"""
        value = None
        try:
            if deadline is not None and time.monotonic() >= deadline:
                flow.close()
                raise _late()
            while True:
                step = flow.send(value)
                if isinstance(step, _Wait):
                    break
                value = _step_here(step, deadline)
        except StopIteration as stop:
            try:
                self.batch.done[n] = _result(stop.value)
            except ClocheError as e:
                self.batch.done[n] = e
        except ClocheError as e:
            self.batch.done[n] = e
        else:
            self.waits[n] = (flow, step, deadline)

    def wait(self) -> None:
        poll, by_fd, ends = select.poll(), {}, []
        for n, (_, step, deadline) in self.waits.items():
            end = _until(deadline, step)
            if step.fd >= 0:
                poll.register(step.fd, step.events)
                by_fd[step.fd] = n
            if end is not None:
                ends.append((end, n))
        ready = poll.poll(max(0.0, min(ends)[0] - time.monotonic()) * 1000 if ends else None)
        now = time.monotonic()
        for n in {*(by_fd[fd] for fd, _ in ready), *(n for end, n in ends if end <= now)}:
            flow, _, deadline = self.waits.pop(n)
            self.begin(n, flow, deadline)

    def close(self) -> None:
        for flow, _, _ in self.waits.values():
            flow.close()
        self.waits.clear()


class AsyncClient(_Base):
    """
    Client for asyncio.  At most `in_flight` of its runs are made at a time, however many tasks ask; the others wait
    here.  Cancelling a task ends its run.
    """

    def __init__(self, server: Optional[str] = None, *, token: Optional[str] = None, patience: float = 30.0,
                 wait: Optional[float] = None, in_flight: int = _IN_FLIGHT) -> None:
        super().__init__(server, token=token, patience=patience, wait=wait)
        self._in_flight = in_flight
        self._room: Optional[Tuple[asyncio.AbstractEventLoop, asyncio.Semaphore]] = None

    def _limit(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._room is None or self._room[0] is not loop:
            self._room = loop, asyncio.Semaphore(self._in_flight)
        return self._room[1]

    async def run(self, script_content: str, *, on_output: Optional[OnOutput] = None,
                  **fields: Unpack[Fields]) -> Result:
        """As Client.run()"""
        return await self._run(_join(script_content, fields), on_output)

    async def _run(self, request: _AnyRequest, on_output: Optional[OnOutput] = None) -> Result:
        body = _encode(request)
        async with self._limit():
            flow = self._where.run(body, on_output is not None, _Control())
            return _result(await _finish_there(flow, self._deadline(), on_output))

    def stream(self, script_content: str, **fields: Unpack[Fields]) -> AsyncRun:
        """As Client.stream(), for `async with`; does not count as one of in_flight."""
        return AsyncRun(self._where, _encode(_join(script_content, fields)), self._deadline())

    @overload
    def map(self, requests: Iterable[_AnyRequest], *, in_flight: Optional[int] = ...) -> AsyncIterator[Result]: ...
    @overload
    def map(self, requests: Iterable[_AnyRequest], *, in_flight: Optional[int] = ...,
            errors: str) -> AsyncIterator[Outcome]: ...

    async def map(self, requests: Iterable[_AnyRequest], *, in_flight: Optional[int] = None,
                  errors: str = "raise") -> AsyncIterator[Any]:
        """As Client.map()"""
        batch = self._batch(_Batch(requests, in_flight or self._in_flight, True))
        async with _Closing(batch):
            async for _, outcome in batch:
                yield _raise_or_give(outcome, errors)

    @overload
    def as_completed(self, requests: Iterable[_AnyRequest], *,
                     in_flight: Optional[int] = ...) -> AsyncIterator[Tuple[int, Result]]: ...
    @overload
    def as_completed(self, requests: Iterable[_AnyRequest], *, in_flight: Optional[int] = ...,
                     errors: str) -> AsyncIterator[Tuple[int, Outcome]]: ...

    async def as_completed(self, requests: Iterable[_AnyRequest], *, in_flight: Optional[int] = None,
                           errors: str = "raise") -> AsyncIterator[Tuple[int, Any]]:
        """As Client.as_completed()"""
        batch = self._batch(_Batch(requests, in_flight or self._in_flight, False))
        async with _Closing(batch):
            async for n, outcome in batch:
                yield n, _raise_or_give(outcome, errors)

    async def _batch(self, b: _Batch) -> AsyncGenerator[Tuple[int, Outcome], None]:
        tasks: Dict[asyncio.Task[Outcome], int] = {}
        try:
            while True:
                while (found := b.more(len(tasks))) is not None:
                    tasks[asyncio.ensure_future(self._outcome(found[1]))] = found[0]
                for pair in b.take():
                    yield pair
                if not tasks and b.is_exhausted and not b.done:
                    return
                if tasks:
                    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended:
                        b.done[tasks.pop(task)] = task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _outcome(self, request: _AnyRequest) -> Outcome:
        try:
            return await self._run(request)
        except ClocheError as e:
            return e

    async def environments(self) -> List[Dict[str, Any]]:
        return _environments(await _finish_there(self._where.environments(), self._deadline()))

    def close(self) -> None:
        self._where.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class _Closing:
    def __init__(self, generator: AsyncGenerator[Any, None]) -> None:
        self.generator = generator

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        await self.generator.aclose()


_default = Client()
_adefault = AsyncClient()


def set_default(server: Optional[str] = None, **options: Any) -> None:
    """Where run(), map(), arun() and amap() of this module go from now on; arguments as Client has them"""
    global _default, _adefault
    _default, _adefault = Client(server, **options), AsyncClient(server, **options)


def run(script_content: str, *, on_output: Optional[OnOutput] = None, **fields: Unpack[Fields]) -> Result:
    """Client.run() of the default client: `cloche.run("print(1)", timeout=5)`"""
    return _default.run(script_content, on_output=on_output, **fields)


def map(requests: Iterable[_AnyRequest], *, in_flight: int = _IN_FLIGHT) -> Iterator[Result]:
    """Client.map() of the default client"""
    return _default.map(requests, in_flight=in_flight)


async def arun(script_content: str, *, on_output: Optional[OnOutput] = None, **fields: Unpack[Fields]) -> Result:
    """AsyncClient.run() of the default client"""
    return await _adefault.run(script_content, on_output=on_output, **fields)


def amap(requests: Iterable[_AnyRequest], *, in_flight: Optional[int] = None) -> AsyncIterator[Result]:
    """AsyncClient.map() of the default client"""
    return _adefault.map(requests, in_flight=in_flight)
