# SPDX-License-Identifier: BSD-3-Clause
"""What ctypes is told of the headers is what they say; and the version."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tap

import tutti
from tutti import _abi

ROOT = Path(__file__).resolve().parent.parent.parent
CC = os.environ.get("CC", "cc").split()


def perform(command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def generated():
    want = perform([sys.executable, str(ROOT / "tools" / "python-abi")])
    have = (ROOT / "bind" / "torch" / "tutti" / "_abi.py").read_text()
    assert have == want, "_abi.py is not that of the headers: tools/python-abi --fix"


def structs():
    return [k for k in vars(_abi).values() if isinstance(k, type) and issubclass(k, ctypes.Structure)]


def layouts():
    """The compiler's sizes and places of all fields."""
    lines, want = [], []
    for struct in structs():
        name = struct.__name__
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        want.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
            want.append(f"{name}.{field} {getattr(struct, field).offset}")
    assert len(want) > 200, f"only {len(want)} places"
    text = "#define TUTTI_UNSTABLE\n#include <stdio.h>\n#include <tutti.h>\nint main(void)\n{\n" + "\n".join(lines) + "\n}\n"
    with tempfile.TemporaryDirectory() as tmp:
        Path(tmp, "places.c").write_text(text)
        perform([*CC, f"-I{ROOT}/include", f"{tmp}/places.c", "-o", f"{tmp}/places"])
        said = perform([f"{tmp}/places"]).splitlines()
    assert said == want, [pair for pair in zip(said, want) if pair[0] != pair[1]]


def every_function():
    """tutti.map and FUNCTIONS have the same names, and the library has them all."""
    listed = re.findall(r"^ +(tutti_\w+);", (ROOT / "src" / "core" / "tutti.map").read_text(), re.M)
    assert sorted(_abi.FUNCTIONS) == sorted(listed)
    from tutti._library import lib

    for name in listed:
        assert getattr(lib(), name).argtypes is not None, name


def every_error():
    from tutti import _library

    numbers = {number for number in _abi.tutti_err.values() if number < 0}
    assert set(_library.KINDS) == numbers
    for number in numbers:
        error = _library.error(number)
        assert isinstance(error, tutti.Error) and error.number == number and str(error)


def version():
    makefile = (ROOT / "Makefile").read_text()
    (wanted,) = re.findall(r"^VERSION := (\S+)$", makefile, re.M)
    assert tutti.__version__ == wanted, tutti.__version__


def importing():
    """It needs neither torch nor numpy, and does not load the library."""
    code = "import sys, tutti; print([m for m in ('torch', 'numpy') if m in sys.modules], tutti._library._loaded)"
    said = perform([sys.executable, "-c", code])
    assert said == "[] None\n", said


def without_numpy():
    """Calls whose memory is given; the others say what they need."""
    code = """
import array, tutti
comm, x = tutti.Comm(), array.array("d", [1, 2])
for call in (lambda: comm.all_reduce(x, out=x).tolist(), lambda: comm.all_reduce([1.0, 2.0], out=x),
             lambda: comm.all_reduce(x), lambda: tutti.alloc(5)):
    try:
        print(call())
    except ImportError as error:
        print(error)
"""
    with tempfile.TemporaryDirectory() as tmp:
        Path(tmp, "numpy.py").write_text('raise ImportError("there is none")\n')
        said = subprocess.run(
            [sys.executable, "-c", code], check=True, text=True, stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join([tmp, os.environ.get("PYTHONPATH", "")]))).stdout
    assert said.splitlines() == [
        "[1.0, 2.0]", "tutti: without numpy the input must be a buffer, not a list",
        "tutti: without numpy a call needs memory for its result: out=...",
        "tutti: without numpy there is no tutti.alloc()",
    ], said


TESTS = [
    ("tutti.__version__ is the Makefile's", version),
    ("importing tutti loads no torch, no numpy and no library", importing),
    ("without numpy", without_numpy),
    ("every function has its types", every_function),
    ("every error is an exception", every_error),
]
if shutil.which(CC[-1]) or shutil.which(CC[0]):
    TESTS += [("_abi.py is what tools/python-abi makes of the headers", generated), ("structs lie as in C", layouts)]

if __name__ == "__main__":
    sys.exit(tap.main(TESTS))
