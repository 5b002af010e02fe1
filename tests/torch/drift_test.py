# SPDX-License-Identifier: BSD-3-Clause
"""A link falls to half of its rate while buckets are reduced that were issued ahead:
all ranks plan for that, from the same call on, and results stay right. Needs root and
what lab/lab needs.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile
import time

import ranks

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(HERE, "..", "..", "lab", "lab")
TUTTI = os.path.join(os.environ.get("TT_BUILD", "build"), "tutti")
HOSTS, STEPS = 4, 16


def has_lab():
    command = [LAB, "run", "star:2@100Mbit", "--once", "--", "true"]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0


def halve(name):
    """The link of h1, both ways."""
    how = "root tbf rate 100mbit burst 128kb limit 1mb".split()
    for where, dev in ((f"{name}-h1", "eth0"), (f"{name}+net", "p1b")):
        subprocess.run(["tc", "-n", where, "qdisc", "change", "dev", dev, *how], check=True)


def job(name, directory):
    """Its status, and what it said."""
    said = os.path.join(directory, "said")
    job = [sys.executable, "-W", "ignore", os.path.join(HERE, "drift_job.py"), str(STEPS)]
    command = [LAB, "run", name, "--tutti", TUTTI, "--", *job, os.path.join(directory, "store")]
    env = dict(os.environ, TUTTI_TOPOLOGY=f"star:{HOSTS}@200Mbit", TUTTI_LOG="debug", TUTTI_TRANSPORTS="tcp")
    with open(said, "w") as file:
        running = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env)
    try:
        deadline = time.monotonic() + ranks.PATIENCE
        while "step 2" not in open(said).read() and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        halve(name)
        status = running.wait(2 * ranks.PATIENCE)
    finally:
        running.kill()
    return status, open(said).read()


def plans_change():
    for _ in range(3):  # other work may take the processors: then nothing is changed
        made = subprocess.run([LAB, "up", f"star:{HOSTS}@200Mbit"], capture_output=True, text=True, check=True)
        name = made.stdout.strip()
        try:
            with tempfile.TemporaryDirectory() as directory:
                status, said = job(name, directory)
        finally:
            subprocess.run([LAB, "down", name], capture_output=True)
        assert status == 0, said
        networks = collections.Counter(re.findall(r"plans are for the network (\w+)", said))
        if len(networks) > 1:
            break
    if len(networks) == 1 and re.search(r"has waited for a processor for ([2-9]\d|100) %", said):
        print("# nothing has changed: other work on this machine takes its processors")
        return
    assert "rank 0: the link h1 - core carries" in said, said
    counts = set(networks.values())
    assert counts == {HOSTS}, f"not all ranks plan for the same networks: {networks}\n{said}"


TESTS = [("plans change while calls are issued ahead", plans_change)]

if __name__ == "__main__":
    if not ranks.MISSING and not has_lab():
        print("1..0 # SKIP needs root and what lab/lab needs")
        sys.exit(0)
    sys.exit(ranks.main(TESTS))
