# SPDX-License-Identifier: BSD-3-Clause
"""Builds libtutti and the program by the Makefile, and the extension where there is a
torch, and puts all of it into the package.

The package has all it needs: ctypes and the extension find libtutti.so.0 in it. For
another torch than this one the extension is compiled later, from the sources that are in
the package, too (tutti/_extension.py). Libraries that libtutti can do without (Clp and
others) are used where pkg-config finds them; TUTTI_MAKE="HAVE_CLP=0 HAVE_XML2=0" leaves
them out. TUTTI_BUILD names the Makefile's build directory.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.install import install

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from build_progress import Watch, run_make  # noqa: E402

ROOT = HERE.parent.parent
# As make is told it: the same directory under another name would be rebuilt in
# parts, because dependencies are kept by name.
B = os.environ.get("TUTTI_BUILD", "")
SONAME = "libtutti.so.0"
NCCL_PLUGIN = "libnccl-net-tutti.so"

sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
from tutti import _extension  # noqa: E402

try:
    import torch
except ImportError:
    torch = None


def version():
    """From tutti.h, the one place where it stands."""
    text = (ROOT / "include" / "tutti.h").read_text()
    parts = [
        re.search(rf"#define TUTTI_VERSION_{name} (\d+)", text).group(1)
        for name in ("MAJOR", "MINOR", "PATCH")
    ]
    return ".".join(parts)


def make():
    """The library and the program; the directory where they are. Without debugging
    information, which takes a while, but where the directory is somebody's."""
    directory = B or "build/package"
    words = [*([] if B else ["CFLAGS=-O2"]), *os.environ.get("TUTTI_MAKE", "").split()]
    jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
    targets = [f"{directory}/{name}" for name in ("libtutti.so", NCCL_PLUGIN, "tutti")]
    run_make(["make", "-C", str(ROOT), f"-j{jobs}", f"B={directory}", *words, *targets])
    return ROOT / directory


class BuildPython(build_py):
    """The package, with the library, the program, and the extension's sources."""

    def run(self):
        super().run()
        built = make()
        place = HERE / "tutti" if self.editable_mode else Path(self.build_lib) / "tutti"
        shutil.copy2((built / SONAME).resolve(), place / SONAME)
        shutil.copy2(built / NCCL_PLUGIN, place / NCCL_PLUGIN)
        (place / "_bin").mkdir(exist_ok=True)
        shutil.copy2(built / "tutti", place / "_bin" / "tutti")
        if not self.editable_mode:
            packed = place / "torch" / "csrc"
            shutil.rmtree(packed, ignore_errors=True)
            shutil.copytree(HERE / "csrc", packed)
            shutil.copytree(ROOT / "include", packed / "include")


class BuildExtension(build_ext):
    """The extension for the torch that is here."""

    def build_extension(self, extension):
        library = (ROOT / (B or "build/package") / SONAME).resolve()
        temporary = Path(self.build_temp).resolve().parent / "extension"
        with Watch("building the extension", _extension.UNITS, temporary):
            made = _extension.compile(torch, temporary, library)
        place = Path(self.get_ext_fullpath(extension.name))
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made, place)
        (place.parent / "_built.py").write_text(
            "# SPDX-License-Identifier: BSD-3-Clause\n"
            '"""What the extension was built for; written by setup.py."""\n\n'
            f'TORCH = "{torch.__version__}"\n'
        )


class Install(install):
    """The library is for one kind of machine also where there is no extension."""

    def finalize_options(self):
        is_told = self.install_lib is not None
        super().finalize_options()
        if not is_told:
            self.install_lib = self.install_platlib


class Wheel(bdist_wheel):
    """For every Python: the library is found by ctypes, and an extension that is in it
    for one torch and one Python is in nobody's way."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    version=version(),
    license="BSD-3-Clause",
    packages=["tutti", "tutti.torch"],
    package_data={"tutti": ["py.typed"]},
    ext_modules=[Extension("tutti.torch._c", [])] if torch else [],
    cmdclass={"build_py": BuildPython, "build_ext": BuildExtension, "install": Install,
              "bdist_wheel": Wheel},
    zip_safe=False,
)
