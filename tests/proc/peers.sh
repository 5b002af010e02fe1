#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# peers.sh - the benchmark side by side, tried with Tutti alone and few calls:
# that it measures, records, goes on where it was, and shows what it recorded.
# Says nothing about speed.
. "$(dirname "$0")/lib.sh"
limit=600 # every benchmark compiles its programs, maybe beside other work
peers() {
    run env B="$B" "$here/../../bench/peers/run" --quick --no-charts "$@"
}

# what EXPRESSION: of the rows of the record, in Python.
what() {
    python3 -c 'import json, os, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
timed = [row for row in rows if "time_us" in row]
facts = [row["facts"] for row in rows if "facts" in row]
print(eval(sys.argv[2]))' "$tmp/record" "$1" 2>&1
}

peers --ranks 2 --systems tutti,tutti-direct --sizes 8,64KiB --planners \
    auto,ring --json "$tmp/record"
ends "two ranks on one host" 0
like "a table" "$out" '^ +size +system +how +time +min +max +busbw GB/s'
like "a row of it" "$out" '^ +64 KiB +Tutti +auto: [a-z]+ +[0-9.]+ [mu]?s '
like "a planner's row" "$out" '^ +ring +[0-9.]+ [mu]?s '
is "the record" "$(what '[(r["system"], r["way"], r["size_bytes"], r["round"],
    r["n_ranks"], r["wrong"]) for r in timed]')" "[('tutti', 'auto', 8, 1, 2, 0),\
 ('tutti', 'ring', 8, 1, 2, 0), ('tutti', 'auto', 65536, 1, 2, 0),\
 ('tutti', 'ring', 65536, 1, 2, 0), ('tutti-direct', 'auto', 8, 1, 2, 0),\
 ('tutti-direct', 'auto', 65536, 1, 2, 0)]"

is "the processor time of the calls" "$(what 'all(r["cpu_s_per_GB"] > 0 and
    r["softirq_s_per_GB"] >= 0 for r in timed)')" True

is "how far the processors are from each other" "$(what 'all(r["line_ns"] > 0
    or len(os.sched_getaffinity(0)) == 1 for r in timed)')" True
# Before and after each launch; what --near says; how often, and which counts.
for case in "200,30,30,200,40,50 60 3,50" "200,30 None 1,200" "60,60 60 1,60" \
    "60,61,7,8 60 2,8"; do
    read -r lines near expected <<<"$case"
    is "--near $near: $lines" "$(python3 -B -c "import sys, types
sys.path.insert(0, '$here/../../bench/peers')
import measure
lines, turns = iter([$lines]), []
measure.line_ns = lines.__next__
measure.one_turn = lambda *which: turns.append(which) or ([{}], None)
rows, _ = measure.counting_turn(None, None, [], types.SimpleNamespace(near=$near), '')
print(len(turns), rows[0]['line_ns'], sep=',')" 2>&1)" "$expected"
done

if command -v taskset >/dev/null; then
    run env B="$B" taskset -c "$(taskset -cp $$ | sed 's/.*[:,-] *//')" \
        "$here/../../bench/peers/run" --quick --no-charts --ranks 2 \
        --systems tutti --planners auto --sizes 8 --near 60
    ends "--near with one processor" 1
    one_sentence "is refused in one sentence"
fi

peers --ranks 2 --systems tutti --sizes 8,64KiB,1MiB --planners auto --json \
    "$tmp/record" --resume
ends "going on" 0
is "measures what was missing" \
    "$(what '[r["size_bytes"] for r in timed[6:]]')" "[1048576]"
peers --ranks 2 --systems tutti --sizes 8 --json "$tmp/record"
ends "a record that has rows, without --resume" 1
like "says what to do" "$err" 'record has rows already: .* --resume, or name'
sed 's/"library": "[0-9a-f]*"/"library": "0"/' "$tmp/record" >"$tmp/older"
peers --ranks 2 --systems tutti --sizes 8 --json "$tmp/older" --resume
ends "rows of another build" 1
like "says so" "$err" 'older has rows of another build of Tutti \(commit '
mark=$((RANDOM + 300000)).$$
is "what a launcher leaves behind is ended" "$(python3 -B -c "import os, sys
sys.path.insert(0, '$here/../../bench/peers')
import measure
print(measure.run_words(['sh', '-c', 'echo \$1 >$tmp/out; sleep $mark &', '-',
                         '{\"done\": true}'], os.environ, '$tmp/out'))" 2>&1
    ) $(survivors $mark)" "None 0"
peers --from "$tmp/record"
ends "--from" 0
like "shows what was recorded" "$out" '^ +1 MiB +Tutti '
grep -v '"facts"' "$tmp/record" >"$tmp/part"
echo '{"place": "host2", "rou' >>"$tmp/part"
peers --from "$tmp/part"
ends "a record that is none" 1
like "says where" "$err" "part:[0-9]+ is no row"
for line in '[1]' '7' 'x' $'{"a": "\xff"}'; do
    { cat "$tmp/record"; echo "$line"; } >"$tmp/part"
    peers --from "$tmp/part"
    ends "${line@Q} is no row" 1
    one_sentence "says so once"
done
ends_in() { # the last bytes of a record; goes on there
    { head -c -1 "$tmp/record"; printf "$1"; } >"$tmp/part"
    peers --ranks 2 --systems tutti --sizes 8 --json "$tmp/part" --resume
    is "going on after \`$1\`" "$rc $(head -n "$(wc -l <"$tmp/record")" \
        "$tmp/part" | cmp - "$tmp/record")" "0 "
    peers --from "$tmp/part"
    is "all rows are good" "$rc $err" "0 "
}
ends_in ''
ends_in '\n{"place": "host2", "sys'
peers --from "$tmp/none"
ends "no record" 1
one_sentence "says so once"

# -- what Tutti is held to, from a record that is made up ----------------------
python3 - >"$tmp/record" <<'EOF'
import json

def say(**row):
    print(json.dumps(row))

def timed(place, system, size, us, cpu=1, way="default", **more):
    for number, factor in enumerate((1, 9, 0.5)):  # medians of launches
        say(place=place, system=system, variant="default", way=way,
            round=number + 1, n_ranks=4, size_bytes=size, calls=1, batches=1,
            time_us=us * factor, cpu_s_per_GB=cpu * factor,
            softirq_s_per_GB=0, wrong=0, **dict({"collective": "all-reduce"},
                                                **more))

for place in "host4", "fast4", "token":
    say(facts={"place": place, "is_token": place == "token"})
timed("host4", "tutti", 8, 10, way="auto")
timed("host4", "tutti-direct", 8, 5, way="auto")
timed("host4", "mpich", 8, 4)
timed("host4", "gloo", 8, 3)  # no MPI
for size, gloo in (8, 11), (16 << 20, 14):
    timed("fast4", "tutti", size, 10, cpu=3, way="auto")
    timed("fast4", "tutti", size, 8, way="ring")
    timed("fast4", "openmpi", size, 30, cpu=4)
    timed("fast4", "gloo", size, gloo)
timed("token", "tutti", 10240, 10, way="auto", collective="token")
timed("token", "gloo", 10240, 31, collective="token")
timed("token", "openmpi", 10240, 10.9, collective="token")
EOF
peers --from "$tmp/record"
ends "a record of one host, of fast hosts and of tokens" 0
held() { # WHAT VALUE MET WHERE
    like "$1" "$out" "^ +$1 +$2 +at (least|most) [0-9.]+ +$3 +$4\$"
}
held "host4, every size: best MPI / Tutti" 0.400 NO "8 B"
held "host4, every size: best MPI / Tutti, direct" 0.800 NO "8 B"
held "fast4, every size: best peer / Tutti" 1.100 yes "8 B"
held "fast4, from 16 MiB: best peer / Tutti" 1.400 NO "16 MiB"
held "fast4, from 1 MiB: CPU seconds, Tutti / Open MPI" 0.750 NO "16 MiB"
held "auto / the best planner" 1.250 NO "fast4, 8 B|fast4, 16 MiB"
held "a token: Gloo / Tutti" 3.100 yes "token"
held "a token: Open MPI / Tutti" 1.090 NO "token"
like "a step has a row" "$out" '^ +a step +Tutti +auto +10 us .* 1 +0 +1.09$'

# -- networks -----------------------------------------------------------------
if [ "$(id -u)" != 0 ] || ! unshare --net true 2>/dev/null ||
    ! command -v tc >/dev/null; then
    skip "a network of the lab" "it needs root, network namespaces and tc"
else
    rm "$tmp/record"
    peers --networks tiny --systems tutti --sizes 1KiB,1MiB --json "$tmp/record"
    ends "a network of the lab" 0
    like "efficiency and net" "$out" '^ +1 MiB +Tutti +auto: [a-z]+ .*s( +[0-9.]+){5} +-$'
    is "facts from the topology" "$(what '[(f["place"], f["n_ranks"],
        round(f["optimum_s_per_byte"] * 1448 / 1514 * 400e6 / 8, 6),
        round(f["free_s"] * 400e6), f["predicted_s"]["1048576"]["ring"] > 0.02)
        for f in facts]')" "[('tiny', 2, 1.0, 1048576, True)]"
    is "auto and planners, all right" "$(what '(len(timed) > 10,
        {r["wrong"] for r in timed}, {r["way"] for r in timed} >
        {"auto", "ring", "forest", "direct"})')" "(True, {0}, True)"
    rm "$tmp/record"
    peers --networks fast2 --systems tutti --sizes 1KiB,1MiB --planners auto \
        --json "$tmp/record"
    ends "hosts whose links have no limit" 0
    is "nothing is known of them" "$(what '[(f["place"], f["n_ranks"],
        "optimum_s_per_byte" in f) for f in facts]')" "[('fast2', 2, False)]"
    is "they are measured, too" "$(what '[(r["size_bytes"], r["wrong"])
        for r in timed]')" "[(1024, 0), (1048576, 0)]"
    rm "$tmp/record"
    peers --networks token --systems tutti --planners auto --repeat 2 \
        --json "$tmp/record"
    ends "steps that make a token" 0
    is "ranks share hosts, and all launches count" \
        "$(what '[(r["collective"], r["n_ranks"], r["size_bytes"], r["round"],
        r["wrong"], r["busbw_GBps"], r["cpu_s_per_GB"] > 0) for r in timed]')" \
        "[('token', 4, 10240, 1, 0, None, True), ('token', 4, 10240, 2, 0, None,\
 True)]"
    like "a table of steps" "$out" '^ +a step +Tutti +auto: [a-z]+ '
    labs() {
        "$here/../../lab/lab" list | grep -c 'star:2@400Mbit'
    }
    is "no lab is left" "$(labs)" 0
    makes_lab_or_ended() {
        pgrep -f -P "$pid" 'lab/lab up' >/dev/null || ! kill -0 "$pid" 2>/dev/null
    }
    for signal in INT HUP; do # while a lab is made
        for _ in {1..5}; do
            env --default-signal=INT,HUP B="$B" "$here/../../bench/peers/run" \
                --quick --no-charts --networks tiny --systems tutti \
                --planners auto >/dev/null 2>&1 &
            pid=$!
            awaits makes_lab_or_ended
            kill -$signal "$pid" 2>/dev/null
            wait "$pid"
            rc=$?
            [ $rc = 0 ] || break # it was over before the signal
        done
        is "SIG$signal leaves no lab" "$rc $(labs)" "130 0"
    done
fi

refused() { # WORDS...: status 2 and one sentence
    peers "$@"
    ends "$*: refused" 2
    one_sentence "in one sentence"
}
for option in ranks networks sizes systems planners; do
    refused --$option ''
done
for rounds in 0 -1 x; do
    refused --rounds $rounds
    refused --near $rounds
done
refused --planners auto,rign
like "names those there are" "$err" 'no planner `rign`; there are auto .*ring'
refused --planners ring
refused --ranks 0
refused --networks nowhere --json "$tmp/nothing"
is "nothing is written" "$(ls "$tmp/nothing" 2>/dev/null)" ""
like "names those there are" "$err" 'no network `nowhere`; there are star8 '
refused --systems nothing
refused --sizes 7
refused --resume
finish
