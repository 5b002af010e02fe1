#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# far.sh - hosts that are far apart, or lose packets, are measured too: nobody
# takes them for hosts that cannot be reached.
. "$(dirname "$0")/lib.sh"

what="hosts that are far apart"
name=tf$$-
at_exit='for i in 0 1 2; do ip netns del "$name$i" 2>/dev/null; done;'$at_exit
if ! python3 "$here/far_hosts.py" "$name" 3 1 -- true 2>"$tmp/err"; then
    skip "$what" "needs root, /dev/net/tun, iproute2 and tc: $(tail -n 1 "$tmp/err")"
    finish
fi

port=$(some_port)
# far DELAY_MS OPTION... -- COMMAND...: a rank on each of three hosts
far() {
    local delay=$1 options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    port=$((port + 1))
    cat >"$tmp/job" <<J
for i in 0 1 2; do
    TUTTI_RANK=\$i TUTTI_SIZE=3 TUTTI_ADDR=10.5.0.1:$port \
        ip netns exec "$name\$i" $(printf '%q ' "$@") &
    pids="\$pids \$!"
done
status=0
for p in \$pids; do wait \$p || status=\$?; done
exit \$status
J
    run python3 "$here/far_hosts.py" "$name" 3 "$delay" "${options[@]}" -- \
        bash "$tmp/job"
}
far 50 -- "$tutti" probe --time 4 -o "$tmp/net"
ends "a round trip of 100 ms" 0
like "is a latency" "$(cat "$tmp/net")" \
    '^link .* (2[4-9]|3[0-9])(ms|[0-9]{3}us) dev=eth0$'
like "is told to have taken too long for all rounds" "$(cat "$tmp/net")" \
    '^# not known: ended after [0-9]+ rounds?, before everything was measured'

far 20 --first-lost 1 -- "$tutti" probe --time 0.1 -o "$tmp/net"
ends "connections that come about when tried again, and no time" 0
is "every host is in the network" "$(grep -c '^link .* dev=eth0$' "$tmp/net")" 3

export TUTTI_TOPOLOGY=auto
far 40 -- "$tutti" bench -b 4KiB -e 4KiB -n 1 -w 0 --inplace 0
ends "a job that measures" 0
like "has right results" "$out" '# Out of bounds values : 0 OK'
finish
