# SPDX-License-Identifier: BSD-3-Clause
"""Where the package's extension is that of another torch: it is compiled once and kept,
or a sentence says why it cannot be.

The compiler is a script that hands out the extension that is there, so this takes
seconds; wheel_test.py compiles by the same functions.
"""

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
    env = dict(os.environ, PYTHONPATH=str(place), XDG_CACHE_HOME=f"{tmp}/cache", PYTHONDONTWRITEBYTECODE="1", **more)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", USE], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=tmp)


def end(process):
    out, err = process.communicate(timeout=ranks.PATIENCE)
    return process.returncode, out, err


def compiled_once():
    with tempfile.TemporaryDirectory() as tmp:
        place, made = package(tmp)
        log, compiler = Path(tmp, "log"), Path(tmp, "compiler")
        compiler.write_text(COMPILER.format(log=log, made=made))
        compiler.chmod(0o755)
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
        status, _, err = end(start(place, tmp, CXX="false"))
        assert status and "cannot compile it: false" in err, err
        assert not list(Path(tmp, "cache", "tutti", "torch").glob("torch-*")), "what was not made is kept"
        shutil.rmtree(Path(tmp, "cache"))
        Path(tmp, "cache").write_text("")
        status, _, err = end(start(place, tmp, CXX="true"))
        assert status and "cannot be written to: XDG_CACHE_HOME" in err, err


TESTS = [
    ("the extension for another torch is compiled by one of several ranks, and kept", compiled_once),
    ("without a compiler, or a place, a sentence says so", refused),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
