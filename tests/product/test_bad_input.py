# SPDX-License-Identifier: Apache-2.0
"""Each rule of a request, broken one at a time: its own message, exit 2, and nothing ran."""
import json

import pytest

OK = {"script_content": "print('ran')"}
MIB = 1 << 20


def request(**fields):
    return {**OK, **fields}


def broken(id, field, given, allowed, **fields):
    """@given, @allowed: what the message must contain (any letter case); None: not asserted"""
    return pytest.param(fields, field, given, allowed, id=id)


WRONG = [
    broken("script-missing", "script_content", None, None, script_content=...),
    broken("script-null", "script_content", "null", "string", script_content=None),
    broken("script-number", "script_content", "5", "string", script_content=5),
    broken("script-list", "script_content", None, "string", script_content=["print(1)"]),
    broken("script-empty", "script_content", None, "1", script_content=""),
    broken("script-nul", "script_content", None, "NUL", script_content="print(1)\0"),
    broken("script-too-long", "script_content", "1048577", "1048576", script_content="#" * (MIB + 1)),

    broken("name-empty", "script_name", None, "255", script_name=""),
    broken("name-slash", "script_name", "a/b.py", "/", script_name="a/b.py"),
    broken("name-absolute", "script_name", "/etc/passwd", "/", script_name="/etc/passwd"),
    broken("name-dot", "script_name", ".", None, script_name="."),
    broken("name-dotdot", "script_name", "..", None, script_name=".."),
    broken("name-control", "script_name", None, "control", script_name="a\nb.py"),
    broken("name-del", "script_name", None, "control", script_name="a\x7fb.py"),
    broken("name-nul", "script_name", None, None, script_name="a\0b.py"),
    broken("name-256", "script_name", None, "255", script_name="n" * 253 + ".py"),
    broken("name-bytes-not-characters", "script_name", None, "255", script_name="\u00e9" * 128),
    broken("name-number", "script_name", "7", "name", script_name=7),

    broken("timeout-zero", "timeout", "0", "3600", timeout=0),
    broken("timeout-negative", "timeout", "-1", "3600", timeout=-1),
    broken("timeout-above", "timeout", "3601", "3600", timeout=3601),
    broken("timeout-huge", "timeout", "1e+308", "3600", timeout=1e308),
    broken("timeout-huge-integer", "timeout", None, None, timeout=10 ** 30),
    broken("timeout-string", "timeout", "10", "number", timeout="10"),
    broken("timeout-bool", "timeout", "true", "number", timeout=True),
    broken("timeout-list", "timeout", None, "number", timeout=[1]),

    broken("stdin-number", "stdin", "3", "string", stdin=3),
    broken("stdin-object-key", "stdin", None, "base64", stdin={"base32": ""}),
    broken("stdin-object-empty", "stdin", None, "base64", stdin={}),
    broken("stdin-object-extra", "stdin", None, "base64", stdin={"base64": "YQ==", "x": 1}),
    broken("stdin-base64-letters", "stdin", None, "base64", stdin={"base64": "a$=="}),
    broken("stdin-base64-padding", "stdin", None, "base64", stdin={"base64": "YQ"}),
    broken("stdin-base64-space", "stdin", None, "base64", stdin={"base64": "YQ==\n"}),
    broken("stdin-base64-type", "stdin", None, None, stdin={"base64": 1}),
    broken("stdin-too-long", "stdin", "16777217", "16777216", stdin="x" * (16 * MIB + 1)),

    broken("args-string", "args", None, "array", args="a b"),
    broken("args-number", "args", "1", "string", args=["a", 1]),
    broken("args-nul", "args", None, "NUL", args=["a\0b"]),
    broken("args-too-long", "args", "131073", "131071", args=["x" * (128 * 1024 + 1)]),
    broken("args-together", "args", None, "1048576", args=["x" * 120000] * 9),
    broken("args-and-env-together", "", None, "1048576", args=["x" * 120000] * 5,
           env={f"V{i}": "x" * 120000 for i in range(5)}),

    broken("env-array", "env", None, "object", env=["A=1"]),
    broken("env-number", "env", "1", "string", env={"A": 1}),
    broken("env-name-digit", "env", "1A", "letters", env={"1A": "x"}),
    broken("env-name-equals", "env", "A=B", "letters", env={"A=B": "x"}),
    broken("env-name-empty", "env", None, "letters", env={"": "x"}),
    broken("env-name-unicode", "env", None, "letters", env={"\u00c4": "x"}),
    broken("env-nul", "env", None, "NUL", env={"A": "x\0y"}),

    broken("files-array", "files", None, "object", files=["a"]),
    broken("files-number", "files", "1", None, files={"a": 1}),
    broken("files-absolute", "files", "/etc/x", "relative", files={"/etc/x": ""}),
    broken("files-dotdot", "files", "../x", "..", files={"../x": ""}),
    broken("files-inner-dotdot", "files", "a/../../x", "..", files={"a/../../x": ""}),
    broken("files-empty-name", "files", None, None, files={"": "x"}),
    broken("files-dot", "files", None, None, files={".": "x"}),
    broken("files-folder", "files", "a/", None, files={"a/": "x"}),
    broken("files-nul", "files", None, None, files={"a\0b": "x"}),
    broken("files-long-component", "files", None, None, files={"n" * 256: "x"}),
    broken("files-file-and-folder", "files", None, None, files={"a": "x", "a/b": "y"}),
    broken("files-same-file-twice", "files", None, None, files={"a": "x", "./a": "y"}),
    broken("files-like-script", "files", "unnamed_script.py", None, files={"unnamed_script.py": "x"}),
    broken("files-like-script-dotted", "files", None, None, script_name="s.py", files={"./s.py": "x"}),
    broken("files-257", "files", None, "256", files={f"f{i}": "" for i in range(257)}),
    broken("files-over-disk", "files", None, "disk_bytes", files={"a": "x" * 70000}, limits={"disk_bytes": 65536}),
    broken("files-bad-base64", "files", None, "base64", files={"a": {"base64": "*"}}),

    broken("artifacts-string", "artifacts", None, "array", artifacts="*.png"),
    broken("artifacts-number", "artifacts", "1", "string", artifacts=[1]),
    broken("artifacts-absolute", "artifacts", "/etc/*", "relative", artifacts=["/etc/*"]),
    broken("artifacts-dotdot", "artifacts", "../*", "..", artifacts=["../*"]),
    broken("artifacts-empty", "artifacts", None, None, artifacts=[""]),
    broken("artifacts-65", "artifacts", None, "64", artifacts=[f"f{i}" for i in range(65)]),

    broken("environment-number", "environment", "1", "name", environment=1),
    broken("environment-empty", "environment", None, None, environment=""),
    broken("network-host", "network", "host", "loopback", network="host"),
    broken("network-case", "network", "None", "none", network="None"),
    broken("mode-hot", "mode", "hot", "cold", mode="hot"),
    broken("mode-null", "mode", "null", "cold", mode=None),
    broken("buffered-string", "buffered", "yes", "true", buffered="yes"),
    broken("buffered-number", "buffered", "1", "true", buffered=1),
    broken("output-hex", "output", "hex", "base64", output="hex"),

    broken("limits-array", "limits", None, "object", limits=[]),
    broken("limits-unknown", "limits", "memory", "memory_bytes", limits={"memory": 1}),
    broken("limits-string", "limits", "1g", "number", limits={"memory_bytes": "1g"}),
    broken("limits-bool", "limits", "true", "number", limits={"processes": True}),
    broken("limits-memory-zero", "limits", "0", None, limits={"memory_bytes": 0}),
    broken("limits-memory-negative", "limits", "-5", None, limits={"memory_bytes": -5}),
    broken("limits-memory-fraction", "limits", "1.5", None, limits={"memory_bytes": 1.5}),
    broken("limits-memory-more-than-host", "limits", None, None, limits={"memory_bytes": 1 << 60}),
    broken("limits-cpus-zero", "limits", "0", None, limits={"cpus": 0}),
    broken("limits-cpus-more-than-host", "limits", "100000", None, limits={"cpus": 100000}),
    broken("limits-cpu-seconds-negative", "limits", "-1", None, limits={"cpu_seconds": -1}),
    broken("limits-processes-zero", "limits", "0", None, limits={"processes": 0}),
    broken("limits-processes-huge", "limits", None, None, limits={"processes": 1 << 40}),
    broken("limits-open-files-zero", "limits", "0", None, limits={"open_files": 0}),
    broken("limits-disk-huge", "limits", None, None, limits={"disk_bytes": 1 << 62}),
    broken("limits-disk-files-zero", "limits", "0", None, limits={"disk_files": 0}),
    broken("limits-output-negative", "limits", "-1", None, limits={"output_bytes": -1}),
    broken("limits-output-hard-negative", "limits", "-1", None, limits={"output_bytes_hard": -1}),
    broken("limits-null", "limits", "null", None, limits={"processes": None}),

    broken("unknown-field", "scriptcontent", "scriptcontent", None, scriptcontent="x"),
    broken("unknown-like-known", "time_out", "time_out", None, time_out=3),
    broken("field-with-odd-name", "", None, None, **{"\u0000\n\u202e": 1}),
]


@pytest.mark.parametrize("fields,field,given,allowed", WRONG)
def test_rule(who, fields, field, given, allowed):
    body = request(**fields)
    body = {k: v for k, v in body.items() if v is not ...}
    e = who.refused(body)
    assert field in e["field"], e
    message = e["message"].lower()
    assert e["field"].lower() in message, "the message is whole in itself"
    assert e["message"].strip() and "\n" not in e["message"] and len(e["message"]) < 1000
    for part in (given, allowed):
        if part is not None:
            assert part.lower() in message, (part, e)
    assert e["allowed"], "what would have been right is always said"


def test_the_contract_s_own_message(who):
    e = who.refused(request(timeout=0))
    assert e["field"] == "timeout"
    assert e["message"] == "timeout: 0 is not allowed: more than 0, at most 3600 seconds"


RAW = {
    "empty": b"",
    "space": b"  \n",
    "not-json": b"print('hello')",
    "array": b"[]",
    "string": b'"print(1)"',
    "null": b"null",
    "cut": b'{"script_content": "print(1)"',
    "garbage-behind": b'{"script_content": "print(1)"} x',
    "two-objects": b'{"script_content": "print(1)"} {"script_content": "print(2)"}',
    "duplicate": b'{"script_content": "print(1)", "script_content": "print(2)"}',
    "duplicate-inner": b'{"script_content": "print(1)", "env": {"A": "1", "A": "2"}}',
    "duplicate-escaped": b'{"script_content": "print(1)", "timeout": 1, "time\\u006fut": 2}',
    "nan": b'{"script_content": "print(1)", "timeout": NaN}',
    "infinity": b'{"script_content": "print(1)", "timeout": Infinity}',
    "minus-infinity": b'{"script_content": "print(1)", "timeout": -Infinity}',
    "overflow": b'{"script_content": "print(1)", "timeout": 1e999}',
    "hex": b'{"script_content": "print(1)", "timeout": 0x10}',
    "leading-zero": b'{"script_content": "print(1)", "timeout": 010}',
    "leading-plus": b'{"script_content": "print(1)", "timeout": +1}',
    "bare-point": b'{"script_content": "print(1)", "timeout": .5}',
    "single-quotes": b"{'script_content': 'print(1)'}",
    "trailing-comma": b'{"script_content": "print(1)",}',
    "comment": b'{"script_content": "print(1)" /* c */}',
    "raw-newline": b'{"script_content": "print(1)\n"}',
    "invalid-utf8": b'{"script_content": "print(1) # \xff"}',
    "overlong-utf8": b'{"script_content": "print(1) # \xc0\xaf"}',
    "utf8-surrogate": b'{"script_content": "print(1) # \xed\xa0\x80"}',
    "lone-high-surrogate": b'{"script_content": "print(1) # \\ud800"}',
    "lone-low-surrogate": b'{"script_content": "print(1) # \\udc00"}',
    "lone-surrogate-in-args": b'{"script_content": "print(1)", "args": ["\\ud83d"]}',
    "lone-surrogate-in-key": b'{"script_content": "print(1)", "env": {"\\ud800": "x"}}',
    "escaped-nul-in-key": b'{"script_content": "print(1)", "files": {"a\\u0000b": "x"}}',
    "utf16": '{"script_content": "print(1)"}'.encode("utf-16"),
    "deep": b'{"script_content": ' + b"[" * 200000 + b"]" * 200000 + b"}",
    "deep-open": b"[" * 1000000,
    "many-keys": b'{"script_content": "print(1)", "zz": 1' + b"".join(b', "k%d": 1' % i for i in range(50000)) + b"}",
}


@pytest.mark.parametrize("name", RAW)
def test_what_is_no_request(who, name):
    e = who.refused(RAW[name])
    assert e["message"].strip() and "\n" not in e["message"]


def test_order_of_fields_does_not_matter(who):
    """The first broken rule is told whether or not the rest is fine; nothing of a half-good request runs."""
    for text in ('{"timeout": 0, "script_content": "print(1)"}', '{"script_content": "print(1)", "timeout": 0}'):
        assert who.refused(text.encode())["field"] == "timeout"


def test_run_says_it_in_one_line(who):
    path = who.file("print('ran')")
    for option, value in (("--timeout", "0"), ("--memory", "lots"), ("--cpus", "-1"), ("--network", "host"),
                          ("--mode", "hot"), ("--env", "1A=x"), ("--artifact", "../x"), ("--pids-limit", "0")):
        p = who.cloche("run", option, value, path)
        assert p.returncode == 2 and p.stdout == b"", (option, p)
        text = p.stderr.decode()
        assert text.count("\n") == 1 and text.startswith("cloche: "), text
        assert value in text, text
        assert "ran" not in text.split()


def test_run_json_gives_the_object(who):
    p = who.cloche("run", "--json", "--timeout", "0", who.file("print('ran')"))
    assert p.returncode == 2
    e = json.loads(p.stdout)["error"]
    assert set(e) >= {"field", "given", "allowed", "message"} and "timeout" in e["field"]


def test_batch_goes_on_after_a_bad_line(who):
    lines = [json.dumps(request(script_name="one.py")), json.dumps(request(timeout=-1)), "not json",
             json.dumps(request(script_name="two.py"))]
    p = who.cloche("batch", who.file("\n".join(lines) + "\n", "r.jsonl"), "-j", "2")
    assert p.returncode == 2
    out = [json.loads(line) for line in p.stdout.splitlines()]
    assert sorted(o["script_name"] for o in out if "error" not in o) == ["one.py", "two.py"]
    errors = [o["error"] for o in out if "error" in o]
    assert len(errors) == 2 and all(e["message"] for e in errors)


def test_the_edges_that_are_allowed(who):
    """The last good value on each side of a rule runs: a rule is not stricter than it says."""
    r = who.trigger("#" * (MIB - len("\nprint(1)")) + "\nprint(1)")
    assert r.stdout == "1\n"
    assert who.trigger("print(__file__)", script_name="n" * 252 + ".py").status == "ok"
    assert who.trigger("print(1)", timeout=3600).status == "ok"
    assert who.trigger("print(1)", timeout=1.5).status == "ok"
    assert who.trigger("print(1)", limits={"cpus": 0.5}).status == "ok"
    r = who.trigger("import os; print(len(os.listdir('/tmp')))", files={f"f{i}": "" for i in range(256)})
    assert r.stdout == "257\n"
    r = who.trigger("import sys; print(len(sys.argv[1]))", args=["x" * (128 * 1024 - 1)])
    assert r.stdout == "131071\n"
