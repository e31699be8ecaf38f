#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How often a machine can fork an interpreter at all: what a warm run can't be cheaper than.

    bench/floor.py [--seconds 3] [--rounds 3]

As many parents as CPUs, each with the modules of the default environment.  A fork prints `hello` into a pipe and ends by
_exit; its parent reads that and waits.  No sandbox, no limits, no server, no client.  In turn with plain starts of the same
interpreter by the same parents.
"""
import argparse
import collections  # noqa: F401  from here on: what the default environment preloads
import dataclasses  # noqa: F401
import datetime  # noqa: F401
import gc
import hashlib  # noqa: F401
import itertools  # noqa: F401
import json  # noqa: F401
import math  # noqa: F401
import os
import random  # noqa: F401
import re  # noqa: F401
import statistics  # noqa: F401
import subprocess
import sys
import tempfile
import time
import typing  # noqa: F401

HELLO = "print('hello')"


def fork():
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        os.dup2(w, 1)
        exec(compile(HELLO, "hello.py", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    os.close(w)
    with open(r, "rb") as f:
        said = f.read()
    os.waitpid(pid, 0)
    assert said == b"hello\n", said


def rate(one, seconds, parents):
    """How many a second, all parents together."""
    pipes = []
    for _ in range(parents):
        r, w = os.pipe()
        if os.fork() == 0:
            n, end = 0, time.monotonic() + seconds
            while time.monotonic() < end:
                one()
                n += 1
            os.write(w, str(n).encode())
            os._exit(0)
        os.close(w)
        pipes.append(r)
    n = 0
    for r in pipes:
        with open(r, "rb") as f:
            n += int(f.read())
    for _ in pipes:
        os.wait()
    return n / seconds


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    parents = os.cpu_count()
    gc.collect()
    gc.freeze()
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
        f.write(HELLO)
        f.flush()
        for _ in range(o.rounds):
            forks = rate(fork, o.seconds, parents)
            plain = rate(lambda: subprocess.run([sys.executable, f.name], stdout=subprocess.DEVNULL, check=True),
                         o.seconds, parents)
            print(f"{parents} parents: {forks:.0f} forks/s, {plain:.0f} plain starts/s, {forks / plain:.1f} times", flush=True)


if __name__ == "__main__":
    main()
