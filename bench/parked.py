#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How what is kept ready grows: 10, 100 and 1,000 parked sandboxes, each a server of its own.

For each: how long until all are there, what one takes of the machine's memory and of the supervisor's descriptors, its
proportional share (PSS of its processes), and a run's latency with the steps that the server tells.  Needs root for 1,000:
an ordinary user has no such range of ids, and the machine must allow some 20,000 descriptors.
"""
import os
import pathlib
import statistics
import sys
import tempfile
import time

from native import BINARY, Native, Server, check, until_warm

REQUEST = {"script_content": "print('hello')", "script_name": "hello.py"}
RUNS = 200


def available_kib():
    with open("/proc/meminfo") as f:
        return int(next(line.split()[1] for line in f if line.startswith("MemAvailable:")))


def children(pid):
    try:
        found = [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return found + [q for p in found for q in children(p)]


def pss_kib(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def command(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def parked(inside):
    """The processes in sandboxes: those in process namespaces of their own"""
    found, own = [], os.readlink(f"/proc/{inside}/ns/pid")
    for p in children(inside):
        try:
            if os.readlink(f"/proc/{p}/ns/pid") != own:
                found.append(p)
        except OSError:
            pass
    return found


def supervisor(server):
    return next(p for p in children(server.p.pid) if command(p)[:2] == [b"cloche-supervisor", b"inside"])


def measure(n, folder):
    before = available_kib()
    start = time.monotonic()
    env = {"PATH": os.environ["PATH"], "CLOCHE_SERVER_POOL_MIN": str(n), "CLOCHE_SERVER_POOL_MAX": str(n)}
    with Server(BINARY, folder, env=env) as server:
        inside = supervisor(server)
        while len(parked(inside)) < 2 * n:  # an init and a child each
            if time.monotonic() - start > 60:
                sys.exit(f"only {len(parked(inside)) // 2} of {n} were parked in a minute")
            time.sleep(0.01)
        full = time.monotonic() - start
        time.sleep(1)
        memory = (before - available_kib()) / n
        fds = len(os.listdir(f"/proc/{inside}/fd"))
        native = Native(server.path)
        until_warm(lambda: native.run(REQUEST), "hello\n")
        results = []
        for _ in range(RUNS):
            time.sleep(0.01)
            begun = time.perf_counter()
            result = native.run(REQUEST)
            results.append((time.perf_counter() - begun, result["queue_time"], result["execution_time"]))
            check(result, "hello\n", "warm")
        time.sleep(0.5)
        share = sum(pss_kib(p) for p in parked(inside)) / n
        latency, handed, ran = (statistics.median(column) * 1000 for column in zip(*results))
        print(f"{n:6} {full:8.2f} s {memory:10.0f} {share:10.0f} {fds / n:12.1f} {latency:10.2f} {handed:11.3f} {ran:8.2f}", flush=True)


def main():
    print("parked  all there   KiB each   PSS each  descriptors  p50 of a run, ms: handed over  its script")
    for n in (10, 100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            measure(n, folder)
        time.sleep(2)


if __name__ == "__main__":
    main()
