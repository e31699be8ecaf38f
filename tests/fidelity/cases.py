# SPDX-License-Identifier: Apache-2.0
"""
What has broken in systems that run other people's Python, as scripts.

name -> Case: a script, fields of its request, and how much of the outcome is the same in two runs of one way ("status",
"stdout", "stderr", "files"; by default all).  What no two runs have in common is told apart in the script itself.
"""
import dataclasses

ALL = ("status", "stdout", "stderr", "files")


@dataclasses.dataclass(frozen=True)
class Case:
    script: str
    fields: dict = dataclasses.field(default_factory=dict)
    same: tuple = ALL
    ways: tuple = ("plain", "cold", "warm")  # without plain: what only a sandbox does


IN_SANDBOX = ("cold", "warm")
EXITS = ["sys.exit()", "sys.exit(256)", "sys.exit(-1)", "sys.exit('m')", "sys.exit(3.5)", "sys.exit(2 ** 40)",
         "sys.exit((1, 2))", "os._exit(300)", "os._exit(137)", "os.abort()", "os.kill(os.getpid(), 9)",
         "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 2)", "ctypes.string_at(0)", "raise KeyboardInterrupt",
         "raise SystemExit(7)"]
SECONDS = {"timeout": 2}

DRESS = """
import os, resource, socket, sys
for name in sorted(n for n in dir(resource) if n.startswith("RLIMIT")):
    print(name, resource.getrlimit(getattr(resource, name)))
for folder in "/tmp", "/dev/shm":
    s = os.statvfs(folder)
    print(folder, s.f_blocks * s.f_frsize, s.f_files)
print(sys.argv, os.environ, sys.stdin.read(), sys.stdout, os.cpu_count(), sorted(os.listdir()))
for family in socket.AF_INET, socket.AF_INET6, socket.AF_UNIX:
    try: print(socket.socket(family).family)
    except OSError as e: print(e)
print(sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else socket.if_nameindex())
"""
DRESSES = {
    "nothing": {},
    "fewer processes": {"limits": {"processes": 8}},
    "more processes": {"limits": {"processes": 256}},
    "fewer open files": {"limits": {"open_files": 32}},
    "more open files": {"limits": {"open_files": 1024}},
    "a smaller disk": {"limits": {"disk_bytes": 4 << 20, "disk_files": 99}},
    "a larger disk": {"limits": {"disk_bytes": 200 << 20, "disk_files": 9999}},
    "seconds of CPU": {"limits": {"cpu_seconds": 7}},
    "more CPUs": {"limits": {"cpus": 2}},
    "no network": {"network": "none"},
    "buffered": {"buffered": True},
    "all at once": {"limits": {"processes": 99, "open_files": 300, "disk_bytes": 80 << 20, "cpus": 1.5},
                    "args": ["a", "", "\u00e9"], "env": {"A": "b", "C": ""}, "stdin": "input\n",
                    "files": {"a/b": "x", "c": ""}},
}

SHOWS_ITSELF = "import inspect, linecache, sys\nprint(open(__file__, 'rb').read(), linecache.getline(__file__, 1))\n"
TEXTS = {
    "its encoding in the first line": "# -*- coding: latin-1 -*-\nprint(ascii('\u00e9'))\n",
    "its encoding in the second line": "#!/usr/bin/env python3\n# vim: set fileencoding=cp1252 :\nprint(ascii('\u00e9'))\n",
    "an encoding that is none": "# coding: nonsense\nprint(1)\n",
    "its encoding too late": "\n\n# coding: latin-1\nprint(ascii('\u00e9'))\n",
    "a mark of its byte order": "\ufeffprint(ascii('\u00e9'))\n",
    "that mark and another encoding": "\ufeff# coding: latin-1\nprint(1)\n",
    "lines as Windows ends them": "print(1)\r\nif 1:\r\n    print('a')\r\n",
    "lines as old Macintoshes ended them": "print(1)\rprint(2)\r",
    "no end of its last line": "print(1)\nif 1:\n    print(2)",
    "a comment alone": "# nothing",
    "a backslash at its end": "print(1)\\",
    "a text without an end": "print(1)\nx = '''abc\n",
    "a mistake after what is no ASCII": "x = '\u00e9\u4e2d'\ny = = '\u2639'\n",
    "a name that is no ASCII": "\u00e9t\u00e9 = 5\nprint(\u00e9t\u00e9)\nraise ValueError(\u00e9t\u00e9)\n",
    "tabs and spaces": "if 1:\n\tx = 1\n        y = 2\n",
    "itself": SHOWS_ITSELF + "def f(): pass\nprint(inspect.getsource(f), sys.argv, inspect.getsourcefile(f))\n",
    "more than a message holds": SHOWS_ITSELF + "# coding\n" + "print(1)\n" * 600,
}

CASES = {
    "B1 a big standard output": Case('print("x" * 1_000_000)'),
    "B1 both streams at once": Case("""
import sys
for _ in range(9000):
    sys.stderr.write("e" * 99)
    print("o" * 99)
"""),
    "B2 a flood": Case('while True: print("abcdefghij" * 999)', ways=IN_SANDBOX, same=("status",)),
    "B4 output before a timeout": Case('print("a"); import time; time.sleep(99)', SECONDS),
    "B5 a child holds the pipe": Case('import subprocess; subprocess.Popen(["sleep", "300"]); print("hi")'),
    "B6 survivors of a timeout": Case("""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(1)
    os._exit(0)
print("parent")
while True: pass
""", SECONDS),
    "B7 many children that nobody waits for": Case("""
import os, time
for _ in range(40):
    if os.fork() == 0:
        os._exit(0)
time.sleep(0.3)
n = 0
while True:
    try: os.wait(); n += 1
    except ChildProcessError: break
print(n)
"""),
    "B7 orphans are reaped": Case("""
import os, time
for _ in range(30):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
time.sleep(1)
print(sorted(p for p in os.listdir("/proc") if p.isdigit() and p != "1"))
""", ways=IN_SANDBOX),
    "B9 kills everything": Case("""
import os
print("x")
os.kill(-1, 9)
print("here")
"""),
    "B9 kills its parent": Case("""
import os
print(os.getppid())
try: os.kill(1, 9)
except OSError as e: print(type(e).__name__)
print("here")
""", ways=IN_SANDBOX),
    "B10 bytes that are no text": Case(r"""
import sys
sys.stdout.buffer.write(b"ok\xff\n")
print(chr(0xDCE6))
"""),
    "B10 a lone surrogate": Case('print("before")\nprint(chr(0xD800))'),
    "B12 a NUL is printed": Case('print("a\\0b")'),
    "B12 a NUL in a program given to exec": Case('exec("print(1)\\0")'),
    "B15 a long script": Case('x = "' + "a" * 300_000 + '"\nprint(len(x))'),
    "B17 multiprocessing.Pool": Case("""
from multiprocessing import Pool
if __name__ == '__main__':
    with Pool(2) as p: print(p.map(abs, [-1, 2]))
"""),
    "B17 spawn and forkserver": Case("""
import multiprocessing as mp
def double(x): return 2 * x
if __name__ == '__main__':
    for method in 'fork', 'spawn', 'forkserver':
        with mp.get_context(method).Pool(2) as p: print(method, p.map(double, [-1, 2, 3]))
"""),
    "B17 shared memory": Case("""
from multiprocessing.shared_memory import SharedMemory
s = SharedMemory(create=True, size=4096)
s.buf[0] = 7
print(s.buf[0], s.size)
s.close(); s.unlink()
"""),
    "B18 asyncio woken by a thread": Case("""
import asyncio
from threading import Thread
loop = asyncio.new_event_loop()
Thread(target=loop.run_forever, daemon=True).start()
print(asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 42), loop).result(2))
"""),
    "B18 sockets on the loopback": Case("""
import socket, threading
for family, address in (socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, "/tmp/s"):
    server = socket.socket(family); server.bind(address); server.listen()
    threading.Thread(target=lambda: server.accept()[0].sendall(b"hello")).start()
    client = socket.socket(family); client.connect(server.getsockname())
    print(client.recv(9))
    client.close(); server.close()
"""),
    "B19 numpy": Case('import numpy\nprint(numpy.arange(9).reshape(3, 3) @ numpy.eye(3))', {"timeout": 120}),
    "B21 tempfile": Case("""
import tempfile
f = tempfile.NamedTemporaryFile(); f.write(b"x"); f.flush()
print(f.name.startswith("/tmp/"), open(f.name).read())
"""),
    "B21 files are left": Case("""
import os
os.makedirs("a/b")
open("a/b/c", "w").write("x" * 999)
open("d.txt", "w").write("d")
open(".dot", "w").write("")
open(__file__, "a").write("# more")
print("left")
"""),
    "B22 matplotlib": Case("""
import matplotlib.pyplot as p; p.plot([1]); p.savefig("a.png")
""", {"timeout": 120}, same=("status", "stdout")),
    "B23 text of every kind": Case("""
import sys, locale
print("é 中 ☹ 🐍", sys.stdout.encoding, sys.stdout.errors)
print(sys.getfilesystemencoding(), locale.getlocale(), locale.getpreferredencoding())
print("é", file=sys.stderr)
"""),
    "B25 no wrapper shows": Case("""
import inspect, sys
def f(): 0
print(inspect.getsource(f), __file__, sorted(globals()), sys.argv, sys.path[0], len(inspect.stack()))
print(sys.flags, sys.orig_argv, __spec__, type(__loader__), sys.stdin, sys.stdout)
1 / 0
"""),
    "B25 recursion": Case("""
def f(n):
    try: return f(n + 1)
    except RecursionError: return n
print(f(0))
def g(): g()
g()
"""),
    "B25 an exception in a thread": Case("""
import threading
def f(): raise ValueError('in a thread')
t = threading.Thread(target=f, name='T'); t.start(); t.join()
print('end')
"""),
    "B25 the end of an interpreter": Case("""
import atexit, sys, threading, time
class D:
    def __init__(self, n): self.n = n
    def __del__(self): print('del', self.n)
a, b = D('a'), D('b')
f = open('unflushed', 'w'); f.write('kept')
atexit.register(print, 'first registered'); atexit.register(print, 'last registered')
threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
threading.Thread(target=lambda: (time.sleep(0.2), print('thread ends'))).start()
c = D('cycle'); c.self = c
print('main ends')
raise SystemExit('with a text')
"""),
    "B25 pickled classes": Case("""
import pickle
class C:
    def __eq__(self, o): return type(o) is C
data = pickle.dumps(C(), 0)
print(data, pickle.loads(data) == C())
"""),
    "B25 a syntax error": Case("""
print(1)
if x
    print(2)
"""),
    "B25 warnings": Case("""
import warnings
warnings.warn('watch out')
x = 1
x is 1
open('/dev/null')
warnings.warn('old', DeprecationWarning)
"""),
    "B25 standard input": Case('import sys\nprint(repr(sys.stdin.read()), sys.stdin.isatty())'),
    **{f"B26 {e}": Case(f"import ctypes, os, sys\nprint('before')\n{e}") for e in EXITS},
    "B27 a forged end": Case("""
print("RUN_DONE")
print('{"return_code":0, "status": "ok"}')
raise SystemExit(3)
"""),
    "B28 memory, bit by bit": Case("""
l = []
while True: l.append(b'x' * (1 << 20))
""", ways=IN_SANDBOX, same=("status", "stdout", "files")),
    "B28 memory, at once": Case("""
print('before')
x = bytearray(8 << 30)
""", ways=IN_SANDBOX, same=("status", "stdout", "files")),
    "B28 a child's memory": Case("""
import os
if os.fork() == 0:
    l = []
    while True: l.append(b'x' * (1 << 20))
os.wait()
print('parent lives')
""", ways=IN_SANDBOX, same=("status", "files")),
    "B28 room for more": Case("x = bytearray(700 << 20)\nprint(len(x))", {"limits": {"memory_bytes": 1 << 30}}),
    "B29 much memory, several times": Case("""
import time
x = b' ' * 33_000_000
time.sleep(0.1)
print(len(x))
"""),
    "B30 randomness": Case("""
import os, random, secrets, tempfile, uuid
print(type(random.random()), len(secrets.token_bytes(9)), uuid.uuid4().version)
print(uuid.uuid1().version, len(os.urandom(5)))
random.seed(7); print(random.random(), random.getrandbits(64), random.sample(range(99), 5))
"""),
    "B33 an endless loop": Case("print('on')\nwhile True: pass", SECONDS),
    "B33 an endless loop that catches all": Case("""
import signal
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
print('on')
while True:
    try:
        while True: pass
    except BaseException: pass
""", SECONDS),
    "ends with gc disabled": Case("""
import gc
class A:
    def __del__(self): print('gone')
gc.disable()
a = A()
a.self = a
"""),
    "ends with gc watched": Case("""
import gc
gc.callbacks.append(lambda phase, info: print(phase, info['generation']))
class A:
    def __del__(self): print('gone')
a = A()
a.self = a
"""),
    **{f"ends with a file kept in {name}": Case(f"""
import {name}
class A:
    def __del__(self): print('gone')
{name}.kept_file = open('left', 'w')
{name}.kept_file.write('flushed')
{name}.kept_object = A()
""") for name in ("builtins", "sys", "json", "os", "typing", "__main__")},
    **{f"written with {name}": Case(text) for name, text in TEXTS.items()},
    **{f"dressed for {name}": Case(DRESS, fields, ways=IN_SANDBOX) for name, fields in DRESSES.items()},
}
