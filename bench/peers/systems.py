# SPDX-License-Identifier: BSD-3-Clause
"""The systems: how each is built, started, and with which settings.

A system has variants: launches that differ in settings which a library reads
once, when it starts. Within a launch it may have ways (peer.h): algorithms that
can be chosen call by call. bench.md gives the reasons for the settings."""
import json
import os
import shutil
import subprocess

from networks import BUILD, HERE, MIB, ROOT, RSH

PLAIN = ["-std=c11", "-D_GNU_SOURCE", "-O3", "-I" + ROOT,
         "-I" + os.path.join(ROOT, "include")]
FLAGS = PLAIN + ["-march=native"]
# The inputs and the check, and the processor time.
DATA = [os.path.join(HERE, "data.c"), os.path.join(HERE, "cpu.c"),
        os.path.join(ROOT, "cli/reference.c")]
VENV = os.path.join(BUILD, "venv", "bin", "python")


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def compile_c(compiler, sources, output, libraries=(), flags=FLAGS):
    """None, or why not."""
    if not shutil.which(compiler[0]):
        return "there is no %s on this machine" % compiler[0]
    paths = [os.path.join(HERE, source) for source in sources]
    done = subprocess.run(compiler + flags + paths + ["-o", output] +
                          list(libraries) + ["-lm"], capture_output=True,
                          text=True)
    if done.returncode:
        return "it does not build: " + last_line(done.stderr)
    return None


def compiler_words():
    return [os.environ.get("CC", "cc")]


class System:
    """A row of the tables. build() sets why_not when it cannot be measured."""
    build_dir = BUILD  # of the Tutti that starts its ranks
    ways = None  # which of the library's ways; None: its own choice
    drop = 2.0  # bench.c's -x; None: everything to the end
    always = frozenset()  # ways that are measured in every round

    def __init__(self):
        self.why_not = None
        self.program = None

    def fits(self, place):
        return True

    def turn(self, place, sizes):
        """Measures by itself; None: by bench.c."""
        return None

    def variants(self, place):
        return ["default"]

    def words(self, place, variant):
        """Starts self.program on every rank, as words before it."""
        return place.ranks_words(self.build_dir)

    def environment(self, place, variant):
        return {}

    def options(self, ways):
        """Of the program; ways: only these of those that it has."""
        words = ["-x", str(self.drop)] if self.drop else []
        if self.ways and ways and self.drop:
            return words + ["-w", ",".join(sorted(ways | self.always))]
        return words + (["-w", self.ways] if self.ways else [])


class Tutti(System):
    name, label = "tutti", "Tutti"
    always = frozenset({"auto"})

    def __init__(self, planners, build_dir=BUILD):
        super().__init__()
        self.ways, self.build_dir = planners, build_dir

    def build(self, folder):
        output = os.path.join(folder, "bench-tutti")
        self.program = [output]
        if not os.path.exists(output):
            self.why_not = self.compile(["bench.c", *DATA, "with_tutti.c"],
                                        output)

    def compile(self, sources, output, flags=FLAGS):
        """A program with this build's library; None, or why not. It is made
        by the headers of the tree in which the library lies: another Tutti's
        structs may be larger."""
        own = os.path.join(os.path.dirname(self.build_dir), "include")
        flags = ["-I" + own] * os.path.isdir(own) + flags
        return compile_c(
            compiler_words(), sources, output,
            [os.path.join(self.build_dir, "libtutti.so"),
             "-Wl,-rpath," + self.build_dir, "-pthread"], flags)


class TuttiDirect(Tutti):
    """With memory from tutti_alloc, which other ranks of the host may read."""
    name, label = "tutti-direct", "Tutti, direct"

    def fits(self, place):
        return not place.is_lab

    def options(self, ways):
        return super().options(ways) + ["-a"]


class Gloo(System):
    """PyTorch's."""
    name, label = "gloo", "Gloo"
    ways, drop = None, None

    def __init__(self, python):
        super().__init__()
        self.python = python or VENV

    def build(self, folder):
        data = os.path.join(folder, "data.so")
        if not os.access(self.python, os.X_OK):
            self.why_not = "there is no PyTorch at %s (--torch, or: python3 " \
                "-m venv %s && %s -m pip install torch==2.13.0)" % (
                    self.python, os.path.join(BUILD, "venv"), VENV)
            return
        done = subprocess.run([self.python, "-c", "import torch.distributed as"
                               " d; d.ProcessGroupGloo"],
                              capture_output=True, text=True)
        if done.returncode:
            self.why_not = "%s has no Gloo: %s" % (self.python,
                                                   last_line(done.stderr))
            return
        self.why_not = compile_c(compiler_words() + ["-shared", "-fPIC"],
                                 DATA, data)
        self.program = [self.python, os.path.join(HERE, "with_gloo.py"), data]

    def environment(self, place, variant):
        # One thread per rank adds numbers, as in the others.
        return {"OMP_NUM_THREADS": "1"}


class OpenMpi(System):
    name, label = "openmpi", "Open MPI"
    ways = "all"

    def build(self, folder):
        output = os.path.join(folder, "bench-openmpi")
        self.why_not = compile_c(["mpicc.openmpi"],
                                 ["bench.c", *DATA, "with_mpi.c"], output)
        self.program = [output]

    def variants(self, place):
        if place.hosts_have > 1:
            return ["tcp", "han"]
        return ["tcp"] if place.is_lab else ["cma", "copy"]

    def words(self, place, variant):
        words = place.once_words() + [
            "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe",
            "--mca", "pml", "ob1", "--mca", "coll", "^hcoll",
            "--mca", "coll_tuned_use_dynamic_rules", "1"]
        if place.is_crowded:
            words += ["--mca", "mpi_yield_when_idle", "1"]
        # Hosts of a lab share cores, and each would take the first for its own.
        words += ["--bind-to", "none" if place.is_crowded or place.is_lab
                  else "core"]
        if place.is_lab:
            return words + self.lab_words(place, variant)
        single_copy = "cma" if variant == "cma" else "none"
        return words + ["-n", str(place.n_ranks), "--mca", "btl", "self,vader",
                        "--mca", "btl_vader_single_copy_mechanism",
                        single_copy]

    def lab_words(self, place, variant):
        hosts = ",".join(host + ":1" for host in place.hosts())
        is_one = place.hosts_have == 1
        words = ["-n", str(place.n_ranks), "--host", hosts,
                 "--map-by", "node" if is_one else "slot",
                 "--mca", "plm_rsh_agent", RSH,
                 "--mca", "plm_rsh_no_tree_spawn", "1",
                 "--mca", "oob_tcp_if_include", "mgmt0",
                 "--mca", "btl", "self,tcp" if is_one else "self,vader,tcp",
                 "--mca", "btl_tcp_if_include", "10.0.0.0/16"]
        # First within hosts, then between them.
        return words + ["--mca", "coll_han_priority", "100"] \
            if variant == "han" else words


class Mpich(System):
    name, label = "mpich", "MPICH"
    ways = None

    def build(self, folder):
        output = os.path.join(folder, "bench-mpich")
        self.why_not = compile_c(["mpicc.mpich"],
                                 ["bench.c", *DATA, "with_mpi.c"], output)
        self.program = [output]

    def variants(self, place):
        return ["auto", "recursive_doubling", "reduce_scatter_allgather"]

    def words(self, place, variant):
        words = place.once_words() + ["mpirun.mpich", "-n",
                                      str(place.n_ranks)]
        if place.is_lab:
            return words + ["-hosts", ",".join(place.hosts()), "-launcher",
                            "ssh", "-launcher-exec", RSH, "-iface", "mgmt0"]
        return words + ([] if place.is_crowded else ["-bind-to", "core"])

    def environment(self, place, variant):
        env = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "10"}
        if variant != "auto":
            env["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"] = variant
            env["MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE"] = "0"
        if place.is_lab:
            env.update(UCX_TLS="tcp,self",
                       MPIR_CVAR_NOLOCAL=str(int(place.hosts_have == 1)),
                       UCX_NET_DEVICES=place.interface(),
                       UCX_RNDV_THRESH="inf", UCX_TCP_TX_SEG_SIZE="1m",
                       UCX_TCP_RX_SEG_SIZE="1m")
        return env

    def fits(self, place):
        # UCX has one list of interfaces for all hosts.
        return not place.is_lab or place.interface() is not None


class Roofline(System):
    """What memory permits: a program of its own, not a library."""
    name, label = "roofline", "roofline"

    def build(self, folder):
        self.program = [os.path.join(BUILD, "bench", "peers", "roofline")]
        if not os.path.exists(self.program[0]):
            self.why_not = "it is not built (make tests)"

    def fits(self, place):
        return not place.is_lab and not place.is_crowded

    def turn(self, place, sizes):
        """Rows as those of the others, and the failure or None."""
        rows = []
        for size in sizes:
            if size < MIB:
                continue
            done = subprocess.run(
                self.program + ["--ranks", str(place.n_ranks), "--min",
                                str(size), "--max", str(size), "--rounds", "1",
                                "--json"], capture_output=True, text=True)
            if done.returncode:
                return rows, last_line(done.stderr)
            said = [json.loads(line) for line in done.stdout.splitlines()]
            rows += [self.row(one) for one in said
                     if not one["inplace"] and not one["roofline"]]
        return rows, None

    @staticmethod
    def row(said):
        way = "%s/%s" % (said.pop("stores"), said.pop("slice_bytes") or "all")
        return dict(said, way=way, choice=None, calls=1, batches=1, wrong=0,
                    busbw_GBps=None)


def all_systems(options):
    planners = "auto" if options.planners == "auto" else options.planners
    systems = [Tutti(planners), TuttiDirect("auto"), Gloo(options.torch),
               OpenMpi(), Mpich(), Roofline()]
    if options.predict:
        systems = [systems[0]]
        systems[0].ways, systems[0].drop = "all", None
    names = options.systems
    return [system for system in systems if not names or system.name in names]
