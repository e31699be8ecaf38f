# SPDX-License-Identifier: Apache-2.0
"""What goes in (stdin, args, env, files) and what a script finds inside (contract, section 7)."""
import ast
import base64
import json
import os
import socket

import pytest

MIB = 1 << 20


def said(r):
    """The Python value that the script printed"""
    assert r.verdict == ("ok", 0), r
    return ast.literal_eval(r.stdout)


# ---- standard input ----------------------------------------------------------------------------------------------

def test_stdin_text(who):
    r = who.trigger("import sys\nprint(ascii(sys.stdin.read()))", stdin="h\u00e9llo\n\u4e2d\0end")
    assert said(r) == "h\u00e9llo\n\u4e2d\0end"


def test_stdin_base64(who):
    body = bytes(range(256)) * 3
    r = who.trigger("import sys\nprint(sys.stdin.buffer.read())", stdin={"base64": base64.b64encode(body).decode()})
    assert said(r) == body


def test_stdin_empty_is_end_of_file(who):
    assert said(who.trigger("import sys\nprint((sys.stdin.read(), sys.stdin.read()))", timeout=10)) == ("", "")
    r = who.trigger("input()")
    assert r.verdict == ("error", 1) and r.stderr.rstrip().endswith("EOFError: EOF when reading a line")


def test_stdin_16_mib(who):
    script = ("import sys, hashlib\nb = sys.stdin.buffer.read()\nprint((len(b), hashlib.sha256(b).hexdigest()))")
    import hashlib
    text = "0123456789abcdef" * MIB
    assert said(who.trigger(script, stdin=text)) == (16 * MIB, hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.parametrize("script,out", [
    ("print('did not look')", "did not look\n"),
    ("import os\nos.close(0)\nprint('closed')", "closed\n"),
    ("import sys\nprint(len(sys.stdin.buffer.read(10)))", "10\n"),
    ("import os, sys\nos.read(0, 100)\nos.close(0)\nsys.stdout.write('x' * 300000)", "x" * 300000),
])
def test_stdin_never_read_or_closed_early(who, script, out):
    r = who.trigger(script, stdin="y" * (16 * MIB), timeout=10)
    assert (r.verdict, r.stdout) == (("ok", 0), out)


def test_stdin_of_run(who):
    p = who.run("import sys\nprint(len(sys.stdin.buffer.read()))", input=b"\xff" * (3 * MIB))
    assert p.stdout == b"3145728\n"
    p = who.run("print('did not look')", input=b"\xff" * (3 * MIB))
    assert (p.returncode, p.stdout) == (0, b"did not look\n")
    p = who.run("print(input())", "--stdin", who.file("from a file\n", "in.txt"), input=b"from the pipe\n")
    assert p.stdout == b"from a file\n"


# ---- args, env, files --------------------------------------------------------------------------------------------

def test_args(who):
    args = ["", " ", "a b", "-x", "--", "--timeout", "\n", "'\"$(id)`", "h\u00e9 \u4e2d \U0001f40d", "*", "\\"]
    assert said(who.trigger("import sys\nprint(ascii(sys.argv[1:]))", args=args)) == args


def test_many_and_long_args(who):
    assert said(who.trigger("import sys\nprint(len(sys.argv))", args=["a"] * 5000)) == 5001
    assert said(who.trigger("import sys\nprint(len(sys.argv[1]))", args=["b" * 131071])) == 131071


def test_env_is_exact_and_nothing_of_ours(who):
    value = " a=b\n\u00e9\u4e2d'\"$HOME\\ "
    r = who.trigger("import os\nprint(ascii(dict(os.environ)))", env={"MY_VALUE": value, "EMPTY": "", "_x": "1"},
                    env_outside={"SECRET_OF_THE_HOST": "canary", "PYTHONPATH": "/canary", "LD_LIBRARY_PATH": "/canary"})
    env = said(r)
    assert (env["MY_VALUE"], env["EMPTY"], env["_x"]) == (value, "", "1")
    assert "canary" not in str(env) and "SECRET_OF_THE_HOST" not in env
    assert env["HOME"] == "/tmp" and env["PATH"] and env["LANG"] == "C.UTF-8" or env.get("LC_ALL") == "C.UTF-8"
    assert not {"SUDO_USER", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "TERM"} & set(env)
    assert not [name for name in env if name.startswith("CLOCHE")], "not a word of ours in the script's environment"


def test_env_reaches_python_itself(who):
    r = who.trigger("import sys, os\nprint((hash('a'), sys.flags.optimize, os.environ['HOME']))",
                    env={"PYTHONHASHSEED": "0", "PYTHONOPTIMIZE": "1", "HOME": "/tmp/h"})
    import subprocess
    expected = subprocess.run(["/usr/bin/python3", "-c", "print(hash('a'))"], env={"PYTHONHASHSEED": "0"}, timeout=20,
                              capture_output=True, check=True).stdout
    assert said(r) == (int(expected), 1, "/tmp/h")


def test_files(who):
    files = {"data.txt": "t\u00e9xt\n", "bin": {"base64": base64.b64encode(bytes(range(256))).decode()}, "empty": "",
             "pkg/__init__.py": "", "pkg/deep/er/x.txt": "deep", "helper.py": "def f(): return 'helped'\n",
             "odd name \u4e2d'\"$.txt": "odd", "-rf": "dash", ".hidden": "dot"}
    script = """
import helper, os, pkg
print(ascii((helper.f(), open('data.txt', encoding='utf-8').read(), open('bin', 'rb').read(), os.path.getsize('empty'),
      open('pkg/deep/er/x.txt').read(), open("odd name \u4e2d'\\"$.txt").read(), open('./-rf').read(),
      open('.hidden').read(),
      sorted(os.listdir('/tmp')))))
for name in ('data.txt', 'pkg/deep/new', 'unnamed_script.py'):
    open(name, 'a').close()
"""
    r = who.trigger(script, files=files)
    value = said(r)
    assert value[:8] == ("helped", "t\u00e9xt\n", bytes(range(256)), 0, "deep", "odd", "dash", "dot")
    assert set(value[8]) - {"__pycache__"} == {n.split("/")[0] for n in files} | {"unnamed_script.py"}


def test_files_and_script_belong_to_the_script(who):
    script = """
import os, stat
for name in ('a', 'd', 'd/b', __file__):
    s = os.stat(name)
    assert (s.st_uid, s.st_gid) == (os.getuid(), os.getgid()), (name, s)
    os.rename(name, name + '.x'); os.rename(name + '.x', name)
os.chmod('a', 0o600); os.unlink(__file__); open(__file__, 'w').write('again')
print('fine')
"""
    assert who.trigger(script, files={"a": "1", "d/b": "2"}).stdout == "fine\n"


def test_run_file_option(who):
    source = who.file("from outside\n", "in put.txt")
    p = who.run("print(open('in put.txt').read() + open('sub/other').read(), end='')", "--file", source,
                "--file", f"{source}:sub/other")
    assert (p.returncode, p.stdout) == (0, b"from outside\nfrom outside\n"), p


# ---- the script itself -------------------------------------------------------------------------------------------

def test_script_identity(who):
    script = """
import os, sys
print(ascii((sys.argv, __file__, __name__, sys.path[0], os.getcwd(), os.environ['HOME'], os.path.expanduser('~'),
             sorted(k for k in globals() if k not in ('os', 'sys')), open(__file__).read().count('\\n'))))
"""
    argv, file, name, path, cwd, home, tilde, names, lines = said(who.trigger(script, script_name="my script.py"))
    assert argv == ["/tmp/my script.py"] and file == "/tmp/my script.py" and name == "__main__"
    assert (path, cwd, home, tilde) == ("/tmp", "/tmp", "/tmp", "/tmp")
    assert names == ["__annotations__", "__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__",
                     "__package__", "__spec__"] and lines == script.count("\n")


@pytest.mark.parametrize("name", ["noext", ".hidden.py", "-c", "-", "--help", "a'b\"c$(id).py", "\u4e2d\u6587.py",
                                  "sp ace.py", "json.py", "n" * 255, "x.txt", "%s%n.py"])
def test_script_names(who, name):
    r = who.trigger("import sys\nprint(ascii(sys.argv[0]))", script_name=name)
    assert said(r) == "/tmp/" + name and r.script_name == name


def test_script_is_byte_for_byte(who):
    show = "print(open(__file__, 'rb').read())"
    for script in (f"# -*- coding: latin-1 -*-\n{show}", f"\ufeff{show}", f"#!/bin/sh\r\n{show}\r\n",
                   f"{show} # no newline", f"from __future__ import annotations\n{show}\n\n\n"):
        assert said(who.trigger(script)) == script.encode()


def test_tracebacks_have_true_names_and_lines(who):
    r = who.trigger("def f():\n    return 1/0\n\nf()\n", script_name="tb.py")
    assert r.verdict == ("error", 1)
    assert r.stderr.splitlines()[:5] == ["Traceback (most recent call last):",
                                         '  File "/tmp/tb.py", line 4, in <module>', "    f()",
                                         '  File "/tmp/tb.py", line 2, in f', "    return 1/0"]
    assert r.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    r = who.trigger("x = 1\nif x\n    pass", script_name="tb.py")
    assert r.verdict == ("error", 1) and 'File "/tmp/tb.py", line 2' in r.stderr and "SyntaxError" in r.stderr
    r = who.trigger("import inspect\ndef g(): return 5\nprint(inspect.getsource(g))")
    assert r.stdout == "def g(): return 5\n\n"


def test_unbuffered_unless_asked(who):
    script = "import os\nprint('text')\nos._exit(0)"
    assert who.trigger(script).stdout == "text\n"
    assert who.trigger(script, buffered=True).stdout == ""
    assert who.trigger("print('text')", buffered=True).stdout == "text\n"
    assert who.run(script).stdout == b"text\n" and who.run(script, "--buffered").stdout == b""


def test_identity_and_place(who):
    script = """
import os, pwd, grp, time, locale, sys, socket, getpass
me = pwd.getpwuid(os.getuid())
print(ascii((os.getuid(), os.geteuid(), os.getgid(), os.getgroups(), me[0], getpass.getuser(), me[5], time.tzname,
             time.localtime(0)[3], sys.stdout.encoding, sys.getfilesystemencoding(), locale.getpreferredencoding())))
"""
    uid, euid, gid, groups, name, user, home, zone, hour, *encodings = said(who.trigger(script))
    assert (uid, euid) == (1000, 1000) and gid != 0 and 0 not in groups
    assert (name, user, home) == ("sandbox", "sandbox", "/tmp")
    assert zone == ("UTC", "UTC") and hour == 0
    assert [e.lower() for e in encodings] == ["utf-8"] * 3


def test_locale_of_the_host_does_not_matter(who):
    for outside in ({"LC_ALL": "C"}, {"LANG": "de_DE.ISO-8859-1", "TZ": "Asia/Tokyo"}):
        r = who.trigger("import time\nprint('\u00e9 \u4e2d \u2639', time.tzname[0])", env_outside=outside)
        assert r.stdout == "\u00e9 \u4e2d \u2639 UTC\n"


def test_devices(who):
    r = who.trigger("import os\nprint(sorted(os.listdir('/dev')))\n"
                    "open('/dev/null', 'w').write('x'); assert open('/dev/zero', 'rb').read(3) == b'\\0' * 3\n"
                    "assert len(open('/dev/urandom', 'rb').read(8)) == len(open('/dev/random', 'rb').read(8)) == 8\n"
                    "open('/dev/shm/x', 'w').write('y')\n"
                    "try: open('/dev/full', 'w').write('x')\nexcept OSError as e: assert e.errno == 28")
    there, promised = set(said(r)), {"null", "zero", "full", "random", "urandom", "shm"}
    assert promised <= there and not there - promised - {"fd", "stdin", "stdout", "stderr"}


def test_only_its_own_processes(who):
    script = """
import os
seen = {}
for p in os.listdir('/proc'):
    if p.isdigit():
        try: seen[int(p)] = open(f'/proc/{p}/cmdline').read()
        except OSError as e: seen[int(p)] = e.errno
print(ascii((os.getpid(), seen, sorted(p for p in os.listdir('/proc') if not p.isdigit()))))
"""
    me, seen, rest = said(who.trigger(script))
    assert me in seen and set(seen) <= {1, me}, seen
    assert not set(rest) - {"self", "thread-self"}, "subset=pid"


def test_nothing_of_the_host_to_see(who):
    script = """
import os
print(ascii({p: (sorted(os.listdir(p)) if os.path.isdir(p) else os.path.exists(p))
             for p in ('/', '/etc', '/root', '/home', '/var', '/run', '/sys', '/mnt', '/srv', '/boot', '/tmp')}))
names = {os.uname().nodename}
if os.path.exists('/etc/hostname'): names.add(open('/etc/hostname').read().strip())
print(ascii(names), file=__import__('sys').stderr)
"""
    r = who.trigger(script)
    seen = said(r)
    for folder in ("/root", "/home", "/var", "/run", "/mnt", "/srv", "/boot"):
        assert not seen[folder], (folder, seen[folder])
    assert not {"shadow", "gshadow", "ssh", "sudoers", "machine-id", "cloche"} & set(seen["/etc"])
    assert seen["/tmp"] == ["unnamed_script.py"]
    assert len(ast.literal_eval(r.stderr)) == 1 and socket.gethostname() not in ast.literal_eval(r.stderr)


def test_descriptors_are_three_fresh_pipes(who):
    script = """
import os, stat
d = os.open('/proc/self/fd', os.O_RDONLY)
open_now = sorted(int(f) for f in os.listdir(d))
print((len([f for f in open_now if f != d]), [stat.S_ISFIFO(os.fstat(f).st_mode) for f in (0, 1, 2)], os.isatty(0), d))
"""
    count, pipes, tty, _ = said(who.trigger(script))
    # listdir() itself opens one more for a moment
    assert count <= 4 and pipes == [True] * 3 and not tty


# ---- network -----------------------------------------------------------------------------------------------------

def test_network_none(who):
    script = """
import socket, errno
seen = []
for family in (socket.AF_INET, socket.AF_INET6):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try: socket.socket(family, kind); seen.append('made')
        except OSError as e: seen.append(errno.errorcode[e.errno])
a, b = socket.socketpair(); a.send(b'x'); seen.append(b.recv(1).decode())
print(seen)
"""
    assert said(who.trigger(script, network="none")) == ["EAFNOSUPPORT"] * 4 + ["x"]


def test_network_loopback_is_its_own(who):
    """The host's own listener is the control: reachable from here, not from inside."""
    script = """
import socket, sys, errno
s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.send(b'hi')
seen = [a.recv(2).decode(), [name for _, name in socket.if_nameindex()]]
for address in (('127.0.0.1', int(sys.argv[1])), ('192.0.2.1', 80), ('169.254.169.254', 80)):
    try: socket.create_connection(address, 2); seen.append('connected')
    except OSError as e: seen.append(errno.errorcode.get(e.errno, str(e)))
u = socket.socket(socket.AF_UNIX)
try: u.connect('\\0' + sys.argv[2]); seen.append('connected')
except OSError as e: seen.append(errno.errorcode[e.errno])
print(seen)
"""
    with socket.create_server(("127.0.0.1", 0)) as canary, socket.socket(socket.AF_UNIX) as abstract:
        name = f"canary-{os.getpid()}"
        abstract.bind("\0" + name)
        abstract.listen()
        canary.settimeout(2)
        socket.create_connection(canary.getsockname(), 2).close()
        canary.accept()[0].close()
        r = who.trigger(script, args=[str(canary.getsockname()[1]), name])
        canary.settimeout(0.1)
        with pytest.raises(TimeoutError):
            canary.accept()
    assert said(r) == ["hi", ["lo"], "ECONNREFUSED", "ENETUNREACH", "ENETUNREACH", "ECONNREFUSED"]


def test_names_fail_at_once(who):
    r = who.trigger("import socket, time\nt = time.monotonic()\ntry: socket.getaddrinfo('example.invalid', 80)\n"
                    "except OSError: pass\nprint(time.monotonic() - t < 4.5, socket.gethostbyname('localhost'))")
    assert r.stdout == "True 127.0.0.1\n"


# ---- two runs share nothing --------------------------------------------------------------------------------------

def test_two_runs_share_nothing(who):
    plant = """
import os, ctypes
for f in ('/tmp/left', '/dev/shm/left', '/tmp/sitecustomize.py', '/tmp/usercustomize.py'):
    open(f, 'w').write('raise SystemExit(99)')
os.makedirs(os.path.expanduser('~/.local/lib/python3/site-packages'), exist_ok=True)
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(4242, 4096, 0o1666), libc.semget(4242, 1, 0o1666), libc.msgget(4242, 0o1666))
"""
    look = """
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
ids = libc.shmget(4242, 4096, 0), libc.semget(4242, 1, 0), libc.msgget(4242, 0)
print(ascii((sorted(os.listdir('/tmp')), os.listdir('/dev/shm'), *ids)))
"""
    assert who.trigger(plant).verdict == ("ok", 0)
    assert said(who.trigger(look)) == (["unnamed_script.py"], [], -1, -1, -1)


def test_two_runs_at_once_share_nothing(who):
    script = """
import os, socket, time, errno
s = socket.socket(socket.AF_UNIX); s.bind('\\0the same name'); s.listen()
t = socket.create_server(('127.0.0.1', 45454))
open('/tmp/mine', 'x'); open('/dev/shm/mine', 'x')
time.sleep(0.5)
print(len([p for p in os.listdir('/proc') if p.isdigit()]) <= 2, os.listdir('/dev/shm'))
"""
    results = who.batch([{"script_content": script, "script_name": f"r{i}.py"} for i in range(2)], jobs=2)
    assert [r.stdout for r in results.values()] == ["True ['mine']\n"] * 2


def test_two_runs_are_not_alike(who):
    script = """
import random, uuid, tempfile, os, ssl, multiprocessing, json, secrets
print(json.dumps([random.random(), str(uuid.uuid4()), str(uuid.uuid1()), hash('a'), os.urandom(8).hex(),
                  tempfile.mktemp(), ssl.RAND_bytes(8).hex(), secrets.token_hex(),
                  bytes(multiprocessing.current_process().authkey).hex()]))
"""
    first, second, third = (json.loads(who.trigger(script).stdout) for _ in range(3))
    if who.mode == "warm":  # forks of one interpreter have its hash seed
        for values in (first, second, third):
            del values[3]
    for a, b, c in zip(first, second, third):
        assert len({a, b, c}) == 3, (a, b, c)


def test_names_of_services_and_protocols(who):
    """As the host has them: its files, where they are there."""
    script = """
import socket
def ask(f, name):
    try:
        return f(name)
    except OSError:
        return None
print([ask(socket.getservbyname, n) for n in ('https', 'ssh', 'no-such')] +
      [ask(socket.getprotobyname, n) for n in ('icmp', 'tcp', 'no-such')])
"""
    def ask(f, name):
        try:
            return f(name)
        except OSError:
            return None
    wanted = ([ask(socket.getservbyname, n) for n in ("https", "ssh", "no-such")] +
              [ask(socket.getprotobyname, n) for n in ("icmp", "tcp", "no-such")])
    assert said(who.trigger(script)) == wanted
