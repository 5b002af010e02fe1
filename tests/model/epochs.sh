#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# epochs.sh - all runs of the model of epochs (epochs.pml), by Spin; and that it
# finds what is wrong in its mutants. TT_FAULTS=2: two faults, some minutes.
set -u
model=$(cd "$(dirname "$0")" && pwd)/epochs.pml
command -v spin >/dev/null && command -v cc >/dev/null || {
    echo "1..0 # SKIP spin is not installed (Debian: spin)"
    exit 0
}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
n=0

# states FLAG...: every state; prints Spin's report.
states() {
    spin -a "$@" "$model" >spin.out 2>&1 &&
        cc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=3000 -o pan pan.c &&
        ./pan -m1000000 -w24
}
# verdict WANTED WHAT FLAG...: whether it has errors.
verdict() {
    local wanted=$1 what=$2 errors
    shift 2
    n=$((n + 1))
    states "$@" >report 2>&1
    errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' report)
    grep -q 'Search not completed\|max search depth too small' report &&
        [ "$wanted" = 0 ] && errors=incomplete
    if [ "$errors" = "$wanted" ]; then
        echo "ok $n - $what"
    else
        echo "not ok $n - $what: errors ${errors:-none}, not $wanted"
        cat spin.out report | sed 's/^/# /'
    fi
    sed -n 's/^ *\([0-9.e+]*\) states, stored.*/# \1 states/p' report
}

echo 1..5
verdict 0 "no call ends in two epochs, every survivor ends" "-DFAULTS=${TT_FAULTS:-1}"
verdict 0 "so it is with two faults, and one call" -DFAULTS=2 -DCALLS=1
verdict 1 "messages of no epoch are found out" -DUNTAGGED
verdict 1 "and who does not catch up" -DNO_CATCH_UP
verdict 1 "and who is not told of a failure" -DDEAF
