# SPDX-License-Identifier: Apache-2.0
"""Scripts that could tell a fork of a warm interpreter from a new one: name -> text.  Each is run both ways.

A name with "buffered" in it runs with buffered streams, "args" with two more arguments, "environ" with one more variable.
"""

SCRIPTS = {
    "main.py": 'print("hello")\n',
    "facts.py": '''
import sys, os
print(sys.argv, sys.orig_argv if hasattr(sys, "orig_argv") else "", sys.flags, sys.path, sys.executable, sys.prefix)
print(__name__, __file__, __spec__, __doc__, __package__, type(__loader__).__name__, __loader__.path, __loader__.name)
print(os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0), os.getuid(), os.getcwd(), os.umask(0))
print(sorted(os.listdir("/proc/self/fd")), sorted(os.listdir("/proc/self/task")), open("/proc/self/comm").read())
print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.warnoptions, sys._xoptions, sys.dont_write_bytecode)
print(sys.excepthook is sys.__excepthook__, hasattr(sys, "last_value"), hasattr(sys, "ps1"), sys.gettrace(), sys.getprofile())
print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
print({k: v for k, v in sys.path_importer_cache.items() if k.startswith("/tmp")})
''',
    "globals.py": "print(list(globals()))\nprint(type(__builtins__), __builtins__.__name__)\n",
    "main_args.py": 'import sys\nprint(ascii(sys.argv))\nprint(open("/proc/self/cmdline", "rb").read()[:8])\n',
    "cmdline/main.py": 'print(open("/proc/self/cmdline", "rb").read())\n',
    "environ.py": '''
import os, subprocess
print(ascii(list(os.environ.items())), len(os.environb))
print(ascii(subprocess.run(["env"], stdout=subprocess.PIPE).stdout))
''',
    "streams.py": '''
import sys
for s in sys.stdin, sys.stdout, sys.stderr:
    print(repr(s), s.mode, s.errors, s.encoding, s.line_buffering, s.write_through, s.newlines, s.fileno(), s.isatty(), s.seekable())
    print(type(s.buffer).__name__, s.buffer.mode, s.buffer.name, getattr(s.buffer, "raw", None))
''',
    "streams_buffered.py": '''
import sys
for s in sys.stdin, sys.stdout, sys.stderr:
    print(repr(s), s.mode, s.errors, s.encoding, s.line_buffering, s.write_through, s.newlines, s.fileno(), s.isatty(), s.seekable())
    print(type(s.buffer).__name__, s.buffer.mode, s.buffer.name, getattr(s.buffer, "raw", None))
print(sys.stdin.readline(), list(sys.stdin), sys.stdout is sys.__stdout__)
''',
    "order_buffered.py": 'import os, sys\nprint("first")\nos.write(1, b"second\\n")\nprint("e", file=sys.stderr)\nos.write(2, b"f\\n")\n',
    "cstdio_buffered.py": '''
import ctypes, os
libc = ctypes.CDLL(None)
libc.printf(b"from C %d\\n", 1)
os.write(1, b"after\\n")
''',
    "cstdio.py": 'import ctypes, os\nlibc = ctypes.CDLL(None)\nlibc.printf(b"from C %d\\n", 1)\nos.write(1, b"after\\n")\n',
    "stdin.py": 'import sys\nprint(input("? "))\nprint(repr(sys.stdin.read()))\n',
    "exception.py": "def f(n):\n    return 1 / n\n\ndef g():\n    f(0)\n\ng()\n",
    "chained.py": '''
def f():
    try:
        {}["x"]
    except KeyError as e:
        raise ValueError("no") from e
try:
    f()
except ValueError:
    raise RuntimeError("deep \\u00e9 \\udc80")
''',
    "syntax.py": "print(1)\nif x\n    print(2)\n",
    "indent.py": "def f():\n  x = 1\n    y = 2\n",
    "nul_byte.py": "print(1)\n\0\n",
    "cookie.py": "# -*- coding: latin-1 -*-\nprint(ascii('\u00e9'))\n",
    "bad_cookie.py": "# -*- coding: nonsense -*-\nprint(1)\n",
    "bom.py": "\ufeffprint('bom')\n",
    "no_newline.py": "print('no newline at the end')",
    "carriage.py": "print('a')\r\nprint('''x\r\ny'''.encode())\r\n",
    "empty.py": "",
    "exit_none.py": "import sys\nsys.exit()\n",
    "exit_int.py": "import sys\nsys.exit(7)\n",
    "exit_big.py": "import sys\nsys.exit(256 + 3)\n",
    "exit_negative.py": "import sys\nsys.exit(-1)\n",
    "exit_huge.py": "import sys\nsys.exit(1 << 80)\n",
    "exit_true.py": "import sys\nsys.exit(True)\n",
    "exit_text.py": "import sys\nprint('out')\nsys.exit('a text \\u00e9')\n",
    "exit_object.py": "class C:\n    def __str__(self):\n        return 'an object'\nraise SystemExit(C())\n",
    "exit_tuple.py": "raise SystemExit(1, 2)\n",
    "exit_subclass.py": "class E(SystemExit):\n    code = 5\nraise E\n",
    "exit_builtin.py": "exit(4)\n",
    "exit_no_stderr.py": "import sys\nsys.stderr = None\nsys.exit('lost')\n",
    "exit_bad_str.py": "class C:\n    def __str__(self):\n        1 / 0\nraise SystemExit(C())\n",
    "exit_in_thread.py": "import threading, sys\nt = threading.Thread(target=lambda: sys.exit(3))\nt.start()\nt.join()\nprint('on')\n",
    "os_exit_buffered.py": "import os\nprint('lost')\nos._exit(9)\n",
    "excepthook.py": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__, a[1])\n1 / 0\n",
    "excepthook_bad.py": "import sys\ndef hook(*a):\n    raise KeyError('hook')\nsys.excepthook = hook\n1 / 0\n",
    "excepthook_exit.py": "import sys\ndef hook(*a):\n    sys.exit(6)\nsys.excepthook = hook\n1 / 0\n",
    "interrupt.py": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('not reached')\n",
    "interrupt_raised.py": "raise KeyboardInterrupt\n",
    "interrupt_caught.py": '''
import os, signal
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE), signal.getsignal(signal.SIGXFSZ))
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("caught")
''',
    "signals.py": '''
import signal
print([(s.name, str(signal.getsignal(s))) for s in sorted(signal.valid_signals()) if hasattr(s, "name")])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
''',
    "sigterm.py": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "sigsegv.py": "import ctypes\nctypes.string_at(0)\n",
    "abort.py": "import os\nos.abort()\n",
    "faulthandler_on.py": "import faulthandler, sys\nprint(faulthandler.is_enabled())\nfaulthandler.dump_traceback(sys.stderr)\n",
    "atexit_order.py": '''
import atexit
atexit.register(print, "first registered")
atexit.register(print, "second registered")
@atexit.register
def bad():
    1 / 0
@atexit.register
def look():
    import sys
    print("file" , "__file__" in globals(), sys._getframe(1) if hasattr(sys._getframe(0).f_back, "f_code") else None)
''',
    "atexit_exit.py": "import atexit, sys\natexit.register(lambda: print('at exit', '__file__' in globals()))\nsys.exit(2)\n",
    "atexit_thread.py": '''
import atexit, threading, time
def late():
    time.sleep(0.05)
    print("thread done")
atexit.register(print, "atexit after threads")
threading.Thread(target=late).start()
print("main done")
''',
    "daemon.py": '''
import threading, time
def forever():
    while True:
        time.sleep(0.001)
threading.Thread(target=forever, daemon=True).start()
class C:
    def __del__(self):
        print("del at exit")
c = C()
print("main done")
''',
    "thread_exception.py": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start()\nt.join()\nprint('main')\n",
    "thread_facts.py": '''
import threading, _thread
m = threading.main_thread()
print(m, m is threading.current_thread(), threading.active_count(), m.is_alive(), m.daemon, _thread._count())
print(m.ident == threading.get_ident(), m.native_id == threading.get_native_id())
r = threading.RLock()
with r:
    out = []
    t = threading.Thread(target=lambda: out.append(r.acquire(timeout=0.01)))
    t.start(); t.join()
    print(out)
''',
    "robust_mutex.py": '''
import ctypes, threading
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64); attr = ctypes.create_string_buffer(16)
libc.pthread_mutexattr_init(attr); libc.pthread_mutexattr_settype(attr, 1)
print(libc.pthread_mutex_init(mutex, attr), libc.pthread_mutex_lock(mutex))
got = []
t = threading.Thread(target=lambda: got.append(libc.pthread_mutex_trylock(mutex)))
t.start(); t.join()
print("another thread:", got, "again:", libc.pthread_mutex_lock(mutex), libc.gettid() == threading.get_native_id())
libc.pthread_self.restype = ctypes.c_void_p
clock = ctypes.c_int()
print(libc.pthread_kill(ctypes.c_void_p(libc.pthread_self()), 0), libc.pthread_getcpuclockid(ctypes.c_void_p(libc.pthread_self()), ctypes.byref(clock)))
''',
    "del_globals.py": '''
class Loud:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print("del", self.name)
a = Loud("a")
_b = Loud("_b")
c = Loud("c")
def function():
    return a
''',
    "del_plain.py": '''
class Loud:
    def __init__(self, name):
        self.name = name
    def __del__(self, print=print):
        print("del", self.name)
x, y, z = Loud("x"), Loud("y"), [Loud("in a list")]
z.append(z)
del Loud
''',
    "del_globals_seen.py": '''
import sys
helper = "still here"
class Loud:
    def __del__(self):
        print("sees", helper, sys is not None, __name__)
loud = Loud()
''',
    "del_exception.py": "class C:\n    def __del__(self):\n        1 / 0\nc = C()\nprint('end')\n",
    "del_frame.py": '''
class C:
    def __del__(self):
        print("del of a local")
def f():
    c = C()
    raise ValueError
f()
''',
    "del_exit.py": "import sys\nclass C:\n    def __del__(self):\n        print('del')\ndef f():\n    c = C()\n    sys.exit(1)\nf()\n",
    "del_cycle.py": '''
class C:
    def __init__(self):
        self.me = self
    def __del__(self):
        print("cycle del")
C()
k = C()
print("end")
''',
    "generator_end.py": '''
def g():
    try:
        yield 1
    finally:
        print("finally of a generator")
x = g()
print(next(x))
''',
    "unclosed_buffered.py": "f = open('/tmp/left.txt', 'w')\nf.write('flushed at exit')\nprint('written')\n",
    "unclosed_check.py": '''
import os, sys
pid = os.fork()
if pid == 0:
    f = open("/tmp/left.txt", "w")
    f.write("flushed at exit")
    print("child")
else:
    os.waitpid(pid, 0)
    print(open("/tmp/left.txt").read())
''',
    "weak_finalize.py": "import weakref\nclass C: pass\nc = C()\nweakref.finalize(c, print, 'finalize called')\nprint('end')\n",
    "import_at_del.py": "class C:\n    def __del__(self):\n        import colorsys\n        print(colorsys)\nc = C()\n",
    "stdout_closed.py": "import sys\nprint('x')\nsys.stdout.close()\n",
    "stdout_closed_buffered.py": "import os\nprint('x')\nos.close(1)\n",
    "stdout_replaced.py": "import sys\nsys.stdout = open('/tmp/o', 'w')\nprint('into a file')\n",
    "recursion.py": '''
import sys
def depth(n):
    try:
        return depth(n + 1)
    except RecursionError:
        return n
print(depth(0))
f = sys._getframe()
print(f.f_back, f.f_code.co_name, f.f_lineno)
''',
    "recursion_uncaught.py": "import sys\nsys.tracebacklimit = 2\ndef f():\n    f()\nf()\n",
    "stack_print.py": "import traceback, sys\ntraceback.print_stack(file=sys.stdout)\nprint(traceback.format_stack())\n",
    "source.py": "import inspect, sys\ndef f(x):\n    return x + 1\nprint(inspect.getsource(f))\nprint(inspect.getsource(sys.modules['__main__'])[:20])\n",
    "pickled.py": '''
import pickle
class Point:
    def __init__(self, x):
        self.x = x
p = pickle.dumps(Point(3))
print(p, pickle.loads(p).x, Point.__module__)
''',
    "main_module.py": "import __main__, sys\nprint(__main__ is sys.modules['__main__'], __main__.__dict__ is globals(), sorted(vars(__main__))[:4])\n",
    "mp_fork.py": "import multiprocessing as m\ndef f(x):\n    return x * x\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p:\n        print(p.map(f, range(5)))\n",
    "mp_spawn.py": "import multiprocessing as m\ndef f(x):\n    return x * x\nif __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p:\n        print(p.map(f, range(5)))\n",
    "mp_forkserver.py": "import multiprocessing as m\ndef f(x):\n    return x * x\nif __name__ == '__main__':\n    with m.get_context('forkserver').Pool(1) as p:\n        print(p.map(f, range(5)))\n",
    "futures.py": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as p:\n    print(list(p.map(str, range(3))))\n",
    "futures_left.py": "from concurrent.futures import ThreadPoolExecutor\nimport time\np = ThreadPoolExecutor(1)\np.submit(lambda: (time.sleep(0.05), print('late')))\nprint('end')\n",
    "aio.py": "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return await asyncio.to_thread(str, 5)\nprint(asyncio.run(f()))\n" if True else "",
    "fork_exit.py": "import os, sys, atexit\natexit.register(lambda: print('exit of', 'child' if child == 0 else 'parent'))\nchild = os.fork()\nif child:\n    print(os.waitpid(child, 0)[1])\nelse:\n    sys.exit(3)\n",
    "sub.py": "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import sys; print(sys.argv, sys.flags.unbuffered if hasattr(sys.flags, \"unbuffered\") else \"\")'], capture_output=True).stdout)\n",
    "ctypes_callback.py": '''
import ctypes
CMP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
libc = ctypes.CDLL(None)
values = (ctypes.c_int * 5)(5, 1, 7, 33, 2)
libc.qsort(values, 5, 4, CMP(lambda a, b: a[0] - b[0]))
print(list(values))
''',
    "ctypes_pyapi.py": "import ctypes\ns = ctypes.pythonapi.PyGILState_Check()\ne = ctypes.pythonapi.PyGILState_Ensure()\nctypes.pythonapi.PyGILState_Release(e)\nprint(s, e)\n",
    "gc_state.py": "import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage, gc.callbacks)\nclass C: pass\na = C(); a.a = a; del a\nprint(gc.collect() > 0)\n",
    "warn.py": "import warnings\nwarnings.warn('careful')\nwarnings.warn('old', DeprecationWarning)\nprint(len(warnings.filters), __warningregistry__.keys())\n",
    "warn_syntax.py": "x = 1\nprint(x is 1, '\\d')\n",
    "unraisable.py": "import sys\nsys.unraisablehook = lambda u: print('unraisable', u.exc_type.__name__)\nclass C:\n    def __del__(self):\n        1 / 0\nC()\n",
    "locale_state.py": "import locale, sys\nprint(locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())\n",
    "limits.py": "import resource\nprint([(n, resource.getrlimit(getattr(resource, n))) for n in sorted(dir(resource)) if n.startswith('RLIMIT_')])\n",
    "status.py": "print([l for l in open('/proc/self/status') if l.split(':')[0] in ('Uid', 'Gid', 'Groups', 'NSpid', 'Threads', 'SigBlk', 'SigIgn', 'SigCgt', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'CapInh', 'NoNewPrivs', 'Seccomp', 'Seccomp_filters', 'Umask', 'TracerPid', 'NSpgid', 'NSsid')])\n",
    "wall.py": '''
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    print(name, getattr(libc, name)(*args), ctypes.get_errno())
call("setns", 0, 0); call("unshare", 0x10000000); call("ptrace", 0, 1, 0, 0); call("mount", 0, 0, 0, 0, 0); call("chroot", b"/tmp")
call("prctl", 4, 0, 0, 0, 0); call("prctl", 22, 2, 0, 0, 0); call("kill", 1, 9); call("setuid", 0)
for p in "/usr/x", "/etc/x", "/x", "/dev/x", "/proc/1/environ":
    try:
        open(p, "w"); print(p)
    except OSError as e:
        print(p, e.errno)
''',
    "zip_import.py": "import zipimport, sys\nprint(sys.path_importer_cache.get('/tmp/zip_import.py', 'absent'), len(sys.path_hooks), len(sys.meta_path))\n",
    "local_import.py": "import os\nopen('/tmp/mine.py', 'w').write('x = 5\\nclass C:\\n    def __del__(self):\\n        print(\"del in a module\")\\nc = C()\\n')\nimport mine\nprint(mine.x, mine.__file__, os.path.exists('/tmp/__pycache__'))\n",
    "annotations.py": "x: int = 3\nprint(__annotations__)\n",
    "future.py": "from __future__ import annotations\ndef f(x: nothing): pass\nprint(f.__annotations__)\n",
    "exec_eval.py": "exec('y = 3')\nprint(y, eval('y + 1'), compile('1', 's', 'eval').co_flags)\n",
    "site_builtins.py": "print(repr(exit), repr(quit), repr(copyright)[:20], help)\n",
    "json_pretty.py": "import json, collections, datetime, re, math\nprint(json.dumps({'a': [1, 2.5, None]}, indent=1), collections.Counter('hello'), datetime.date(2020, 1, 2), re.findall(r'\\w+', 'a b'), math.pi)\n",
    "logging_basic.py": "import logging\nlogging.basicConfig()\nlogging.warning('careful')\nlogging.getLogger('x').error('%s', 1)\n",
    "nested_zipapp.py": "import runpy\nprint(sorted(k for k in runpy.run_path('/tmp/nested_zipapp.py', run_name='other') if not k.startswith('__'))) if __name__ == '__main__' else print('run as', __name__)\n",
}
