# SPDX-License-Identifier: BSD-3-Clause
"""Builds libtutti by the Makefile, the extension, and puts both into the package.

The wheel has all it needs: the extension finds libtutti.so beside it ($ORIGIN).
Libraries that libtutti can do without (Clp and others) are used where pkg-config
finds them; TUTTI_MAKE="HAVE_CLP=0 HAVE_XML2=0" leaves them out of a wheel for
machines that may not have them. TUTTI_BUILD names the Makefile's build directory.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from build_progress import Watch, run_make  # noqa: E402

ROOT = HERE.parent.parent
# As make is told it: the same directory under another name would be rebuilt in
# parts, because dependencies are kept by name.
B = os.environ.get("TUTTI_BUILD", "build")
BUILD = ROOT / B
SONAME = "libtutti.so.0"


def version():
    """From tutti.h, the one place where it stands."""
    text = (ROOT / "include" / "tutti.h").read_text()
    parts = [
        re.search(rf"#define TUTTI_VERSION_{name} (\d+)", text).group(1)
        for name in ("MAJOR", "MINOR", "PATCH")
    ]
    return ".".join(parts)


def build_library():
    """libtutti.so by the Makefile; returns its path."""
    words = os.environ.get("TUTTI_MAKE", "").split()
    jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 1))
    command = ["make", "-C", str(ROOT), f"-j{jobs}", f"B={B}", *words, f"{B}/libtutti.so"]
    run_make(command)
    return BUILD / SONAME


class Build(BuildExtension):
    """The library first, then the extension, then both into the package."""

    def run(self):
        self.library = build_library()
        sources = [source for e in self.extensions for source in e.sources]
        with Watch("building the extension", sources, self.build_temp):
            super().run()
        for extension in self.extensions:
            place = Path(self.get_ext_fullpath(extension.name)).parent
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.library.resolve(), place / SONAME)
            (place / "_built.py").write_text(
                "# SPDX-License-Identifier: BSD-3-Clause\n"
                '"""What the extension was built for; written by setup.py."""\n\n'
                f'TORCH = "{torch.__version__}"\n'
            )


setup(
    version=version(),
    license="BSD-3-Clause",
    packages=["tutti", "tutti.torch"],
    ext_modules=[
        CppExtension(
            "tutti.torch._c",
            ["csrc/unit_groups.cpp", "csrc/unit_python.cpp"],
            include_dirs=[str(ROOT / "include")],
            library_dirs=[str(BUILD)],
            libraries=["tutti"],
            extra_compile_args=["-O2", "-g0", "-Wall", "-Wno-unknown-pragmas", "-fvisibility=hidden"],
            extra_link_args=["-Wl,-rpath,$ORIGIN"],
        )
    ],
    cmdclass={"build_ext": Build},
)
