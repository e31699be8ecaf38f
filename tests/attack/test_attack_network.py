# SPDX-License-Identifier: Apache-2.0
"""Reaching a listener of the host, or making sockets that reach into the kernel."""

import socket
import threading
import time

import pytest

from attack_support import PYTHON, Case, environment, need_binary, trigger, verdict_of
from both import test_control, test_inside  # noqa: F401

UNREACHED = ("ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "TimeoutError", "EAGAIN", "ETIMEDOUT", "EACCES")
NO_FAMILY = ("EAFNOSUPPORT", "EPERM", "ENOSYS", "EACCES", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")
NONE = {"network": "none"}

TCP = """
def attack(P):
    s = socket.create_connection(("127.0.0.1", P["tcp"]), 2)
    return s.recv(99)
"""
UDP = """
def attack(P):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.sendto(b"hello", ("127.0.0.1", P["udp"]))
    return s.recv(99)
"""
ROUTES = """
def attack(P):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.settimeout(2)
    s.send(struct.pack("=IHHIIB3x", 20, 18, 0x301, 1, 0, 0))   # RTM_GETLINK, dump
    names, data = [], s.recv(65536)
    while data:
        n, kind = struct.unpack_from("=IH", data)
        if kind == 3:
            break
        at = 32
        while at + 4 <= n:
            size, what = struct.unpack_from("=HH", data, at)
            if what == 3:
                names.append(data[at + 4:at + size - 1].decode())
            at += max(4, (size + 3) & ~3)
        data = data[(n + 3) & ~3:] or s.recv(65536)
    return [n for n in names if n != "lo"]
"""


def sock(name, family, kind, proto, control="root", why=""):
    return Case("socket-" + name, "def attack(P):\n    return SC('socket', %d, %d, %d)\n" % (family, kind, proto),
                NO_FAMILY, control, why)


CASES = [
    Case("tcp-to-the-host", TCP, UNREACHED, "user"),
    Case("tcp-to-the-host-no-network", TCP, ("EAFNOSUPPORT",), "user", request=NONE),
    Case("tcp6-to-the-host", """
def attack(P):
    s = socket.create_connection(("::1", P["tcp6"]), 2)
    return s.recv(99)
""", UNREACHED + ("EADDRNOTAVAIL",), "user"),
    Case("udp-to-the-host", UDP, UNREACHED, "user"),
    Case("udp-to-the-host-no-network", UDP, ("EAFNOSUPPORT",), "user", request=NONE),
    Case("host-by-its-address", """
def attack(P):
    s = socket.create_connection((P["addresses"][0], P["tcp"]), 2)
    return s.recv(99)
""", UNREACHED, "user"),
    Case("outside-addresses", """
def attack(P):
    last = None
    for where in ("198.51.100.1", "169.254.169.254", "10.0.0.1"):
        s = socket.socket()
        s.settimeout(1)
        try:
            s.connect((where, 80))
            return where
        except OSError as e:
            last = e
            if e.errno != errno.ENETUNREACH:
                return "%s: %s, not out of reach at once" % (where, e)
    raise last
""", ("ENETUNREACH",), "", "an outside address is never tried outside the sandbox"),
    Case("abstract-socket", """
def attack(P):
    s = socket.socket(socket.AF_UNIX)
    s.connect("\\0" + P["abstract"])
    return s.recv(99)
""", ("ECONNREFUSED", "EPERM"), "user"),
    Case("socket-file", """
def attack(P):
    s = socket.socket(socket.AF_UNIX)
    s.connect(P["unix"])
    return s.recv(99)
""", ("ENOENT",), "user"),
    Case("interfaces", ROUTES, ("nothing",) + NO_FAMILY, "user"),
    Case("interfaces-no-network", ROUTES, NO_FAMILY, "user", request=NONE),
    Case("lo-down", """
def attack(P):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(s, 0x8914, struct.pack("16sH22x", b"lo", 0))
    return True
""", ("EPERM", "ENOTTY"), "private"),
    Case("add-address", """
def attack(P):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    a = struct.pack("16sHH4s8x8x", b"lo", socket.AF_INET, 0, socket.inet_aton("127.1.2.3"))
    fcntl.ioctl(s, 0x8916, a)
    return True
""", ("EPERM", "ENOTTY"), "private"),
    Case("attach-filter", """
def attack(P):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    code = BUF(struct.pack("=HBBI", 6, 0, 0, 0xffff))
    s.setsockopt(socket.SOL_SOCKET, 26, struct.pack("=HxxxxxxQ", 1, code.value))
    return True
""", ("ENOPROTOOPT", "EPERM", "EACCES"), "user"),
    Case("zero-copy", """
def attack(P):
    s = socket.socket(socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, 60, 1)
    return True
""", ("ENOPROTOOPT", "EPERM"), "user"),
    Case("out-of-band", """
def attack(P):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return a.send(b"x", socket.MSG_OOB)
""", ("EOPNOTSUPP", "EPERM"), "user"),
    Case("socket-option-tables", """
def attack(P):
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 255) if os.geteuid() == 0 else socket.socket()
    return s.getsockopt(0, 64, 84) and True
""", NO_FAMILY + ("ENOPROTOOPT", "EINVAL"), "", "needs the iptables module of the host"),
    sock("packet", 17, 3, 0x300, "private"),
    sock("raw-icmp", 2, 3, 1, "private"),
    sock("raw-icmp-high-bits", 2 | 0x700000000, 3, 1, "private"),
    sock("raw-ipv6", 10, 3, 58, "private"),
    sock("netlink-xfrm", 16, 3, 6, "private"),
    sock("netlink-uevent", 16, 3, 15, "private"),
    sock("netlink-audit", 16, 3, 9, "", "not in every kernel"),
    sock("netlink-netfilter", 16, 3, 12, "", "not in every kernel"),
    sock("algorithms", 38, 5, 0, "", "not in every kernel"),
    sock("vsock", 40, 1, 0, "", "not in every kernel"),
    sock("vsock-high-bits", 40 | 0x700000000, 1, 0, "", "not in every kernel"),
    sock("rds", 21, 5, 0, "", "not in every kernel"),
    sock("rxrpc", 33, 2, 2, "", "not in every kernel"),
    sock("tipc", 30, 2, 0, "", "not in every kernel"),
    sock("can", 29, 3, 1, "", "not in every kernel"),
    sock("xdp", 44, 3, 0, "", "not in every kernel"),
    sock("smc", 43, 1, 0, "", "not in every kernel"),
    sock("key", 15, 3, 2, "", "not in every kernel"),
    sock("sctp", 2, 1, 132, "", "not in every kernel"),
    sock("mptcp", 2, 1, 262, "", "not in every kernel"),
]

SERVER = """
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
c = socket.create_connection(s.getsockname())
peer, _ = s.accept()
peer.sendall(b"mine")
print(c.recv(9).decode(), flush=True)
time.sleep(1.5)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def knock(port, end):
    """Whether anything answers on @port of the host's loopback before @end."""
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False


def test_own_server_is_private(who):
    """A server of the script works for the script, and its port is nobody else's."""
    need_binary()
    port, answers = free_port(), []
    t = threading.Thread(target=lambda: answers.append(knock(port, time.monotonic() + 2.0)))
    t.start()
    result = trigger({"script_content": SERVER, "args": [str(port)], "timeout": 10}, who)
    t.join()
    assert (result["status"], result["stdout"]) == ("ok", "mine\n"), result
    assert answers == [False]


def test_own_server_control(folder):
    """Outside, the same server is reached."""
    import subprocess
    port = free_port()
    p = subprocess.Popen([PYTHON, "-c", SERVER, str(port)], stdout=subprocess.PIPE, env=environment("user"))
    try:
        assert knock(port, time.monotonic() + 20)
    finally:
        p.kill()
        p.communicate()


@pytest.mark.parametrize("network", ["loopback", "none"])
def test_names_fail_at_once(who, network):
    """No resolver: a name is refused at once, not after five seconds."""
    need_binary()
    script = """
import socket, time
t = time.monotonic()
try:
    print(socket.getaddrinfo("example.invalid", 80))
except OSError as e:
    print("refused", time.monotonic() - t)
"""
    result = trigger({"script_content": script, "network": network, "timeout": 20}, who)
    words = result["stdout"].split()
    assert words and words[0] == "refused", result
    assert float(words[1]) < 4.5


def test_two_runs_cannot_meet(who):
    """Two runs at the same time: no abstract socket, loopback port or shared memory of one is seen by the other."""
    need_binary()
    one = """
import socket, time
a = socket.socket(socket.AF_UNIX); a.bind("\\0meeting-place"); a.listen()
t = socket.socket(); t.bind(("127.0.0.1", 45454)); t.listen()
open("/dev/shm/meeting", "w").write("x"); open("/tmp/meeting", "w").write("x")
time.sleep(3)
"""
    two = """
import json, os, socket, time
found, end = [], time.monotonic() + 1.5
while time.monotonic() < end:
    for family, where in ((socket.AF_UNIX, "\\0meeting-place"), (socket.AF_INET, ("127.0.0.1", 45454))):
        try:
            socket.socket(family).connect(where)
            found.append(str(where))
        except OSError:
            pass
    found += [p for p in ("/dev/shm/meeting", "/tmp/meeting") if os.path.exists(p)]
    time.sleep(0.05)
print(json.dumps({"held": "nothing"} if not found else {"breach": str(found)}))
"""
    import json
    from attack_support import begin
    p = begin({"script_content": one, "timeout": 10}, who)
    time.sleep(0.5)
    result = trigger({"script_content": two, "timeout": 10}, who)
    first = json.loads(p.stdout.read())
    p.wait()
    assert first["status"] == "ok", first
    assert verdict_of(result["stdout"]) == {"held": "nothing"}
