# SPDX-License-Identifier: BSD-3-Clause
"""A job in a lab: `tutti run` with lab/rsh as its remote shell, or one command
on the host of rank 0; and what happens when a signal comes.

While the lab is made or taken down a signal raises Stop (see `lab`). While the
job runs signals wait here and are handed on, so that the job ends its way and
the lab is taken down after it."""
import os
import random
import shlex
import signal
import subprocess
import sys
import time

import kernel
import state as labs

# Those that were ignored when we came (nohup) stay ignored.
HANDED_ON = tuple(number for number in (signal.SIGINT, signal.SIGTERM,
                                        signal.SIGHUP)
                  if signal.getsignal(number) != signal.SIG_IGN)
FIRST_PORT, N_PORTS = 20000, 12000  # none that the system gives out itself
STUBBORN_S = 5  # mpirun takes two
FROM_KERNEL = 0x80  # si_code: the terminal's; the child has had it too


def rank_words(state, options):
    """`tutti run` and its options."""
    hosts = {h["name"]: h for h in state["hosts"]}
    first = hosts[state["host_of_rank"][0]]
    port = FIRST_PORT + random.randrange(N_PORTS)
    words = [options.tutti, "run", "-H", ",".join(state["host_of_rank"]),
             "--rsh", labs.path_of(state["name"], "rsh"),
             "--address", "%s:%d" % (first["mgmt"], port),
             "--grace", str(options.grace)]
    if options.n:
        words += ["-n", str(options.n)]
    if not options.prefix:
        words.append("--no-prefix")
    if options.json:
        words.append("--json")
    return words + ["--"] + options.command


def once_words(state, options):
    """The shell of rsh sees one line, and makes the same words of it."""
    return [labs.path_of(state["name"], "rsh"), state["host_of_rank"][0],
            "exec " + shlex.join(options.command)]


def start(words, environment):
    old = signal.pthread_sigmask(signal.SIG_BLOCK,
                                 HANDED_ON + (signal.SIGCHLD,))

    def become():
        kernel.die_with_parent(signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, old)

    sys.stdout.flush()
    return subprocess.Popen(words, env=environment, preexec_fn=become)


def wait(process):
    """Its exit status as a shell has it. What does not end when it was asked
    to is killed; the rest of it goes with the lab."""
    deadline = None
    while process.poll() is None:
        info = signal.sigtimedwait(HANDED_ON + (signal.SIGCHLD,), 1)
        if deadline and time.monotonic() > deadline:
            process.kill()
        if not info or info.si_signo == signal.SIGCHLD:
            continue
        deadline = deadline or time.monotonic() + STUBBORN_S
        is_shared = info.si_code == FROM_KERNEL and \
            os.getpgid(process.pid) == os.getpgrp()
        if not is_shared:
            process.send_signal(info.si_signo)
    code = process.returncode
    return 128 - code if code < 0 else code


def environment(state, options):
    env = dict(os.environ, LAB_NAME=state["name"])
    # Who measures a network measures it plain, unless he says otherwise.
    env.setdefault("TUTTI_SECRET_FILE", "")
    if options.topology is not None:
        # The lab's own copy names hosts: it fits any order, fewer ranks, and
        # a caller in another folder.
        env["TUTTI_TOPOLOGY"] = options.topology or \
            labs.path_of(state["name"], "network")
    env.update(word.split("=", 1) for word in options.env)
    return env


def run(state, options):
    words = once_words(state, options) if options.once else \
        rank_words(state, options)
    return wait(start(words, environment(state, options)))
