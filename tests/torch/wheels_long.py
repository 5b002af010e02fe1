# SPDX-License-Identifier: BSD-3-Clause
"""tools/wheels makes a wheel that needs nothing of the system but glibc and libstdc++:
it is made, installed elsewhere and used, without a compiler; for `make check-long`."""

import glob
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile

import ranks
import wheel_test

BUILD = os.path.join(wheel_test.ROOT, wheel_test.BUILD)
# What manylinux lets a wheel have of the system.
OF_SYSTEM = r"lib(c|m|z|dl|rt|pthread|util|stdc\+\+|gcc_s|nss_\w+|resolv)[.-]|ld-linux|locale|gconv|\[|/dev/|memfd"
# Clp, libxml2 and OpenSSL are used; then what this process has in memory.
PARTS = """
import sys, tutti
net = tutti.Topology("mesh:3x3@1Gbit")
assert net.bound().is_exact and net.plan("all-reduce", 1 << 24, planner="forest").verify()
xml = '<system version="1"><cpu numaid="0"></cpu></system>'
try:
    tutti.Topology.parse(xml)
except tutti.DoesNotFit:
    raise
except tutti.Error as error:
    print(error)
tutti.Comm(0, 1, secret=bytes(32)).close()
print(*{line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line}, sep="\\n")
"""


def make(python=sys.executable, build=BUILD):
    env = wheel_test.clean_environment(PYTHON=python, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    del env["PIP_NO_INDEX"]
    done = subprocess.run(
        [os.path.join(wheel_test.ROOT, "tools", "wheels"), build], env=env, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    (path,) = glob.glob(os.path.join(build, "wheels", "*.whl"))
    return path


def contents(path):
    assert "-py3-none-manylinux_" in os.path.basename(path), path
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
    libraries = {os.path.basename(name).split("-")[0] for name in names if name.startswith("tutti.libs/")}
    assert {"libClp", "libxml2", "libssl", "libcrypto"} <= libraries, libraries
    assert {"tutti/libtutti.so.0", "tutti/libnccl-net-tutti.so"} <= set(names), names
    licences = [name for name in names if ".dist-info/licenses/" in name]
    assert any(name.endswith("/LICENSE") for name in licences), licences
    for word in ("clp", "xml2", "ssl"):
        assert any(word in os.path.basename(name) for name in licences), licences


def alone(python, packages, tmp):
    """Its libraries are its own."""
    said = wheel_test.perform([python, "-c", PARTS], wheel_test.clean_environment(), cwd=tmp)
    mapped = [line for line in said.splitlines() if line.startswith("/")]
    own = [path for path in mapped if path.startswith(packages)]
    assert any("libClp" in path for path in own) and any("libtutti" in path for path in own), own
    for word in ("libClp", "libCoinUtils", "libxml2", "libssl", "libcrypto", "liblapack"):
        theirs = [path for path in mapped if word in path and path not in own]
        # Python's own ssl module may have brought one along.
        assert not theirs or "ssl" in word or "crypto" in word, theirs
    program = os.path.join(packages, "tutti", "_bin", "tutti")
    said = wheel_test.perform(["ldd", program], wheel_test.clean_environment())
    for line in said.splitlines():
        path = line.split(" => ")[-1].split(" (")[0].strip()
        assert path.startswith(packages) or re.search(OF_SYSTEM, path) or "vdso" in path, line


def wheels():
    path = make()
    contents(path)
    with tempfile.TemporaryDirectory() as tmp:
        start = time.monotonic()
        python, packages = wheel_test.install(path, tmp)
        packages = os.path.realpath(packages)
        wheel_test.use(python, packages, tmp)
        print(f"# from the wheel to a step of DDP on {wheel_test.RANKS} ranks: {time.monotonic() - start:.1f} s")
        alone(python, packages, tmp)


def without_torch():
    """By a Python that has neither torch nor pip, as Debian's; without the extension."""
    with tempfile.TemporaryDirectory() as tmp:
        bare = os.path.join(tmp, "bare")
        wheel_test.perform([sys.executable, "-m", "venv", "--without-pip", bare], wheel_test.clean_environment())
        path = make(os.path.join(bare, "bin", "python"), os.path.join(tmp, "build"))
        contents(path)
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
        assert not [name for name in names if "/_c." in name], names
        assert not [name for name in names if ".data/purelib" in name], names
        env = wheel_test.clean_environment(PYTHONPATH=os.path.join(tmp, "package"))
        wheel_test.perform([sys.executable, "-m", "zipfile", "-e", path, env["PYTHONPATH"]], env)
        said = wheel_test.perform([os.path.join(bare, "bin", "python"), "-c", PARTS], env, cwd=tmp)
        assert "libtutti" in said, said


if __name__ == "__main__":
    reason = ranks.MISSING is None and wheel_test.why_not()
    if reason:
        print(f"1..0 # SKIP {reason}")
        sys.exit()
    sys.exit(ranks.main([
        ("a wheel with all that it needs", wheels), ("one by a Python without torch and pip", without_torch)]))
