# SPDX-License-Identifier: BSD-3-Clause
"""trace_format.py FILE - holds a trace to what Perfetto's documents say of the JSON
format that its trace processor imports: every event, not only those that a test looks
for. Prints what is wrong, one line each, at most 20.

A bar (X) has a begin and a length, neither negative, which are rounded there to whole
nanoseconds, each by itself. On one track bars lie beside or inside each other: one that
overlaps another in part is dropped there. An arrow leads from the bar that has its bind_id
and flow_out to the one that has flow_in, which does not begin before. A counter (C) has
numbers, metadata (M) the argument of its name.
"""

import json
import math
import sys
from collections import defaultdict

METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}
KNOWN = {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"}
ARROW = {"bind_id", "flow_out", "flow_in"}


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def nanoseconds(us):
    return round(us * 1e3)


def check_event(e):
    """What is wrong with one of them by itself."""
    if not isinstance(e, dict):
        return "it is no object"
    if not isinstance(e.get("name"), str) or not e["name"]:
        return "it has no name"
    for key in "pid", "tid":
        x = e.get(key)
        if not isinstance(x, int) or isinstance(x, bool) or not 0 <= x < 2**31:
            return f"{key} is {x!r}"
    if set(e) - KNOWN - ARROW:
        return f"it has {sorted(set(e) - KNOWN - ARROW)}"
    if set(e) & ARROW and (len(set(e) & ARROW) != 2 or not isinstance(e.get("bind_id"), int)
                           or e["bind_id"] < 1 or True not in (e.get("flow_out"), e.get("flow_in"))):
        return "it is no end of an arrow"
    if not isinstance(e.get("args", {}), dict):
        return "args is no object"
    kind = e.get("ph")
    if kind == "M":
        key, what = METADATA.get(e["name"], (None, None))
        if key is None or not isinstance(e.get("args", {}).get(key), what):
            return "it is no metadata"
        return None
    if not is_number(e.get("ts")) or e["ts"] < 0:
        return f"ts is {e.get('ts')!r}"
    if kind == "X":
        return None if is_number(e.get("dur")) and e["dur"] >= 0 else f"dur is {e.get('dur')!r}"
    if "dur" in e or "bind_id" in e:
        return "only bars have a length and arrows"
    if kind == "C":
        values = e.get("args", {}).values()
        return None if values and all(map(is_number, values)) else "a counter without numbers"
    return f"ph is {kind!r}"


def check_nesting(bars):
    """Of one track; yields what overlaps in part."""
    open_until = []
    for begin, end, e in sorted(bars, key=lambda b: (b[0], -b[1])):
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        if open_until and end > open_until[-1]:
            yield f"{e['name']} at {e['ts']} on pid {e['pid']}, tid {e['tid']} overlaps another bar"
        open_until.append(end)


def check_arrow(key, ends):
    if sorted("flow_in" in e for e in ends) != [False, True]:
        yield f"arrow {key} has {len(ends)} ends, of which {sum('flow_in' in e for e in ends)} come in"
        return
    first, last = sorted(ends, key=lambda e: "flow_in" in e)
    if nanoseconds(last["ts"]) < nanoseconds(first["ts"]):
        yield f"arrow {key} ends before it begins"


def check(trace):
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        yield "it has no traceEvents"
        return
    if trace.get("displayTimeUnit") not in ("ms", "ns"):
        yield "displayTimeUnit is neither ms nor ns"
    bars, arrows, named, used = defaultdict(list), defaultdict(list), set(), set()
    for i, e in enumerate(trace["traceEvents"]):
        wrong = check_event(e)
        if wrong:
            yield f"event {i}: {wrong}: {json.dumps(e)[:200]}"
            continue
        place = e["pid"], e["tid"]
        if e["ph"] == "M" and e["name"] == "thread_name":
            named.add(place)
        if e["ph"] == "X":
            used.add(place)
            begin = nanoseconds(e["ts"])
            bars[place].append((begin, begin + nanoseconds(e["dur"]), e))
        if "bind_id" in e:
            arrows[e["bind_id"]].append(e)
    for place in sorted(used - named):
        yield f"track {place} has no name"
    for track in bars.values():
        yield from check_nesting(track)
    for key, ends in arrows.items():
        yield from check_arrow(key, ends)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as f:
        wrong = list(check(json.load(f)))
    print("\n".join(wrong[:20]))
    sys.exit(bool(wrong))
