#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rails.sh - hosts with two network cards of different speed: both carry what
# they should, results are right, and when one dies the other takes over.
# No timings.
. "$(dirname "$0")/lib.sh"

export B
spec=rails:3@eth0=400Mbit,eth1=100Mbit
needs_lab "two cards per host"
name=$("$lab" up "$spec") || exit 1
at_exit='"$lab" down "$name" >/dev/null 2>&1;'$at_exit

# job NAME=VALUE... -- BENCH-ARGUMENTS: the sent bytes of eth0 and eth1 of the
# first host are in sent.
sent_now() {
    "$lab" exec "$name" h0 -- cat /sys/class/net/eth0/statistics/tx_bytes \
        /sys/class/net/eth1/statistics/tx_bytes | tr '\n' ' '
}
job() {
    local vars=() before after
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    shift
    before=$(sent_now)
    run env TUTTI_TIMEOUT=20s "${vars[@]}" \
        "$lab" run "$name" --topology ${topology:+"$topology"} -- \
        "$tutti" bench "$@"
    after=$(sent_now)
    sent=$(awk -v a="$before" -v b="$after" 'BEGIN {
        split(a, x); split(b, y); print y[1] - x[1], y[2] - x[2] }')
}
slow_share() { # LEAST MOST: of eth1, in percent
    awk -v l="$1" -v m="$2" '{ p = 100 * $2 / ($1 + $2)
        print (p >= l && p <= m) ? "right" : p }' <<<"$sent"
}
right() {
    ends "$1: ends" 0
    like "$1: results" "$out" '# Out of bounds values : 0 OK'
}

for coll in all-reduce all-gather all-to-all broadcast; do
    job -- "$coll" -b 8 -e 2MiB -f 512 -n 3 -w 1
    right "$coll"
done
job TUTTI_PLANNER=ring -- all-reduce -b 4MiB -e 4MiB -n 4 -w 1
right "ring"
is "ring: a fifth by the slow card" "$(slow_share 14 26)" right
job -- all-reduce -b 4MiB -e 4MiB -n 4 -w 1
right "auto"
is "auto: about a fifth" "$(slow_share 10 30)" right
job TUTTI_PLANNER=doubling -- all-reduce -b 8 -e 8 -n 300 -w 1
right "small ones"
is "they take the fast card" "$(slow_share 0 10)" right
job TUTTI_SOCKETS=2 -- all-reduce -b 1MiB -e 1MiB -n 3 -w 1
right "two sockets each"

topology=auto
job TUTTI_PROBE_CACHE=off -- all-reduce -b 4MiB -e 4MiB -n 8 -w 1
right "a network that was measured"
is "about a fifth of that too" "$(slow_share 5 45)" right
topology=

# Interfaces that are not there.
"$tutti" topo "$spec" | sed 's/eth1/eth7/' >"$tmp/wrong.topo"
topology=$tmp/wrong.topo
job TUTTI_START_TIMEOUT=20s -- all-reduce -b 8 -e 8
ends "a card that is not there" 1
like "is named" "$err" 'interface eth7 at interface eth7; they are not up'
topology=

# -- several ranks on each host ---------------------------------------------------
cat >"$tmp/two.topo" <<'T'
tutti-topology 1
host h0 ranks=2
host h1 ranks=2
switch s0 s1
link h0 s0 400Mbit 10us dev=eth0
link h0 s1 100Mbit 10us dev=eth1
link h1 s0 400Mbit 10us dev=eth0
link h1 s1 100Mbit 10us dev=eth1
T
three=$name
name=$("$lab" up "$tmp/two.topo") || exit 1
at_exit='"$lab" down "$name" >/dev/null 2>&1; "$lab" down "$three" >/dev/null 2>&1;'$at_exit
for topology in "" auto; do
    what="2 hosts of 2 cards and 2 ranks${topology:+, measured}"
    job TUTTI_PROBE_CACHE=off -- all-reduce -b 4MiB -e 4MiB -n 8 -w 1
    right "$what"
    is "$what: about a fifth by the slow card" "$(slow_share 10 40)" right
done
topology=
"$lab" down "$name" >/dev/null 2>&1
name=$three

# -- ranks that are no neighbours -------------------------------------------------
# They are connected when they need it, and each connection keeps to its card.
three=$name
name=$("$lab" up "rails:6@eth0=400Mbit,eth1=100Mbit") || exit 1
at_exit='"$lab" down "$name" >/dev/null 2>&1; "$lab" down "$three" >/dev/null 2>&1;'$at_exit
job TUTTI_PLANNER=ring TUTTI_LOG=info -- all-reduce -b 1MiB -e 1MiB -n 2 -w 1
right "a ring of 6"
like "connects neighbours only" "$err" 'rank 0: 8 of 10 connections were opened'
job TUTTI_LOG=debug -- all-to-all -b 1MiB -e 1MiB -n 2 -w 1
right "all to all"
is "0 and 3 meet by both cards" \
    "$(grep -oE 'rank 0: tcp: peer 3 at [0-9.]+' <<<"$err" | sort -u | wc -l)" 2
"$lab" down "$name" >/dev/null 2>&1
name=$three

# -- one card's cable is out for a while ----------------------------------------
# What would go there takes the other card, in the same call, and later goes back.
cable() { # up|down: of h1's eth1
    ip -n "$name+net" link set p4b "$1"
}
says() { # PATTERN, or nothing more is to come
    grep -qE -- "$1" "$tmp/err" || ! kill -0 "$job" 2>/dev/null
}
timeout -k 5 $limit env TUTTI_PLANNER=ring "$lab" run "$name" --topology -- \
    "$tutti" bench all-reduce -b 1MiB -e 1MiB -n 400 -w 1 --inplace 0 \
    >"$tmp/out" 2>"$tmp/err" </dev/null &
job=$!
before=$(sent_now)
is_used() { # eth1, by now
    [ "$(awk -v a="$before" -v b="$(sent_now)" 'BEGIN {
        split(a, x); split(b, y); print (y[2] - x[2] > 500000) }')" = 1 ]
}
awaits is_used
cable down
awaits says 'rank 1: rank [02] is not reached by eth1'
cable up
awaits says 'rank 1: rank [02] is reached by eth1 again'
wait "$job"
rc=$?
out=$(cat "$tmp/out") err=$(cat "$tmp/err")
right "a card's cable is out for a while"
like "what would go there takes the other card" "$err" \
    'rank 1: rank [02] is not reached by eth1: what would go there takes another interface'
like "and goes back when it is well" "$err" 'rank 1: rank [02] is reached by eth1 again'

# -- one card dies ------------------------------------------------------------
# Its packets are lost without a word, as of a cable that is pulled.
before=$(sent_now)
env TUTTI_LIVENESS=5s TUTTI_RECONNECT=0s TUTTI_PLANNER=ring \
    timeout -k 5 $limit "$lab" run "$name" --topology -- "$tutti" bench \
    all-reduce -b 1MiB -e 1MiB -n 100000 >"$tmp/out" 2>"$tmp/err" &
job=$!
awaits is_used
"$lab" exec "$name" h1 -- ip link set eth1 down
wait "$job"
rc=$?
err=$(cat "$tmp/err")
ends "a card dies: the job ends" 1
like "who was lost, by which connection" "$err" \
    'rank [0-2] is lost: it does not answer any more \(silent for [0-9.]+ s\) \(connection 2 of 2\)'
finish
