#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the Model Context Protocol costs: the same run by a server's native socket and by `cloche mcp`, in turn.

    mcp.py [--runs N] [--json]    CLOCHE_BIN: the binary (default: build/cloche)

One client each, one run at a time, warm, at one server; milliseconds from the request's first byte to the answer's last,
JSON included.  `own` is cloche mcp without a server, by its own supervisor.  Every run is checked: what it printed, and
that it was warm.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

from native import BINARY, Native, Server, check, until_warm

REQUEST = {"script_content": "print(6 * 7)"}
STDOUT = "42\n"


class Mcp:
    def __init__(self, *options):
        self.p = subprocess.Popen([BINARY, "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.n = 0

    def run(self):
        self.n += 1
        call = {"jsonrpc": "2.0", "id": self.n, "method": "tools/call",
                "params": {"name": "run_python", "arguments": REQUEST}}
        self.p.stdin.write(json.dumps(call).encode() + b"\n")
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())["result"]["structuredContent"]

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def measure(ways, runs):
    times = {name: [] for name in ways}
    for _ in range(runs):
        for name, run in ways.items():
            time.sleep(0.004)  # the pool fills up again: what is measured is the door, not a wait for a place
            start = time.perf_counter()
            result = run()
            times[name].append((time.perf_counter() - start) * 1000)
            check(result, STDOUT, "warm")
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cloche-bench-") as folder:
        with Server(BINARY, folder, env={**os.environ, "CLOCHE_HISTORY_PATH": f"{folder}/history.db"}) as server:
            there, here = Mcp("--server", server.path), Mcp("--local")
            native = Native(server.path)
            ways = {"native": lambda: native.run(REQUEST), "mcp": there.run, "own": here.run}
            try:
                for run in ways.values():
                    until_warm(run, STDOUT)
                times = measure(ways, args.runs)
            finally:
                there.close()
                here.close()
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
