# SPDX-License-Identifier: BSD-3-Clause
"""The extension tutti.torch._c, which fits one torch and one Python: finds it, or
compiles it.

An installed package has it for the torch that it was built with. For any other torch it
is compiled when it is first imported, and kept in the user's cache. setup.py compiles by
the same functions.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, List, Optional, Tuple

HERE = Path(__file__).resolve().parent
NAME = "tutti.torch._c"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
# What is compiled, and how. -g0: half of the time would go into what nobody reads.
UNITS = ("unit_groups.cpp", "unit_python.cpp")
FLAGS = ("-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wno-unknown-pragmas")


# Seconds after which what a compiler has left behind, that was killed, is thrown away.
LEFT = 3600


class CannotCompile(Exception):
    """A sentence."""


# ----------------------------------------------------------------- compiling --


def sources() -> Tuple[Path, Path]:
    """The extension's, and the public headers: in the package, or in the tree."""
    packed = HERE / "torch" / "csrc"
    if packed.is_dir():
        return packed, packed / "include"
    return HERE.parent / "csrc", HERE.parent.parent.parent / "include"


def key_of(torch: Any) -> str:
    """Of what the extension is made of, and for."""
    digest = hashlib.sha256(repr((torch.__version__, SUFFIX)).encode() + Path(__file__).read_bytes())
    for place in sources():
        for path in sorted(place.iterdir()):
            if path.suffix in (".cpp", ".h"):
                digest.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return f"torch-{torch.__version__}-{digest.hexdigest()[:16]}"


def _compiler() -> List[str]:
    text = os.environ.get("CXX", "")
    try:
        given = shlex.split(text)
    except ValueError as why:
        raise CannotCompile(f"CXX is {text}, which is no command: {why}") from None
    if given and not shutil.which(given[0]):
        raise CannotCompile(f"CXX is {text}, and there is no such compiler")
    for command in [given] if given else (["c++"], ["g++"], ["clang++"]):
        if shutil.which(command[0]):
            return command
    raise CannotCompile("there is no C++ compiler (c++, or what CXX names)")


def _flags_for(torch: Any) -> List[str]:
    place = Path(torch.__file__).parent / "include"
    python = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(python, "Python.h")):
        raise CannotCompile(f"there is no Python.h in {python} (python3-dev, or the like)")
    version = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
    flags = [
        f"-std={'c++20' if version >= (2, 10) else 'c++17'}", "-DTORCH_EXTENSION_NAME=_c",
        "-DTORCH_API_INCLUDE_EXTENSION_H", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{sources()[1]}",
    ]
    # By these, types of pybind11 are shared with older torches.
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        value = getattr(torch._C, f"_PYBIND11_{name}", None)
        if value is not None:
            flags.append(f'-DPYBIND11_{name}="{value}"')
    for path in (place, place / "torch" / "csrc" / "api" / "include", python):
        flags += ["-isystem", str(path)]
    return flags


def _runtime() -> List[str]:
    """The C++ library that this process has. A compiler may have only a static one, or be
    told so: then there would be two, and what one has made the other ends."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.rstrip("\n").split(maxsplit=5)[-1] for line in maps if "/libstdc++.so" in line}
    return sorted(path for path in paths if os.path.exists(path))[:1]


def _perform(commands: List[List[str]], at_once: int) -> None:
    """So many at a time; raises with the output of one that fails."""
    from concurrent.futures import ThreadPoolExecutor

    def perform(command: List[str]) -> Optional[str]:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return f"{shlex.join(command)}\n{done.stdout}" if done.returncode else None

    with ThreadPoolExecutor(at_once) as pool:
        for failure in pool.map(perform, commands):
            if failure:
                raise CannotCompile(failure)


def _jobs() -> int:
    given = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
    try:
        return max(1, int(given))
    except ValueError:
        raise CannotCompile(f'MAX_JOBS is "{given}", which is no number') from None


def compile(torch: Any, directory: Path, library: Path) -> Path:
    """The extension for this torch, in directory, where it may lie already. library:
    libtutti.so.0, by which it is linked."""
    place = directory / key_of(torch)
    made = place / f"_c{SUFFIX}"
    if made.exists():
        return made
    directory.mkdir(parents=True, exist_ok=True)
    compiler = _compiler()
    flags = [*FLAGS, *_flags_for(torch)]
    jobs = _jobs()
    with tempfile.TemporaryDirectory(prefix="building-", dir=directory) as tmp:
        objects = [f"{tmp}/{unit[:-4]}.o" for unit in UNITS]
        _perform([
            [*compiler, *flags, "-c", str(sources()[0] / unit), "-o", obj] for unit, obj in zip(UNITS, objects)
        ], jobs)
        libraries = str(Path(torch.__file__).parent / "lib")
        _perform([[
            *compiler, "-shared", "-o", f"{tmp}/{made.name}", *objects, f"-L{libraries}", "-lc10", "-ltorch_cpu",
            "-ltorch", "-ltorch_python", str(library), *_runtime(), "-Wl,-rpath,$ORIGIN/..",
        ]], 1)
        place.mkdir(exist_ok=True)
        os.replace(f"{tmp}/{made.name}", made)
    return made


# ------------------------------------------------------------------- loading --


def cache() -> Path:
    """Where extensions that were compiled here are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # then it does not count, as XDG has it
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tutti" / "torch"


def _check_owner(place: Path) -> None:
    """What lies there is loaded, and becomes part of this process: nobody but this user
    and root may have put it there. Above it, a directory like /tmp may be everybody's."""
    ours = (0, os.geteuid())
    for path in (place.parent, place):
        if os.lstat(path).st_uid not in ours or os.stat(path).st_uid not in ours:
            raise CannotCompile(f"{path} is another user's: XDG_CACHE_HOME names another place")
    if os.stat(place).st_mode & 0o022:
        raise CannotCompile(f"others may write to {place}: chmod go-w, or XDG_CACHE_HOME names another place")


def _tidy(place: Path) -> None:
    for left in place.glob("building-*"):
        try:
            if time.time() - left.stat().st_mtime > LEFT:
                shutil.rmtree(left, ignore_errors=True)
        except OSError:  # it has just been removed
            pass


def _compiled(torch: Any) -> Path:
    """One of the ranks of a host compiles, the others wait for it."""
    import fcntl

    from tutti import _library

    place = cache()
    ready = place / key_of(torch) / f"_c{SUFFIX}"
    if ready.exists():
        _check_owner(place)
        return ready
    _compiler()
    try:
        for directory in (place.parent, place):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(place)
        lock = open(place / "lock", "w")
    except OSError as why:
        raise CannotCompile(f"{place} cannot be written to: XDG_CACHE_HOME names another place ({why})") from why
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _tidy(place)
        if not ready.exists():
            print(
                f"tutti: compiles its extension for torch {torch.__version__}, once, which takes a minute or two; "
                f"it is kept in {place}", file=sys.stderr, flush=True,
            )
        library = _library.path()
        if library is None:
            raise CannotCompile(f"{_library.SONAME} is not in this package")
        return compile(torch, place, Path(library))


def _load_from(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[NAME]
        raise
    return module


def built_for() -> str:
    """The torch that the package's own extension is for; "": it has none."""
    try:
        return importlib.import_module("tutti.torch._built").TORCH
    except ImportError:
        return ""


def _minor(version: str) -> List[str]:
    return version.split("+")[0].split(".")[:2]


def load() -> Any:
    """The extension for the torch that is here. Errors: ImportError with a sentence."""
    import torch

    from tutti._library import lib

    lib()  # which the extension finds loaded, wherever it lies itself
    own, why = built_for(), None
    if own and _minor(own) == _minor(torch.__version__):
        try:
            return importlib.import_module(NAME)
        except ImportError as error:
            if own == torch.__version__ and "No module named" not in str(error):
                raise
            why = error
    try:
        return _load_from(_compiled(torch))
    except (CannotCompile, ImportError, OSError) as error:
        has = f"it was built for torch {own}" if own else "it was built without torch"
        raise ImportError(
            f"tutti has no extension for torch {torch.__version__} and Python {sys.version.split()[0]} ({has}), and "
            f"cannot compile it: {error}"
        ) from why or error
