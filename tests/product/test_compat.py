# SPDX-License-Identifier: Apache-2.0
"""Python is whole inside: what people run, and what has broken in systems of this kind."""
import ast
import gzip
import json
import time

import pytest

import harness

MIB = 1 << 20
science = pytest.mark.skipif(not harness.python_has("numpy", "pandas", "matplotlib"),
                             reason=f"{harness.SYSTEM_PYTHON} has no numpy, pandas, matplotlib: apt-get install "
                                    "python3-numpy python3-pandas python3-matplotlib")


def fine(r, stdout=None):
    assert (r.verdict, r.stderr) == (("ok", 0), ""), r
    if stdout is not None:
        assert r.stdout == stdout
    return r


# ---- the standard library ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_pool(who, method):
    fine(who.trigger(f"""
import multiprocessing as mp
def double(x): return 2 * x
if __name__ == '__main__':
    with mp.get_context({method!r}).Pool(2) as p:
        print(p.map(double, [-1, 2, 3]))
"""), "[-2, 4, 6]\n")


def test_multiprocessing_shared_things(who):
    fine(who.trigger("""
import multiprocessing as mp
from multiprocessing.shared_memory import SharedMemory
def work(q, l, v, name):
    s = SharedMemory(name); s.buf[0] = 7; s.close()
    with l: v.value += 1
    q.put('from the child')
if __name__ == '__main__':
    s = SharedMemory(create=True, size=4096)
    q, l, v = mp.Queue(), mp.Lock(), mp.Value('i', 1)
    p = mp.Process(target=work, args=(q, l, v, s.name)); p.start()
    print(q.get(), v.value, s.buf[0]); p.join(); s.close(); s.unlink()
    print(p.exitcode, mp.Manager().list([1]))
"""), "from the child 2 7\n0 [1]\n")


def test_process_and_thread_executors(who):
    fine(who.trigger("""
import concurrent.futures as cf
def square(x): return x * x
if __name__ == '__main__':
    with cf.ProcessPoolExecutor(2) as e: print(list(e.map(square, range(4))))
    with cf.ThreadPoolExecutor(8) as e: print(list(e.map(square, range(4))))
"""), "[0, 1, 4, 9]\n" * 2)


def test_asyncio_woken_from_a_thread(who):
    fine(who.trigger("""
import asyncio
from threading import Thread
loop = asyncio.new_event_loop()
Thread(target=loop.run_forever, daemon=True).start()
print(asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 42), loop).result(2))
async def main():
    p = await asyncio.create_subprocess_exec('echo', 'child', stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate()
    many = await asyncio.gather(*[asyncio.sleep(0, i) for i in range(3)])
    return out, await asyncio.to_thread(lambda: 'thread'), many
print(asyncio.run(main()))
"""), "42\n(b'child\\n', 'thread', [0, 1, 2])\n")


def test_asyncio_server_and_client(who):
    fine(who.trigger("""
import asyncio
async def main():
    async def serve(r, w): w.write((await r.readline()).upper()); await w.drain(); w.close()
    s = await asyncio.start_server(serve, '127.0.0.1', 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname())
    w.write(b'hello\\n'); print(await r.read()); w.close(); s.close()
asyncio.run(main())
"""), "b'HELLO\\n'\n")


def test_http_server_and_client(who):
    fine(who.trigger("""
import http.server, threading, urllib.request
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'served')
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f'http://127.0.0.1:{s.server_port}/').read())
print(urllib.request.urlopen(f'http://localhost:{s.server_port}/').read())
"""), "b'served'\n" * 2)


def test_subprocess(who):
    r = fine(who.trigger("""
import subprocess, sys, os
print(subprocess.run(['ls', '/tmp'], capture_output=True, text=True, check=True).stdout, end='')
print(subprocess.check_output('echo hi | cat; exit 0', shell=True))
print(subprocess.run([sys.executable, '-c', 'import sys; print(6 * 7); sys.exit(3)'], capture_output=True).returncode)
try: subprocess.run(['sleep', '5'], timeout=0.1)
except subprocess.TimeoutExpired: print('timed out')
try: subprocess.run(['no-such-program'])
except FileNotFoundError: print('not found')
print(os.system('exit 4') >> 8, os.popen('echo popen').read())
"""))
    assert r.stdout == "unnamed_script.py\nb'hi\\n'\n3\ntimed out\nnot found\n4 popen\n\n"


def test_sqlite(who):
    fine(who.trigger("""
import sqlite3
for mode in ('delete', 'wal'):
    c = sqlite3.connect(f'/tmp/{mode}.db')
    c.execute(f'pragma journal_mode={mode}'); c.execute('create table t(a)')
    c.executemany('insert into t values(?)', [(i,) for i in range(1000)]); c.commit()
    print(c.execute('select sum(a) from t').fetchone()); c.close()
"""), "(499500,)\n" * 2)


def test_zoneinfo(who):
    fine(who.trigger("""
import zoneinfo, datetime
d = datetime.datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))
print(d.isoformat(), len(zoneinfo.available_timezones()) > 400)
"""), "2024-07-01T12:00:00+02:00 True\n")


def test_tempfile(who):
    fine(who.trigger("""
import tempfile, os
f = tempfile.NamedTemporaryFile(); f.write(b'x'); f.flush()
print(os.path.dirname(f.name), tempfile.gettempdir())
with tempfile.TemporaryDirectory() as d: open(d + '/a', 'w').write('a')
tempfile.TemporaryFile().write(b'y'); tempfile.SpooledTemporaryFile(max_size=1).write(b'zz')
"""), "/tmp /tmp\n")


def test_signals_and_timers(who):
    fine(who.trigger("""
import signal, os, time
signal.signal(signal.SIGALRM, lambda *a: print('alarm')); signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()
signal.signal(signal.SIGUSR1, lambda *a: print('usr1')); os.kill(os.getpid(), signal.SIGUSR1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); os.kill(os.getpid(), signal.SIGUSR2)
print(signal.sigwait([signal.SIGUSR2]) == signal.SIGUSR2, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
print([s.name for s in signal.valid_signals() if s not in (9, 19) and isinstance(s, signal.Signals)
       and signal.getsignal(s) is signal.SIG_IGN])
"""), "alarm\nusr1\nTrue True\n['SIGPIPE', 'SIGXFSZ']\n")


def test_threads_and_deep_recursion(who):
    fine(who.trigger("""
import threading, sys
l = threading.RLock(); seen = []
def work(i):
    with l:
        with l: seen.append(i)
t = [threading.Thread(target=work, args=(i,)) for i in range(30)]
[x.start() for x in t]; [x.join() for x in t]
print(len(seen), threading.get_native_id() == __import__('os').getpid())
def f(n): return n and f(n - 1)
print(f(950))
"""), "30 True\n0\n")


def test_at_exit_and_finalizers(who):
    fine(who.trigger("""
import atexit, threading, time
atexit.register(print, 'at exit')
class C:
    def __del__(self): print('deleted')
c = C()
threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()
print('end')
"""), "end\nthread\nat exit\ndeleted\n")


def test_imports_of_the_standard_library(who):
    fine(who.trigger("""
import importlib, sys, warnings
warnings.simplefilter('ignore')
skip = {'antigravity', 'this', 'idlelib', 'tkinter', 'turtle', 'turtledemo', 'lib2to3', 'msilib', 'winreg', 'winsound',
        'msvcrt', 'nt', 'ensurepip', 'distutils', 'pip'}
bad = []
for name in sorted(sys.stdlib_module_names - skip):
    if name.startswith('_'): continue
    try: importlib.import_module(name)
    except ModuleNotFoundError: pass    # not in this distribution's packages
    except BaseException as e: bad.append((name, repr(e)))
print(bad)
""", limits={"open_files": 1024}), "[]\n")


# ---- the sciences ------------------------------------------------------------------------------------------------

@science
def test_numpy(who):
    fine(who.trigger("""
import numpy as np
a = np.random.rand(300, 300)
print(np.linalg.svd(a)[1].shape, (a @ a).shape, np.fft.fft(a).dtype)
"""), "(300,) (300, 300) complex128\n")


@science
def test_numpy_in_little_memory_with_few_processes(who, is_sampled):
    r = who.trigger("import numpy\nprint(numpy.ones(10).sum())", limits={"memory_bytes": 256 * MIB, "processes": 15})
    fine(r, "10.0\n")


@science
def test_pandas(who):
    fine(who.trigger("""
import pandas as pd, io
d = pd.read_csv(io.StringIO('k,v\\na,1\\nb,2\\na,3\\n'))
print(d.groupby('k').v.sum().to_dict()); d.to_csv('o.csv'); d.to_json('o.json'); print(len(d.describe()))
"""), "{'a': 4, 'b': 2}\n8\n")


@science
def test_matplotlib(who):
    script = """
import matplotlib
import matplotlib.pyplot as plt
plt.plot([1, 3, 2]); plt.title('t\u00e9st')
plt.savefig('a.png'); plt.savefig('a.pdf')
print(matplotlib.get_backend().lower())
"""
    r = fine(who.trigger(script, artifacts=["*.png", "*.pdf"]), "template\n")  # ours is in its place
    assert r.artifact_bytes("a.png").startswith(b"\x89PNG") and r.artifact_bytes("a.pdf").startswith(b"%PDF")


@science
def test_random_numbers_of_numpy_differ(who):
    assert len({fine(who.trigger("import numpy\nprint(numpy.random.rand())")).stdout for _ in range(3)}) == 3


# ---- probes and a public corpus ----------------------------------------------------------------------------------

def test_probe_of_the_core(who, shared, is_sampled):
    script = shared("cases/probes/compat_core.py").read_text()
    # sent to the process it may meet a thread of a queue that does not block it: then plain Python dies of it as well
    changes = {"os.kill(os.getpid(),signal.SIGUSR2)": "signal.raise_signal(signal.SIGUSR2)"}
    if is_sampled:
        # weaker means ask for their price: sampling can't see a memfd, and CPUs held by affinity are not for the script
        changes["os.memfd_create('x'); "] = ""
        changes["os.sched_setaffinity(0,os.sched_getaffinity(0)); "] = ""
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    r = who.trigger(script, script_name="compat_core.py", timeout=60,
                    limits={"memory_bytes": 1 << 30, "processes": 128, "disk_bytes": 128 * MIB, "open_files": 1024})
    assert r.verdict == ("ok", 0) and r.lines[-1] == "done", r


@science
@pytest.mark.slow
def test_probe_of_the_sciences(who, shared):
    script = shared("cases/probes/compat_sci.py").read_text()
    r = who.trigger(script, script_name="compat_sci.py", timeout=100, files={"trace/.keep": ""}, wait=120,
                    limits={"memory_bytes": 1 << 30, "processes": 128, "disk_bytes": 256 * MIB})
    assert r.verdict == ("ok", 0) and r.lines[-1] == "sci done", r


@pytest.mark.slow
def test_humaneval(who, shared):
    requests = []
    with gzip.open(shared("data/HumanEval.jsonl.gz"), "rt") as f:
        for line in f:
            p = json.loads(line)
            script = f"{p['prompt']}{p['canonical_solution']}\n{p['test']}\ncheck({p['entry_point']})\n"
            requests.append({"script_content": script + "print('passed')\n", "timeout": 30,
                             "script_name": p["task_id"].replace("/", "_") + ".py"})
    assert len(requests) == 164
    results = who.batch(requests, jobs=2, wait=300)
    failed = {name: r for name, r in results.items() if (r.verdict, r.stdout, r.stderr) != (("ok", 0), "passed\n", "")}
    assert len(results) == 164 and not failed, failed


# ---- what has broken elsewhere -----------------------------------------------------------------------------------

def test_survivors_of_a_timeout(who, residue):
    """A child in a session of its own goes on writing after the parent's time is up: not here."""
    script = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            open('/tmp/log', 'a').write('x'); time.sleep(0.01)
    os._exit(0)
while True: pass
"""
    r = who.trigger(script, args=[residue.mark], timeout=0.5)
    assert r.verdict == ("timeout", -9)
    residue.assert_none()


@pytest.mark.parametrize("statement", ["os.kill(-1, 9)", "os.kill(os.getppid(), 9)", "os.kill(1, 9)", "os.killpg(0, 9)",
                                       "[os.kill(1, s) for s in range(1, 32)]"])
def test_killing_everything_kills_only_the_sandbox(who, statement):
    script = f"import os\nprint('x')\ntry:\n    {statement}\nexcept OSError as e: print(type(e).__name__)\nprint('end')"
    r = who.trigger(script)
    assert r.status in ("ok", "signaled") and r.lines[0] == "x", r
    if r.status == "signaled":
        assert (r.return_code, r.signal) == (-9, "SIGKILL")
    assert who.trigger("print(1)").stdout == "1\n"


def test_lone_surrogate_in_output(who):
    r = who.trigger("print('ok')\nprint(chr(0xDCE6))")
    assert r.stdout.startswith("ok\n") and r.status in ("ok", "error")
    if r.status == "ok":
        assert r.stdout == "ok\n\ufffd\n" and r.stdout_encoding_errors


def test_nul_in_the_script_is_python_s_own_matter_where_it_can_be_said(who):
    e = who.refused({"script_content": "print('a\0b')"})
    assert "NUL" in e["message"]
    fine(who.trigger("print('a\\0b')"), "a\0b\n")


def test_long_scripts(who):
    fine(who.trigger("x = '" + "a" * 300_000 + "'\nprint(len(x))"), "300000\n")
    fine(who.trigger("\n" * 500_000 + "print(__import__('sys')._getframe().f_lineno)"), "500001\n")


def test_utf8_output(who):
    fine(who.trigger("import sys\nprint('\u00e9 \u4e2d \u2639 \U0001f40d', sys.getdefaultencoding())"),
         "\u00e9 \u4e2d \u2639 \U0001f40d utf-8\n")


def test_no_wrapper_shows(who):
    r = who.trigger("import inspect, sys\nmain = sys.modules['__main__']\n"
                    "print(len(inspect.stack()), main.__file__, type(__loader__).__name__)\n"
                    "print([m for m in sys.modules if 'cloche' in m.lower()])")
    fine(r, "1 /tmp/unnamed_script.py SourceFileLoader\n[]\n")


def test_full_disk_is_the_script_s_own_problem(who):
    r = who.trigger("import tempfile\nf = tempfile.NamedTemporaryFile()\ntry:\n    while True: f.write(b'x' * 65536)\n"
                    "except OSError as e: print(e.errno)", limits={"disk_bytes": 4 * MIB})
    assert (r.verdict, r.stdout) == (("ok", 0), "28\n")


def test_endless_loop_blocks_nobody_else(who):
    start = time.monotonic()
    results = who.batch([{"script_content": "while True: pass", "script_name": "loop.py", "timeout": 2},
                         *({"script_content": "print('fine')", "script_name": f"r{i}.py"} for i in range(6))], jobs=2)
    assert results["loop.py"].verdict == ("timeout", -9)
    assert all(results[f"r{i}.py"].stdout == "fine\n" for i in range(6))
    assert time.monotonic() - start < 15


def test_big_output_on_both_streams(who):
    r = who.trigger("import sys\nsys.stderr.write('e' * 900_000)\nsys.stdout.write('o' * 900_000)")
    assert (len(r.stdout), len(r.stderr), r.verdict) == (900000, 900000, ("ok", 0))


def test_unhandled_objects_of_every_kind(who):
    r = who.trigger("class E(Exception):\n    def __str__(self): return 'caf\u00e9\\n\\x00'\nraise E")
    assert r.verdict == ("error", 1) and "caf\u00e9" in r.stderr


def test_random_seed_state_is_the_script_s(who):
    script = "import random\nrandom.seed(7)\nprint([random.random() for _ in range(3)])"
    first, second = (ast.literal_eval(fine(who.trigger(script)).stdout) for _ in range(2))
    assert first == second
