#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# lost.sh - ranks that stop, hosts that are cut off and cards that die while the
# network is measured (TUTTI_TOPOLOGY=auto): all ranks say who was lost, soon.
. "$(dirname "$0")/lib.sh"

export B TUTTI_LOG=info

needs_lab "losses while a network is measured"

# Who stops in the middle is named, by all; the job ends.
cat >"$tmp/stop" <<'S'
#!/bin/sh
# stop TUTTI RANK FILE: a job; this rank stops when FILE, what rank 0 has said,
# tells of rounds.
[ "$TUTTI_RANK" != 0 ] || exec 2>"$3"
"$1" bench -b 4KiB -e 4KiB -n 1 &
if [ "$TUTTI_RANK" = "$2" ]; then
    until grep -qs 'round 3, ' "$3"; do sleep 0.05; done
    kill -STOP $!; sleep 60
    kill -KILL $!
fi
wait $!
S
chmod +x "$tmp/stop"
run env TUTTI_TOPOLOGY=auto TUTTI_LOG=debug \
    "$lab" run star:4@5Mbit --grace 4 -- "$tmp/stop" "$tutti" 2 "$tmp/said"
err=$err$(cat "$tmp/said")
[ "$rc" != 0 ] && pass "a rank that stops" || fail "a rank that stops" "$err"
like "is named, with its host" "$err" \
    'cannot start: .*rank 2 (did not take part in|died or left during).* the probe.*\(rank 2 is on h2\)'

rm "$tmp/said"
run env TUTTI_TOPOLOGY=auto TUTTI_LOG=debug \
    "$lab" run star:4@5Mbit --grace 4 -- "$tmp/stop" "$tutti" 0 "$tmp/said"
[ "$rc" != 0 ] && pass "rank 0 that stops" || fail "rank 0 that stops" "$err"
is "is named by all others, with its host" "$(grep -cE \
    'cannot start: rank 0 at .* has not been heard of for ([6-9]|1[0-9])(\.[0-9])? s during the probe .*\(rank 0 is on h0\)' <<<"$err")" 3

# Before the probe, while it waits for another job that measures the same: the lock
# is ours.
name=$("$lab" up star:3@50Mbit) || exit 1
at_exit='"$lab" down "$name" >/dev/null 2>&1;'$at_exit
job=(env TUTTI_TOPOLOGY=auto TUTTI_PROBE_CACHE="$tmp/cache" "$lab" run "$name" --grace 4 --)
run "${job[@]}" "$tutti" bench -b 4KiB -e 4KiB -n 1
ends "a network that is measured" 0
kept=$(ls "$tmp"/cache/*.topo)
rm "$kept"
exec 9>"${kept%.topo}.lock"
flock 9
sed -i "s/'round 3, '/'waiting for it'/" "$tmp/stop"
rm "$tmp/said"
run "${job[@]}" "$tmp/stop" "$tutti" 0 "$tmp/said"
exec 9>&-
[ "$rc" != 0 ] && pass "rank 0 that stops before" || fail "rank 0 that stops before" "$err"
is "is named by all others, as soon" "$(grep -cE \
    'cannot start: rank 0 at .* has not been heard of for ([6-9]|1[0-9])(\.[0-9])? s during the search for a measured network' <<<"$err")" 2

# A host that is cut off in the middle: who cannot reach whom is told by all.
# cut SPEC HOST DEV: the interface goes down when some rounds have run.
cut() {
    local name pid
    name=$("$lab" up "$1") || return
    : >"$tmp/err"
    timeout -k 5 $limit env TUTTI_TOPOLOGY=auto TUTTI_LOG=debug \
        "$lab" run "$name" -- "$tutti" bench -b 4KiB -e 4KiB -n 1 >"$tmp/out" 2>"$tmp/err" </dev/null &
    pid=$!
    awaits grep -q 'round 3, ' "$tmp/err"
    ip -n "$name-$2" link set "$3" down
    wait $pid
    rc=$?
    err=$(cat "$tmp/err")
    "$lab" down "$name" >/dev/null 2>&1
}
cut star:3@20Mbit h2 eth0
ends "a host that is cut off" 1
is "is told by all, with whom it cannot reach" "$(grep -cE \
    'cannot start: 2 pairs of hosts cannot reach each other: h0 and h2, h1 and h2; tried eth0 ' <<<"$err")" 3
cut rails:3@eth0=40Mbit,eth1=20Mbit h2 eth1
ends "one of two cards that dies" 1
is "is told by all" "$(grep -cE \
    'cannot start: while the network was measured eth1 of host h. has ceased to reach eth1 of host h., and so have 3 more' <<<"$err")" 3

finish
