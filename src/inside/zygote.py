# SPDX-License-Identifier: Apache-2.0
#
# A zygote's Python half: import an environment's modules, warm up, then let the C half serve forks from here.
#
# It runs as /tmp/main.py of a mount namespace of its own, so that nearly all that a script can see of its interpreter's
# start (arguments, flags, __main__, import caches) is right already; dress() sets what differs from job to job.
# Nothing of this file may be left where a script would find it: no module, no name, no entry of sys.path.

pristine = globals().copy()  # what is in a script's namespace before its first line

import sys

bare = set(sys.modules)  # what any interpreter has imported by now
path0 = sys.path.pop(0)  # scripts have another /tmp


class Spec:
    name = "_cloche"
    origin = "/proc/self/fd/4"


cloche = sys.modules["_imp"].create_dynamic(Spec)  # not by import: it must not get into sys.modules
sys.modules["_imp"].exec_dynamic(cloche)


def preload(names):
    """Import what can be imported; return the names that can't be."""
    failed = []
    for name in names:
        try:
            __import__(name)
        except (Exception, SystemExit):
            failed.append(name)
    return failed


REHEARSAL = """
class Thing:
    def __init__(self, n):
        self.n = n
def show(things):
    return ["%d %s" % (t.n, str(t.n)) for t in things]
try:
    show([None])
except AttributeError as e:
    print(f"{e}", {1: 2}, end="", file=out)
for line in show(Thing(i) for i in range(3)):
    print(line, sum(x * 0.5 for x in range(3)), file=out)
1 / 0
"""


def rehearse():
    """Run a script and show an exception, once: what an interpreter does the first time is dear."""
    io = sys.modules["io"]
    with open("/tmp/rehearsal.py", "w") as f:
        f.write(REHEARSAL)
    kept, sys.stderr = sys.stderr, io.StringIO()
    try:
        cloche.rehearse("/tmp/rehearsal.py", {"__builtins__": __builtins__, "out": io.StringIO()})
    except ZeroDivisionError:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr = kept
    if "linecache" in sys.modules:
        sys.modules["linecache"].clearcache()


def is_plain(names):
    """Whether all modules are the standard library's."""
    stdlib = getattr(sys, "stdlib_module_names", ())
    return all(name.partition(".")[0] in stdlib for name in names)


def reseeders():
    """What makes two forks of these modules different from each other.  random sees to itself when a process forks."""
    modules = sys.modules
    todo = []
    if "ssl" in modules:
        add, urandom = modules["ssl"].RAND_add, modules["os"].urandom
        todo.append(lambda: add(urandom(64), 64.0))
    if "threading" in modules and sys.version_info < (3, 13):
        todo.append(modules["threading"].main_thread()._set_native_id)  # else that of the zygote's
    if "numpy.random" in modules:
        todo.append(modules["numpy.random"].seed)
    if "uuid" in modules:
        uuid = modules["uuid"]
        uuid._node = uuid._last_timestamp = None
    if "tempfile" in modules:
        tempfile = modules["tempfile"]
        tempfile._name_sequence = tempfile.tempdir = None
    if "multiprocessing.process" in modules:
        process, urandom = modules["multiprocessing.process"], modules["os"].urandom

        def authkey():
            process.current_process().authkey = urandom(32)

        todo.append(authkey)
    return todo


def reseed():
    for function in seeds:
        function()


def clocks():
    """What takes the time when it is imported: with a script that is its beginning."""
    modules = sys.modules
    if "logging" in modules:
        logging, time = modules["logging"], modules["time"]
        now = time.time_ns if isinstance(logging._startTime, int) else time.time

        def set_start():
            logging._startTime = now()

        yield set_start


def dress(argv, environment, is_buffered):
    """In a child, before its script: what the job brings along.  Before there is one, too, for practice."""
    sys.argv = argv[1:]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = argv
    main = sys.modules["__main__"]
    main.__file__ = argv[1]
    main.__loader__ = type(__loader__)("__main__", argv[1])
    sys.path_importer_cache.pop(__file__, None)
    if environment != started_with:
        set_environment(environment)
    if is_buffered:
        for name, fd, mode in ("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"):
            stream = open_stream(getattr(sys, name), fd, mode)
            setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)


def dress_on_time(argv, environment, is_buffered):
    dress(argv, environment, is_buffered)
    for function in starts:
        function()


def set_environment(environment):
    """As a new process finds it, in its order."""
    os = sys.modules["os"]
    data = os.environ._data
    for name in list(data):
        os.unsetenv(name)
    data.clear()
    for item in environment:
        name, _, value = item.partition(b"=")
        if name and name not in data:
            data[name] = value
            os.putenv(name, value)


def open_stream(old, fd, mode):
    """A standard stream as an interpreter that buffers makes it."""
    io = sys.modules["io"]
    raw = io.open(fd, mode + "b", closefd=False)
    raw.raw.name = old.name
    stream = io.TextIOWrapper(raw, old.encoding, old.errors, "\n", line_buffering=fd == 2)
    stream.mode = mode
    return stream


def hide(keep):
    """Only what was asked for stays imported, and sys.path is as it was."""
    for name in list(sys.modules):
        if name not in keep:
            del sys.modules[name]
    sys.path.insert(0, path0)


def new_main():
    """What a script will find as __main__."""
    if "__annotations__" in pristine:
        pristine["__annotations__"] = {}
    main = type(sys)("__main__")
    main.__dict__.update(pristine)
    sys.modules["__main__"] = main


def names_of(modules):
    return "".join([name + "\0" for name in modules])


def sources(loaded):
    """Folders and files that modules come from, as far as there is room: what is to be looked at for changes."""
    os, site = sys.modules["os"], sys.modules.get("site")
    stdlib = getattr(sys, "stdlib_module_names", ())
    paths = [sys.prefix + "/pyvenv.cfg"] + sys.path
    if hasattr(site, "getsitepackages"):
        paths += site.getsitepackages()  # those that are not there yet, too
    for name in sorted(loaded, key=lambda name: name.count(".")):
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str) and name.partition(".")[0] not in stdlib:
            paths += [file] if "." in name else [os.path.dirname(file), file]
    text = b""
    for path in dict.fromkeys(paths):
        item = os.fsencode(path) + b"\0"
        if path.startswith("/") and item.count(b"\0") == 1 and len(text) + len(item) <= 16384:
            text += item
    return text


wanted = cloche.setup().split("\0")[:-1]
if sys.version_info >= (3, 13):
    wanted.append("traceback")  # there, it is what shows uncaught exceptions
missing = preload(wanted)
loaded = sorted(set(sys.modules) - bare)
keep = bare.union(loaded)
come_from = sources(loaded)
rehearse()
import gc

seeds, starts = reseeders(), list(clocks())
started_with = [name + b"=" + value for name, value in sys.modules["os"].environ._data.items()]
hide(keep)
gc.collect()
gc.freeze()
new_main()  # not frozen: when its script has ended it is to be collected
cloche.serve(dress_on_time if starts else dress, reseed, gc.enable, gc.callbacks, names_of(missing + loaded), len(missing),
             is_plain(loaded), come_from)
