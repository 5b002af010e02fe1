#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# networks.sh - topo, bound, plan, verify --on, sim: from a network to times.
. "$(dirname "$0")/lib.sh"

json() { # PYTHON EXPRESSION over d, the JSON of the last run
    python3 -c "import json,sys; d = json.load(sys.stdin); print($1)" \
        <"$tmp/out" 2>&1
}

# ------------------------------------------------------------------- topo
while read -r spec; do
    run "$tutti" topo "$spec" -o "$tmp/a.topo"
    ends "topo $spec" 0
    run "$tutti" topo "$tmp/a.topo"
    same_file "$spec: the file reads back to the same network" "$tmp/a.topo"
done <<'END'
full:5
ring:7
star:25,25,10,10@1Gbit
racks:5+3@nic=400Mbit,trunk=200Mbit,nic.7=100Mbit,order=interleaved
rails:3@eth0=400Mbit,eth1=100Mbit/50Mbit,eth1.2=1Gbit
racks:4+4@nic=400Mbit/100Mbit,trunk=200Mbit,order=random:7
boxes:8+8+4
torus:4x4@16GB/s,150ns
mesh:3x4x2
fattree:4x4
bigraph:4x8
minsky:2
blueconnect-192
END
run "$tutti" topo --list
ends "topo --list" 0
like "it has the generators" "$out" '^torus:'
run "$tutti" topo torus:3x3 --json
is "topo --json" "$(json 'd["ranks"], d["switches"], len(d["links"])')" \
    "9 0 36"

run "$tutti" topo star:3 --json -o "$tmp/star.json"
ends "topo --json to a file" 0
is "where it is" "$out $(python3 -c 'import json,sys
print(len(json.load(sys.stdin)["links"]))' <"$tmp/star.json")" " 6"

cat >"$tmp/mine.topo" <<'END'
tutti-topology 1
# two hosts and a switch
switch s
host a b
link a s 1Gbit 10us
link b s 500Mbit/250Mbit 10us
END
run "$tutti" topo "$tmp/mine.topo" --json
is "a file of one's own" "$(json 'd["ranks"], len(d["links"])')" "2 4"

cat >"$tmp/big.topo" <<'END'
tutti-topology 1
host a rank=2
host b ranks=2 rank=0,1
switch s
link a s 1Gbit/300Mbit 5us dev=lan0
link b s 999999999999999bit
END
run "$tutti" topo "$tmp/big.topo" --json --routes
is "nodes as JSON" "$(json '[[n[k] for k in ("name", "kind", "host", "rank")]
    for n in d["nodes"]]')" "[['a', 'host', None, 2], \
['b', 'host', None, None], ['b.0', 'slot', 'b', 0], ['b.1', 'slot', 'b', 1], \
['s', 'switch', None, None]]"
is "links as JSON, rates exactly" \
    "$(json '[(k["rate_bps"], k["dev"], k["twin"]) for k in d["links"][4:]]')" \
    "[(1000000000, 'lan0', 5), (300000000, None, 4), \
(999999999999999, None, 7), (999999999999999, None, 6)]"
is "routes as JSON" "$(json 'd["routes"]')" \
    "[[0, 1, [0, 3]], [0, 2, [0, 6, 5]], [1, 0, [2, 1]], [1, 2, [2, 6, 5]], \
[2, 0, [4, 7, 1]], [2, 1, [4, 7, 3]]]"
run "$tutti" topo torus:2x3x3 --json --routes
is "a route for every two ranks" \
    "$(json 'len({(a, b) for a, b, way in d["routes"] if way})')" 306
run "$tutti" topo full:3 --routes
ends "--routes without --json" 2
one_sentence "that is one sentence"

bad() { # WHAT LINE PATTERN: the text of stdin is refused at that line
    cat >"$tmp/bad.topo"
    run "$tutti" topo "$tmp/bad.topo"
    ends "$1: refused" 1
    one_sentence "$1: in one sentence"
    like "$1: it says where" "$err" "bad.topo:$2:[0-9]+: .*$3"
}
bad "an unknown unit" 3 'Gbyts' <<'END'
tutti-topology 1
host a b
link a b 1Gbyts 1us
END
bad "no unit" 3 '' <<'END'
tutti-topology 1
host a b
link a b 100 1us
END
bad "a rate of zero" 3 '' <<'END'
tutti-topology 1
host a b
link a b 0Gbit 1us
END
bad "a negative rate" 3 '' <<'END'
tutti-topology 1
host a b
link a b -1Gbit 1us
END
bad "a name twice" 3 'a' <<'END'
tutti-topology 1
host a b
switch a
END
bad "a link to nowhere" 3 'c' <<'END'
tutti-topology 1
host a b
link a c 1Gbit 1us
END
run "$tutti" topo star:1000000
ends "a million hosts: refused" 1
one_sentence "in one sentence"
printf 'tutti-topology 1\nhost a b c\nlink a b 1Gbit 1us\n' >"$tmp/apart"
run "$tutti" bound "$tmp/apart"
ends "a network in two pieces: refused" 1
one_sentence "in one sentence"
run "$tutti" topo "$tmp/none.topo"
ends "no such file" 1
one_sentence "in one sentence"
run "$tutti" topo torsu:4x4
ends "no such generator" 1
one_sentence "in one sentence"

# ------------------------------------------------------------------ bound
run "$tutti" bound mesh:4x4@8Gbit --json
ends "bound --json" 0
is "it has all keys" "$(json '[k for k in ("ranks", "allreduce_s_per_byte",
    "method", "gap", "allgather_s_per_byte", "cut_s_per_byte",
    "aggregate_s_per_byte") if k not in d]')" "[]"
is "the optimum of the mesh 4x4 is 5/8 of a link" \
    "$(json 'd["ranks"], d["method"], abs(d["allreduce_s_per_byte"] * 1e9
        / .625 - 1) < 1e-6, abs(d["allgather_s_per_byte"] * 1e9 * 32 / 15
        - 1) < 1e-6')" "16 exact True True"
run "$tutti" bound star:25,25,10,10@8Gbit --json
is "that of a star of 25, 25, 10, 10 is 1/10" \
    "$(json 'd["method"], abs(d["allreduce_s_per_byte"] * 1e10 - 1) < 1e-6,
        d["aggregate_s_per_byte"] <= d["allreduce_s_per_byte"]')" \
    "exact True True"
run "$tutti" bound star:25,25,10,10@8Gbit
like "for people" "$out" '^all-reduce .* exact$'
run "$tutti" bound full:1 --json
ends "the bound of one rank alone" 0

# ------------------------------------------------------------------- plan
run "$tutti" plan racks:3+2@nic=8Gbit,trunk=4Gbit --size 16MiB --json
ends "plan on racks" 0
is "efficiencies are shares of the optimum" \
    "$(json 'all(0 < r["efficiency"] <= 1.000001 for r in d["planners"] if r["fits"])')" True
is "forest comes near it" \
    "$(json '[r["efficiency"] > .9 for r in d["planners"] if r["planner"] == "forest"]')" \
    "[True]"
run "$tutti" plan racks:3+2@nic=8Gbit,trunk=4Gbit --size 16MiB
auto=$(sed -n 's/^# auto takes //p' <<<"$out")
run "$tutti" plan racks:3+2@nic=8Gbit,trunk=4Gbit --size 16MiB -p auto --json
is "auto takes what the table says" "$(json 'd["planners"][0]["planner"]')" "$auto"
# On this torus the fastest and the one that auto takes are equal to 1 %.
run "$tutti" plan torus:4x4@50Mbit --size 16MiB --json
fewest=$(json 'min((r["transfers"], r["planner"]) for r in d["planners"] if r["fits"] and
    r["time_s"] <= 1.01 * min(q["time_s"] for q in d["planners"] if q["fits"]))[1]')
run "$tutti" plan torus:4x4@50Mbit --size 16MiB -p auto --json
is "of equal plans auto takes the one with fewest transfers" \
    "$(json 'd["planners"][0]["planner"]')" "$fewest"
run "$tutti" plan star:6 --size 64KiB -p 0-4K:doubling,4K-:forest --json
is "a rule decides by size" "$(json 'd["planners"][0]["planner"]')" forest
run "$tutti" plan star:6 -p nosuch --json
ends "no such planner" 1
is "and no rows" "$out" ""

# Above so many ranks only those who name it get what plans for minutes.
run "$tutti" plan star:129 --size 64KiB --json
is "forest is not tried by itself" \
    "$(json '[(r["fits"], "--planner forest" in r["why_not"])
        for r in d["planners"] if r["planner"] == "forest"]')" "[(False, True)]"
run "$tutti" sim auto star:129 --size 64KiB --json
is "nor by auto" "$(json 'd["planner"] != "forest"')" True
run "$tutti" plan star:129 --size 64KiB -p forest --json
is "but when it is named" "$(json 'd["planners"][0]["fits"]')" True

# ----------------------------------------------------------------- verify
run "$tutti" plan torus:4x4 -p multitree -o "$tmp/tree"
ends "multitree to a file" 0
run "$tutti" verify "$tmp/tree" --on torus:4x4
like "proven" "$out" '^proven: all-reduce over 16 ranks'
like "and contention-free" "$out" '^contention-free on torus:4x4'
run "$tutti" plan torus:4x4 -p direct -o "$tmp/direct"
run "$tutti" verify "$tmp/direct" --on torus:4x4
ends "contention is no failure" 0
like "but is told" "$out" '^not contention-free on torus:4x4.* room for 1$'
run "$tutti" verify "$tmp/direct" --on torus:4x4 --json
is "in JSON too" "$(json 'd["contention_free"], d["overloaded"] > 0')" \
    "False True"
run "$tutti" verify "$tmp/direct" --on torus:4x5
ends "a network of another size" 1
one_sentence "in one sentence"

# -------------------------------------------------------------------- sim
run "$tutti" sim ring torus:4x4@8Gbit,0ns --size 16MiB --json
ends "sim --json" 0
is "its keys" "$(json '[k for k in ("time_s", "busbw_GBps", "efficiency",
    "max_link_utilisation") if k not in d]')" "[]"
is "a ring takes 2(n-1)/n of the vector over its slowest link" \
    "$(json 'abs(d["time_s"] / (30 / 16 * 16 * 2**20 / 1e9) - 1) < 1e-3')" True
run "$tutti" sim "$tmp/tree" torus:4x4 --model packet --lockstep all \
    --packet 256 --flit 16 --header 16 --trace "$tmp/trace.json" --json
ends "packets in lockstep, with a trace" 0
is "the trace is JSON with events" "$(python3 -c "
import json
d = json.load(open('$tmp/trace.json'))
d = d['traceEvents'] if isinstance(d, dict) else d
print(sum(e['ph'] == 'X' for e in d) >= 480)" 2>&1)" True
run "$tutti" sim ring full:4 --coll broadcast --root 2
ends "a broadcast" 0
like "for people" "$out" 'efficiency'
like "its rate in GB/s" "$out" '^  busbw +[0-9.]+ GB/s$'
run "$tutti" sim ring full:4@100Mbit --coll broadcast --root 2
like "of slow links in Mbit/s" "$out" '^  busbw +[1-9][0-9.]+ Mbit/s$'
run "$tutti" sim ring full:4 --coll broadcast --root 2
like "as the engine, if nobody says otherwise" "$out" 'cut as the engine cuts'
sim_cut() { # OPTIONS: of 64 MiB by forest, whose trees are deep
    run "$tutti" sim forest torus:4x4 --size 64MiB --json "$@"
    json 'd["as_engine"], d["efficiency"] > 0.9'
}
is "and near the optimum" "$(sim_cut)" "True True"
is "ideal: a chunk is one slice" "$(sim_cut --ideal)" "False False"
is "with slices as asked" "$(sim_cut --slices 64)" "False True"
for own in --ideal "--slices 3" "--window 2" "--front 1KiB" "--front-window 1KiB"; do
    run "$tutti" sim ring full:4 --as-engine $own
    ends "--as-engine $own is a usage error" 2
done
like "that says so" "$err" '--as-engine .* without --ideal, --slices'
is "--as-engine is the default" "$(sim_cut --as-engine)" "True True"
is "in lockstep, as the engine is not" "$(sim_cut --lockstep all)" \
    "False False"
run "$tutti" sim ring full:2 --size 3
ends "part of an element" 2
like "is an error" "$err" 'whole number of elements of 4 bytes'
run "$tutti" sim ring full:2 --size 3 --elem 1 --json
ends "bytes" 0
is "which all cross the link" "$(json 'd["bytes"]')" 6
run "$tutti" sim ring full:4 --model nonsense
ends "an unknown model" 2
run "$tutti" sim "$tmp/tree" full:4
ends "a schedule of other ranks" 1
one_sentence "in one sentence"
run "$tutti" sim rign full:4
ends "neither planner nor file" 1
one_sentence "in one sentence"
sed '$d' "$tmp/tree" | grep -v '^transfer 0 ' >"$tmp/unsound"
echo end >>"$tmp/unsound"
run "$tutti" sim "$tmp/unsound" torus:4x4
[ "$rc" = 124 ] && fail "an unsound schedule hangs" || pass "no hang"
run "$tutti" export "$tmp/tree" --to dot
ends "export to Graphviz" 0
is "every transfer is an arrow" "$(grep -c -- '->' <<<"$out")" \
    "$(grep -c '^transfer' "$tmp/tree")"

finish
