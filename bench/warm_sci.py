#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What `import numpy, pandas` costs in an environment that preloads them, beside plain python3.

    bench/warm_sci.py [--rounds N] [--cloche PATH] [--python PATH] [--json]

A server is started for it, with `preload = numpy pandas`.  A round is one plain interpreter, from posix_spawn until it
was waited for, and ten warm runs, each from the request sent to the result received on one connection, so that both
meet what else the machine does.  Every run is checked: what it printed, and that it was warm.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from native import BINARY, Native, Server, check, until_warm

REQUEST = {"script_content": "import numpy, pandas\nprint(6)", "environment": "sci"}
BODY = json.dumps(REQUEST).encode()
STDOUT = "6\n"
WARM_A_ROUND = 10


def timed(client):
    """Seconds from request to result, and the result"""
    begin = time.perf_counter()
    client.ask(BODY)
    result = client.take()
    return time.perf_counter() - begin, result


def plain(python):
    begin = time.perf_counter()
    p = subprocess.run([python, "-c", REQUEST["script_content"]], capture_output=True, text=True)
    took = time.perf_counter() - begin
    if (p.returncode, p.stdout) != (0, STDOUT):
        sys.exit(f"{python} has no numpy and pandas: {p.stderr[-300:]}")
    return took


def measure(client, python, rounds):
    times = {"plain python3": [], "warm run": [], "its execution": []}
    for _ in range(rounds):
        times["plain python3"].append(plain(python))
        for _ in range(WARM_A_ROUND):
            took, result = timed(client)
            check(result, STDOUT, "warm")
            times["warm run"].append(took)
            times["its execution"].append(result["execution_time"])
    return times


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--cloche", default=BINARY)
    p.add_argument("--python", default="/usr/bin/python3")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    plain(o.python)  # its files are in memory
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="cloche-bench-") as folder:
        os.chmod(folder, 0o755)
        config = pathlib.Path(folder, "cloche.ini")
        config.write_text(f"[environment default]\n[environment sci]\npython = {o.python}\npreload = numpy pandas\n")
        env = {"PATH": "/usr/bin:/bin", "CLOCHE_CONFIG": str(config), "HOME": folder}
        with Server(str(pathlib.Path(o.cloche).absolute()), folder, env=env) as server:
            client = Native(server.path)
            until_warm(lambda: client.run(REQUEST), STDOUT)
            times = measure(client, o.python, o.rounds)
    base = statistics.median(times["plain python3"])
    rows = {name: {"n": len(t), "min": min(t), "p50": statistics.median(t), "p95": sorted(t)[int(len(t) * 0.95)],
                   "p50_to_plain": statistics.median(t) / base} for name, t in times.items()}
    if o.json:
        print(json.dumps(rows))
        return
    print(f"{'import numpy, pandas':24} {'n':>5} {'min ms':>9} {'p50 ms':>9} {'p95 ms':>9} {'p50 to plain':>13}")
    for name, r in rows.items():
        print(f"{name:24} {r['n']:5} {r['min'] * 1e3:9.2f} {r['p50'] * 1e3:9.2f} {r['p95'] * 1e3:9.2f} "
              f"{r['p50_to_plain']:9.4f} 1/{1 / r['p50_to_plain']:.0f}")


if __name__ == "__main__":
    main()
