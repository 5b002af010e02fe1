#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# digits.sh - the example learns, on any number of ranks, with equal weights.
. "$(dirname "$0")/lib.sh"
digits=$B/examples/digits
data=$here/../../examples/data/digits.csv

for n in 1 2 3 4 8; do
    run "$tutti" run -n $n --no-prefix "$digits" "$data"
    ends "$n ranks: at least 95 % and equal weights" 0
    like "$n ranks: it says so" "$out" \
        "^weights of all $n ranks are bit-identical \(hash [0-9a-f]{16}\)$"
done
is "30 epochs" "$(grep -c '^epoch .*loss .*test accuracy' <<<"$out")" 30
run "$tutti" run -n 4 --no-prefix "$digits" "$data"
first=$(tail -1 <<<"$out")
run "$tutti" run -n 4 --no-prefix "$digits" "$data"
is "the same bits in every run" "$(tail -1 <<<"$out")" "$first"
for planner in doubling direct; do
    run env TUTTI_PLANNER=$planner "$tutti" run -n 3 "$digits" "$data"
    ends "with planner $planner" 0
done
run env TUTTI_TRANSPORTS=tcp "$tutti" run -n 2 "$digits" "$data"
ends "over TCP" 0
run "$digits" "$tmp/none"
ends "no data" 1
one_sentence "is told in one sentence"

run "$tutti" run -n 4 --grace 60 sh -c \
    "[ \$TUTTI_RANK = 2 ] && {
        until grep -qs epoch $tmp/said; do sleep 0.02; done
        kill -9 \$\$
    } &
    [ \$TUTTI_RANK = 0 ] && exec >$tmp/said
    exec $digits $data"
if [ "$rc" = 0 ]; then
    skip "a killed rank" "it was killed too late"
else
    ends "a killed rank" 137
    like "the others name it" "$err" '^\[[013]\] digits: .*rank 2'
fi

finish
