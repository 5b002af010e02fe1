# SPDX-License-Identifier: BSD-3-Clause
"""Where the package's extension is that of another torch: it is compiled once and kept,
or a sentence says why it cannot be.

The compiler is a script that hands out the extension that is there, so this takes
seconds; wheel_test.py compiles by the same functions.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ranks

USE = "import torch, tutti.torch; print(tutti.torch._c.__file__, tutti.torch.__version__)"
RANKS = 3
COMPILER = """#!/bin/sh
echo "$@" >>{log}
while [ $# -gt 0 ]; do
    case $1 in
    -shared) from={made} ;;
    -o) to=$2 ;;
    esac
    shift
done
cp "${{from:-/dev/null}}" "$to"
"""


def package(tmp):
    """A copy of the package, built for a torch that nobody has; its own extension apart."""
    import tutti.torch

    place = Path(tmp, "package", "tutti")
    shutil.copytree(Path(tutti.torch.__file__).parent.parent, place)
    (place / "torch" / "_built.py").write_text('TORCH = "1.0.0"\n')
    (made,) = (place / "torch").glob("_c.*.so")
    apart = Path(tmp, made.name)
    made.rename(apart)
    return place.parent, apart


def start(place, tmp, **more):
    env = dict(os.environ, PYTHONPATH=str(place), XDG_CACHE_HOME=f"{tmp}/cache", PYTHONDONTWRITEBYTECODE="1")
    env.update(more)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", USE], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=tmp)


def end(process):
    out, err = process.communicate(timeout=ranks.PATIENCE)
    return process.returncode, out, err


def prepare(tmp):
    """The package, the compiler, and where that says what it was called for."""
    place, made = package(tmp)
    log, compiler = Path(tmp, "log"), Path(tmp, "compiler")
    compiler.write_text(COMPILER.format(log=log, made=made))
    compiler.chmod(0o755)
    return place, compiler, log


def compiled_once():
    with tempfile.TemporaryDirectory() as tmp:
        place, compiler, log = prepare(tmp)
        outcomes = [end(p) for p in [start(place, tmp, CXX=str(compiler)) for _ in range(RANKS)]]
        for status, out, err in outcomes:
            assert status == 0 and out.startswith(f"{tmp}/cache/tutti/torch/torch-"), (status, out, err)
        assert sum("compiles its extension" in err for _, _, err in outcomes) == 1, outcomes
        # Two units, and what links them; the next one finds it there, without a compiler.
        assert len(log.read_text().splitlines()) == 3, log.read_text()
        status, out, err = end(start(place, tmp, CXX="", PATH=""))
        assert status == 0 and not err, (out, err)


def refused():
    with tempfile.TemporaryDirectory() as tmp:
        place, _ = package(tmp)
        status, _, err = end(start(place, tmp, CXX="", PATH=""))
        assert status and "it was built for torch 1.0.0" in err and "there is no C++ compiler" in err, err
        for wrong, says in (('"c++', "which is no command"), ("/nowhere/c++", "there is no such compiler")):
            status, _, err = end(start(place, tmp, CXX=wrong))
            assert status and f"CXX is {wrong}" in err and says in err, err
        status, _, err = end(start(place, tmp, CXX="false"))
        assert status and "cannot compile it: false" in err, err
        assert not list(Path(tmp, "cache", "tutti", "torch").glob("torch-*")), "what was not made is kept"
        shutil.rmtree(Path(tmp, "cache"))
        Path(tmp, "cache").write_text("")
        status, _, err = end(start(place, tmp, CXX="true"))
        assert status and "cannot be written to: XDG_CACHE_HOME" in err, err
        status, _, err = end(start(place, tmp, CXX="true", MAX_JOBS="all", HOME=tmp, XDG_CACHE_HOME=""))
        assert status and 'MAX_JOBS is "all"' in err, err


def strangers():
    """What others may have put into the cache is not loaded."""
    with tempfile.TemporaryDirectory() as tmp:
        place, compiler, _ = prepare(tmp)
        cache = Path(tmp, "cache", "tutti", "torch")
        killed = cache / "building-killed"
        killed.mkdir(parents=True)
        os.utime(killed, (1, 1))
        cache.chmod(0o777)
        status, _, err = end(start(place, tmp, CXX=str(compiler)))
        assert status and "others may write to" in err, err
        cache.chmod(0o700)
        status, _, err = end(start(place, tmp, CXX=str(compiler)))
        assert status == 0 and not killed.exists(), err
        cache.chmod(0o770)
        status, _, err = end(start(place, tmp))
        assert status and "others may write to" in err, err
        cache.chmod(0o700)
        if os.geteuid() == 0:
            for path in (cache, cache.parent):
                os.chown(path, 65534, -1)
                status, _, err = end(start(place, tmp))
                assert status and f"{path} is another user's" in err, err
                os.chown(path, 0, -1)
        status, _, err = end(start(place, tmp))
        assert status == 0, err


def relative():
    """A relative XDG_CACHE_HOME does not count, as its specification says."""
    with tempfile.TemporaryDirectory() as tmp:
        place, compiler, _ = prepare(tmp)
        status, out, err = end(start(place, tmp, CXX=str(compiler), XDG_CACHE_HOME="here", HOME=tmp))
        assert status == 0 and out.startswith(f"{tmp}/.cache/tutti/torch/"), (out, err)


SOURCE = """
#include <sstream>
extern "C" __attribute__((visibility("default"))) const char *tell() { static std::string s; std::ostringstream o; o << 7; s = o.str(); return s.c_str(); }
"""


def one_library():
    """A compiler that has the C++ library only static, as some machines', makes an
    extension that uses torch's: with two of them an error's text ended the process."""
    import torch

    from tutti import _extension, _library

    with tempfile.TemporaryDirectory() as tmp:
        Path(tmp, "unit.cpp").write_text(SOURCE)
        environment = dict(os.environ)
        kept = _extension.UNITS, _extension.sources
        _extension.UNITS, _extension.sources = ("unit.cpp",), lambda: (Path(tmp), Path(tmp))
        os.environ["CXX"] = "c++ -static-libstdc++"
        try:
            made = _extension.compile(torch, Path(tmp, "made"), Path(_library.path()))
        finally:
            _extension.UNITS, _extension.sources = kept
            os.environ.clear()
            os.environ.update(environment)
        assert b"\0libstdc++.so.6\0" in made.read_bytes(), "it has a C++ library of its own"
        tell = ctypes.CDLL(str(made)).tell
        tell.restype = ctypes.c_char_p
        assert tell() == b"7", tell()


TESTS = [
    ("the extension for another torch is compiled by one of several ranks, and kept", compiled_once),
    ("it uses the C++ library that torch uses", one_library),
    ("a cache that others may write to", strangers),
    ("a relative place for the cache", relative),
    ("without a compiler, or a place, a sentence says so", refused),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
