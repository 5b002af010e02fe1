#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# trace.sh - TUTTI_TRACE and `tutti trace`: what ranks record becomes one trace,
# by one clock, beside what was predicted; what keeps a rank from recording, or
# ends it, harms nothing else.
. "$(dirname "$0")/lib.sh"

# check FILE EXPRESSION: over what is in the trace. X: bars; slices: [bars that
# leave, marks of arrival] by arrow; clocks: how far each rank's is ahead, us.
check() {
    python3 - "$1" "$2" <<'P' 2>&1
import json, sys
d = json.load(open(sys.argv[1]))["traceEvents"]
X = [dict(e, args=e.get("args", {})) for e in d if e["ph"] == "X"]
names = {e["pid"]: e["args"]["name"] for e in d if e["name"] == "process_name"}
arrows = {}
for e in X:
    if "bind_id" in e:
        arrows.setdefault(e["bind_id"], {})["from" if "flow_out" in e else "to"] = e
measured = [a for a in arrows.values() if "predicted" not in names[a["from"]["pid"]]]
calls = [e for e in X if e["tid"] >> 26 & 1 and "call" in e["args"]]
clocks = {e["pid"]: e["args"]["tutti"] for e in d if e["name"] == "process_labels"
          and "tutti" in e["args"]}
curves = {e["name"] for e in d if e["ph"] == "C"}
print(eval(sys.argv[2].strip()))
P
}

job() { # OPTIONS OF bench: four ranks on this host, in a directory of their own
    rm -rf "$tmp/t"
    TUTTI_TRACE=$tmp/t TUTTI_TRANSPORTS=${transports-tcp} run "$tutti" run -n 4 \
        "$tutti" bench -b 256KiB -e 256KiB -n 3 -w 1 --inplace 0 "$@"
}
merge() {
    rm -f "$tmp/trace.json"
    run "$tutti" trace "$tmp/t" -o "$tmp/trace.json" "$@"
}
# Of the trace that was merged last.
is_sound() { # WHAT
    is "$1" "$(python3 "$here/trace_format.py" "$tmp/trace.json" 2>&1)" ""
}

for transports in tcp shm; do
    job -p ring
    ends "$transports: a job that is recorded" 0
    is "$transports: a record of each rank" "$(ls "$tmp/t" | wc -l)" 4
    merge
    ends "$transports: they are merged" 0
    like "$transports: in words" "$out" '^job [0-9a-f]{16}: 4 ranks, [0-9]+ calls, [0-9]+ slices'
    like "$transports: nothing is predicted" "$out" \
        'nothing is predicted: no call of all ranks had a schedule and a network$'
    is "$transports: rows have host and rank" "$(check "$tmp/trace.json" \
        'sorted(n.split(": ")[1] for p, n in names.items() if p < 4)')" \
        "['rank 0', 'rank 1', 'rank 2', 'rank 3']"
    is "$transports: calls, and all end well" "$(check "$tmp/trace.json" \
        'len(calls) > 16, {c["args"]["outcome"] for c in calls}')" \
        "(True, {'OK'})"
    is "$transports: each arrow has both ends" "$(check "$tmp/trace.json" \
        'len(measured) > 100, {len(a) for a in measured}')" "(True, {2})"
    is "$transports: clocks agree within 1 ms, or what they doubt" "$(check "$tmp/trace.json" \
        'len(clocks), all(abs(c["clock_ahead_us"]) < max(1000, min(50000, c["give_or_take_us"]))
        for c in clocks.values())')" \
        "(4, True)"
    is_sound "$transports: every event is as Perfetto's format says"
    like "$transports: how much goes over time" "$(check "$tmp/trace.json" curves)" \
        "'sent'"
done

# A ring of four sends every slice on six times: 3 steps of reduce and 3 of copy.
transports=tcp job -p ring
merge
is "a rank's slices are all there" "$(check "$tmp/trace.json" '
    {("reduce", 0), ("reduce", 1), ("reduce", 2), ("copy", 3), ("copy", 4),
    ("copy", 5)} - {(e["cat"], e["args"]["step"]) for e in X
    if "step" in e["args"]}')" "set()"
bytes=$(check "$tmp/trace.json" 'sorted(round(sum(e["args"]["bytes"] for e in X
    if e["pid"] == r and e["dur"] >= 0 and "step" in e["args"] and
    e["tid"] % 2**27 < 2**25) / 2**18 / (len([c for c in calls if c["pid"] == r and
    c["args"]["bytes"] == 2**18])), 2) for r in range(4))')
is "and have all bytes: 2 (n - 1) / n of each vector" "$bytes" "[1.5, 1.5, 1.5, 1.5]"

# What was planned to measure costs serves calls too, but not the record's.
TUTTI_COSTS=measure job -p doubling
merge --json -t star:4@1Gbit
is "calls are predicted where costs were measured" "$(python3 -c '
import json, sys
print(json.load(sys.stdin)["predicted"] > 0)' <<<"$out" 2>&1)" True

# On a network that is known it is predicted, link by link.
job -t star:4@1Gbit -p ring
merge --json
is "predicted beside measured" "$(python3 -c '
import json, sys
d = json.load(sys.stdin)
print(d["n_ranks"], d["missing"], d["predicted"] > 0)' <<<"$out" 2>&1)" "4 0 True"
n_calls=$(check "$tmp/trace.json" 'len([c for c in calls if c["pid"] == 0 and
    c["args"]["bytes"] == 2**18])')
is "as rows of their own" "$(check "$tmp/trace.json" '
    len([n for n in names.values() if n.endswith(", predicted")])')" 5
is "which move as many bytes" "$(check "$tmp/trace.json" '[round(sum(
    e["args"]["bytes"] for e in X if e["pid"] % 2 == view and e["tid"] % 2**27 < 2**25
    and "step" in e["args"]) / 2**18 / 1.5 / 4) for view in (0, 1)]')" \
    "[$n_calls, $n_calls]"
is_sound "and every event is as Perfetto's format says"
is "links have curves" "$(check "$tmp/trace.json" \
    'len([c for c in curves if " to " in c]) >= 8')" True

# Each slice tells its call: one of both ranks, and within it.
is "slices know their call" "$(check "$tmp/trace.json" '
    ({e["args"]["call"] for e in X if "step" in e["args"]} <=
    {c["args"]["call"] for c in calls})')" True
is "whose bytes they are" "$(check "$tmp/trace.json" '{sum(
    e["args"]["bytes"] for e in X if "step" in e["args"] and e["pid"] % 2 == 0
    and e["tid"] % 2**27 < 2**25 and e["args"]["call"] == c["args"]["call"])
    for c in calls if c["args"]["bytes"] == 2**18}')" "{$((6 * 262144))}"
run "$tutti" view "$tmp/trace.json" --json
is "a page of it has calls measured and predicted" "$(python3 -c '
import json, sys
runs = json.load(sys.stdin)["runs"]
print([len([r for r in runs if r["kind"] == k]) for k in
    ("measured", "predicted")])' <<<"$out" 2>&1)" "$(check "$tmp/trace.json" '[
    min(8, len({e["args"]["call"] for e in X if "step" in e["args"] and
    e["pid"] % 2 == view})) for view in (0, 1)]')"

# Two jobs in one directory.
TUTTI_TRACE=$tmp/t run "$tutti" run -n 2 "$tutti" bench -b 4 -e 4 -n 1
merge
like "the latest of two jobs" "$out" ': 2 ranks,'
like "and that is said" "$out" 'has 2 jobs'
older=$(ls "$tmp/t" | sed -n 's/-3\.record$//p')
merge --job "$older"
like "or the one that is named" "$out" "^job $older: 4 ranks,"

# What is no record does not keep the others from being drawn: of a rank that was
# killed before it had written anything, a pipe, a directory.
: >"$tmp/t/empty.record"
head -c 511 "$tmp/t/$older-0.record" >"$tmp/t/short.record"
mkfifo "$tmp/t/pipe.record"
mkdir "$tmp/t/folder.record"
merge --job "$older"
ends "files that are no records" 0
is "are told, each once" "$(grep -cE '(empty|short)\.record is no record.*; it is left out$' <<<"$err")" 2
is "and nothing else is" "$(grep -c . <<<"$err")" 2
like "the rest is drawn" "$out" "^job $older: 4 ranks,"
: >"$tmp/t/$older-3.record"
merge --job "$older"
like "a rank whose record is empty has none" "$out" '^1 ranks have left no record'
merge --job "$older" -t star:3@1Gbit
ends "a network of another size" 1

# -- what goes wrong ----------------------------------------------------------
run "$tutti" trace "$tmp/none"
ends "no such directory" 1
one_sentence "in one sentence"
mkdir "$tmp/empty"
run "$tutti" trace "$tmp/empty"
ends "no records" 1
like "what makes them is said" "$err" 'TUTTI_TRACE'
cp "$tutti" "$tmp/empty/x.record"
run "$tutti" trace "$tmp/empty"
ends "no record but something else" 1
like "it is named" "$err" 'x.record is no record'
like "and none is left" "$err" 'has no record of a rank that can be used'
mkfifo "$tmp/empty/y.record"
rm "$tmp/empty/x.record"
run "$tutti" trace "$tmp/empty"
like "a pipe is no record" "$err" 'has no record of a rank \('

echo file >"$tmp/file"
TUTTI_TRACE=$tmp/file run "$tutti" run -n 2 "$tutti" bench -e 1KiB -n 1
ends "where nothing can be written the job goes on" 0
is "each rank says so, once" "$(grep -c 'TUTTI_TRACE: cannot write' <<<"$err")" 2

rm -rf "$tmp/t"
TUTTI_TRACE=$tmp/t run "$tutti" run -n 3 sh -c "
    [ \$TUTTI_RANK = 1 ] && { until grep -q 'plans all-reduce of 1048576' $tmp/said; do
        sleep 0.05; done; sleep 0.2; kill -9 \$\$; } &
    [ \$TUTTI_RANK = 1 ] && export TUTTI_LOG=debug && exec 2>$tmp/said
    exec $tutti bench -b 1MiB -e 1MiB -n 1000000"
merge
ends "a rank that was killed has left its record" 0
is_sound "and every event of the trace is sound"
is "with what it did" "$(check "$tmp/trace.json" \
    'len([e for e in X if e["pid"] == 1 and "step" in e["args"]]) > 10')" True
rm "$tmp"/t/*-2.record
merge
like "who has none is counted" "$out" '^1 ranks have left no record'

if [ "$(id -u)" = 0 ] && mkdir "$tmp/small" &&
    mount -t tmpfs -o size=3m none "$tmp/small" 2>/dev/null; then
    at_exit="umount '$tmp/small'; $at_exit"
    TUTTI_TRACE=$tmp/small run "$tutti" run -n 2 "$tutti" bench -b 64KiB \
        -e 64KiB -n 3000 -w 0 --inplace 0
    ends "a disk that is full ends nothing" 0
    like "and that is said" "$err" 'cannot write more to .*: No space left'
    run "$tutti" trace "$tmp/small" -o "$tmp/trace.json"
    ends "what was recorded by then is merged" 0
else
    skip "a disk that is full" "needs root to mount a small one"
fi

# -- two hosts whose clocks differ --------------------------------------------
what="two hosts by two ranks, one clock 1000 s ahead"
if ! two_hosts tx 216 unshare -T --monotonic 1000; then
    skip "$what" "cannot make two hosts: $(head -1 "$tmp/err")"
else
    rm -rf "$tmp/t"
    TUTTI_TRACE=$tmp/t run "$tutti" run --rsh "$tmp/netns" -H "$ip_a:2,$ip_b:2" \
        "$tutti" bench -b 1MiB -e 1MiB -n 5 --inplace 0
    ends "$what" 0
    merge
    is "their clocks are known within 1 ms, or what they doubt" "$(check "$tmp/trace.json" \
        '[abs(c["clock_ahead_us"] - (r > 1) * 1e9) < max(1000, min(50000, c["give_or_take_us"]))
        for r, c in sorted(clocks.items())]')" \
        "[True, True, True, True]"
    # An arrow that would lead back in time has no length, so it takes both
    # directions to tell that clocks agree.
    is "so the quickest slice is quick in either direction" "$(check "$tmp/trace.json" \
        '[min(a["to"]["ts"] - a["from"]["ts"] for a in measured if len(a) == 2 and
        (a["from"]["pid"] > 1) == far and (a["to"]["pid"] > 1) != far) < 1e5 for far in
        (False, True)]')" "[True, True]"
    like "in little time" "$out" 'slices in [0-9.]+ m?s$'
fi

finish
