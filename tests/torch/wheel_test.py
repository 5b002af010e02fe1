# SPDX-License-Identifier: BSD-3-Clause
"""A wheel is built, installed in a new environment, and used without a compiler.

The extension is that of `tools/torch build`: the same setup.py with the same directory,
where it lies already. All else goes to a temporary directory, nothing to the source tree.
"""

import glob
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

import ranks

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SOURCE = os.path.join(ROOT, "bind", "torch")
# As it was told to tools/torch; relative to the root.
BUILD = os.environ.get("TT_BUILD", "build")
RANKS = 2
# Where setuptools is to put things (DIST_EXTRA_CONFIG).
PLACES = """
[build]
build_base = {objects}
build_lib = {tmp}/lib
[bdist_wheel]
bdist_dir = {tmp}/dist
[egg_info]
egg_base = {tmp}
"""


# As pip's isolated builds: without what is installed, but for setuptools.
ISOLATED = """
import sys
sys.path = [path for path in sys.path if "-packages" not in path]
import build_backend
print(build_backend.get_requires_for_build_wheel())
import torch
print(torch.__version__)
"""


def perform(command, env, **more):
    """Its output; it must end well."""
    done = subprocess.run(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=ranks.PATIENCE, **more
    )
    assert done.returncode == 0, f"{' '.join(command)}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def clean_environment(**more):
    """Without what `make` and tools/torch have set, and with no way to the internet
    for pip."""
    gone = ("PYTHONPATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "LD_LIBRARY_PATH", "TORCH_DEVICE_BACKEND_AUTOLOAD")
    env = {name: value for name, value in os.environ.items() if name not in gone}
    return dict(env, PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PYTHONDONTWRITEBYTECODE="1", **more)


def sources():
    """The files of bind/torch and when they were written."""
    return {path: os.stat(path).st_mtime_ns for path in glob.glob(SOURCE + "/**", recursive=True) if "__pycache__" not in path}


def build_wheel(tmp):
    """Its path."""
    config = os.path.join(tmp, "places.cfg")
    with open(config, "w") as file:
        file.write(PLACES.format(objects=os.path.join(ROOT, BUILD, "torch", "base"), tmp=tmp))
    env = clean_environment(TUTTI_BUILD=BUILD, DIST_EXTRA_CONFIG=config, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp, SOURCE]
    said = perform(command, env, cwd=tmp)
    wheels = glob.glob(os.path.join(tmp, "tutti-*.whl"))
    assert len(wheels) == 1, f"not one wheel: {wheels}\n{said}"
    return wheels[0]


def check_contents(wheel):
    """Of every Python and this machine, with the library and the program in it."""
    assert "-py3-none-linux_" in os.path.basename(wheel), wheel
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        entries = "".join(file.read(n).decode() for n in names if n.endswith("/entry_points.txt"))
    extension = "tutti/torch/_c" + sysconfig.get_config_var("EXT_SUFFIX")
    here = {os.path.relpath(p, SOURCE) for p in glob.glob(SOURCE + "/tutti/**/*.py", recursive=True)}
    here |= {"tutti/" + os.path.relpath(p, SOURCE).replace("csrc/", "torch/csrc/") for p in glob.glob(SOURCE + "/csrc/*")}
    here |= {"tutti/libtutti.so.0", "tutti/_bin/tutti", "tutti/py.typed", "tutti/torch/_built.py", extension}
    missing = here - set(names)
    assert not missing, f"not in the wheel: {missing}"
    assert "[torch.backends]\ntutti = tutti._register:register" in entries, entries
    assert "[console_scripts]\ntutti = tutti._program:main" in entries, entries


def install(wheel, tmp):
    """The Python of a new environment, which sees this one's torch behind its own."""
    place = os.path.join(tmp, "venv")
    env = clean_environment()
    perform([sys.executable, "-m", "venv", "--without-pip", place], env)
    (packages,) = glob.glob(os.path.join(place, "lib", "python*", "site-packages"))
    import torch

    with open(os.path.join(packages, "torch-of-another.pth"), "w") as file:
        file.write(os.path.dirname(os.path.dirname(torch.__file__)) + "\n")
    python = os.path.join(place, "bin", "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--ignore-installed", wheel]
    perform(command, env, cwd=tmp)
    return python, packages


# Of the plain package, in a Python that has no torch to import.
PLAIN = """
import sys
sys.modules["torch"] = None
import tutti
with tutti.Comm() as comm:
    assert comm.all_reduce(bytearray(b"abc"), out=(out := bytearray(3))) is out == b"abc"
print(tutti.__version__, tutti.Topology("star:4@1Gbit").plan().n_ranks, tutti.run([sys.executable, "-c", ""], 2))
"""


def use_plain(python, tmp):
    """The package without torch, and the program."""
    env = clean_environment(PATH=os.path.dirname(python))
    version = perform([python, "-c", PLAIN], env, cwd=tmp)
    assert version.endswith(" 4 []\n"), version
    for command in (["tutti"], [python, "-m", "tutti"]):
        said = perform([*command, "--version"], env, cwd=tmp)
        assert said == f"tutti {version.split()[0]}\n", said


def use(python, packages, tmp):
    """As a user of the wheel, who has Python and torch, and nothing to build with."""
    use_plain(python, tmp)
    job = shutil.copy(os.path.join(HERE, "wheel_job.py"), tmp)
    env = clean_environment(
        PATH=os.path.dirname(python), OMP_NUM_THREADS="1", TORCH_FR_DUMP_TEMP_FILE=os.path.join(tmp, "calls_")
    )
    command = [python, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    said = perform([*command, job, packages], env, cwd=tmp)
    for rank in range(RANKS):
        assert f"rank {rank} of {RANKS}: all of" in said, said


def wheel():
    before = sources()
    with tempfile.TemporaryDirectory() as tmp:
        path = build_wheel(tmp)
        check_contents(path)
        use(*install(path, tmp), tmp)
    changed = set(sources().items()) ^ set(before.items())
    assert not changed, f"the source tree is not as it was: {changed}"


def isolated():
    """pip's isolated builds find the torch that is installed, and fetch none."""
    import setuptools
    import torch

    if not any(torch.__file__.startswith(path + os.sep) for path in site.getsitepackages()):
        return  # it came by PYTHONPATH or the like, which pip shows to builds
    with tempfile.TemporaryDirectory() as tmp:
        for name in ("setuptools", "_distutils_hack", "pkg_resources"):
            path = os.path.join(os.path.dirname(os.path.dirname(setuptools.__file__)), name)
            if os.path.exists(path):
                os.symlink(path, os.path.join(tmp, name))
        env = dict(clean_environment(), PYTHONPATH=tmp + os.pathsep + SOURCE)
        said = perform([sys.executable, "-W", "ignore", "-c", ISOLATED], env, cwd=tmp)
        assert said.split() == ["[]", torch.__version__], said


def why_not():
    """A sentence, or None."""
    for module in ("pip", "venv"):
        if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode:
            return f"{sys.executable} has no {module}"
    return None


TESTS = [
    ("a wheel is built, installed elsewhere, and used without a compiler", wheel),
    ("pip builds for the torch that is installed", isolated),
]

if __name__ == "__main__":
    reason = ranks.MISSING is None and why_not()
    if reason:
        print(f"1..0 # SKIP {reason}")
        sys.exit()
    sys.exit(ranks.main(TESTS))
