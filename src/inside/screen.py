# SPDX-License-Identifier: Apache-2.0
"""Look through a script for names that the configuration asks about, before it runs.

    python3 -I -S -c TEXT report:ctypes reject:os.system ... < script

A rule names a module (`ctypes`: every import of it or of what is in it) or something in one (`os.system`: the import,
and every use of it under whatever name it was imported), or a builtin (`eval`).  Output: a line `RULE LINE` for each
finding (the rule's position from 0, the line in the script), at most 100, in order of lines, and `end`.  A script that
does not parse has no findings: it fails by itself.  Exit status 3: too deep or too large to look through.

This is advice.  A script that wants to hide a name can; what holds it is the sandbox, in which this runs too.
"""

import gc
import sys
from _ast import (PyCF_ONLY_AST, Assign, Attribute, Call, ClassDef, Constant, ExceptHandler, FunctionDef,
                  AsyncFunctionDef, Import, ImportFrom, Name, NamedExpr, Store, Subscript, arg, AST)

FINDINGS = 100
IMPORTERS = ("builtins.__import__", "importlib.import_module", "importlib.__import__")


class Screen:
    def __init__(self, rules):
        self.rules = []  # (the name, the same with a dot, whether it rejects)
        for rule in rules:
            effect, _, name = rule.partition(":")
            self.rules.append((name, name + ".", effect == "reject"))
        self.depth = max([name.count(".") for name, _, _ in self.rules], default=0) + 2
        self.modules = {}  # name in the script: module that it was bound to by "import"
        self.names = {}  # name in the script: what it was bound to by "from ... import" or by an assignment
        self.stars = []  # modules of "from ... import *"
        self.own = set()  # names that the script binds in any other way
        self.found = set()

    def add(self, path, line, is_import):
        """A name with its whole path: an import touches also what its module is in, a use only itself."""
        if path.startswith("builtins."):
            self.match(path[9:], line, False)
        self.match(path, line, is_import)

    def match(self, path, line, is_import):
        for index, (name, dotted, _) in enumerate(self.rules):
            if path == name or (is_import and path.startswith(dotted)):
                self.found.add((line, index))

    def path(self, node):
        """The path that an expression stands for, as far as it can be told: "os.system"; else None."""
        parts = []
        while len(parts) <= self.depth:
            if isinstance(node, Attribute):
                parts.append(node.attr)
                node = node.value
                continue
            base = self.base(node)
            if base is None:
                return None
            parts.append(base)
            return ".".join(parts[::-1])
        return None

    def base(self, node):
        if isinstance(node, Name):
            return self.resolve(node.id)
        if isinstance(node, NamedExpr):
            return self.base(node.value) if isinstance(node.value, Name) else None
        if isinstance(node, Call) and node.args:
            return self.call_base(node)
        if isinstance(node, Subscript) and isinstance(node.value, Attribute):
            key = text(node.slice)
            if key and node.value.attr == "modules" and self.path(node.value) == "sys.modules":
                return key
        return None

    def call_base(self, node):
        """__import__("os"), importlib.import_module("os.path"), getattr(os, "system")"""
        if not isinstance(node.func, (Name, Attribute)):
            return None
        name = self.path(node.func)
        if name == "builtins.getattr" and len(node.args) >= 2 and isinstance(node.args[0], (Name, Attribute)):
            owner = self.path(node.args[0])
            attr = text(node.args[1])
            return owner + "." + attr if owner and attr else None
        module = self.imported(node, name)
        if module and name.endswith(".__import__"):
            return module.partition(".")[0]
        return module

    def imported(self, node, name):
        if name not in IMPORTERS:
            return None
        for value in node.args[:1] + [k.value for k in node.keywords if k.arg == "name"]:
            return text(value)
        return None

    def resolve(self, name):
        if name in self.modules:
            return self.modules[name]
        if name in self.names:
            return self.names[name]
        if name in self.own:
            return None
        if hasattr(__builtins__, name):
            return "builtins." + name
        for module in self.stars:
            for rule, _, _ in self.rules:
                if rule == module + "." + name:
                    return rule
        return None

    def passes(self):
        """What to do with which nodes: learn what names stand for, wherever they are bound; then look at the uses."""
        yield {Import: self.bind_import, ImportFrom: self.bind_import_from, Name: self.bind_name,
               arg: lambda node: self.own.add(node.arg), FunctionDef: self.bind_own, AsyncFunctionDef: self.bind_own,
               ClassDef: self.bind_own, ExceptHandler: self.bind_own}
        yield {Assign: self.bind_alias}
        yield {Import: self.look_at_import, ImportFrom: self.look_at_import_from, Name: self.look_at_name,
               Attribute: self.look_at_path, Subscript: self.look_at_path, Call: self.look_at_call}

    def bind_import(self, node):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            self.modules[alias.asname or first] = alias.name if alias.asname else first

    def bind_import_from(self, node):
        for alias in node.names if node.module and not node.level else ():
            if alias.name == "*":
                self.stars.append(node.module)
            else:
                self.names[alias.asname or alias.name] = node.module + "." + alias.name

    def bind_name(self, node):
        if isinstance(node.ctx, Store):
            self.own.add(node.id)

    def bind_own(self, node):
        self.own.add(node.name)

    def bind_alias(self, node):
        """`o = os`, `run = os.system`, `e = eval`"""
        if isinstance(node.value, (Name, Attribute, Call)):
            path = self.path(node.value)
            for target in node.targets:
                if path and isinstance(target, Name):
                    self.names.setdefault(target.id, path)

    def look_at_import(self, node):
        for alias in node.names:
            self.add(alias.name, node.lineno, True)

    def look_at_import_from(self, node):
        for alias in node.names if node.module and not node.level else ():
            self.add(node.module if alias.name == "*" else node.module + "." + alias.name, node.lineno, True)

    def look_at_name(self, node):
        if node.id not in self.modules:  # told where it is imported
            self.look_at_path(node)

    def look_at_call(self, node):
        name = self.path(node.func) if isinstance(node.func, (Name, Attribute)) else None
        module = self.imported(node, name)
        if module:
            self.add(module, node.lineno, True)
        elif name == "builtins.getattr":
            self.look_at_path(node)

    def look_at_path(self, node):
        path = self.path(node)
        if path:
            self.add(path, node.lineno, False)

    def findings(self):
        """Those that reject are never crowded out by those that report."""
        first = sorted(self.found, key=lambda f: (not self.rules[f[1]][2], f))[:FINDINGS]
        return sorted(first)


def text(node):
    return node.value if isinstance(node, Constant) and isinstance(node.value, str) and node.value else None


def walk(tree, visitors):
    """Every node of the tree, in the script's order; not by recursion, which a script could exhaust."""
    todo = [tree]
    while todo:
        node = todo.pop()
        visit = visitors.get(type(node))
        if visit:
            visit(node)
        below = []
        for value in node.__dict__.values():
            if isinstance(value, list):
                below.extend([item for item in value if isinstance(item, AST)])
            elif isinstance(value, AST):
                below.append(value)
        todo.extend(below[::-1])


def parse(source):
    kept, sys.stderr = sys.stderr, None  # the script's own warnings are told when it runs
    try:
        return compile(source, "script", "exec", PyCF_ONLY_AST, True)
    except (SyntaxError, ValueError, LookupError):
        return None
    finally:
        sys.stderr = kept


def main():
    gc.disable()  # a syntax tree has no cycles: looking for them again and again is a third of the time
    screen = Screen(sys.argv[1:])
    try:
        tree = parse(sys.stdin.buffer.read())
        for visitors in screen.passes() if tree else ():
            walk(tree, visitors)
        lines = ["%d %d\n" % (index, line) for line, index in screen.findings()]
    except (RecursionError, MemoryError):
        sys.exit(3)
    sys.stdout.write("".join(lines) + "end\n")
    sys.stdout.flush()


main()
