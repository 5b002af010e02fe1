#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# topology.sh - TUTTI_TOPOLOGY: what is planned for a network is performed.
. "$(dirname "$0")/lib.sh"

# ranks NETWORK RANKS BENCH-ARGS...: a bench; sets wrong, the sum of wrong
# elements, or what went wrong.
bench() {
    export TUTTI_TOPOLOGY=$1
    run "$tutti" run -n "$2" --no-prefix "$tutti" bench "${@:3}" --json
    unset TUTTI_TOPOLOGY
    wrong=$(python3 -c 'import json,sys
print(sum(r["wrong"] for r in json.load(sys.stdin)))' <<<"$out" 2>/dev/null) ||
        wrong=$err
}

planners=$("$tutti" plan racks:3+2 -s 1KiB --json |
    python3 -c 'import json,sys
print(*(r["planner"] for r in json.load(sys.stdin) if r["fits"]))')
for planner in $planners auto; do
    bench racks:3+2@nic=400Mbit,trunk=200Mbit 5 all-reduce \
        -b 3 -e 1MB -f 60 -n 2 --planner "$planner"
    is "racks 3+2, $planner" "$rc $wrong" "0 0"
done
for network in mesh:2x2 star:10,10,1,1@1Gbit boxes:1+3 \
    racks:2+2@order=interleaved; do
    bench $network 4 all-reduce -b 8 -e 300KB -f 40 -n 2 --planner forest
    is "$network, forest" "$rc $wrong" "0 0"
done
for coll in reduce-scatter all-gather broadcast reduce gather scatter \
    all-to-all; do
    bench racks:3+1 4 $coll -b 1KiB -e 200KB -f 14 -n 2
    is "racks 3+1, $coll" "$rc $wrong" "0 0"
done

bench star:4 3 all-reduce -e 8
ends "a network of other ranks is refused" 1
like "it says how many" "$err" 'TUTTI_TOPOLOGY describes 4 ranks and the job has 3'
bench strar:4 4 all-reduce -e 8
ends "so is one that there is not" 1
like "by name" "$err" 'TUTTI_TOPOLOGY: "strar:4" is neither'

# By name: this host has four places, of which three are taken, the last ones
# by a job that knows nothing of the other host.
cat >"$tmp/names.topo" <<END
tutti-topology 1
switch s
host elsewhere
host $(hostname) ranks=4 memory=8GB/s
link elsewhere s 1Gbit
link $(hostname) s 1Gbit
END
bench "$tmp/names.topo" 3 all-reduce -b 8 -e 100KB -f 30 -n 2 --planner forest
is "a file that names this host" "$rc $wrong" "0 0"
bench "$tmp/names.topo" 5 all-reduce -e 8
ends "more ranks than it has places" 1
like "it says which" "$err" 'no place for rank 4: no host "'"$(hostname)"'"'
printf 'tutti-topology 1\nhost a b\nlink a b 1Gbt\n' >"$tmp/bad.topo"
bench "$tmp/bad.topo" 2 all-reduce -e 8
like "a bad file: the place" "$err" 'TUTTI_TOPOLOGY: .*bad.topo:3:10: '

finish
