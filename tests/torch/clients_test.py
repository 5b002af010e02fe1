# SPDX-License-Identifier: BSD-3-Clause
"""Libraries that ask for "gloo" by name: the same program over Gloo, and with
TUTTI_AS_GLOO=1 over Tutti, must see the same losses. clients_job.py has the programs,
docs/reference/torch-clients.md what was tried. A client that is not installed is skipped, in a
sentence. `clients_test.py NAME...`: these alone.
"""

import importlib.metadata
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile

import clients_job
import installed
import ranks

JOB = os.path.join(installed.HERE, "clients_job.py")
SIZES = (2, 3) if os.environ.get("TT_LONG") else (2,)
PATIENCE = 2 * ranks.PATIENCE
GRACE = 40  # torchrun gives its ranks 30 s to end
# Over Gloo, of Accelerate's programs 5 of 65 ended with this of the C++ library,
# also where there is no Tutti. Over Tutti it would be a failure.
GLOOS_END = "terminate called without an active exception"
GLOOS_TRIES = 5
CLOSE = 1e-4  # ranks are added up in another order


def missing(modules):
    """Of "a b": those that are not there; "lightning pytorch_lightning" are one."""
    names = modules.split()
    gone = [name for name in names if importlib.util.find_spec(name) is None]
    one_is_enough = names[0] == "lightning"
    return [] if one_is_enough and len(gone) < len(names) else gone


def version_of(client):
    for name in (client, f"pytorch-{client}", f"{client}-cpu"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return client


def until_patience_ends(command, env, directory):
    """(status, what it printed). Who starts ranks ends them when it is told to end."""
    with subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          cwd=directory) as process:
        try:
            said = process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                said = process.communicate(timeout=GRACE)[0]
            except subprocess.TimeoutExpired as late:
                process.kill()
                said = (late.stdout or b"").decode(errors="replace")
            raise AssertionError(f"not over after {PATIENCE} s\n{said[-3000:]}") from None
    return process.returncode, said


def perform(client, size, as_gloo):
    """(by which backend, what each rank has seen)."""
    with tempfile.TemporaryDirectory() as directory:
        env = dict(installed.announce(directory), TUTTI_AS_GLOO=as_gloo, TMPDIR=directory)
        env.update(ACCELERATE_USE_CPU="true", DS_ACCELERATOR="cpu", HF_HUB_OFFLINE="1", RAY_TRAIN_V2_ENABLED="1",
                   RAY_USAGE_STATS_ENABLED="0", VLLM_TARGET_DEVICE="cpu")
        command = [sys.executable, "-W", "ignore"]
        if client not in clients_job.ALONE:
            command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        command += [JOB, client, directory, str(size)]
        status, said = until_patience_ends(command, env, directory)
        assert status == 0, f"status {status}\n{said[-6000:]}"
        found = []
        for rank in range(size):
            with open(os.path.join(directory, f"{rank}.json")) as file:
                found.append(json.load(file))
    return {one["by"] for one in found}, [one["seen"] for one in found]


def differ(a, b, where):
    """Where two results differ, or None."""
    if isinstance(a, float) and isinstance(b, float):
        return None if math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE) else f"{where}: {a} and {b}"
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return next(filter(None, (differ(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b)))), None)
    return None if a == b else f"{where}: {a} and {b}"


def perform_by_gloo(client, size):
    for left in reversed(range(GLOOS_TRIES)):
        try:
            return perform(client, size, "0")
        except AssertionError as error:
            if not left or GLOOS_END not in str(error):
                raise AssertionError(f"over Gloo: {error}") from None


def same(client):
    for size in SIZES:
        by, gloos = perform_by_gloo(client, size)
        assert by == {"gloo"}, f"without TUTTI_AS_GLOO it went over {by}"
        by, ours = perform(client, size, "1")
        assert by == {"tutti"}, f"with TUTTI_AS_GLOO=1 it went over {by}"
        what = differ(ours, gloos, f"{size} ranks, Tutti and Gloo, seen by ranks")
        assert not what, what


def main(names):
    if ranks.MISSING:
        return ranks.main([])
    print(f"1..{len(names)}", flush=True)
    failed = 0
    for number, client in enumerate(names, 1):
        gone = missing(clients_job.CLIENTS[client][0])
        if gone:
            print(f"ok {number} - {client} # SKIP there is no {' and no '.join(gone)}", flush=True)
            continue
        try:
            same(client)
            print(f"ok {number} - {version_of(client)}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"not ok {number} - {version_of(client)}")
            for line in str(error).splitlines():
                print(f"# {line}")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(clients_job.CLIENTS)))
