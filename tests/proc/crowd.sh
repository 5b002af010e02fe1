#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# crowd.sh - more ranks than processors on one host: large all-reduces take the
# planner with the fewest steps, unless one was asked for; and a job of many opens
# no connection but those of its calls and of the control graph. No timings.
. "$(dirname "$0")/lib.sh"

bench="bench -b 4MiB -e 4MiB -n 1 -w 0"
planned() { # BYTES: what planned such all-reduces, of all ranks
    sed -n "s/.*rank [0-9]*: \([a-z0-9]*\) plans all-reduce of $1 .*/\1/p" \
        "$tmp/out" "$tmp/err" | sort -u
}

export TUTTI_LOG=debug
first=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
run taskset -c "$first" "$tutti" run -n 3 -- "$tutti" $bench
is "three ranks on one processor end well" "$rc" 0
is "their large all-reduce is direct" "$(planned 4194304)" direct
TUTTI_PLANNER=ring run taskset -c "$first" "$tutti" run -n 3 -- "$tutti" $bench
is "a planner that was asked for is taken" "$(planned '[0-9]*')" ring
run taskset -c "$first" "$tutti" run -n 1 -- "$tutti" $bench
is "one rank is no crowd" "$rc" 0

# Neighbours at distances 1, 2, 4, ... 64 to both sides, the last one from both.
unset TUTTI_LOG
TUTTI_LOG=info TUTTI_START_TIMEOUT=300 run "$tutti" run -n 128 -- "$tutti" bench -b 8 -e 8 -n 1 -w 0
is "128 ranks start" "$rc" 0
is "each has 13 connections" \
    "$(cat "$tmp/out" "$tmp/err" | grep -c ': 13 of 127 connections were opened')" 128
finish
