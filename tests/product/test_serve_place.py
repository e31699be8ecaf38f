# SPDX-License-Identifier: Apache-2.0
"""Where a server listens and whom it serves, with which settings it starts, and what it tells the service manager and the log."""
import os
import signal
import socket
import subprocess

import pytest

from harness import wait_for
from serving import RUN, Native, Server, request, works


@pytest.fixture
def server(who):
    with Server(who) as s:
        yield s


def test_it_is_found_by_itself(who, server):
    env = {"XDG_RUNTIME_DIR": str(server.folder)}
    r = who.trigger("print(1)", env_outside=env)
    assert server.wait_log(r.run_id)
    _, r = who.run_json("print(1)", env=env)
    assert server.wait_log(r.run_id)
    r = who.trigger("print(1)", "--local", env_outside=env)
    assert r.status == "ok" and not server.log(r.run_id)


def test_its_usual_place(who):
    if who.is_root:
        s = Server(who, args=["--socket", "/run/cloche-test-none/x"], ready=False)
        assert s.p.wait(10) == 2 and wait_for(lambda: s.log("/run/cloche-test-none"))
        return
    with Server(who, args=[]) as s:
        path = s.folder / "cloche.sock"
        assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, who.uid)
        assert s.wait_log(who.trigger("print(1)", env_outside=s.env).run_id)
    assert not path.exists()


def test_other_settings_are_not_used(who, server):
    """Whoever has set something for his runs gets it, server or not; one that is named has its own settings."""
    env = {"XDG_RUNTIME_DIR": str(server.folder), "CLOCHE_LIMITS_OPEN_FILES": "99"}
    script = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    p = who.run(script, "-v", env=env)
    assert p.stdout == b"99\n" and b"its settings are not those that hold here: running here" in p.stderr
    assert not server.log("event=run")
    p = who.run(script, "--server", server.path, env=env)
    assert p.stdout == b"256\n" and server.wait_log("event=run")


@pytest.mark.parametrize("option,value", [("--require", "seccomp"), ("--allow-missing", "landlock"),
                                          ("--screen-report", "ctypes"), ("--screen-reject", "ctypes")])
def test_walls_are_the_servers_own_affair(who, server, option, value):
    for choice in ({"env": {"XDG_RUNTIME_DIR": str(server.folder)}}, {}):
        options = [] if choice else ["--server", server.path]
        p = who.run("print(1)", *options, option, value, **choice)
        assert p.returncode == 2 and p.stdout == b"", p
        assert option.encode() in p.stderr and b"--local" in p.stderr
    p = who.run("print(1)", "--local", option, value, env={"XDG_RUNTIME_DIR": str(server.folder)})
    assert (p.returncode, p.stdout) == (0, b"1\n")


def test_a_server_that_is_not_there(who):
    p = who.run("print(1)", "--server", "/nonexistent/cloche.sock")
    assert p.returncode == 125 and b"/nonexistent/cloche.sock" in p.stderr and p.stdout == b""
    p = who.run("print(1)", "--server", "/nonexistent/cloche.sock", "--local")
    assert p.returncode == 2 and b"--local" in p.stderr
    p = who.run("print(1)", env={"XDG_RUNTIME_DIR": "/nonexistent"})
    assert (p.returncode, p.stdout, p.stderr) == (0, b"1\n", p.stderr) and b"server" not in p.stderr


def test_whom_it_serves(callers):
    if "root" not in callers:
        pytest.skip("needs: root, other users")
    root, user = callers["root"], callers["user"]
    with Server(user) as s:
        works(s)  # root may
        p = root.run("print(1)", "--server", s.path)
        assert p.returncode == 125 and p.stdout == b"" and b"neither you nor root" in p.stderr
        p = root.run("print(1)", "-v", env={"XDG_RUNTIME_DIR": str(s.folder)})
        assert p.stdout == b"1\n" and b"neither you nor root" in p.stderr and b"running here" in p.stderr
        assert s.wait_log("event=run")
        n_runs = len(s.log("event=run"))
        os.chmod(s.path, 0o666)
        code = ("import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.connect(sys.argv[1])\n"
                "s.settimeout(10)\ntry: s.send(sys.stdin.buffer.read()); print(s.recv(100))\n"
                "except (BrokenPipeError, ConnectionResetError): print(b'')")
        p = subprocess.run(["/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                            "/usr/bin/python3", "-c", code, s.path], capture_output=True, timeout=30, cwd="/",
                           input=bytes([RUN, 0, 0, 0, 1, 0, 0, 0, *bytes(8)]) + b'{"script_content": "pass"}')
        assert p.stdout == b"b''\n", p
        assert len(s.log("event=run")) == n_runs == 1
    with Server(root) as s:
        assert os.stat(s.path).st_mode & 0o777 == 0o660
        p = user.run("print(1)", "--server", s.path)
        assert p.returncode == 125 and b"Permission denied" in p.stderr
        p = user.run("print(1)", "-v", env={"XDG_RUNTIME_DIR": str(s.folder)})
        assert p.stdout == b"1\n" and b"Permission denied" in p.stderr
        assert not s.log("event=run")
        os.chmod(s.path, 0o666)  # root's socket serves whom its mode lets in
        assert user.run("print(1)", "--server", s.path).stdout == b"1\n" and s.wait_log("event=run", f"uid={user.uid}")


def test_the_group_of_roots_socket(callers):
    if "root" not in callers:
        pytest.skip("needs: root")
    root = callers["root"]
    with Server(root, env={"CLOCHE_SERVER_GROUP": "daemon"}) as s:
        st = os.stat(s.path)
        assert (st.st_uid, st.st_gid, st.st_mode & 0o777) == (0, 1, 0o660)
    s = Server(root, env={"CLOCHE_SERVER_GROUP": "no-such-group"}, ready=False)
    assert s.p.wait(10) == 2 and wait_for(lambda: s.log("no-such-group"))


def test_two_servers(who, server):
    second = Server(who, socket_path=server.path, ready=False)
    assert second.p.wait(10) == 125 and wait_for(lambda: second.log("another server has it"))
    works(server)


def test_places_where_it_does_not_listen(who):
    folder = who.folder()
    taken = folder / "taken.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(str(taken))
        other.listen(1)
        os.chmod(taken, 0o666)
        s = Server(who, socket_path=taken, ready=False)
        assert s.p.wait(10) == 125 and wait_for(lambda: s.log("somebody answers"))
    plain = who.file("precious", "plain.sock")
    s = Server(who, socket_path=plain, ready=False)
    assert s.p.wait(10) == 2 and wait_for(lambda: s.log("no socket")) and plain.read_text() == "precious"
    folder.chmod(0o777)
    s = Server(who, socket_path=folder / "x.sock", ready=False)
    assert s.p.wait(10) == 2 and wait_for(lambda: s.log("written by others"))
    s = Server(who, socket_path="relative.sock", ready=False)
    assert s.p.wait(10) == 2 and wait_for(lambda: s.log("absolute"))
    s = Server(who, socket_path="/" + "x" * 200, ready=False)
    assert s.p.wait(10) == 2


@pytest.mark.parametrize("text,words", [("[server]\nmax_running = 0\n", "max_running"), ("[server]\nx = 1\n", "server.x"),
                                        ("[protect]\nrequire = no-such-wall\n", "no-such-wall"),
                                        ("[environment default]\npython = /nonexistent/python3\n", "/nonexistent/python3")])
def test_settings_it_does_not_start_with(who, text, words):
    s = Server(who, env={"CLOCHE_CONFIG": str(who.file(text, "cloche.ini"))}, ready=False)
    assert s.p.wait(10) in (2, 125) and wait_for(lambda: s.log(words)), s.lines
    assert not os.path.exists(s.path)


def test_service_manager(who):
    folder = who.folder()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        os.chmod(folder / "notify", 0o777)
        manager.settimeout(10)
        with Server(who, env={"NOTIFY_SOCKET": str(folder / "notify")}) as s:
            assert manager.recv(100) == b"READY=1"
            s.p.send_signal(signal.SIGHUP)
            assert manager.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=") and manager.recv(100) == b"READY=1"
            assert s.stop() == 0 and manager.recv(100) == b"STOPPING=1"


def test_socket_of_the_service_manager(who):
    folder = who.folder()
    path = folder / "given.sock"
    opener = ("import os, socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.bind(sys.argv[1])\n"
              "os.chmod(sys.argv[1], 0o666)\ns.listen(9)\nos.dup2(s.fileno(), 3)\nos.set_inheritable(3, True)\n"
              "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\nos.execv(sys.argv[2], sys.argv[2:])")
    s = Server(who, socket_path=path, args=[], before=["/usr/bin/python3", "-c", opener, str(path)]
               + ([] if who.prefix() else ["/usr/bin/env"]))
    with s:
        works(s)
        assert s.stop() == 0 and path.exists(), "it is the manager's to remove"


def test_the_log_is_marked_for_the_journal(who):
    r, w = os.pipe()
    st = os.fstat(w)
    p = who.popen("serve", "--socket", who.folder() / "j.sock", stderr=w, env={"JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino}"})
    os.close(w)
    with open(r, "rb") as f:
        line = f.readline()
        while line.startswith(b"<4>event=no_history "):  # root's, without a user of its own
            line = f.readline()
        assert line.startswith(b"<6>event=ready ")
        p.terminate()
        assert p.wait(10) == 0


def answers(path):
    try:
        Native(path).close()
    except OSError:
        return False
    return True


def test_a_log_that_nobody_reads(who):
    r, w = os.pipe()
    folder = who.folder()
    p = who.popen("serve", "--socket", folder / "l.sock", stderr=w)
    try:
        assert wait_for(lambda: answers(folder / "l.sock")), "bound is not yet listening"
        with Native(folder / "l.sock") as n:
            for _ in range(700):  # more than a pipe holds
                assert n.run({"script_content": ""})[1]["field"] == "script_content"
            assert n.run(request("print(1)", script_name="n" * 255)).stdout == "1\n"
            for _ in range(600):
                n.run({"script_content": ""})
            assert n.run(request("print(1)")).stdout == "1\n"
    finally:
        p.terminate()
        assert p.wait(10) == 0
        os.close(r)
        os.close(w)


def test_a_scripts_text_is_not_logged(server):
    with Native(server.path) as n:
        n.run(request("print('private-text')\nraise SystemExit('private-text')", args=["private-text"],
                      env={"A": "private-text"}, stdin="private-text", script_name="a\u202eb.py"))
    assert server.wait_log("event=run") and not server.log("private-text")
