#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What HTTP costs: the same run by a server's native socket and over HTTP, kept alive, in turn, from one process.

    doors.py [--runs N] [--json]    CLOCHE_BIN: the binary (default: build/cloche)

One client, one run at a time: milliseconds from a request's first byte to its answer's last, JSON included.  Eight clients:
runs a second.  A stream: milliseconds from a line's flush in the script until the client has it.  Warm, at one server of
the caller's own; root's needs the user cloche.  Read the differences and ratios; the rest belongs to the machine.

Every run is checked: what it printed, else the benchmark fails, and whether it was warm.  One client's times are those of
the warm runs alone, eight clients' rates are of all; how many were not warm is told.
"""
import argparse
import json
import os
import select
import socket
import statistics
import sys
import tempfile
import time

import native

BODY = json.dumps({"script_content": "print(6 * 7)"}).encode()
STDOUT = "42\n"
CLIENTS = 8
ROUNDS = 5  # of eight clients
LINES = "import time\nfor i in range(50):\n    print(repr(time.monotonic()), flush=True)\n    time.sleep(0.01)\n"


class Native(native.Native):
    name = "native"

    def ask(self):
        super().ask(BODY)


class Http:
    def __init__(self, address, token=None):
        self.name = "http unix" if isinstance(address, str) else "http tcp"
        self.s = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self.s.connect(address)
        if not isinstance(address, str):
            self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        who = f"Authorization: Bearer {token}\r\n" if token else ""
        self.request = (f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\n{who}Content-Type: application/json\r\n"
                        f"Content-Length: {len(BODY)}\r\n\r\n").encode() + BODY
        self.got = b""

    def ask(self):
        self.s.send(self.request)

    def take(self):
        """The result, or None: it is not whole yet"""
        self.got += self.s.recv(1 << 17)
        head, found, body = self.got.partition(b"\r\n\r\n")
        if not found:
            return None
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        if len(body) < length:
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            sys.exit(f"no result: {head!r}")
        self.got = b""
        return json.loads(body)


def once(client):
    begin = time.perf_counter()
    client.ask()
    while (result := client.take()) is None:
        pass
    took = time.perf_counter() - begin
    native.check(result, STDOUT)
    return took * 1000, result


def latency(clients, runs):
    """Milliseconds of warm runs, and how many were not warm, by client; they take turns"""
    found = {c.name: [] for c in clients}
    others = {c.name: 0 for c in clients}
    for i in range(runs):
        for c in clients[i % len(clients):] + clients[:i % len(clients)]:
            took, result = once(c)
            if result["mode"] == "warm":
                found[c.name].append(took)
            else:
                others[c.name] += 1
    if not all(found.values()):
        sys.exit(f"no warm run: of {runs} by each client, so many were not: {others}")
    rows = {name: {"p50": statistics.median(v), "p95": sorted(v)[len(v) * 95 // 100], "runs": len(v)} for name, v in found.items()}
    return rows, others


def throughput(clients, runs):
    """Runs a second of all of them together, and how many runs were not warm"""
    poll = select.epoll()
    by_fd = {c.s.fileno(): c for c in clients}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    asked = done = others = 0
    begin = time.perf_counter()
    for c in clients:
        c.ask()
        asked += 1
    while done < asked:
        for fd, _ in poll.poll():
            if (result := by_fd[fd].take()) is None:
                continue
            native.check(result, STDOUT)
            others += result["mode"] != "warm"
            done += 1
            if asked < runs:
                by_fd[fd].ask()
                asked += 1
    took = time.perf_counter() - begin
    poll.close()
    return done / took, others


def stream(path):
    """How late lines are, in milliseconds"""
    body = json.dumps({"script_content": LINES, "buffered": True}).encode()
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.send((f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body)
    late = []
    while data := s.recv(1 << 16):
        now = time.monotonic()
        for line in data.split(b"\n"):
            if line.startswith(b'{"event": "stdout"'):
                late += [(now - float(written)) * 1000 for written in json.loads(line)["text"].split()]
    assert len(late) == 50, late
    return {"p50": statistics.median(late), "max": max(late), "lines": len(late)}


def compare(clients, many, http, runs):
    """Everything, by title and client"""
    one, others = latency(list(clients.values()), runs)
    found = {"one client, milliseconds": one, "a stream's lines, milliseconds late": stream(http)}
    rates = {name: [] for name in many}
    others_of_many = {name: 0 for name in many}
    for _ in range(ROUNDS):
        for name, group in many.items():
            rate, n = throughput(group, runs)
            rates[name].append(rate)
            others_of_many[name] += n
    eight = found["eight clients, runs a second"] = {name: statistics.median(v) for name, v in rates.items()}
    found["over the native socket"] = {
        name: {"p50 more, milliseconds": one[name]["p50"] - one["native"]["p50"], "of its throughput": eight[name] / eight["native"]}
        for name in ("http unix", "http tcp")}
    found["runs that were not warm"] = {
        name: {"one client": others[name], "of": runs, "eight clients": others_of_many[name], "of all": ROUNDS * max(runs, CLIENTS)}
        for name in many}
    return found


def measure(folder, runs):
    port = socket.create_server(("127.0.0.1", 0))
    address = port.getsockname()
    port.close()
    http = f"{folder}/http.sock"
    with native.Server(native.BINARY, folder, "--http-socket", http, "--listen", "%s:%d" % address,
                       env={**os.environ, "CLOCHE_HISTORY_ENABLED": "no"}, ready="event=http_ready") as server:
        with open(f"{folder}/cloche/http-token") as f:
            token = f.read().strip()
        make = {"native": lambda: Native(server.path), "http unix": lambda: Http(http), "http tcp": lambda: Http(address, token)}
        clients = {name: f() for name, f in make.items()}
        for c in clients.values():
            native.until_warm(lambda: once(c)[1], STDOUT)  # noqa: B023
        return compare(clients, {name: [f() for _ in range(CLIENTS)] for name, f in make.items()}, http, runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(folder, options.runs)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for title, rows in found.items():
        print(title)
        for name, value in rows.items():
            cells = value if isinstance(value, dict) else {"": value}
            print(f"  {name:<12}" + "".join(f"  {k} {v:.3f}" if isinstance(v, float) else f"  {k} {v}" for k, v in cells.items()))


if __name__ == "__main__":
    main()
