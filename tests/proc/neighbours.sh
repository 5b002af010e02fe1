#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# neighbours.sh - where only neighbours reach each other: hosts in a ring of
# cables that do not forward. What neighbours can do is done; what needs others
# says who cannot reach whom; and who dies is named by all. No timings.
#
#     h0 --- h1
#     |       |
#     h3 --- h2
. "$(dirname "$0")/lib.sh"

export B
spec=ring:4@200Mbit,forwards=no
needs_lab "hosts that do not forward"
name=$("$lab" up "$spec") || exit 1
at_exit='"$lab" down "$name" >/dev/null 2>&1;'$at_exit

job() { # NAME=VALUE... -- BENCH-ARGUMENTS
    local vars=()
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    shift
    run env TUTTI_TIMEOUT=20s "${vars[@]}" \
        "$lab" run "$name" ${told:+--topology} -- "$tutti" "$@"
}
right() {
    ends "$1: ends" 0
    like "$1: results" "$out" '# Out of bounds values : 0 OK'
}

run "$lab" exec "$name" h0 -- cat /proc/sys/net/ipv4/ip_forward
is "a host does not forward" "$out" 0

# -- the network is known -----------------------------------------------------
told=yes
for planner in auto ring forest; do
    for coll in all-reduce broadcast reduce all-gather reduce-scatter; do
        job TUTTI_PLANNER=$planner -- bench $coll -b 8 -e 512KiB -f 65536 \
            -n 2 -w 1
        right "$coll, $planner"
    done
done
for coll in all-to-all gather scatter; do
    job -- bench $coll -b 8 -e 512KiB -f 65536 -n 2 -w 1
    right "$coll, by way of others"
done
job TUTTI_PLANNER=direct -- bench all-to-all -b 64KiB -e 64KiB -n 1 -w 0
ends "a plan that needs others is refused" 1
like "it names both ranks" "$err" 'rank 0 would send to rank 2, and hosts between'

# -- it is not ----------------------------------------------------------------
told=
job TUTTI_PLANNER=ring -- bench all-reduce -b 64KiB -e 64KiB -n 2 -w 1
right "a ring in order of ranks needs neighbours only"
job TUTTI_PLANNER=doubling -- bench all-reduce -b 64KiB -e 64KiB -n 2 -w 1
ends "a plan that needs others fails" 1
like "it names both, and what was tried" "$err" \
    'rank [0-3] cannot reach rank [0-3]: tried .*unreachable'

finish
