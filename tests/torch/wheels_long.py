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


def make():
    env = wheel_test.clean_environment(PYTHON=sys.executable, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    del env["PIP_NO_INDEX"]
    done = subprocess.run(
        [os.path.join(wheel_test.ROOT, "tools", "wheels"), BUILD], env=env, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    (path,) = glob.glob(os.path.join(BUILD, "wheels", "*.whl"))
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


if __name__ == "__main__":
    reason = ranks.MISSING is None and wheel_test.why_not()
    if reason:
        print(f"1..0 # SKIP {reason}")
        sys.exit()
    sys.exit(ranks.main([("a wheel with all that it needs", wheels)]))
