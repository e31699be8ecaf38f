# SPDX-License-Identifier: Apache-2.0
"""
By which door a test's requests go; the same tests pass by each.

    local    cloche trigger with a sandbox of its own: cold
    server   cloche trigger at a server of the caller's: warm, where the job allows it
    http     POST /v1/runs at that server's HTTP door

CLOCHE_VIA chooses for all requests of the product's tests (default: local), and the list, with commas, by which the
attacks go (default: local,server).
"""
import atexit
import json
import os
import subprocess
import time

import harness
from serving import Native, Server, request, until_warm

NAMES = ("local", "server", "http")
READY = 20
_open = {}


def chosen(default):
    names = (os.environ.get("CLOCHE_VIA") or default).split(",")
    assert set(names) <= set(NAMES), f"CLOCHE_VIA: {names}: known are {NAMES}"
    return names


class Way:
    """A door that is open, for one caller"""

    def __init__(self, who, name, env):
        self.who, self.env = who, env
        self.door = None
        if name == "http":
            from doors import Door  # only they need what it needs
            self.door = Door(who, server_env=env, tcp=False)
            self.server = self.door.server
        else:
            self.server = Server(who, env=env)
        with Native(self.server.path) as n:
            until_warm(lambda: n.run(request("pass")).mode, READY)
        self.others = self.calm()

    def ask(self, body, timeout):
        """As `cloche trigger` answers: exit status, standard output, standard error"""
        if not self.door:
            return self.who.cloche("trigger", "--server", self.server.path, "--request", "-", input=body,
                                   timeout=timeout, env=self.env)
        from doors import UnixConnection
        c = UnixConnection(self.door.path, timeout=timeout)
        try:
            c.request("POST", "/v1/runs", body, {"Content-Type": "application/json"})
            r = c.getresponse()
            text = r.read()
        finally:
            c.close()
        if r.status == 200:
            return subprocess.CompletedProcess([], 0, text.rstrip(b"\n") + b"\n", b"")
        problem = harness.strict_json(text)
        assert r.status == 422 and "error" in problem, (r.status, text[:1000])
        return subprocess.CompletedProcess([], 2, json.dumps({"error": problem["error"]}).encode() + b"\n", b"")

    def settled(self):
        """(parked sandboxes, processes of the server that are no part of them); a parked one is its init and its child"""
        with Native(self.server.path) as n:
            parked = sum(e.get("parked", 0) for e in n.environments()["environments"])
        return parked, len(harness.tree(self.server.p.pid)) - 2 * parked

    def calm(self):
        """How many processes there are beside parked sandboxes, when none is being made"""
        seen = []
        end = time.monotonic() + READY
        while len(seen) < 10 or len(set(seen[-10:])) > 1:
            assert time.monotonic() < end, seen
            time.sleep(0.1)
            seen.append(self.settled())
        return seen[-1][1]

    def assert_nothing_left(self, seconds=15.0):
        """Every process below the server is its own, or waits in a sandbox that nobody used"""
        assert harness.wait_for(lambda: self.settled()[1] == self.others, seconds, 0.05), (
            self.settled(), self.others, [(p, harness.cmdline(p)) for p in harness.tree(self.server.p.pid)])

    def close(self):
        (self.door or self.server).__exit__()


def way(who, name, env=None):
    """@env: of the server, too, when this is the first request by it"""
    key = (str(who.home), who.uid, name)
    if key not in _open:
        _open[key] = Way(who, name, env or {})
    return _open[key]


def servers():
    """The processes that were started for doors"""
    found = set()
    for w in _open.values():
        found |= {w.server.p.pid, w.door.p.pid} if w.door and w.door.p else {w.server.p.pid}
    return found


@atexit.register
def close_all():
    while _open:
        _open.popitem()[1].close()


class Caller(harness.Who):
    """A caller whose plain requests go by a door; what has options or variables of its own goes as it always does"""

    def __init__(self, name, who):
        super().__init__(who.name, who.uid, who.gid, who.home, who.binary)
        self.via = name

    @property
    def mode(self):
        return "warm"

    def trigger_raw(self, request, *options, **kw):
        own = kw.get("preexec_fn") not in (None, harness.forbid_processes)  # the latter: behind a door the server starts them
        if options or kw.get("env") or own:
            return super().trigger_raw(request, *options, **kw)
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        return way(self, self.via).ask(body, kw.get("timeout", 60))


def caller(who):
    (name,) = chosen("local")
    return who if name == "local" else Caller(name, who)
