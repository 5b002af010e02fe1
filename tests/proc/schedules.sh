#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# schedules.sh - plan, show, verify, export: what one writes the others read.
. "$(dirname "$0")/lib.sh"

run "$tutti" show ring full:5
ends "show a planner's schedule" 0
same_file "the picture of ring.c" "$golden/ring-5.txt"

json() { # PYTHON EXPRESSION over d, the JSON of the last run
    python3 -c "import json,sys; d = json.load(sys.stdin); print($1)" \
        <"$tmp/out" 2>&1
}

run "$tutti" plan full:6 --size 1MiB --json
ends "plan --json" 0
is "its head says what was asked" "$(json 'd["network"], d["size_bytes"],
    d["collective"], d["root"], d["optimum_s"] > 0,
    d["chosen"] in [r["planner"] for r in d["planners"]]')" \
    "full:6 1048576 all-reduce None True True"
is "its rows have all columns" \
    "$(json 'all(list(r) == ["planner", "fits", "why_not", "steps", "chunks",
        "transfers", "time_s", "busbw_GBps", "efficiency", "plan_s"]
        for r in d["planners"])')" True
is "a row for every planner" \
    "$(json '{"ring", "direct", "forest"} <= {r["planner"] for r in d["planners"]}')" True
is "all that fit are predicted" \
    "$(json 'all((r["time_s"] > 0) == r["fits"] for r in d["planners"] if r["fits"])')" True
n_rows=$(json 'len(d["planners"])')
run "$tutti" plan full:6 --size 1MiB --coll all-to-all --json
is "why others do not fit" \
    "$(json 'all(r["why_not"] and r["steps"] is None
        for r in d["planners"] if not r["fits"])')" True
is "their rows stay" "$(json 'len(d["planners"])')" "$n_rows"
run "$tutti" plan full:6 --size 1MiB
is "as many rows for people" "$(grep -cE '^[a-z]' <<<"$out")" \
    "$((n_rows + 1))"
is "one is chosen" "$(grep -c '^# auto takes [a-z0-9-]*$' <<<"$out")" 1
like "rates are in GB/s" "$out" '^ +\(predicted\) +\(GB/s\) *$'
run "$tutti" plan star:4@100Mbit --size 16MiB --planner ring --json
rate=$(json '"%.4g" % (8000 * d["planners"][0]["busbw_GBps"])')
run "$tutti" plan star:4@100Mbit --size 16MiB --planner ring
like "of slow links in Mbit/s" "$out" '^ +\(predicted\) +\(Mbit/s\) *$'
is "and readable" "$(awk '$1 == "ring" { print $7 }' <<<"$out")" "$rate"
like "which is most of the link" "$rate" '^(9[0-9.]+|100)$'

for coll in all-reduce reduce-scatter all-gather broadcast reduce all-to-all \
    gather scatter; do
    run "$tutti" plan full:5 --coll $coll -o "$tmp/$coll"
    ends "plan $coll to a file" 0
    run "$tutti" verify "$tmp/$coll"
    like "$coll: proven" "$out" "^proven: $coll over 5 ranks"
    run "$tutti" export "$tmp/$coll" --to schedule
    same_file "$coll: reads back to the same bytes" "$tmp/$coll"
    run "$tutti" export "$tmp/$coll" --to json
    is "$coll: valid JSON" \
        "$(json 'd["collective"], d["n_ranks"], len(d["chunks"]) > 0,
            all(t[4] in ("reduce", "copy") for t in d["transfers"])')" \
        "$coll 5 True True"
    cp "$tmp/out" "$tmp/$coll.json"
    run "$tutti" export "$tmp/$coll.json" --to schedule
    same_file "$coll: JSON reads back to the same schedule" "$tmp/$coll"
    run "$tutti" show "$tmp/$coll.json"
    ends "$coll: can be drawn" 0
done

run "$tutti" plan full:4 --planner ring -o -
cp "$tmp/out" "$tmp/ring"
is "verify reads standard input" \
    "$("$tutti" verify - <"$tmp/ring" | cut -d' ' -f1)" proven:
run "$tutti" verify "$tmp/ring" --json
is "verify --json" "$(json 'd["proven"], d["message"]')" "True None"

# Without its last transfer the schedule is a lie, and the proof says where.
last=$(grep -n '^transfer' "$tmp/ring" | tail -1 | cut -d: -f1)
sed "${last}d" "$tmp/ring" >"$tmp/cut"
run "$tutti" verify "$tmp/cut"
ends "a schedule that lacks a transfer is refused" 1
one_sentence "in one sentence"
run "$tutti" verify "$tmp/cut" --json
is "its JSON names the place" \
    "$(json 'd["proven"], d["rank"] is not None')" "False True"
# One that somebody wrote is performed, if it is proven and for such a call.
bench() { # RULE: four ranks, 64 KiB
    TUTTI_PLANNER=$1 run "$tutti" run -n 4 "$tutti" bench -b 64KiB -e 64KiB \
        --iters 3 --warmup 1
}
bench "file:$tmp/ring"
ends "a file is performed" 0
bench "0-4K:doubling,4K-:file:$tmp/ring"
ends "a file in a rule is performed" 0
run "$tutti" export "$tmp/ring" --to json -o "$tmp/ring.json"
bench "file:$tmp/ring.json"
ends "a JSON file is performed" 0
bench "file:$tmp/cut"
ends "one that is not proven is refused" 1
like "with the verifier's sentence" "$err" \
    "$("$tutti" verify "$tmp/cut" 2>&1 | sed 's/^[^:]*: [^:]*: //' | cut -c1-40)"
bench "file:$tmp/all-reduce"
ends "one of five ranks is refused" 1
like "with both numbers" "$err" "all-reduce of 5 ranks, not for .* of 4 ranks"
bench "file:"
ends "a path must be there" 1
like "and that is said" "$err" "path of a schedule is missing"
run "$tutti" plan full:4 --planner "file:$tmp/ring.json" --json
is "plan predicts a file" "$(json 'd["planners"][0]["planner"], d["planners"][0]["time_s"] > 0')" \
    "file True"

for command in "show" "export"; do
    run "$tutti" $command "$tmp/ring" --json
    is "$command --json" "$(json 'd["collective"]')" all-reduce
    run "$tutti" $command "$tmp/ring" --json --to svg
    ends "$command --json and another format is a usage error" 2
    one_sentence "in one sentence"
done
run "$tutti" export "$tmp/ring" --to nonsense
ends "an unknown format is a usage error" 2
run "$tutti" plan full:4 -o "$tmp/no/such/dir"
ends "a file that cannot be written" 1
one_sentence "in one sentence"
run "$tutti" plan full:1
ends "one rank alone" 0

finish
