#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rate.sh - TUTTI_RATE, and rate= in a topology: what hosts send by an interface
# without limits of its own, by the kernel's counters; and what is planned.
. "$(dirname "$0")/lib.sh"

bad() { # WHAT TEXT SENTENCE
    run env "TUTTI_RATE=$2" "$tutti" bench -e 8
    ends "$1" 1
    like "$1: the sentence" "$err" "cannot start: $3"
    one_sentence "$1: is one"
}
expected='; expected 100Mbit for all interfaces, or eth0=100Mbit,eth1=20Mbit$'
bad "no unit" 100 "TUTTI_RATE: \"100\" is no rate$expected"
bad "a time" eth0=10us "TUTTI_RATE: \"eth0=10us\" is no rate$expected"
bad "nothing" eth0=0Mbit "TUTTI_RATE: \"eth0=0Mbit\" is no rate$expected"
bad "no name" =5Mbit "TUTTI_RATE: \"=5Mbit\" names no interface$expected"
bad "a long name" a2345678901234567=5Mbit \
    "TUTTI_RATE: \"a2345678901234567=5Mbit\" names no interface$expected"
bad "one interface twice" eth0=5Mbit,eth0=6Mbit \
    "TUTTI_RATE: \"eth0=6Mbit\" says what has been said already$expected"
bad "an end that is missing" 5Mbit, "TUTTI_RATE: \"\" is no rate$expected"

# What is planned: a link of 1 Gbit of which 50 Mbit may be used is one of 50.
net() { # RATES OF a
    printf '%s\n' 'tutti-topology 1' 'switch s' 'host a b c d' \
        "link a s $1" 'link b s 200Mbit' 'link c s 200Mbit' 'link d s 200Mbit'
}
net "1Gbit rate=50Mbit dev=eth0" >"$tmp/capped"
net "50Mbit dev=eth0" >"$tmp/slow"
for what in bound "plan --size 16MiB"; do
    run "$tutti" ${what/ */} "$tmp/capped" ${what#* }
    capped=$out
    run "$tutti" ${what/ */} "$tmp/slow" ${what#* }
    is "${what/ */}: a cap is the link's rate" \
        "$(grep -oE '[0-9.]+ s\b' <<<"$capped")" "$(grep -oE '[0-9.]+ s\b' <<<"$out")"
done

what="hosts with a cap"
if ! two_hosts rate 201; then
    skip "$what" "cannot make network namespaces: $(head -1 "$tmp/err")"
    finish
fi
# The counter sees what a cable would: no packets that are split later.
ip -n "$a" link set "v$a" gso_max_segs 1
ip -n "$b" link set "v$b" gso_max_segs 1

# job NAME=VALUE... -- RANKS SIZE: a job of both hosts; what a has sent meanwhile
# is in $sent, the most of 100 ms in $most, in all $mean.
job() {
    local vars=()
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    mkfifo "$tmp/stop"
    python3 "$here/rate_watch.py" "$a" "v$a" <"$tmp/stop" >"$tmp/rates" &
    local watch=$!
    exec 9>"$tmp/stop"
    run env "${vars[@]}" "$tutti" run --rsh "$tmp/netns" -H "$ip_a:$2,$ip_b:$2" \
        "$tutti" bench -b "$3" -e "$3" -n 2 -w 1 --inplace 0 -p direct
    exec 9>&-
    wait $watch
    rm "$tmp/stop"
    read -r sent most mean <"$tmp/rates"
    ends "$what: it ends well" 0
    like "$what: the results are right" "$out" '# Out of bounds values : 0 OK'
}
under() { # WHAT MBIT: no 100 ms bring more than 5 % above it
    is "$what: no 100 ms are above $1 Mbit/s" \
        "$(awk "BEGIN { print ($most <= 1.05 * $1) }")" 1 "most $most"
}
over() { # MBIT
    is "$what: it is above $1 Mbit/s" "$(awk "BEGIN { print ($mean >= $1) }")" 1
}

what="no cap"
job TUTTI_LOG=warn -- 1 4MiB
over 90
free=$sent
what="80 Mbit/s"
job TUTTI_RATE=80Mbit -- 1 4MiB
under 80
over 20
is "$what: nothing more is sent" "$(awk "BEGIN { print ($sent < 1.1 * $free) }")" 1
what="80 Mbit/s, two ranks on each host, several sockets"
job TUTTI_RATE="v$a=80Mbit,v$b=80Mbit" TUTTI_SOCKETS=3 -- 2 4MiB
under 80
over 20
what="of another interface"
job TUTTI_RATE=eth7=8Mbit -- 1 4MiB
over 90
what="by one of two hosts"
job TUTTI_RATE="v$a=40Mbit" -- 1 1MiB
under 40
what="with checksums"
job TUTTI_RATE=80Mbit TUTTI_CHECK=crc -- 1 2MiB
under 80
over 20
what="by a topology"
printf '%s\n' 'tutti-topology 1' 'host left right' \
    "link left right 1Gbit 10us rate=60Mbit dev=v$a/v$b" >"$tmp/net"
job TUTTI_TOPOLOGY="$tmp/net" -- 1 4MiB
under 60
over 20
# What a job may not use the probe does not find: each host sends by its own cap.
run env "TUTTI_RATE=v$a=60Mbit,v$b=30Mbit" TUTTI_PROBE_CACHE=off \
    "$tutti" run --rsh "$tmp/netns" -H "$ip_a:1,$ip_b:1" "$tutti" probe -o "$tmp/found"
ends "a probe with caps" 0
rates=$("$tutti" topo "$tmp/found" --json | python3 -c '
import json, sys
print(*sorted(round(k["rate_bps"] / 1e6, 1) for k in json.load(sys.stdin)["links"]))')
is "it finds a network of these rates, 60 and 30 Mbit/s" \
    "$(awk '{ print NF, ($1 > 25 && $1 < 33), ($2 > 50 && $2 < 66) }' <<<"$rates")" "2 1 1" "$rates"
is "nothing is left behind" "$(find /dev/shm -name "tutti-rate-*-v$a" -o -name "tutti-rate-*-v$b")" ""
finish
