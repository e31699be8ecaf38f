# SPDX-License-Identifier: Apache-2.0
"""A client of the Model Context Protocol that is made of nothing: lines out, lines in, each held against the rules."""
import json
import queue
import threading
import time

import jsonschema

from harness import Result, strict_json

LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
COMPLETED = {"ok", "error", "signaled"}


def message(method, params=None, id=None, modern=False):
    m = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        m["id"] = id
    params = dict(params or {})
    if modern:
        params["_meta"] = {**META, **params.get("_meta", {})}
    if params or modern:
        m["params"] = params
    return m


def check_call(result, tool, modern=False):
    """A tool's result, held against what every outcome promises.  Return: the object beside its text"""
    jsonschema.validate(result["structuredContent"], tool["outputSchema"])
    assert result["content"][0]["type"] == "text"
    assert all(block["type"] == "image" for block in result["content"][1:])
    assert (result.get("resultType") == "complete") == modern
    obj = result["structuredContent"]
    text = result["content"][0]["text"]
    if "error" in obj:
        assert result["isError"] is True and set(obj) == {"error"} and obj["error"]["message"] in text
        return obj
    Result(obj)
    assert result["isError"] is (obj["status"] not in COMPLETED), obj["status"]
    assert text.startswith(f"{obj['status']}: exit code {obj['return_code']} ")
    assert obj["message"] in text
    assert len(text) < (11000 if result["isError"] else 16000) + 4000 * bool(obj["artifacts"])
    return obj


def is_growing(told):
    """Of notifications/progress: each tells more than the one before, as the protocol wants it"""
    return all(a["progress"] < b["progress"] for a, b in zip(told, told[1:]))


class Stdio:
    """cloche mcp of @who; what comes is read all the time unless it is told not to."""

    def __init__(self, who, *options, env=None, reads=True, hello=True, **kw):
        self.p = who.popen("mcp", *options, env=env, stdin=-1, **kw)
        self.lines, self.heard, self.n = queue.Queue(), [], 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        if reads:
            self.reader.start()
        if hello:
            self.hello()

    def _read(self):
        for line in self.p.stdout:
            self.lines.put((time.monotonic(), line))
        self.lines.put((time.monotonic(), b""))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.p.poll() is None:
            code, _ = self.close()
            assert code == 0 or any(exc), (code, self.p.stderr.read()[-3000:])
        for stream in (self.p.stdin, self.p.stdout, self.p.stderr):
            stream.close()

    def close(self, seconds=20):
        """The end of its input.  Return: its exit status, and how long that took"""
        start = time.monotonic()
        self.p.stdin.close()
        try:
            return self.p.wait(seconds), time.monotonic() - start
        finally:
            self.p.kill()

    def say(self, m):
        self.p.stdin.write(m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n")
        self.p.stdin.flush()

    def hear(self, seconds=30):
        """The next message; None at the end"""
        _, line = self.lines.get(timeout=seconds)
        if not line:
            return None
        text = line.decode("utf-8")
        assert text.endswith("\n") and len(text.splitlines()) == 1, "one line, whoever reads it: " + repr(text[:300])
        m = strict_json(text)
        assert m["jsonrpc"] == "2.0" and ("method" in m) != ("result" in m or "error" in m), m
        return m

    def reply(self, id, seconds=30):
        """To this request; others are kept"""
        for m in self.heard:
            if m.get("id") == id:
                self.heard.remove(m)
                return m
        while True:
            m = self.hear(seconds)
            assert m is not None, f"it ended: {self.p.wait(5)} {self.p.stderr.read()[-1000:]}"
            if m.get("id") == id:
                return m
            self.heard.append(m)

    def ask(self, method, params=None, modern=False, seconds=30):
        self.n += 1
        self.say(message(method, params, self.n, modern))
        return self.reply(self.n, seconds)

    def hello(self, version=LEGACY):
        m = self.ask("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
        self.say(message("notifications/initialized"))
        self.tool, = self.ask("tools/list")["result"]["tools"]
        return m["result"]

    def start(self, script, id, meta=None, **arguments):
        params = {"name": "run_python", "arguments": {"script_content": script, **arguments}}
        self.say(message("tools/call", {**params, "_meta": meta} if meta else params, id))

    def call(self, script, modern=False, seconds=60, **arguments):
        """The whole result of a call, checked"""
        m = self.ask("tools/call", {"name": "run_python", "arguments": {"script_content": script, **arguments}}, modern, seconds)
        check_call(m["result"], self.tool, modern)
        return m["result"]

    def run(self, script, **arguments):
        return Result(self.call(script, **arguments)["structuredContent"])
