#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# bench.sh - `tutti bench` under every launcher, for every collective, type and
# operation; and that its check can fail.
. "$(dirname "$0")/lib.sh"

wrong_sum() { # of the rows of the last run: both #wrong columns
    awk '!/^#/ { n++; wrong += $9 + $13 } END { print n + 0, wrong + 0 }' \
        <<<"$out"
}

run "$tutti" run -n 3 --no-prefix "$tutti" bench -b 1 -e 1MiB -f 37 -n 3
ends "all-reduce on three ranks" 0
is "each size has a row, nothing is wrong" "$(wrong_sum)" "4 0"
like "nccl-tests' columns" "$out" '^# +size +count +type +redop +root( +time +algbw +busbw +#wrong){2} *$'
like "and rows" "$out" '^ +4 +1 +f32 +sum +-1( +[0-9.]+ +[0-9.e-]+ +[0-9.e-]+ +0){2}$'
like "and end" "$out" '^# Avg bus bandwidth +: [0-9]'
is "no rate is shown as 0.00" "$(awk '!/^#/ { n += ($7 + 0 == 0) + ($11 + 0 == 0) }
    END { print n + 0 }' <<<"$out")" 0

for coll in reduce-scatter all-gather broadcast reduce all-to-all gather \
    scatter barrier send-recv; do
    run "$tutti" run -n 3 "$tutti" bench $coll -e 100KB -f 30 \
        -n 3 -w 1 --root 2 --json
    is "$coll" "$rc $(python3 -c 'import json,sys
d = json.load(sys.stdin)
print(len(d) > 0, sum(r["wrong"] or 0 for r in d))' <<<"$out" 2>&1)" "0 True 0"
done

right=0 tried=0 bad=
for type in i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64 bool; do
    for op in sum avg prod min max band bor bxor scaled-sum; do
        run "$tutti" run -n 3 --no-prefix "$tutti" bench -b 5KB -e 5KB -n 1 \
            -w 0 --type $type --op $op
        [ "$rc" = 2 ] && continue # not defined
        tried=$((tried + 1))
        if [ "$rc" = 0 ] && [ "$(wrong_sum)" = "1 0" ]; then
            right=$((right + 1))
        else
            bad="$bad $type-$op"
        fi
    done
done
is "every type with every operation:$bad" "$right of $tried" "79 of 79"

run "$tutti" run -n 2 --no-prefix "$tutti" bench -b 4KiB -e 4KiB -n 2 --json \
    --planner ring --inplace 1
is "--json has all columns" "$(python3 -c 'import json,sys
(r,) = json.load(sys.stdin)
print(",".join(r), r["collective"], r["n_ranks"], r["planner"], r["size_bytes"],
    r["count"], r["type"], r["op"], r["inplace"], r["time_us"] > 0, r["wrong"])
' <<<"$out" 2>&1)" "collective,n_ranks,planner,size_bytes,count,type,op,inplace,\
time_us,algbw_GBps,busbw_GBps,wrong,network,chosen,predicted_us,optimum_us,\
efficiency all-reduce 2 ring 4096 1024 f32 sum 1 True 0"

# -- on a known network -------------------------------------------------------
run "$tutti" run -n 3 --no-prefix "$tutti" bench -b 1KiB -e 3MiB -f 3072 -n 2 \
    --topology star:3@1.514Gbit,0
ends "--topology" 0
is "its columns do not move the others" "$(wrong_sum)" "2 0"
like "the network is named" "$out" '^# network star:3@1.514Gbit,0, .*: exact$'
like "its columns have heads" "$out" ' predict +optimum +out-of +in +planner$'
like "and values, N/A for none" "$out" \
    '^ +3145728 .* [0-9.]+ +23172[.0-9]* +[0-9.]+ +[0-9.]+ +[a-z0-9]+$'

# The least time of 3 MiB: 4/3 of it through a link whose payload is 1.448
# Gbit/s; that of the rooted ones: all of it through one link.
for case in "all-reduce 23172" "broadcast 17379" "reduce 17379" \
    "all-gather 11586" "reduce-scatter 11586" "all-to-all 11586" \
    "gather 11586" "scatter 11586" "send-recv None"; do
    coll=${case% *}
    run "$tutti" run -n 3 --no-prefix "$tutti" bench "$coll" -b 3MiB -e 3MiB \
        -n 1 -w 0 --root 1 --json -t star:3@1.514Gbit,0
    is "$coll on a known network" "$rc $(python3 -c 'import json,sys
for r in json.load(sys.stdin):
    best, time = r["optimum_us"], r["time_us"]
    if not best:
        print(best, r["predicted_us"], r["efficiency"], r["chosen"])
    elif (0.99 * best <= r["predicted_us"] <= 4 * best and r["chosen"] and
          abs(r["efficiency"] * time / best - 1) < 1e-6):
        print(int(best))
    else:
        print(r)' <<<"$out" 2>&1 | sort -u)" \
        "0 ${case#* }$([ "$coll" = send-recv ] && echo " None None None")"
done
run "$tutti" run -n 3 --no-prefix "$tutti" bench barrier -n 1 --json \
    -t star:3@1Gbit,50us
like "barrier on a known network" "$out" '"predicted_us":[0-9.]+,"optimum_us":100,'

is "--tcp of bound, plan and sim is that rate" "$({
    "$tutti" bound star:3@1.514Gbit,0 --tcp --json
    "$tutti" plan star:3@1.514Gbit,0 --tcp --json --size 3MiB -p ring
    "$tutti" sim ring star:3@1.514Gbit,0 --tcp --json --size 3MiB
} | python3 -c 'import json,sys
text, found = sys.stdin.read().strip(), []
while text:
    one, end = json.JSONDecoder().raw_decode(text)
    found.append(one)
    text = text[end:].strip()
bound, plan, sim = found
print(*(round(t * 1e6) for t in (bound["allreduce_s_per_byte"] * 3 * 2**20,
    plan["planners"][0]["time_s"], sim["time_s"])))' 2>&1)" "23173 23173 23173"

for case in "ring ring" "0-4K:doubling,4K-:ring doubling" "auto [b-z][a-z0-9]*"; do
    run "$tutti" run -n 3 --no-prefix "$tutti" bench -b 1KiB -e 1KiB -n 1 \
        --json -t star:3 --planner "${case% *}"
    like "${case% *} chose ${case#* }" "$out" "\"chosen\":\"${case#* }\""
done

run "$tutti" run -n 3 "$tutti" bench -e 8 --topology star:4
ends "a network of other ranks" 1
like "says what differs" "$err" 'describes 4 ranks and the job has 3'
run "$tutti" run -n 2 "$tutti" bench -e 8 --topology $tmp/none
ends "no such network" 1
run "$tutti" bench -e 8 -n 1 --topology star:1
ends "one rank on its network" 0

planners=$("$tutti" plan full:5 --json |
    python3 -c 'import json,sys; print(*(r["planner"] for r in json.load(sys.stdin)["planners"]))')
n_planners=0
for planner in $planners; do
    # Some plan only for a network that has been described, or no all-reduce.
    run "$tutti" run -n 5 "$tutti" bench -b 8 -e 8 -n 1 --planner "$planner"
    [ "$rc" != 0 ] && grep -q 'needs a topology\|it has only' <<<"$err" && continue
    n_planners=$((n_planners + 1))
    run "$tutti" run -n 5 --no-prefix "$tutti" bench -b 3 -e 2MB -f 99 -n 2 \
        --planner "$planner"
    is "planner $planner" "$rc $(wrong_sum)" "0 3 0"
done

is "at least six planners" "$((n_planners >= 6))" 1

# The calls that are not measured need not fit the planner that is.
TUTTI_PLANNER=halfway run "$tutti" run -n 5 --no-prefix "$tutti" bench -b 8 \
    -e 8 -n 1
is "a planner that has only all-reduce" "$rc $(wrong_sum)" "0 1 0"

# Ranks with different seeds compute different references: all is wrong then.
run "$tutti" run -n 2 --no-prefix sh -c \
    "exec '$tutti' bench -b 4KiB -e 4KiB -n 1 --seed \$TUTTI_RANK"
ends "wrong results are a failure" 1
like "and are counted" "$out" ' f32 .* (1[0-9]{3}|20[0-4][0-9]) .* (1[0-9]{3}|20[0-4][0-9])$'
like "and told" "$out" '^# Out of bounds values : [0-9]+ FAILED'
run "$tutti" run -n 2 "$tutti" bench --planner nonsense
ends "an unknown planner" 1
like "names the nearest" "$err" 'planner "nonsense"'
run "$tutti" bench -e 64 -n 2
ends "alone: a job of one rank" 0

# -- other launchers ----------------------------------------------------------
port=$(some_port)
as_torchrun() { # RANK
    RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 \
        MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        timeout $limit "$tutti" bench -e 64KiB -f 64 -n 2
}
as_torchrun 1 >"$tmp/out1" 2>&1 &
out=$(as_torchrun 0 2>&1)
rc=$?
wait $!
is "torchrun's variables" "$rc $? $(wrong_sum)" "0 0 3 0"
is "only rank 0 prints" "$(cat "$tmp/out1")" ""

mpirun_case() { # NAME COMMAND...
    local name=$1
    shift
    if ! command -v "$1" >/dev/null; then
        skip "$name" "$1 is not installed"
        return
    fi
    run "$@" "$tutti" bench -e 64KiB -f 64 -n 2
    is "$name" "$rc $(wrong_sum)" "0 3 0"
}
mpirun_case "Open MPI's mpirun" mpirun.openmpi --allow-run-as-root \
    --oversubscribe -n 3
mpirun_case "MPICH's mpirun" mpirun.mpich -n 3

# -- training, where there is no torch ----------------------------------------
printf '#!/bin/sh\necho "ModuleNotFoundError: No module named torch" >&2\nexit 1\n' \
    >"$tmp/python"
chmod +x "$tmp/python"
run env PYTHON="$tmp/python" B="$B" "$here/../../bench/training/run" cnn2 flat
ends "bench/training without torch" 1
is "one sentence" "$out$(wc -l <"$tmp/err")" 1
like "which says what to do" "$err" \
    'cannot import torch .*No module named torch\): tools/torch install .*make torch'

finish
