#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# neighbours.sh - where only neighbours reach each other: hosts in a ring of
# cables, and in a line, that do not forward. Every collective has a plan between
# neighbours; what has none, and the start, is passed on by the ranks between. No
# timings.
#
#     h0 --- h1
#     |       |          h0 --- h1 --- h2 --- h3
#     h3 --- h2
. "$(dirname "$0")/lib.sh"

export B
needs_lab "hosts that do not forward"
apart=$B/tests/proc/apart_test

job() { # NAME=VALUE... -- COMMAND
    local vars=()
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    shift
    run "$lab" run "$name" ${told:+--topology} -- \
        env TUTTI_TIMEOUT=40s "${vars[@]}" "$@"
}
right() {
    ends "$1: ends" 0
    like "$1: results" "$out" '# Out of bounds values : 0 OK'
}
up() { # SPEC
    name=$("$lab" up "$1") || exit 1
    at_exit='"$lab" down "$name" >/dev/null 2>&1;'$at_exit
}
secret() {
    head -c 32 /dev/urandom | base64 >"$tmp/secret"
    chmod 600 "$tmp/secret"
}

# -- what has a plan ------------------------------------------------------------
up ring:4@200Mbit,forwards=no
run "$lab" exec "$name" h0 -- cat /proc/sys/net/ipv4/ip_forward
is "a host does not forward" "$out" 0

told=yes
for planner in auto ring forest; do
    for coll in all-reduce broadcast reduce all-gather reduce-scatter; do
        job TUTTI_PLANNER=$planner -- "$tutti" bench $coll -b 8 -e 512KiB \
            -f 65536 -n 2 -w 1
        right "$coll, $planner"
    done
done
for coll in all-to-all gather scatter send-recv; do
    job -- "$tutti" bench $coll -b 8 -e 512KiB -f 65536 -n 2 -w 1
    right "$coll, by way of others"
done
job TUTTI_PLANNER=direct -- "$tutti" bench all-to-all -b 64KiB -e 64KiB -n 1 -w 0
ends "a plan that needs others is refused" 1
like "it names both ranks" "$err" 'rank [0-3] would send to rank [0-3], and hosts between'

# -- the network is measured -------------------------------------------------------
# Each cable is an interface of its own, which the lab's jobs do not take unless told.
measured() { # COLLECTIVE
    run "$lab" run "$name" -- env TUTTI_TIMEOUT=40s TUTTI_TOPOLOGY=auto sh -c \
        'TUTTI_SOCKET_IFNAME==$LAB_IFNAME,$LAB_LINKS exec "$@"' sh \
        "$tutti" bench "$1" -b 64KiB -e 512KiB -f 8 -n 2 -w 1
    right "measured: $1"
}
found() { # what the probe says of the lab
    run "$lab" run "$name" -- sh -c \
        'TUTTI_SOCKET_IFNAME==$LAB_IFNAME,$LAB_LINKS exec "$1" probe' sh "$tutti"
    ends "the probe of $1" 0
    like "$1: hosts do not forward" "$out" '^host h0 h1 h2 h3 forwards=no$'
    is "$1: its cables" "$(echo "$out" | sed -n 's/^link \(h. h.\) .*/\1/p' | xargs)" "$2"
}
found "a ring" "h0 h1 h0 h3 h1 h2 h2 h3"
for coll in all-reduce all-gather broadcast all-to-all; do
    measured $coll
done
job TUTTI_TOPOLOGY=auto -- "$tutti" bench -b 8 -e 8 -n 1
ends "hosts that no cable joins" 1
like "are named" "$err" '2 pairs of hosts cannot reach each other: h0 and h2, h1 and h3'

# -- what has none, and is passed on ---------------------------------------------
job -- "$apart"
ends "a ring: messages, parts, partial reduce" 0
like "all is well" "$out" 'all is well on 4 ranks'
secret
job TUTTI_SECRET_FILE="$tmp/secret" -- "$apart"
ends "the same with a secret" 0
like "all is well with it" "$out" 'all is well on 4 ranks'
job TUTTI_ADDR=h0:29517 TUTTI_VIA=h0,h1,h2,h3 -- "$tutti" bench all-to-all \
    -b 64KiB -e 64KiB -n 2 -w 1
right "the ranks meet by way of others"

# -- nobody says that hosts do not forward ----------------------------------------
told=
job TUTTI_PLANNER=ring -- "$tutti" bench all-reduce -b 64KiB -e 64KiB -n 2 -w 1
right "a ring in order of ranks needs neighbours only"
job TUTTI_PLANNER=doubling -- "$tutti" bench all-reduce -b 64KiB -e 64KiB -n 2 -w 1
ends "a plan that needs others fails" 1
like "it names both, and what was tried" "$err" \
    'rank [0-3] cannot reach rank [0-3]: tried .*unreachable'

# -- a cable of a ring is out, and stays so ----------------------------------------
told=yes
sent() { # by the first host
    "$lab" exec "$name" h0 -- cat /sys/class/net/eth0/statistics/tx_bytes
}
has_sent() { # more than so many bytes
    [ "$(sent)" -gt "$1" ]
}
before=$(sent)
timeout -k 5 $limit "$lab" run "$name" --topology -- env TUTTI_LIVENESS=1s \
    "$tutti" bench all-to-all -b 1MiB -e 1MiB -n 100 -w 1 --inplace 0 \
    >"$tmp/job" 2>"$tmp/job.err" </dev/null &
pid=$!
awaits has_sent $((before + 3000000))
run "$lab" exec "$name" h2 -- "$tutti" status
ends "what a job is at, by a host of it" 0
like "all its ranks" "$out" '^job .*: 4 ranks'
"$lab" exec "$name" h0 -- ip link set eth0 down
wait $pid
rc=$?
out=$(cat "$tmp/job")
err=$(cat "$tmp/job.err")
right "a cable of a ring is out"
like "who is away is told" "$err" 'is away: |has been silent for'
"$lab" down "$name" >/dev/null

# -- a line ------------------------------------------------------------------------
up mesh:4@200Mbit,forwards=no
told=yes
for coll in all-reduce broadcast reduce all-gather reduce-scatter all-to-all \
    gather scatter send-recv; do
    job -- "$tutti" bench $coll -b 8 -e 512KiB -f 65536 -n 2 -w 1
    right "a line: $coll"
done
found "a line" "h0 h1 h1 h2 h2 h3"
for coll in all-reduce all-gather broadcast all-to-all; do
    measured $coll
done
job -- "$apart"
ends "a line: messages, parts, partial reduce" 0
like "all is well on it" "$out" 'all is well on 4 ranks'
secret
job TUTTI_ADDR=h0:29517 TUTTI_VIA=h0,h1,h2,h3 TUTTI_SECRET_FILE="$tmp/secret" \
    -- "$tutti" bench all-to-all -b 64KiB -e 64KiB -n 2 -w 1
right "a line: the ranks meet by way of others, with a secret"

finish
