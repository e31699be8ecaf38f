# SPDX-License-Identifier: Apache-2.0
"""CPython's regression tests, of Debian's package for the system's Python, laid beside what of them is installed."""
import pathlib
import shutil
import subprocess

PACKAGE = "libpython3.11-testsuite"
LIBRARY = pathlib.Path("/usr/lib/python3.11/test")


class NoTestsuite(Exception):
    """The package could not be had."""


def archive(cache):
    """The .deb, from @cache or from Debian"""
    cache.mkdir(parents=True, exist_ok=True)
    found = sorted(cache.glob(PACKAGE + "_*.deb"))
    if not found:
        p = subprocess.run(["apt-get", "download", "-q", PACKAGE], cwd=cache, capture_output=True, text=True,
                           timeout=300)
        found = sorted(cache.glob(PACKAGE + "_*.deb"))
        if p.returncode != 0 or not found:
            raise NoTestsuite(f"apt-get download {PACKAGE}: {p.stderr.strip()[-300:]}")
    return found[-1]


def prepare(cache, folder):
    """Make @folder/test, the whole package `test`; compiled, because scripts may not write there."""
    deb = archive(cache)
    raw = folder / "raw"
    subprocess.run(["dpkg", "-x", str(deb), str(raw)], check=True, timeout=120)
    (raw / "usr/lib/python3.11/test").rename(folder / "test")
    shutil.rmtree(raw)
    shutil.copytree(LIBRARY, folder / "test", dirs_exist_ok=True)
    subprocess.run(["/usr/bin/python3", "-m", "compileall", "-q", "-j", "2", "-x", "bad|/lib2to3_data|/data/",
                    str(folder / "test")], stdout=subprocess.DEVNULL, timeout=300)
    return deb.name
