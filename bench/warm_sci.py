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
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = "import numpy, pandas\nprint(6)"
OUTPUT = "6\n"
WARM_A_ROUND = 10
RUN, RESULT, VERSION = 2, 67, 1
HEAD = struct.Struct("=IIII")


class Server:
    def __init__(self, cloche, python, folder):
        self.path = str(folder / "bench.sock")
        config = folder / "cloche.ini"
        config.write_text(f"[environment default]\n[environment sci]\npython = {python}\npreload = numpy pandas\n")
        env = {"PATH": "/usr/bin:/bin", "CLOCHE_CONFIG": str(config), "XDG_RUNTIME_DIR": str(folder), "HOME": str(folder)}
        self.p = subprocess.Popen([cloche, "serve", "--socket", self.path], env=env, stdin=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        for line in self.p.stderr:
            if b"event=ready" in line:
                break
        else:
            sys.exit("the server did not start")
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.connect(self.path)

    def run(self, script=SCRIPT):
        """Seconds from request to result, and the result"""
        body = json.dumps({"script_content": script, "environment": "sci"}).encode()
        begin = time.perf_counter()
        self.s.send(HEAD.pack(RUN, VERSION, 0, 0) + body)
        data = self.s.recv(1 << 17)
        took = time.perf_counter() - begin
        if HEAD.unpack_from(data)[0] != RESULT:
            sys.exit(f"refused: {data[HEAD.size:]!r}")
        return took, json.loads(data[HEAD.size:])

    def stop(self):
        self.s.close()
        self.p.terminate()
        self.p.wait()


def plain(python):
    begin = time.perf_counter()
    p = subprocess.run([python, "-c", SCRIPT], capture_output=True, text=True)
    took = time.perf_counter() - begin
    if (p.returncode, p.stdout) != (0, OUTPUT):
        sys.exit(f"{python} has no numpy and pandas: {p.stderr[-300:]}")
    return took


def measure(server, python, rounds):
    times = {"plain python3": [], "warm run": [], "its execution": []}
    for _ in range(rounds):
        times["plain python3"].append(plain(python))
        for _ in range(WARM_A_ROUND):
            took, r = server.run()
            if (r["status"], r["stdout"], r["mode"]) != ("ok", OUTPUT, "warm"):
                sys.exit(f"not as it should be: {r}")
            times["warm run"].append(took)
            times["its execution"].append(r["execution_time"])
    return times


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--cloche", default=REPOSITORY / "build/cloche")
    p.add_argument("--python", default="/usr/bin/python3")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    plain(o.python)  # its files are in memory
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="cloche-bench-") as folder:
        os.chmod(folder, 0o755)
        server = Server(str(pathlib.Path(o.cloche).absolute()), o.python, pathlib.Path(folder))
        try:
            end = time.monotonic() + 30
            while server.run()[1]["mode"] != "warm":
                if time.monotonic() > end:
                    sys.exit("never warm")
            times = measure(server, o.python, o.rounds)
        finally:
            server.stop()
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
