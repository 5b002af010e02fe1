#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# learn.sh - jobs that measure their network (TUTTI_TOPOLOGY=auto): all ranks
# plan for the same one, what was measured is found again, and interfaces that
# lead astray are left alone, in time.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_hosts.sh"

# What messages cost is kept in the same place, by itself (costs.sh).
export B TUTTI_LOG=info TUTTI_COSTS=off
cache=$tmp/cache

# id: of the network that each rank plans for, once each
ids() { sed -nE 's/.*plans are for the network ([0-9a-f]{16}) .*/\1/p' <<<"$err" | sort | uniq -c | awk '{print $1}'; }
right() { # WHAT: the last job's results are
    like "$1" "$out" '# Out of bounds values : 0 OK'
}

# -- without a network ----------------------------------------------------------
run "$tutti" run --probe
ends "no program" 2
run env TUTTI_TOPOLOGY=full:2 "$tutti" run --probe -n 2 true
ends "two networks at once" 2
like "is a usage error" "$err" '--probe measures .* TUTTI_TOPOLOGY says that it is full:2'
run env TUTTI_TOPOLOGY=auto TUTTI_PROBE_CACHE="$cache" "$tutti" run --probe -n 2 \
    "$tutti" bench -b 1KiB -e 1KiB -n 2
right "one host"
like "has nothing to measure" "$err" 'all ranks are on one host, so'
is "and nothing to keep" "$(ls "$cache" 2>/dev/null)" ""
run env TUTTI_PROBE_CACHE="$cache" "$tutti" run -n 2 \
    "$tutti" bench -b 1KiB -e 1KiB -n 2 --topology auto
right "a benchmark on one host"
like "says so" "$out" '# network auto: all ranks are on one host$'

what="jobs that measure networks in a box"
needs_lab "$what"

# -- measured once ----------------------------------------------------------------
name=$("$lab" up star:3@200Mbit) || exit 1
at_exit='"$lab" down "$name" >/dev/null 2>&1;'$at_exit
job() { # NAME=VALUE...: three hosts of a lab
    run env TUTTI_TOPOLOGY=auto TUTTI_PROBE_CACHE="$cache" "$@" \
        "$lab" run "$name" -- "$tutti" bench -b 256KiB -e 256KiB -n 3
}
file() { ls "$cache"/*; }
again() { # WHAT SENTENCE: was said, once, and it was measured again
    right "$1"
    is "one sentence" "$(grep -c 'the network is measured again' <<<"$err")" 1
    like "says it" "$err" "tutti warn rank 0: .*$2; the network is measured again"
    like "it is measured" "$err" 'measured the network: 3 hosts'
}
job
right "a network that is not known"
like "is measured" "$err" 'tutti info rank 0: measured the network: 3 hosts, 3 interfaces'
like "each pair of hosts is told, with interfaces and why" "$err" \
    'h0 to h2: eth0 10\.0\.0\.1 to eth0 10\.0\.0\.3, .* Mbit/s \(.*\)'
is "all ranks plan for the same" "$(ids)" 3
is "it is kept" "$(file | wc -l)" 1
like "as a topology file" "$("$tutti" topo "$(file)" --json)" '"ranks":3'
job
right "the same network again"
like "is known" "$err" "the network was measured before: $cache/[0-9a-f]{16}\.topo"
is "and not measured" "$(grep -c 'measured the network' <<<"$err")" 0
is "all ranks plan for the same as before" "$(ids)" 3
run env TUTTI_PROBE_CACHE="$cache" "$lab" run "$name" -- \
    "$tutti" bench -b 256KiB -e 256KiB -n 3 --topology auto
right "a benchmark with --topology auto"
is "plans for it too" "$(ids)" 3
truncate -s -1 "$(file)"
job
again "a damaged file" damaged
job
like "is replaced" "$err" 'the network was measured before'
sed -i -E 's/^# cache ([0-9]+) ...../# cache \1 fffff/' "$(file)"
sum() { # the file's checksum is right again
    python3 - "$1" <<'P'
import sys
data = open(sys.argv[1], "rb").read()
data = data[:data.rindex(b"# checksum ")]
h = 0xcbf29ce484222325
for b in data:
    h = (h ^ b) * 0x100000001b3 % 2**64
open(sys.argv[1], "wb").write(data + b"# checksum %016x\n" % h)
P
}
sum "$(file)"
job
again "a file of another cluster" "is of other hosts, or of another Tutti"
job TUTTI_SOCKET_IFNAME==eth0,mgmt0
like "other interfaces" "$err" 'measured the network: 3 hosts, 6 interfaces'
is "are another network" "$(file | wc -l)" 2
job TUTTI_PROBE_CACHE=off
like "without a cache" "$err" 'measured the network'
is "nothing is kept" "$(file | wc -l)" 2
job TUTTI_PROBE_CACHE=/proc/nowhere
right "a directory that cannot be"
like "is a warning" "$err" 'tutti warn rank 0: cannot keep the measured network in /proc/nowhere: '

# Two jobs at once: the one measures, the other waits for what it finds.
rm -rf "$cache"
two=()
for i in a b; do
    timeout -k 5 $limit env TUTTI_TOPOLOGY=auto TUTTI_PROBE_CACHE="$cache" \
        "$lab" run "$name" -- "$tutti" bench -b 256KiB -e 256KiB -n 3 \
        >"$tmp/out$i" 2>"$tmp/err$i" </dev/null &
    two+=($!)
done
rc=0
for i in "${two[@]}"; do wait "$i" || rc=$?; done
out=$(cat "$tmp"/out[ab]) err=$(cat "$tmp"/err[ab])
ends "two jobs at once" 0
is "one of them measures" "$(grep -c 'measured the network: ' <<<"$err")" 1
is "the other takes what was measured" "$(grep -c 'the network was measured before' <<<"$err")" 1
is "both plan for it" "$(ids)" 6
is "nothing else is left" "$(ls "$cache" | grep -vc '\.topo$')" 0

rm -rf "$cache"
run env TUTTI_PROBE_CACHE="$cache" "$lab" run "$name" -- "$tutti" probe -o "$tmp/net"
ends "what tutti probe has measured" 0
job
like "need not be measured again" "$err" 'the network was measured before'

# -- newcomers to a job that has measured -------------------------------------------
# grown HOST N: a job of two hosts, and one that comes to it on HOST; ids of both
grown() {
    rm -f "$tmp/at"
    timeout -k 5 $limit env TUTTI_TOPOLOGY=auto TUTTI_PROBE_CACHE="$cache" "$lab" run "$name" -n 2 -- \
        sh -c 'echo $TUTTI_ADDR >$0.$TUTTI_RANK; mv $0.$TUTTI_RANK $0; exec "$1" 40 3' "$tmp/at" "$B/examples/grow" \
        >"$tmp/members" 2>"$tmp/job" </dev/null &
    job=$!
    awaits test -s "$tmp/at"
    LAB_NAME=$name TUTTI_SECRET_FILE= run "$here/../../lab/rsh" "$1" \
        "exec $tutti run -n 1 --join $(cat "$tmp/at") $B/examples/grow 40 3"
    ends "a newcomer on $1" 0
    wait $job
    is "and those who are there" $? 0
    err+=$(cat "$tmp/job")
}
rm -rf "$cache"
grown h1
is "the larger communicator plans for the network, too" "$(ids | sort -n | tr '\n' ' ')" "2 3 "
is "which is not measured again" "$(grep -c 'measured the network: ' <<<"$err")" 1
grown h2
is "on a host that nobody knows it does not" "$(ids)" 2
like "and says so" "$err" 'plans without the network that was measured: rank 2 is on a host that it does not have'

# -- interfaces that lead astray ----------------------------------------------------
hosts_begin tl
sent() { # DEV DEV DEV: KiB that the three hosts have sent by them
    local i=0 total=0 dev
    for dev; do
        total=$((total + $(on $i -s -j link show "$dev" | python3 -c '
import json, sys
print(json.load(sys.stdin)[0]["stats64"]["tx"]["bytes"] >> 10)')))
        i=$((i + 1))
    done
    echo $total
}
# hosts ADDRESS NAME=VALUE... -- COMMAND...: a rank on each host; sets ms
hosts() {
    local i address=$1 pids=() begin
    shift
    local sets=()
    while [ "$1" != -- ]; do
        sets+=("$1")
        shift
    done
    shift
    begin=$(date +%s%N)
    for i in 0 1 2; do
        ip netns exec "${names[$i]}" env TUTTI_RANK=$i TUTTI_SIZE=3 \
            TUTTI_ADDR="$address:$port" TUTTI_PROBE_CACHE=off TUTTI_TIMEOUT=20s \
            "${sets[@]}" timeout $limit "$@" >"$tmp/out$i" 2>"$tmp/err$i" </dev/null &
        pids+=($!)
    done
    rc=0
    for i in "${pids[@]}"; do wait "$i" || rc=$?; done
    ms=$((($(date +%s%N) - begin) / 1000000))
    out=$(cat "$tmp/out0") err=$(cat "$tmp"/err[012])
    port=$((port + 1))
}
port=$(some_port)
# A machine that does something else at the same time may need another try, or
# more time.
starts() { # WHAT ADDRESS NAME=VALUE...: nothing is known before
    local what=$1 address=$2 i
    shift 2
    for i in 1 2 3; do
        rm -rf "$cache"
        hosts "$address" "$@" -- "$tutti" bench -b 4KiB -e 4KiB -n 1 -w 0 --inplace 0
        [ "$rc" != 0 ] || [ "$ms" -gt 3000 ] || break
    done
    right "$what"
    echo "# $ms ms"
    i=$(awk -v n="$(nproc)" '{ print($1 > 2 * n ? 10000 : 3000) }' /proc/loadavg)
    [ "$ms" -le "$i" ] && pass "in time" || fail "in time" "$ms ms" "$err"
}
# trap_ WHAT ADDRESS DEV DEV DEV: plain and measured; then, with what is known by
# now, these have carried the data. What the start that measured said is in told.
trap_() {
    local what=$1 address=$2
    shift 2
    starts "$what: a plain start" "$address"
    starts "$what: a start with auto" "$address" TUTTI_TOPOLOGY=auto \
        TUTTI_PROBE_CACHE="$cache"
    told=$err
    local before after
    before=$(sent "$@")
    hosts "$address" TUTTI_TOPOLOGY=auto TUTTI_PROBE_CACHE="$cache" -- \
        "$tutti" bench -b 1MiB -e 1MiB -n 8 -w 0 --inplace 0 --check 0
    ends "$what: with data" 0
    after=$(sent "$@")
    # 8 calls: 4/3 MiB by each of three hosts
    [ $((after - before)) -gt $((8 * 4 * 1024)) ] && pass "the fast one has carried it" ||
        fail "the fast one has carried it" "$((after - before)) KiB" "$err"
}

make_hosts sw 2>"$tmp/err" || { fail "network namespaces" "$(cat "$tmp/err")"; finish; }
names_of=(en0 eth7 fast2)
for i in 0 1 2; do
    wire $i ${names_of[i]} sw 200 10.77.0.$((i + 1))/24
    on $i addr add 10.78.0.$((i + 1))/24 dev ${names_of[i]} label ${names_of[i]}:1
done
add_docker
settle
trap_ "a docker0 on every host, names that differ, two addresses" 10.77.0.1 "${names_of[@]}"

make_hosts slow sw
for i in 0 1 2; do
    wire $i aa0 slow 10 10.200.0.$((i + 1))/24
    wire $i eth1 sw 200 10.77.0.$((i + 1))/24
done
settle
trap_ "a slow interface first" 10.200.0.1 eth1 eth1 eth1
like "the slow one is told" "$told" 'interfaces such as aa0 are left out: at most [0-9.]+ Mbit/s, beside'
like "and why the other is taken" "$told" 'eth1 10\.77\.0\.1 to eth1 10\.77\.0\.3, .* \(the fastest'
hosts 10.200.0.1 TUTTI_TOPOLOGY=auto TUTTI_SOCKET_IFNAME==aa0 -- \
    "$tutti" bench -b 4KiB -e 4KiB -n 1 -w 0 --inplace 0
right "TUTTI_SOCKET_IFNAME"
is "decides" "$(grep -c 'aa0 10.* to aa0 10.*the only pair' <<<"$err")" 6
on 3 link set sw-2 nomaster
hosts 10.200.0.1 TUTTI_TOPOLOGY=auto TUTTI_SOCKET_IFNAME==eth1 -- \
    "$tutti" bench -b 4KiB -e 4KiB -n 1 -w 0 --inplace 0
ends "a host that nobody reaches" 1
is "is an error on all ranks, which names pairs and tries" \
    "$(grep -c '2 pairs of hosts cannot reach each other: .* and .*; tried eth1 .* to eth1 ' <<<"$err")" 3

make_hosts sw
for i in 0 1 2; do wire $i eth0 sw 200 fd00:77::$((i + 1))/64; done
settle
trap_ "IPv6 only" "[fd00:77::1]" eth0 eth0 eth0

finish
