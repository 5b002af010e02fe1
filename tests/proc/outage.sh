#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# outage.sh - a host whose link is down for a while in the middle of a job, or two
# whose addresses change: no call fails and results are right; where the link
# stays down, or a rank dies, the job ends and says who is lost. No timings.
. "$(dirname "$0")/lib.sh"

export B
needs_lab "hosts whose links go down"
name=$("$lab" up star:3@50Mbit) || exit 1
at_exit='"$lab" down "$name" >/dev/null 2>&1;'$at_exit

sent() { # by the first host
    "$lab" exec "$name" h0 -- cat /sys/class/net/eth0/statistics/tx_bytes
}
has_sent() { # more than so many bytes
    [ "$(sent)" -gt "$1" ]
}
# A rank whose process id is in $tmp/pid.RANK.
cat >"$tmp/rank" <<'S'
#!/bin/sh
echo $$ >"$1.$TUTTI_RANK"
shift
exec "$@"
S
chmod +x "$tmp/rank"
# job NAME=VALUE... -- COMMAND...: runs it when a job is in the middle of its
# calls, then waits for the job.
job() {
    local vars=() pid before
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    shift
    before=$(sent)
    timeout -k 5 $limit env TUTTI_LOG=warn "${vars[@]}" "$lab" run "$name" -- \
        "$tmp/rank" "$tmp/pid" "$tutti" bench -b 1MiB -e 1MiB -n 30 -w 1 --inplace 0 \
        >"$tmp/out" 2>"$tmp/err" </dev/null &
    pid=$!
    awaits has_sent $((before + 3000000)) || return
    "$@"
    wait $pid
    rc=$?
    out=$(cat "$tmp/out")
    err=$(cat "$tmp/err")
}
down() { # SECONDS: the cable of the third host is out as long as that
    ip -n "$name+net" link set p2b down
    sleep "$1"
    ip -n "$name+net" link set p2b up
}
kill_rank() {
    kill -KILL "$(cat "$tmp/pid.2")"
}

at() { # HOST IP-ARGUMENTS...
    local ns=$name-h$1
    shift
    ip -n "$ns" "$@"
}
move() { # two hosts have other addresses, and do not know each other's
    local i k old mac
    for i in 0 1 2; do
        mac=$(at $i -o link show eth0 | sed 's/.*ether \([^ ]*\).*/\1/')
        old=$(at $i -4 -o addr show dev eth0 | awk '{ print $4; exit }')
        for k in 0 1 2; do # a lab has no ARP
            at $k neigh replace 10.0.0.20$i lladdr "$mac" dev eth0 nud permanent
        done
        at $i addr add 10.0.0.20$i/24 dev eth0
        [ $i = 0 ] || at $i addr del "$old" dev eth0
    done
}

job TUTTI_LIVENESS=1s -- down 3
ends "a link that is down for a while" 0
like "results are right" "$out" '# Out of bounds values : 0 OK'
like "who is away is told" "$err" 'rank 2 .*has been silent for|rank 2 .* is away: '
like "and who is back" "$err" 'rank 2 .*is back after'

job -- kill_rank
[ "$rc" != 0 ] && pass "a rank that is killed" || fail "a rank that is killed"
like "is lost at once" "$err" 'rank 2 is lost: rank 2 closed the connection'

job TUTTI_LIVENESS=1s TUTTI_RECONNECT=2s -- down 8
[ "$rc" != 0 ] && pass "a link that stays down" || fail "a link that stays down"
like "is told" "$err" 'is lost: .*(it has not come back for|silent for)'

job TUTTI_LIVENESS=1s TUTTI_RECONNECT=0 -- down 4
[ "$rc" != 0 ] && pass "nothing is waited for" || fail "nothing is waited for"
like "where TUTTI_RECONNECT says so" "$err" 'is lost: it does not answer any more'

job TUTTI_LIVENESS=1s -- move
ends "two hosts whose addresses change" 0
like "results are right" "$out" '# Out of bounds values : 0 OK'
like "are found where they are" "$err" 'rank 1 .*is back after'
finish
