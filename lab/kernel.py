# SPDX-License-Identifier: BSD-3-Clause
"""Carries out: `ip`, `tc` and `bridge` with batches, settings of namespaces,
what this kernel offers, and whose processes are in a namespace.

Settings are written by this process, from inside the namespace: /proc/sys/net
is that of whoever looks."""
import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import time

from plan import Bad

NETNS_DIR = "/run/netns"
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, IFF_UP, IFF_RUNNING = 0x8913, 0x1, 0x40
PATIENCE_S = 10  # for the kernel to reach a state
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None, use_errno=True)


# ------------------------------------------------------------------ batches

class Batch:
    """`TOOL -batch` with these lines, started; in a namespace, or in none. It
    ends with us: nothing is made any more when we take down."""

    def __init__(self, tool, lines, namespace=None):
        words = [tool] + (["-n", namespace] if namespace else [])
        self.lines, self.tool = lines, tool
        self.process = subprocess.Popen(
            words + ["-batch", "-"], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL))

    def finish(self):
        _, said = self.process.communicate("\n".join(self.lines) + "\n")
        if self.process.returncode:
            raise Bad(explain(self.tool, self.lines, said))

    def stop(self):
        self.process.kill()
        self.process.wait()


def all_at_once(batches):
    """(tool, lines, namespace) each."""
    started = []
    try:
        for tool, lines, namespace in batches:
            if lines:
                started.append(Batch(tool, lines, namespace))
        for one in started:
            one.finish()
    finally:
        for one in started:
            one.stop()


def explain(tool, lines, said):
    """The failing line of a batch and the reason."""
    reason = [x for x in said.splitlines() if not x.startswith("Command")]
    number = "".join(c for c in said.rpartition("-:")[2] if c.isdigit())
    line = lines[int(number) - 1] if number else "a batch"
    return "`%s %s` failed: %s" % (tool, line, " ".join(reason) or "no reason")


def batch(tool, lines, namespace=None):
    all_at_once([(tool, lines, namespace)])


# --------------------------------------------------------------- namespaces

def namespace_path(name):
    return os.path.join(NETNS_DIR, name)


def set_namespace(fd):
    if libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def inside(name):
    """This thread is in that network namespace."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        away = os.open(namespace_path(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            set_namespace(away)
        finally:
            os.close(away)
        yield
    finally:
        set_namespace(home)
        os.close(home)


def write_settings(values):
    for name, value in values.items():
        with open("/proc/sys/net/" + name, "w") as f:
            f.write(value)


def without_ipv6():
    """It would only chatter: addresses to find, routers to ask."""
    for which in ("all", "default"):
        path = "ipv6/conf/%s/disable_ipv6" % which
        if os.path.exists("/proc/sys/net/" + path):
            write_settings({path: "1"})


# -------------------------------------------------------- congestion control

ALLOWED = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"


def read_words(path):
    with open(path) as f:
        return f.read().split()


def write_words(path, words):
    with open(path, "w") as f:
        f.write(" ".join(words))


def choose_congestion():
    """cubic, or reno, which is always there."""
    path = "/proc/sys/net/ipv4/tcp_available_congestion_control"
    if "cubic" not in read_words(path) and shutil.which("modprobe"):
        subprocess.run(["modprobe", "-q", "tcp_cubic"], check=False,
                       stderr=subprocess.DEVNULL)
    return "cubic" if "cubic" in read_words(path) else "reno"


@contextlib.contextmanager
def allowing(congestion, lock_path):
    """A namespace takes as its default only what the machine allows to all;
    labs that are made at a time wait for each other."""
    with open(lock_path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_words(ALLOWED)
        if congestion in before:
            yield
            return
        try:
            write_words(ALLOWED, before + [congestion])
            yield
        finally:
            write_words(ALLOWED, before)


# -------------------------------------------------------------------- probes

def check_machine():
    if os.geteuid() != 0:
        raise Bad("a lab is made of network namespaces, and that needs root")
    for tool in ("ip", "tc", "bridge", "nsenter", "unshare"):
        if not shutil.which(tool):
            raise Bad("there is no program `%s` (Debian: iproute2, util-linux)"
                      % tool)


def can(tool, namespace, *words):
    done = subprocess.run([tool, "-n", namespace] + list(words),
                          stdout=subprocess.DEVNULL, text=True,
                          stderr=subprocess.PIPE)
    return done.returncode == 0


def probe(namespace):
    """What the kernel offers; tried in a namespace that is empty yet."""
    for words in (("type", "bridge"), ("type", "veth", "peer", "name",
                                       "probe1")):
        if not can("ip", namespace, "link", "add", "probe0", *words):
            raise Bad("this kernel makes no link of type %s" % words[1])
        can("ip", namespace, "link", "del", "probe0")
    if not can("tc", namespace, *("qdisc add dev lo root tbf rate 1mbit "
                                  "burst 128k limit 128k").split()):
        raise Bad("this kernel has no tbf, which limits rates (module "
                  "sch_tbf)")
    can("tc", namespace, *"qdisc del dev lo root".split())
    found = {
        "netem": can("tc", namespace, *("qdisc add dev lo root netem delay "
                                        "1ms").split()),
        "dummy": can("ip", namespace, *"link add probe0 type dummy".split())}
    can("tc", namespace, *"qdisc del dev lo root".split())
    can("ip", namespace, *"link del probe0".split())
    return found


# ------------------------------------------------------------------- waiting

def wait_until(test, what):
    deadline = time.monotonic() + PATIENCE_S
    while not test():
        if time.monotonic() > deadline:
            raise Bad("%s: not within %d s" % (what, PATIENCE_S))
        time.sleep(0.005)


def is_running(ifname):
    """Is the interface of this thread's namespace up, with a carrier?"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        got = fcntl.ioctl(s, SIOCGIFFLAGS,
                          struct.pack("16sH22x", ifname.encode(), 0))
    want = IFF_UP | IFF_RUNNING
    return struct.unpack_from("16sH", got)[1] & want == want


# ------------------------------------------------------------------ processes

def inodes(namespaces):
    found = set()
    for name in namespaces:
        with contextlib.suppress(OSError):
            st = os.stat(namespace_path(name))
            found.add((st.st_dev, st.st_ino))
    return found


def processes_in(namespaces):
    wanted = inodes(namespaces)
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            st = os.stat("/proc/%s/ns/net" % entry)
            if (st.st_dev, st.st_ino) in wanted:
                found.append(int(entry))
    return found


def signal_all(pids, sig):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)


def end_processes(namespaces):
    """TERM, and KILL for who does not go; until none is left."""
    start, sig = time.monotonic(), signal.SIGTERM
    signal_all(processes_in(namespaces), sig)
    while True:
        left = processes_in(namespaces)
        if not left:
            return
        waited = time.monotonic() - start
        if waited > PATIENCE_S:
            raise Bad("process %d does not end" % left[0])
        if waited > 0.3:
            signal_all(left, signal.SIGKILL)
        time.sleep(0.01)


def start_time(pid):
    """In clock ticks since the machine started; None: no such process. With
    the number it names a process for good."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def die_with_parent(sig):
    libc.prctl(PR_SET_PDEATHSIG, sig, 0, 0, 0)
