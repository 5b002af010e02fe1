# SPDX-License-Identifier: BSD-3-Clause
"""The labs of this machine: a folder for each below /run/tutti-lab.

    state.json  what it is made of, and who owns it; written before anything
                is made, so that whatever is left can be found
    hosts       the hosts' /etc/hosts
    host/NAME   what lab/rsh needs to get there; of all hosts when the lab is
                ready
    rsh         leads to lab/rsh: a path without blanks
    network     the topology as a file, ranks in the order of this lab

A lab is `up` (stays until `down`), `running` (of a `lab run` that lives), or
`left over`: its maker has died."""
import contextlib
import json
import os
import re
import shutil
import signal
import time

import kernel
import script
from plan import Bad

ROOT = "/run/tutti-lab"
LOCK = os.path.join(ROOT, ".lock")
HERE = os.path.dirname(os.path.realpath(__file__))


def path_of(lab, *names):
    return os.path.join(ROOT, lab, *names)


def write_file(path, text):
    """Whole or not at all."""
    with open(path + "~", "w") as f:  # no host's name has this letter
        f.write(text)
    os.rename(path + "~", path)


# -------------------------------------------------------------------- making

def claim():
    """A folder with a new name."""
    os.makedirs(ROOT, exist_ok=True)
    for again in range(1000):
        lab = "tutti-%d" % os.getpid() + ("-%d" % again if again else "")
        with contextlib.suppress(FileExistsError):
            os.mkdir(path_of(lab))
            return lab
    raise Bad("%s has no name left" % ROOT)


def save(state):
    write_file(path_of(state["name"], "state.json"),
               json.dumps(state, indent=1) + "\n")


def create(spec, plan, text):
    """Owned by this process until it is released. text: the network's."""
    lab = claim()
    write_file(path_of(lab, "network"), text)
    os.symlink(os.path.join(HERE, "rsh"), path_of(lab, "rsh"))
    state = {"name": lab, "spec": spec, "since": time.time(),
             "owner": [os.getpid(), kernel.start_time(os.getpid())],
             "namespaces": script.namespaces(lab, plan),
             "hosts": [{k: h[k] for k in ("name", "ranks", "address", "mgmt",
                                          "ifname")} for h in plan["hosts"]],
             "order": plan["order"], "host_of_rank": plan["host_of_rank"]}
    save(state)
    return state


def release(state):
    """From now on it stays until `lab down`."""
    state["owner"] = None
    save(state)


# ------------------------------------------------------------------- looking

def read(lab):
    try:
        with open(path_of(lab, "state.json")) as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def all_labs():
    try:
        names = sorted(os.listdir(ROOT))
    except OSError:
        return []
    return [state for state in map(read, names) if state]


def orphans():
    """Folders of who died before the first state was written."""
    try:
        names = [name for name in os.listdir(ROOT)
                 if re.fullmatch("tutti-[0-9]+(-[0-9]+)?", name)
                 and not read(name)]
    except OSError:
        return []
    return [name for name in names
            if kernel.start_time(int(name.split("-")[1])) is None]


def status(state):
    if not state["owner"]:
        return "up"
    pid, started = state["owner"]
    return "running" if kernel.start_time(pid) == started else "left over"


def find(lab):
    state = read(lab) if "/" not in lab else None
    if state:
        return state
    known = [s["name"] for s in all_labs()]
    raise Bad("there is no lab `%s`; %s" % (
        lab, "there are " + ", ".join(known) if known else "there is none"))


# -------------------------------------------------------------------- ending

def remove(state):
    """Processes, namespaces (their cables go with them), folder."""
    kernel.end_processes(state["namespaces"])
    there = [n for n in state["namespaces"]
             if os.path.exists(kernel.namespace_path(n))]
    kernel.batch("ip", ["netns del " + name for name in there])
    shutil.rmtree(path_of(state["name"]), ignore_errors=True)


def stop(state):
    """Takes down whatever it is; a running one by its owner's hand."""
    if status(state) != "running":
        remove(state)
        return
    pid, started = state["owner"]
    kernel.signal_all([pid], signal.SIGTERM)
    deadline = time.monotonic() + kernel.PATIENCE_S
    while kernel.start_time(pid) == started:
        if time.monotonic() > deadline:
            raise Bad("process %d of `%s` does not end" % (pid,
                                                           state["name"]))
        time.sleep(0.02)
    if read(state["name"]):
        remove(state)


def remove_stale():
    """All that was left over; returns their names."""
    names = []
    for state in all_labs():
        if status(state) == "left over":
            remove(state)
            names.append(state["name"])
    for name in orphans():
        shutil.rmtree(path_of(name), ignore_errors=True)
        names.append(name)
    return names
