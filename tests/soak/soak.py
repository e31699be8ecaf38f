#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Does a server stay as it is, however much it has run?

    tests/soak/soak.py [--runs 20000] [--seconds 600] [--clients 3] [--user NAME]

First --runs short runs in a row, then mixed traffic for --seconds: short and long, good and bad, killed, cancelled,
warm and cold.  Every answer is checked.  What our processes hold is looked at when nothing runs: after a first part,
when all that is made once has been made, and at the end.  It must not have grown: memory, descriptors, processes,
mounts, control groups, network namespaces.
"""
import argparse
import os
import pathlib
import pwd
import random
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "product"))

from harness import REPO, Who, cgroup_folders, mounts, tree, wait_for  # noqa: E402
from serving import Native, Server, request  # noqa: E402

HELLO = request("print('hello')")
HOG = "b = []\nwhile True: b.append(bytearray(1 << 20))"
ORPHAN = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(100)\nprint('parent')"
SOCKETS = """import socket, threading
s = socket.create_server(('127.0.0.1', 0))
threading.Thread(target=lambda: s.accept()[0].sendall(b'pong')).start()
print(socket.create_connection(s.getsockname()).recv(9))"""
# how often of 100, the request, the statuses that are right
MIX = [
    (40, HELLO, {"ok"}),
    (10, request("import json, re, random\nprint(random.random())"), {"ok"}),
    (8, request("1 / 0"), {"error"}),
    (6, request("print('x' * 200000)"), {"ok"}),
    (6, request("import sys\nprint(len(sys.stdin.read()))", stdin="a" * 100000), {"ok"}),
    (6, request("open('out.bin', 'wb').write(b'z' * 100000)", artifacts=["*.bin"]), {"ok"}),
    (6, request(SOCKETS), {"ok"}),
    (4, request(ORPHAN), {"ok"}),
    (3, request("import time\ntime.sleep(5)", timeout=0.1), {"timeout"}),
    (3, request(HOG, limits={"memory_bytes": 48 << 20}), {"memory_limit", "error"}),
    (3, request("import os\nos.kill(os.getpid(), 11)"), {"signaled"}),
    (3, request("print('cold')", mode="cold"), {"ok"}),
    (2, request("print('two')", limits={"cpus": 2.0, "processes": 20}), {"ok"}),
]


class Traffic:
    """Some clients at once, each with one request after the other, until @is_over says so."""

    def __init__(self, path, clients, pick, is_over):
        self.path, self.pick, self.is_over = path, pick, is_over
        self.lock, self.n, self.bad = threading.Lock(), 0, []
        threads = [threading.Thread(target=self.client, args=(random.Random(i),)) for i in range(clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def client(self, chance):
        try:
            while not self.bad and not self.is_over(self.n):
                with Native(self.path) as n:
                    for _ in range(20):
                        self.one(n, chance)
                if chance.random() < 0.3:  # and one that goes away
                    with Native(self.path) as n:
                        n.start(request("import time\ntime.sleep(30)"))
                        time.sleep(chance.random() * 0.02)
        except Exception as e:  # told by the caller
            self.bad.append(repr(e))

    def one(self, native, chance):
        obj, right = self.pick(chance)
        answer = native.run(obj)
        with self.lock:
            self.n += 1
        if not hasattr(answer, "status") or answer.status not in right:
            self.bad.append((obj, right, getattr(answer, "obj", answer)))


def mixed(chance):
    return chance.choices([(obj, right) for _, obj, right in MIX], [w for w, _, _ in MIX])[0]


def status(pid):
    with open(f"/proc/{pid}/status") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


class Held:
    """What the server's processes hold now; sandboxes apart, for how many are parked is the pool's business."""

    def __init__(self, server):
        depth = len(status("self")["NSpid"].split())
        self.parked, self.processes, self.descriptors, self.networks, self.mounts = 0, 0, 0, 0, 0
        self.memory_kib, self.zygote_kib = 0, 0
        pids = tree(server.p.pid)
        for pid in pids:
            s = status(pid)
            below = len(s["NSpid"].split()) - depth
            if below >= 2:
                self.parked += s["NSpid"].split()[-1] == "1"
                continue
            self.processes += 1
            kib = int(s["VmRSS"].split()[0])
            if s["Name"].startswith("python"):
                self.zygote_kib += kib
            else:
                self.memory_kib += kib
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            self.descriptors += len(links)
            self.networks += sum(link.startswith("net:") for link in links)
            with open(f"/proc/{pid}/mountinfo") as f:
                self.mounts += len(f.readlines())
        self.host_mounts = len(mounts())
        self.groups = 0
        for folder, owner in cgroup_folders().items():
            if owner in pids:
                self.groups += sum(1 for _ in os.scandir(folder) if _.is_dir())

    def __str__(self):
        return ", ".join(f"{k} {v}" for k, v in vars(self).items())


def at_rest(server):
    """Nothing runs and the pool is at its size: the same processes for two seconds"""
    assert wait_for(lambda: server.counts()["running"] == 0, 20)
    seen, since = None, time.monotonic()
    for _ in range(1200):
        now = sorted(tree(server.p.pid))
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > 2:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("the server does not come to rest")
    return Held(server)


# The pool of network namespaces, a group for each slot that was ever used (fourteen descriptors on cgroup v1), and a
# parked sandbox more or less; a leak of one a run is far beyond that.
MAY_GROW = {"processes": 0, "descriptors": 240, "networks": 64, "mounts": 0, "host_mounts": 0, "groups": 60,
            "memory_kib": 3072, "zygote_kib": 6144}


def grown(before, after):
    return {k: (getattr(before, k), getattr(after, k)) for k, most in MAY_GROW.items()
            if getattr(after, k) - getattr(before, k) > most}


def soak(who, runs, seconds, clients, say=print):
    """Return: how many runs there were; raises AssertionError when something has grown or an answer was wrong"""
    total = 0
    with Server(who) as server:
        assert wait_for(lambda: Native(server.path).run(HELLO).obj["mode"] == "warm", 20, 0.1), "never warm"
        before = None
        parts = [("warm-up", lambda n, end: time.monotonic() > end, mixed, min(60, 3 + seconds / 6))]
        if runs:
            parts.append(("in a row", lambda n, end: n >= runs, lambda chance: (HELLO, {"ok"}), 0))
        parts.append(("mixed", lambda n, end: time.monotonic() > end, mixed, seconds))
        for name, is_over, pick, length in parts:
            begin = time.monotonic()
            t = Traffic(server.path, clients, pick, lambda n, e=begin + length, over=is_over: over(n, e))
            assert not t.bad, t.bad[:2]
            took = time.monotonic() - begin
            held = at_rest(server)
            say(f"{name}: {t.n} runs in {took:.0f} s ({t.n / took:.0f}/s); at rest: {held}")
            total += t.n
            if before is None:
                before = held
            bad = grown(before, held)
            assert not bad, f"grown, in {total} runs: {bad}"
    return total


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--runs", type=int, default=20000)
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--clients", type=int, default=3)
    p.add_argument("--user", help="whose server it is (root only)")
    p.add_argument("--cloche", default=os.environ.get("CLOCHE_BIN", REPO / "build" / "cloche"))
    o = p.parse_args()
    account = pwd.getpwnam(o.user) if o.user else pwd.getpwuid(os.geteuid())
    home = pathlib.Path(tempfile.mkdtemp(prefix="soak-", dir="/var/tmp"))
    os.chown(home, account.pw_uid, account.pw_gid)
    try:
        who = Who(account.pw_name, account.pw_uid, account.pw_gid, home, pathlib.Path(o.cloche).absolute())
        n = soak(who, o.runs, o.seconds, o.clients, lambda text: print(text, flush=True))
        print(f"{n} runs as {who}: nothing has grown")
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
