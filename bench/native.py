# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: a server of their own, a client of its native socket, and what a run must have answered."""
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
BINARY = os.environ.get("CLOCHE_BIN") or str(REPO / "build/cloche")
HEAD = struct.Struct("=IIII")
RUN, RESULT, VERSION = 2, 67, 1


class Server:
    """cloche serve, whose log has @ready by now; it ends with the block"""

    def __init__(self, binary, folder, *options, env, ready="event=ready"):
        self.path = f"{folder}/native.sock"
        log = pathlib.Path(folder, "log")
        with open(log, "w") as f:
            self.p = subprocess.Popen([binary, "serve", "--socket", self.path, *options], stdin=subprocess.DEVNULL,
                                      stderr=f, env={**env, "XDG_RUNTIME_DIR": str(folder)})
        end = time.monotonic() + 30
        while ready not in log.read_text(errors="replace"):
            if self.p.poll() is not None or time.monotonic() > end:
                self.__exit__()
                sys.exit(f"the server is not ready:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.p.terminate()
        self.p.wait()


class Native:
    """One connection to a server's native socket"""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.connect(path)

    def ask(self, body):
        self.s.send(HEAD.pack(RUN, VERSION, 0, 0) + body)

    def take(self):
        data = self.s.recv(1 << 17)
        if len(data) < HEAD.size or HEAD.unpack_from(data)[0] != RESULT:
            sys.exit(f"no result: {data[:500]!r}")
        return json.loads(data[HEAD.size:])

    def run(self, request):
        self.ask(json.dumps(request).encode())
        return self.take()


def check(result, stdout, mode=None):
    """The benchmark fails unless the run gave the right answer; @mode: and was of that kind"""
    if (result["status"], result["stdout"]) != ("ok", stdout) or mode not in (None, result["mode"]):
        sys.exit(f"a run was not as it should be: {json.dumps(result)}")


def until_warm(run, stdout, seconds=30):
    end = time.monotonic() + seconds
    while (result := run())["mode"] != "warm":
        check(result, stdout)
        if time.monotonic() > end:
            sys.exit(f"no warm run in {seconds} s")
        time.sleep(0.1)
