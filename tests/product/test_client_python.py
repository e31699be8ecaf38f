# SPDX-License-Identifier: Apache-2.0
"""client/python/cloche.py against a real server, a false one, and none; as root and as an ordinary user."""
import json
import os
import shutil
import socket
import subprocess
import textwrap
import threading

import pytest

from client_support import MODULE, PRELUDE, SLEEP, client, server, servers  # noqa: F401
from harness import SYSTEM_PYTHON, Result, wait_for
from serving import ERROR, HEAD, RESULT, VERSION, Native, Server, memfd

import cloche


@pytest.fixture
def narrow(who):
    with Server(who, env={"CLOCHE_SERVER_MAX_RUNNING": "1", "CLOCHE_SERVER_QUEUE_MAX": "0"}) as s:
        yield s


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
            assert 0.3 <= time.monotonic() - begun < 10
            threading.Timer(0.3, run.cancel).start()
            assert c.run("print(1)").ok, "room was made within its patience"
            assert run.result().status == "cancelled"
            assert all(r.ok for r in c.map(["pass"] * 12, in_flight=6))
    """)


@pytest.mark.once
def test_streams(who, server):
    client(who, server.path, r"""
        SCRIPT = "import sys, time\nfor i in range(3): print(i, flush=True); time.sleep(0.2)\nsys.stderr.write('e')"
        def check(parts):
            assert b"".join(d for s, d in parts if s == "stdout") == b"0\n1\n2\n", parts
            assert b"".join(d for s, d in parts if s == "stderr") == b"e"
        with cloche.Client(where) as c:
            with c.stream(SCRIPT.replace("0.2", "0.7"), buffered=True) as run:
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
            end = time.monotonic() + 20
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


@pytest.mark.once
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
        s.kill()
        assert p.stdout.readline() == "lost\n", p.communicate()
        with Server(who, socket_path=s.path):
            assert p.communicate("\n", timeout=30)[1] == "" and p.returncode == 0


def test_a_server_of_another_user_is_not_used(callers, servers):
    if "root" not in callers:
        pytest.skip("needs: root, two users")
    with pytest.raises(cloche.ServerError, match="neither you nor root"):
        cloche.Client(servers["user"].path).run("print(1)")


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
