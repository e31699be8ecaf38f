#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the Model Context Protocol costs: the same run by a server's native socket and by `cloche mcp`, in turn.

    mcp.py [--runs N] [--json]    CLOCHE_BIN: the binary (default: build/cloche)

One client each, one run at a time, warm, at one server; milliseconds from the request's first byte to the answer's last,
JSON included.  `own` is cloche mcp without a server, by its own supervisor.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
BINARY = os.environ.get("CLOCHE_BIN") or str(REPO / "build/cloche")
HEAD = struct.Struct("=IIII")
RUN, RESULT = 2, 67
SCRIPT = "print(6 * 7)"


class Native:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.connect(path)

    def run(self):
        self.s.send(HEAD.pack(RUN, 1, 0, 0) + json.dumps({"script_content": SCRIPT}).encode())
        data = self.s.recv(1 << 17)
        assert HEAD.unpack_from(data)[0] == RESULT
        return json.loads(data[HEAD.size:])


class Mcp:
    def __init__(self, *options):
        self.p = subprocess.Popen([BINARY, "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.n = 0

    def run(self):
        self.n += 1
        call = {"jsonrpc": "2.0", "id": self.n, "method": "tools/call",
                "params": {"name": "run_python", "arguments": {"script_content": SCRIPT}}}
        self.p.stdin.write(json.dumps(call).encode() + b"\n")
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())["result"]["structuredContent"]

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def warm(ways):
    for run in ways.values():
        until = time.monotonic() + 20
        while run()["mode"] != "warm":
            assert time.monotonic() < until, "no warm run in 20 s"
            time.sleep(0.1)


def measure(ways, runs):
    times = {name: [] for name in ways}
    for _ in range(runs):
        for name, run in ways.items():
            time.sleep(0.004)  # the pool fills up again: what is measured is the door, not a wait for a place
            start = time.perf_counter()
            result = run()
            times[name].append((time.perf_counter() - start) * 1000)
            assert result["stdout"] == "42\n", result
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cloche-bench-") as folder:
        path = f"{folder}/cloche.sock"
        server = subprocess.Popen([BINARY, "serve", "--socket", path], stderr=subprocess.DEVNULL,
                                  env={**os.environ, "XDG_RUNTIME_DIR": folder, "CLOCHE_HISTORY_PATH": f"{folder}/history.db"})
        while not os.path.exists(path):
            assert server.poll() is None, "the server did not start"
            time.sleep(0.01)
        there, here = Mcp("--server", path), Mcp("--local")
        ways = {"native": Native(path).run, "mcp": there.run, "own": here.run}
        try:
            warm(ways)
            times = measure(ways, args.runs)
        finally:
            there.close()
            here.close()
            server.terminate()
            server.wait()
    found = {name: {"p50": statistics.median(t), "p90": statistics.quantiles(t, n=10)[-1]} for name, t in times.items()}
    found["mcp over native, p50"] = found["mcp"]["p50"] - found["native"]["p50"]
    if args.json:
        print(json.dumps(found))
        return
    for name in times:
        print(f"{name:7} p50 {found[name]['p50']:7.3f} ms   p90 {found[name]['p90']:7.3f} ms")
    print(f"mcp over native: {found['mcp over native, p50']:.3f} ms (at most 0.5)")


if __name__ == "__main__":
    main()
