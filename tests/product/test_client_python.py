# SPDX-License-Identifier: Apache-2.0
"""client/python/cloche.py against a real server, a false one, and none; as root and as an ordinary user."""
import ast
import doctest
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

from harness import MUST_WORK, REPO, SYSTEM_PYTHON, Result, wait_for
from serving import ERROR, HEAD, RESULT, VERSION, Native, Server, memfd

sys.path.insert(0, str(REPO / "client/python"))

import cloche  # noqa: E402

MODULE = REPO / "client/python/cloche.py"
PRELUDE = """
import asyncio, faulthandler, itertools, json, os, pathlib, sys, threading, time, warnings
faulthandler.dump_traceback_later(50, exit=True)
warnings.simplefilter("error")
import cloche
def fds(): return len(os.listdir("/proc/self/fd"))
def raises(kind, call, *args, **kw):
    try:
        call(*args, **kw)
    except kind as e:
        return e
    raise AssertionError(f"{call} did not raise {kind}")
def running():
    with cloche.Client(where) as c:
        c.environments()
        from cloche import _finish_here
        return _finish_here(c._where.environments(), None)["server"]["running"]
where = sys.argv[1]
"""
SLEEP = "import os, time\nos.write(1, b'begun\\n')\ntime.sleep(300)"


@pytest.fixture(scope="session")
def servers(callers):
    """One for each caller, for all tests that leave it as it was"""
    made = {name: Server(w) for name, w in callers.items()}
    yield made
    for s in made.values():
        s.__exit__()


@pytest.fixture
def server(who, servers):
    return servers["root" if who.is_root else "user"]


@pytest.fixture
def narrow(who):
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": "0"}) as s:
        yield s


def client(who, where, code, *args, env=None, timeout=60):
    """@code as @who, with the module where @who can read it; what it prints"""
    folder = who.folder()
    for source in (MODULE,):
        shutil.copy(source, folder / source.name)
        (folder / source.name).chmod(0o644)
    path = folder / "user.py"
    path.write_text(PRELUDE + textwrap.dedent(code))
    path.chmod(0o644)
    p = subprocess.run([*who.prefix(), SYSTEM_PYTHON, "-B", "-X", "dev", str(path), str(where), *map(str, args)],
                       env=who.env({"PYTHONPATH": str(folder), **(env or {})}), cwd=folder, capture_output=True,
                       timeout=timeout)
    assert p.returncode == 0, p.stderr.decode()[-3000:]
    assert p.stderr == b"", p.stderr.decode()[-3000:]
    return p.stdout.decode()


def test_a_result_is_the_servers(who, server):
    out = client(who, server.path, """
        r = cloche.Client(where).run("print('héllo'); import sys; sys.exit(3)", script_name="named.py")
        assert not r.ok and r.status == "error" and r.return_code == 3 and r.script_name == "named.py", r
        e = raises(cloche.RunError, r.check)
        assert e.result is r and "status 3" in str(e)
        for name in cloche._REQUIRED:
            if name not in ("artifacts", "denials"):
                assert getattr(r, name) == r.raw[name], name
        print(json.dumps(r.raw))
    """)
    mine = Result(json.loads(out))
    theirs = who.trigger("print('héllo'); import sys; sys.exit(3)", "--server", server.path, script_name="named.py")
    assert set(mine.obj) == set(theirs.obj)
    assert (mine.stdout, mine.verdict, mine.message) == (theirs.stdout, theirs.verdict, theirs.message)


def test_every_field_of_a_request_arrives(who, server):
    client(who, server.path, r"""
        pathlib.Path("in.bin").write_bytes(b"\0\xffraw")
        script = '''
        import os, sys, json
        sys.stderr.write("err")
        sys.stdout.buffer.write(sys.stdin.buffer.read() + b"|" + open("d/in.bin", "rb").read())
        json.dump([sys.argv[1:], os.environ["A"], open("t.txt").read()], open("out.json", "w"))
        os.mkdir("deep"); open("deep/x.bin", "wb").write(b"\\x00\\x01")
        '''
        import textwrap
        r = cloche.Client(where).run(textwrap.dedent(script), script_name="all.py", timeout=20.5, stdin=b"\xfe\n",
            args=("a", "é"), env={"A": "b"}, files={"d/in.bin": pathlib.Path("in.bin"), "t.txt": "text"},
            artifacts=["*.json", "deep/*"], environment="default", limits={"memory_bytes": 1 << 28, "cpus": 1.0},
            network="none", mode="auto", buffered=True, output="base64").check()
        assert r.stdout_data == b"\xfe\n|\0\xffraw" and r.stderr_data == b"err" and r.stdout_encoding_errors
        assert json.loads(r.artifact("out.json").data) == [["a", "é"], "b", "text"]
        assert sorted(os.path.relpath(p) for p in r.save_artifacts("got")) == ["got/deep/x.bin", "got/out.json"]
        assert pathlib.Path("got/deep/x.bin").read_bytes() == b"\0\1"
        raises(FileExistsError, r.save_artifacts, "got")
        r.save_artifacts("got", overwrite=True)
        raises(KeyError, r.artifact, "none")
        raises(cloche.ClocheError, lambda: cloche.Client(where).run("pass").stdout_data)
        big = cloche.Client(where).run("import sys; print(sys.stdin.read(), end='')", stdin="x" * 300_000)
        assert big.stdout == "x" * 300_000  # longer than a message, both ways
    """)


def test_what_is_wrong_is_said_by_its_kind(who, server):
    client(who, server.path, """
        c = cloche.Client(where)
        e = raises(cloche.RequestError, c.run, "x", timeout=0)
        assert e.field == "timeout" and e.given == "0" and "3600" in e.allowed and e.message == str(e)
        raises(cloche.RequestError, c.run, "x", no_such_field=1)
        raises(cloche.RequestError, c.run, "\\ud800")
        raises(cloche.RequestError, c.run, "x", timeout=float("nan"))
        raises(TypeError, c.run, "x", timeout=object())
        assert c.run("print(1)").ok
        assert len(c._where._idle) == 1, "a refusal leaves the connection in use"
        e = raises(cloche.ServerError, cloche.Client("/nowhere/s").run, "x")
        assert "/nowhere/s" in str(e)
        raises(cloche.ServerError, cloche.Client, "program:/nowhere")
        os.environ["PATH"] = "/nowhere"
        os.environ["XDG_RUNTIME_DIR"] = "/nowhere"
        e = raises(cloche.ServerError, cloche.Client("program").run, "x")
        assert "cloche serve" in str(e)
    """)


def test_busy(who, narrow):
    client(who, narrow.path, f"""
        with cloche.Client(where) as c, c.stream({SLEEP!r}) as run:
            assert next(run)[0] == "stdout"
            raises(cloche.BusyError, cloche.Client(where, patience=0).run, "x")
            begun = time.monotonic()
            raises(cloche.BusyError, cloche.Client(where, patience=0.3).run, "x")
            assert 0.3 <= time.monotonic() - begun < 3
            threading.Timer(0.3, run.cancel).start()
            assert c.run("print(1)").ok, "room was made within its patience"
            assert run.result().status == "cancelled"
            assert all(r.ok for r in c.map(["pass"] * 12, in_flight=6))
    """)


def test_streams(who, server):
    client(who, server.path, r"""
        SCRIPT = "import sys, time\nfor i in range(3): print(i, flush=True); time.sleep(0.2)\nsys.stderr.write('e')"
        def check(parts):
            assert b"".join(d for s, d in parts if s == "stdout") == b"0\n1\n2\n", parts
            assert b"".join(d for s, d in parts if s == "stderr") == b"e"
        with cloche.Client(where) as c:
            with c.stream(SCRIPT, buffered=True) as run:
                times, parts = [], []
                for part in run:
                    times.append(time.monotonic()); parts.append(part)
                check(parts)
                assert times[-1] - times[0] > 0.3, "as it comes, not at the end"
                r = run.result()
                assert r.ok and r.stdout == "" and r.stdout_bytes == 6 and run.result() is not None
            parts = []
            assert c.run(SCRIPT, on_output=lambda *p: parts.append(p)).ok
            check(parts)
            with c.stream("print('x' * 500_000)") as run:
                assert run.result().stdout_bytes == 500_001, "what nobody takes is dropped"
            n = len(c._where._idle)
            raises(ZeroDivisionError, c.run, SCRIPT, on_output=lambda *p: 1 / 0)
            raises(cloche.RequestError, c.stream("x", timeout=0).result)
        async def main():
            async with cloche.AsyncClient(where) as c:
                async with c.stream(SCRIPT) as run:
                    check([part async for part in run])
                    assert (await run.result()).ok
                parts = []
                assert (await c.run(SCRIPT, on_output=lambda *p: parts.append(p))).ok
                check(parts)
        asyncio.run(main())
    """)


def test_cancelling(who, server):
    client(who, server.path, f"""
        SLEEP = {SLEEP!r}
        def nothing_runs():
            end = time.monotonic() + 5
            while running() and time.monotonic() < end:
                time.sleep(0.02)
            return running() == 0
        with cloche.Client(where) as c:
            with c.stream(SLEEP) as run:
                next(run)
                threading.Thread(target=run.cancel).start()
                r = run.result()
                assert r.status == "cancelled" and r.return_code == -9, r
            with c.stream(SLEEP) as run:
                run.cancel()
                assert run.result().status == "cancelled"
            with c.stream("pass") as run:
                assert run.result().ok and len(c._where._idle) == 1
                run.cancel()
                assert c.run("print(1)").stdout == "1\\n" and run.result().ok, "too late: nobody else is cancelled"
            with c.stream(SLEEP) as run:
                next(run)
                assert running() == 1
            assert nothing_runs()
            raises(cloche.ClocheError, run.result)
            e = raises(cloche.ServerError, cloche.Client(where, wait=0.3).run, SLEEP)
            assert "wait" in str(e) and nothing_runs()
            for n, r in c.as_completed(itertools.chain(["pass"], itertools.repeat(SLEEP)), in_flight=3):
                assert (n, r.ok) == (0, True)
                break
            assert nothing_runs(), "leaving the loop ends them"
        async def main():
            async with cloche.AsyncClient(where) as c:
                said = asyncio.Event()
                task = asyncio.create_task(c.run(SLEEP, on_output=lambda *_: said.set()))
                await said.wait()
                assert running() == 1
                task.cancel()
                try:
                    await task
                    raise AssertionError("it was not cancelled")
                except asyncio.CancelledError:
                    pass
                assert nothing_runs()
                for task in [asyncio.create_task(c.run("pass")) for _ in range(20)]:
                    task.cancel()
                assert (await c.run("print(1)")).stdout == "1\\n"
                async with c.stream(SLEEP) as run:
                    await run.__anext__()
                    run.cancel()
                    assert (await run.result()).status == "cancelled"
                async def forever():
                    async for _ in c.map(itertools.repeat(SLEEP), in_flight=2):
                        raise AssertionError("it ended")
                try:
                    await asyncio.wait_for(forever(), 0.5)
                    raise AssertionError("it was not cancelled")
                except asyncio.TimeoutError:
                    pass
                assert nothing_runs()
        asyncio.run(main())
    """)


def test_batches(who, server):
    client(who, server.path, """
        SLOW_FIRST = ["import time; time.sleep(0.5)\\nprint(0)"] + [f"print({i})" for i in range(1, 12)]
        taken = 0
        def source(scripts):
            global taken
            for s in scripts:
                taken += 1
                yield s
        with cloche.Client(where) as c:
            assert [r.stdout for r in c.map(SLOW_FIRST, in_flight=3)] == [f"{i}\\n" for i in range(12)]
            got = dict((n, r.stdout) for n, r in c.as_completed(SLOW_FIRST, in_flight=3))
            assert got == {i: f"{i}\\n" for i in range(12)} and list(got)[-1] == 0, got
            for given, r in enumerate(c.map(source(itertools.repeat("pass")), in_flight=4)):
                assert r.ok and taken - given <= 4 * 8 + 4 + 1, (taken, given)
                if given == 60:
                    break
            mixed = [{"script_content": "print(1)", "stdin": b"x"}, {"script_content": "x", "timeout": 0}, "print(3)"]
            got = list(c.map(mixed, errors="return"))
            assert [type(g) for g in got] == [cloche.Result, cloche.RequestError, cloche.Result], got
            i = c.map(mixed)
            assert next(i).ok
            raises(cloche.RequestError, next, i)
            assert list(c.map([])) == [] and list(c.as_completed([])) == []
            raises(ValueError, lambda: list(c.map(["x"], in_flight=0)))
            with cloche.Client("/nowhere/s") as none:
                assert len(list(none.map(["x"] * 50, errors="return"))) == 50
        async def main():
            async with cloche.AsyncClient(where) as c:
                assert [r.stdout async for r in c.map(SLOW_FIRST, in_flight=3)] == [f"{i}\\n" for i in range(12)]
                got = [n async for n, r in c.as_completed(SLOW_FIRST, in_flight=3)]
                assert sorted(got) == list(range(12)) and got[-1] == 0
                got = [g async for g in c.map(mixed, errors="return")]
                assert [type(g) for g in got] == [cloche.Result, cloche.RequestError, cloche.Result], got
                assert all(r.ok for r in await asyncio.gather(*(c.run("pass") for _ in range(200))))
        asyncio.run(main())
        cloche.set_default(where)
        assert [r.ok for r in cloche.map(["pass"] * 3)] == [True] * 3 and cloche.run("pass").ok
        async def module():
            return [r.ok async for r in cloche.amap(["pass"] * 3)] + [(await cloche.arun("pass")).ok]
        assert asyncio.run(module()) == [True] * 4
        assert asyncio.run(module()) == [True] * 4  # another loop
    """)


def test_threads_and_forks_share_a_client(who, server):
    client(who, server.path, """
        c = cloche.Client(where)
        wrong = []
        def work(k):
            for i in range(15):
                r = c.run(f"print({k * 100 + i})")
                if r.stdout != f"{k * 100 + i}\\n":
                    wrong.append(r)
        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        [t.start() for t in threads]; [t.join() for t in threads]
        assert not wrong, wrong
        pids = []
        for k in range(3):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if all(c.run(f"print({k})").stdout == f"{k}\\n" for _ in range(10)) else 1)
            pids.append(pid)
        work(9)
        assert not wrong, wrong
        assert [os.waitpid(p, 0)[1] for p in pids] == [0, 0, 0]
        c.close()
    """)


def test_two_thousand_runs_leave_no_descriptor(who, server):
    client(who, server.path, "with cloche.Client(where) as c: c.run('pass')")
    counted = server.descriptors()
    client(who, server.path, """
        begun = time.monotonic()
        with cloche.Client(where) as c:
            c.run("pass")
            before = fds()
            n = sum(r.ok for r in c.map(itertools.repeat("pass", 1000), in_flight=4))
            n += sum(c.run("pass").ok for _ in range(500))
            assert fds() <= before + 3, (before, fds())
        async def main():
            async with cloche.AsyncClient(where, in_flight=4) as c:
                return sum([r.ok async for r in c.map(itertools.repeat("pass", 500))])
        n += asyncio.run(main())
        assert n == 2000 and fds() < before, (n, before, fds())
    """)
    assert wait_for(lambda: server.descriptors() <= counted + 2), ("nor at the server", counted, server.descriptors())


def test_without_a_server_the_program_does_it(who):
    bin_folder = who.folder()
    (bin_folder / "cloche").symlink_to(who.binary)
    client(who, "program", """
        os.environ["XDG_RUNTIME_DIR"] = "/nowhere"
        r = cloche.run("print(6 * 7)", timeout=20)
        assert (r.stdout, r.mode) == ("42\\n", "cold"), r
        with cloche.Client(where) as c:
            assert c.run("import sys; print(len(sys.stdin.read()))", stdin="x" * 200_000).stdout == "200000\\n"
            e = raises(cloche.RequestError, c.run, "x", timeout=0)
            assert e.field == "timeout"
            raises(cloche.RequestError, c.run, "x", environment="none")
            e = raises(cloche.ServerError, c.stream("print(1)").result)
            assert "cloche serve" in str(e)
            assert [r.stdout for r in c.map(["print(1)", "print(2)"], in_flight=2)] == ["1\\n", "2\\n"]
            assert c.environments()[0]["name"] == "default"
            before = fds()
            raises(cloche.ServerError, cloche.Client(where, wait=0.5).run, "import time; time.sleep(300)")
            assert fds() <= before
        async def main():
            c = cloche.AsyncClient(where)
            task = asyncio.create_task(c.run("import time; time.sleep(300)"))
            await asyncio.sleep(0.3)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return (await c.run("print(1)")).stdout
        assert asyncio.run(main()) == "1\\n"
        assert raises(ChildProcessError, os.waitpid, -1, os.WNOHANG), "no child is left"
    """, env={"PATH": f"{bin_folder}:/usr/bin:/bin"})


def test_a_server_at_its_usual_place_is_found(who):
    with Server(who) as s:
        client(who, "", """
            r = cloche.run("print(1)")
            assert r.ok and len(cloche._default._where._idle) == 1, "at the server"
        """, env={"XDG_RUNTIME_DIR": str(s.folder), "PATH": "/nowhere"})


def test_a_server_that_dies_and_one_that_comes_back(who):
    with Server(who) as s:
        code = f"""
            c = cloche.Client(where, patience=0)
            assert c.run("pass").ok
            run = c.stream({SLEEP!r})
            next(run)
            print("ready", flush=True)
            e = raises(cloche.ServerError, run.result)
            assert "went away" in str(e), e
            raises(cloche.ServerError, c.run, "pass")
            print("lost", flush=True)
            input()
            assert c.run("print('again')").stdout == "again\\n"
        """
        folder = who.folder()
        shutil.copy(MODULE, folder / MODULE.name)
        p = subprocess.Popen([*who.prefix(), SYSTEM_PYTHON, "-B", "-c", PRELUDE + textwrap.dedent(code), s.path],
                             env=who.env({"PYTHONPATH": str(folder)}), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, cwd=folder)
        assert p.stdout.readline() == "ready\n", p.communicate()
        s.stop(signal.SIGKILL)
        assert p.stdout.readline() == "lost\n", p.communicate()
        with Server(who, socket_path=s.path):
            assert p.communicate("\n", timeout=30)[1] == "" and p.returncode == 0


def test_a_server_of_another_user_is_not_used(callers, servers):
    if "root" not in callers:
        pytest.skip("needs: root, two users")
    with pytest.raises(cloche.ServerError, match="neither you nor root"):
        cloche.Client(servers["user"].path).run("print(1)")


class Door(Server):
    """A server of @who's that speaks HTTP as well: its socket, its address, its owner's token"""

    def __init__(self, who):
        folder = who.folder()
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.address = f"127.0.0.1:{s.getsockname()[1]}"
        self.http = str(folder / "http.sock")
        super().__init__(who, folder / "cloche.sock", args=["--socket", str(folder / "cloche.sock"), "--http-socket",
                                                            self.http, "--listen", self.address])
        assert self.wait_log("event=http_ready"), self.lines
        self.token = (self.folder / "cloche/http-token").read_text().strip()


@pytest.fixture(scope="session")
def door(callers):
    with Door(callers["user"]) as d:
        yield d


OVER_HTTP = r"""
    token = sys.argv[2] or None
    SLEEP = "import os, time\nos.write(1, b'begun\\n')\ntime.sleep(300)"
    SCRIPT = "import os, time\nfor i in range(3): print(i, flush=True); time.sleep(0.2)\n" \
             "os.write(1, b'\\xff'); os.write(2, b'\\xc3'); time.sleep(0.1); os.write(2, b'\\xa9')"
    def check(parts):
        assert b"".join(d for s, d in parts if s == "stdout") == b"0\n1\n2\n\xff", parts
        assert b"".join(d for s, d in parts if s == "stderr") == b"\xc3\xa9", parts
    def nothing_runs():
        end = time.monotonic() + 5
        native = cloche.Client(sys.argv[3])
        while time.monotonic() < end:
            if cloche._finish_here(native._where.environments(), None)["server"]["running"] == 0:
                native.close()
                return True
            time.sleep(0.02)
        return False
    with cloche.Client(where, token=token) as c:
        r = c.run("import sys; print(len(sys.stdin.read())); sys.exit(3)", stdin="x" * 3_000_000, script_name="n.py")
        assert (r.stdout, r.status, r.return_code, r.script_name) == ("3000000\n", "error", 3, "n.py"), r
        r = c.run("print('y' * 900_000)", output="base64", files={"a": b"\0"}, artifacts=["a*"])
        assert r.ok and len(r.stdout_data) == 900_001
        e = raises(cloche.RequestError, c.run, "x", timeout=0)
        assert e.field == "timeout" and e.given == "0" and e.message == str(e)
        e = raises(cloche.RequestError, c.stream("x", timeout=0).result)
        assert e.field == "timeout"
        n = 0
        for r in c.map([f"print({i})" for i in range(40)], in_flight=4):
            assert r.stdout == f"{n}\n"
            n += 1
        assert n == 40 and 1 <= len(c._where._idle) <= 5, "connections are used again"
        before = fds()
        assert sum(c.run("pass").ok for _ in range(200)) == 200 and fds() == before
        with c.stream(SCRIPT) as run:
            times, parts = [], []
            for part in run:
                times.append(time.monotonic()); parts.append(part)
            check(parts)
            assert times[-1] - times[0] > 0.3 and run.result().ok and run.result().stdout == ""
        with c.stream(SLEEP) as run:
            assert next(run) == ("stdout", b"begun\n")
            run.cancel()
            assert run.result().status == "cancelled"
        with c.stream(SLEEP) as run:
            run.cancel()
            assert run.result().status == "cancelled"
        with c.stream(SLEEP) as run:
            next(run)
        assert nothing_runs(), "leaving it ends it"
        raises(cloche.ServerError, cloche.Client(where, token=token, wait=0.3).run, SLEEP)
        assert nothing_runs()
        assert c.environments()[0]["name"] == "default"
        assert fds() <= before + 4
    async def main():
        async with cloche.AsyncClient(where, token=token) as c:
            assert [r.stdout async for r in c.map([f"print({i})" for i in range(20)])] == [f"{i}\n" for i in range(20)]
            r = await c.run("import sys; print(len(sys.stdin.read()))", stdin="x" * 3_000_000)
            assert r.stdout == "3000000\n"
            async with c.stream(SCRIPT) as run:
                check([part async for part in run])
                assert (await run.result()).ok
            task = asyncio.create_task(c.run(SLEEP))
            await asyncio.sleep(0.3)
            task.cancel()
            try:
                await task
                raise AssertionError("it was not cancelled")
            except asyncio.CancelledError:
                pass
            assert nothing_runs()
    asyncio.run(main())
"""


def test_over_http_by_socket(door):
    client(door.who, f"http+unix:{door.http}", OVER_HTTP, "", door.path)


def test_over_http_by_tcp(door):
    client(door.who, f"http://{door.address}", OVER_HTTP, door.token, door.path)


def test_the_http_door_needs_its_token(door):
    client(door.who, f"http://{door.address}", """
        for token in (None, "cloche_" + "0" * 64):
            e = raises(cloche.ServerError, cloche.Client(where, token=token).run, "x")
            assert "token" in str(e) and "401" in str(e), e
        for server in ("http://203.0.113.9:7411", "/native.sock", None):
            raises(ValueError, cloche.Client, server, token="cloche_x")
        raises(ValueError, cloche.Client, "http://127.0.0.1", token="two words")
        raises(ValueError, cloche.Client, "http://127.0.0.1:1/path")
        raises(cloche.ServerError, cloche.Client("http://127.0.0.1:1").run, "x")
        raises(cloche.ServerError, cloche.Client("http+unix:/nowhere").run, "x")
    """)


def test_over_http_another_users_door_is_not_used(callers, door):
    if "root" not in callers:
        pytest.skip("needs: root, two users")
    with pytest.raises(cloche.ServerError, match="neither you nor root"):
        cloche.Client(f"http+unix:{door.http}").run("print(1)")


class FalseHttp:
    """An HTTP server that answers each connection's request with what it is given and hangs up"""

    def __init__(self, folder, answer):
        self.path = str(folder / "false-http.sock")
        self.answer = answer
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.s.bind(self.path)
        self.s.listen()
        self.asked = self.hung_up = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, _ = self.s.accept()
            except OSError:
                return
            with c:
                self.asked += 1
                c.recv(1 << 17)
                c.sendall(self.answer)
            self.hung_up += 1

    def close(self):
        self.s.shutdown(socket.SHUT_RDWR)
        self.s.close()


def chunked(body, last=b"0\r\n\r\n"):
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n%b" % (len(body), body, last)


def test_over_http_never_a_result_that_was_not_one(tmp_path, servers):
    with Native(next(iter(servers.values())).path) as n:
        whole = json.dumps(n.run({"script_content": "print(1)"}).obj).encode()
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
    event = b'{"event": "result", "result": %b}\n' % whole
    wrong = {
        "nothing": b"", "no HTTP": b"hello\r\n\r\n", "cut": ok % (len(whole), whole[:-1]), "no JSON": ok % (3, b"abc"),
        "no object": ok % (2, b"[]"), "cut chunk": chunked(whole)[:-9], "no last chunk": chunked(whole, b""),
        "a chunk without size": chunked(b"").replace(b"\r\n0", b"\r\nzz", 1),
        "500": b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", "401": b"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n",
        "a redirection": b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
        "endless head": b"HTTP/1.1 200 OK\r\n" + b"x" * 70000,
    }
    streams = {"no result": chunked(b'{"event": "accepted", "run_id": "0"}\n'),
               "no id": chunked(b'{"event": "accepted"}\n'),
               "cut": chunked(event[:-9]), "no JSON": chunked(b"x\n")}
    for ask, cases in ((lambda c: c.run("x"), wrong), (lambda c: c.stream("x").result(), streams)):
        for name, answer in cases.items():
            folder = tmp_path / str(len(os.listdir(tmp_path)))
            folder.mkdir()
            server = FalseHttp(folder, answer)
            with pytest.raises(cloche.ServerError):
                raise AssertionError(name, ask(cloche.Client(f"http+unix:{server.path}", patience=0)))
            assert server.asked == 1, "a request that may have run is not sent again"
            server.close()
    for answer in (ok % (len(whole), whole), chunked(whole),
                   b"HTTP/1.1 100 Continue\r\n\r\n" + ok % (len(whole), whole)):
        folder = tmp_path / str(len(os.listdir(tmp_path)))
        folder.mkdir()
        server = FalseHttp(folder, answer)
        c = cloche.Client(f"http+unix:{server.path}")
        for n in (1, 2):
            assert c.run("print(1)").stdout == "1\n", "also when it had hung up meanwhile"
            assert wait_for(lambda: server.hung_up == n)  # noqa: B023
        server.close()
    folder = tmp_path / "stream"
    folder.mkdir()
    server = FalseHttp(folder, chunked(b'{"event": "accepted", "run_id": "0"}\n' + event))
    assert cloche.Client(f"http+unix:{server.path}").stream("x").result().ok
    server.close()


@pytest.mark.parametrize("status, kind", [(429, cloche.BusyError), (503, cloche.BusyError), (400, cloche.RequestError),
                                          (413, cloche.RequestError), (422, cloche.RequestError)])
def test_over_http_refusals_have_their_kind(tmp_path, status, kind):
    error = {"field": "f", "given": "g", "allowed": "a", "message": "f: g"}
    body = json.dumps({"title": "t", "detail": "d", "error": error}).encode()
    server = FalseHttp(tmp_path, b"HTTP/1.1 %d X\r\nRetry-After: 2\r\nContent-Length: %d\r\n\r\n%b"
                       % (status, len(body), body))
    with pytest.raises(kind) as e:
        cloche.Client(f"http+unix:{server.path}", patience=0).run("x")
    if status == 422:
        assert (e.value.field, e.value.message) == ("f", "f: g")
    if kind is cloche.BusyError:
        assert e.value.retry_after == 2
    server.close()


class FalseServer:
    """A server that answers one request with what it is given"""

    def __init__(self, folder, *messages):
        self.path = str(folder / "false.sock")
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.bind(self.path)
        self.s.listen()
        self.messages = messages
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        c, _ = self.s.accept()
        with c:
            c.recv(1 << 17)
            for body, fds in self.messages:
                socket.send_fds(c, [body], fds) if fds else c.send(body)


def said(kind, body, version=VERSION):
    return HEAD.pack(kind, version, 0, 0) + body, []


def test_never_a_result_that_was_not_one(tmp_path, servers):
    with Native(next(iter(servers.values())).path) as n:
        whole = json.dumps(n.run({"script_content": "print(1)"}).obj).encode()
    loose = memfd(whole, seals=0)
    wrong = {
        "nothing": [], "short": [(b"\1\2", [])], "another version": [said(RESULT, whole, 7)],
        "cut": [said(RESULT, whole[:-2])],
        "no object": [said(RESULT, b"[]")], "no field": [said(RESULT, whole.replace(b'"status"', b'"sta"'))],
        "wrong type": [said(RESULT, whole.replace(b'"return_code": 0', b'"return_code": "0"'))],
        "no UTF-8": [said(RESULT, b'{"stdout": "\xff"}')], "another kind": [said(250, whole)],
        "an error without words": [said(ERROR, b"{}")], "loose": [(HEAD.pack(RESULT, VERSION, 0, 0), [loose])],
    }
    try:
        before = len(os.listdir("/proc/self/fd"))
        for name, messages in wrong.items():
            folder = tmp_path / name
            folder.mkdir()
            server = FalseServer(folder, *messages)
            with pytest.raises(cloche.ServerError):
                raise AssertionError(name, cloche.Client(server.path).run("print(1)"))
            server.s.close()
        assert wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before), "the false server's ends are closed soon"
        right = FalseServer(tmp_path, said(RESULT, whole))
        assert cloche.Client(right.path).run("print(1)").stdout == "1\n", "the false server can answer rightly"
        right.s.close()
    finally:
        os.close(loose)


def artifact(name, left_out=""):
    return cloche.Artifact(name, 2, "text/plain", left_out, "aGk=")


def test_artifacts_are_saved_inside_or_not_at_all(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "folder"
    assert open(artifact("a/b.txt").save(folder)).read() == "hi"
    (folder / "link").symlink_to(outside)
    (folder / "file.txt").symlink_to(outside / "made.txt")
    for name in ("../x", "/etc/x", "a/../../x", "", "a//b", ".", "a/.", "a\0b", "link/x", "x" * 300, "a/b.txt/c"):
        with pytest.raises(cloche.ArtifactError):
            artifact(name).save(folder)
    for name in ("a/b.txt", "file.txt"):
        with pytest.raises(FileExistsError):
            artifact(name).save(folder)
    assert os.path.samefile(artifact("file.txt").save(folder, overwrite=True), folder / "file.txt")
    assert not (folder / "file.txt").is_symlink() and os.listdir(outside) == []
    assert sorted(os.listdir(folder)) == ["a", "file.txt", "link"], "nothing half-made is left"
    with pytest.raises(cloche.ArtifactError, match="too big"):
        artifact("x", left_out="too big").save(folder)


def test_the_manual_is_true(servers, callers):
    who = callers["root" if "root" in callers else "user"]
    cloche.set_default(servers["root" if who.is_root else "user"].path)
    ran = doctest.testmod(cloche)
    cloche.set_default()
    assert ran.attempted >= 4 and ran.failed == 0


def test_types(tmp_path):
    ast.parse(MODULE.read_text(), feature_version=(3, 9))
    if not shutil.which("mypy"):
        assert not MUST_WORK, "mypy is not installed (tools/deps.sh test)"
        pytest.skip("mypy is not installed")
    user = tmp_path / "user.py"
    user.write_text("import cloche\nr = cloche.run('x', timeout=1.5, files={'a': b''})\n"
                    "reveal_type(r.artifacts[0].data)\n"
                    "for r in cloche.Client().map(['x', {'script_content': 'y'}]): reveal_type(r)\n"
                    "cloche.run('x', timeout='1')\ncloche.run('x', no_such=1)\n")
    p = subprocess.run(["mypy", "--strict", "--python-version", "3.9", "--enable-incomplete-feature=Unpack",
                        "--cache-dir", str(tmp_path / "cache"), "--no-error-summary", MODULE, user,
                        *(REPO / "examples").glob("*.py")],
                       capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(MODULE.parent)}, timeout=120)
    lines = [line.split(": ", 1)[1] for line in p.stdout.splitlines() if "defined here" not in line]
    assert lines[0].endswith('"builtins.bytes"') and '"cloche.Result"' in lines[1], p.stdout
    assert len(lines) == 4 and '"timeout"' in lines[2] and '"no_such"' in lines[3], p.stdout
