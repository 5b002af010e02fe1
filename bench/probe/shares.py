# SPDX-License-Identifier: BSD-3-Clause
"""How good is a plan for a network that is not quite the real one? The plan that
`auto` makes for the measured network is simulated on the true one, and compared
with what no schedule can beat there.

share   the optimum over what the simulator says that it takes
loads   the optimum over what its busiest link takes: the share where nothing
        waits for anything else
flat    the same as share, of the best planner that knows no network"""
import os
import tempfile

from networks import TUTTI, ask

FLAT = ("ring", "biring", "halving", "doubling", "dbtree")


def size_bytes(text):
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    return int(text[:-3]) * units[text[-3:]]


class Shares:
    """Of plans for the true network, whose text this is."""

    def __init__(self, text, size):
        self.size, self.dir = size, tempfile.TemporaryDirectory()
        self.true = self.file("true", text)
        bound = ask([TUTTI, "bound", self.true, "--tcp", "--json"])
        self.least = bound["allreduce_s_per_byte"] * size_bytes(size)

    def file(self, name, text=None):
        path = os.path.join(self.dir.name, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
        return path

    def simulate(self, schedule):
        told = ask([TUTTI, "sim", schedule, self.true, "--tcp", "--json",
                    "--size", self.size])
        busy = told["time_s"] * told["max_link_utilisation"]
        return {"share": self.least / told["time_s"],
                "loads": self.least / busy}

    def of(self, text):
        """Of the plan for the network of that text."""
        path, schedule = self.file("other", text), self.file("schedule")
        told = ask([TUTTI, "plan", path, "--tcp", "--json", "--size",
                    self.size, "-o", schedule])
        return dict(self.simulate(schedule), planner=told["chosen"])

    def flat(self):
        told = ask([TUTTI, "plan", self.true, "--tcp", "--json", "--size",
                    self.size])
        return max(self.least / row["time_s"] for row in told["planners"]
                   if row["fits"] and row["planner"] in FLAT)
