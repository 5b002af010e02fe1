# SPDX-License-Identifier: BSD-3-Clause
"""From the rows of a record to what tables and charts show: medians over the
rounds, the best variant and way of each peer, efficiencies.

efficiency  optimum / time. In a lab the optimum of the network at TCP's payload
            rate; on one host the time of the roofline program.
net         the same when the bytes that tc let through at once are taken off
            the optimum: a bucket is full when a batch of calls begins, so all
            calls of the batch together may take burst / rate less (of the link
            where that is longest). Never more than what was really free.
speedup     time of the best peer / time.
cpu         seconds of all ranks, and of the kernel's threads, for a GB of the
            vectors."""
import statistics

KIB, MIB = 1 << 10, 1 << 20
MOST_NET = 1.02  # tbf keeps its rate much more exactly than that
PEERS = ("openmpi", "mpich", "gloo")
LABELS = {"tutti": "Tutti", "tutti-direct": "Tutti, direct", "gloo": "Gloo",
          "openmpi": "Open MPI", "mpich": "MPICH", "roofline": "roofline"}


def spell(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return "%d %s" % (size // unit, name)
    return "%d B" % size


def optimum(facts, size):
    """Seconds; None: not known."""
    if "optimum_s_per_byte" not in facts:
        return None
    return max(facts["optimum_s_per_byte"] * size, facts["latency_s"])


def choose_name(row):
    """How it was done, as a table says it."""
    words = [row["variant"]] if row["variant"] not in ("default", "tcp") \
        else []
    if row["way"] != "default":
        words.append(row["way"])
    if row["way"] == "auto" and row.get("choice"):
        words[-1] = "auto: " + row["choice"]
    return ", ".join(words) or "default"


class Place:
    """What is known of one host or network."""

    def __init__(self, name, record):
        self.name = name
        rows = [row for row in record if row.get("place") == name]
        self.facts = {}
        for row in record:
            facts = row.get("facts", {})
            if facts.get("place") == name:
                predicted = dict(self.facts.get("predicted_s", {}),
                                 **facts.get("predicted_s", {}))
                self.facts = dict(facts, predicted_s=predicted)
        self.is_lab = "optimum_s_per_byte" in self.facts
        self.is_token = self.facts.get("is_token", False)
        self.failures = [row for row in rows if "failure" in row]
        self.samples = {}
        for row in rows:
            if "time_us" in row:
                key = (row["size_bytes"], row["system"], row["variant"],
                       row["way"])
                self.samples.setdefault(key, []).append(row)
        self.sizes = sorted({key[0] for key in self.samples})

    def summary(self, rows):
        """Of the rounds of one way at one size."""
        times = [row["time_us"] for row in rows]
        middle = statistics.median(times)
        row = rows[-1]
        size, n = row["size_bytes"], row["n_ranks"]
        result = {"time_us": middle, "min_us": min(times),
                  "max_us": max(times), "rounds": len(rows),
                  "busbw_GBps": None if row["collective"] == "token" else
                  size / middle * 1e-3 * 2 * (n - 1) / n,
                  "name": choose_name(row), "way": row["way"],
                  "choice": row.get("choice")}
        for name in "cpu", "softirq":
            used = [one[name + "_s_per_GB"] for one in rows
                    if name + "_s_per_GB" in one]
            result[name] = statistics.median(used) if used else None
        least = optimum(self.facts, size)
        if least is None and row["system"] != "roofline":
            least = self.roof(size)
        if least:
            result["optimum_us"] = least * 1e6
            result["efficiency"] = least * 1e6 / middle
        if least and "free_s" in self.facts:
            free = self.facts["free_s"] * row["batches"] / row["calls"]
            if free < least / 2:
                result["net"] = (least - free) * 1e6 / middle
        return result

    def roof(self, size):
        """Seconds of the roofline program; None: not measured."""
        return min((self.summary(rows)["time_us"] * 1e-6
                    for (at, system, _, _), rows in self.samples.items()
                    if at == size and system == "roofline"), default=None)

    def spell(self, size):
        return "a step" if self.is_token else spell(size)

    def at_size(self, size):
        """system -> its best; peers of any variant and way. Tutti's is what
        `auto` gave. Tutti's planners are "tutti/NAME"."""
        found = {}
        for (at, system, _, way), rows in self.samples.items():
            if at != size:
                continue
            name = system
            if system == "tutti" and way != "auto":
                name = "tutti/" + way
            result = self.summary(rows)
            if name not in found or \
                    result["time_us"] < found[name]["time_us"]:
                found[name] = result
        best = min((found[name]["time_us"] for name in PEERS
                    if name in found), default=None)
        for result in found.values():
            if best:
                result["speedup"] = best / result["time_us"]
        return found

    def impossible(self):
        """Whatever is faster than the network lets it be, where that is no
        matter of microseconds."""
        return [(size, name) for size in self.sizes if size >= MIB
                for name, result in self.at_size(size).items()
                if result.get("net", 0) > MOST_NET]


def places(record):
    names = []
    for row in record:
        name = row.get("place")
        if name and name not in names:
            names.append(name)
    return [Place(name, record) for name in names]


def predictions(place, sizes):
    """Predicted and measured seconds of every planner."""
    found = []
    for size in sizes:
        predicted = place.facts.get("predicted_s", {}).get(str(size), {})
        for name, result in place.at_size(size).items():
            planner = name.partition("/")[2]
            if planner in predicted:
                seconds = result["time_us"] * 1e-6
                found.append({
                    "place": place.name, "planner": planner,
                    "size_bytes": size, "predicted_s": predicted[planner],
                    "measured_s": seconds,
                    "error": predicted[planner] / seconds - 1})
    return found
