#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# truth.sh - bench/truth: what it says of a record, and that it goes on where it
# was. Says nothing about the simulator.
. "$(dirname "$0")/lib.sh"
limit=600
truth() {
    run env B="$B" "$here/../../bench/truth/run" -n tiny "$@"
}

row() { # planner, size, microseconds, of auto: whom it took
    printf '{"network": "tiny", "planner": "%s", "size": %s, "chosen": "%s", ' \
        "$1" "$2" "${4-$1}"
    printf '"predicted_us": 350000.0, "time_us": %s, "load": 0.1}\n' "$3"
}

size=16777216
{
    row ring $size 350000
    row ring $size 352000
    row ring $size 900000
    row biring $size 353000
    row auto $size 352000 ring
} >"$tmp/record"
truth -s 16MiB --again --json "$tmp/record"
ends "a record" 0
like "the median counts" "$out" '^tiny +ring +16 MiB +0\.352 s +[01]\.[0-9]{3} '
like "all cases" "$out" '^# 2 cases: median error 0\.[0-9] %, .* 2 within 5 %$'
like "auto" "$out" '^# `auto` / the quickest, 1 cases: median 1\.000, worst 1\.000 '
row biring $size 353000 | head -c 40 >>"$tmp/record"
truth -s 16MiB --again --json "$tmp/record"
ends "a line cut short counts for none" 0
{
    row ring $size 350000
    row dbtree $size 500000
} >"$tmp/far"
truth -s 16MiB --again --json "$tmp/far"
ends "a prediction that is off" 1
like "says which" "$out" 'worst [23][0-9]\.[0-9] % \(dbtree on tiny, 16 MiB\), 1 within'
{
    row ring $size 350000
    row auto $size 400000 dbtree
} >"$tmp/wrong"
truth -s 16MiB --again --json "$tmp/wrong"
ends "auto takes the wrong one" 1
like "says whom" "$out" '^# `auto` .* worst 1\.143 \(dbtree, where ring is quickest, on tiny, '
echo '{"network": "tiny"}' >"$tmp/none"
truth --again --json "$tmp/none"
ends "no record" 1
like "is named" "$err" '^bench/truth: .*none is no record: '
truth --again
ends "--again without a record" 2

if [ "$(id -u)" != 0 ] || ! "$here/../../lab/lab" run star:2@400Mbit \
    --tutti "$tutti" --once -- true 2>"$tmp/err"; then
    skip "measuring" "cannot make a lab: $(head -1 "$tmp/err")"
    finish
fi
rows() {
    wc -l <"$tmp/new"
}
measures() {
    truth -s 64KiB -p ring,auto -l 2 --json "$tmp/new" "$@"
}
measures --seconds 1
ends "no time for anything" 3
is "nothing is begun" "$(rows)" 0
measures -l 1
is "measured once" "$(rows)" 2
measures
is "and once more" "$(rows)" 4
measures
is "it is all there" "$(rows)" 4
like "auto says whom it took" "$(tail -1 "$tmp/new")" \
    '"planner": "auto", .*"chosen": "[a-z]+[^"]*"'
finish
