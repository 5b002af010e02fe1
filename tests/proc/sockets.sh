#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets.sh - several sockets between two ranks (TUTTI_SOCKETS), where a network
# carries less of one flow than of several: all of them carry their part, and the
# probe sees how many it takes. No timings.
. "$(dirname "$0")/lib.sh"

export B
what="several sockets over one link"
needs_lab "$what"
name=$("$lab" up star:2@200Mbit) || exit 1
at_exit='"$lab" down "$name" >/dev/null 2>&1;'$at_exit

# Where one flow fills the link the probe has no need of several.
run "$lab" run "$name" -- "$tutti" probe -o "$tmp/plain.net"
ends "a probe of a link that one flow fills" 0
is "one connection is enough" "$(grep '^sockets' "$tmp/plain.net")" ""

# The interfaces count, and limit to a quarter of the link, each port that who
# connects may choose; listeners have others.
export TUTTI_PORT_RANGE=41000-41099
for host in h0 h1; do
    ip netns exec "$name-$host" sysctl -qw net.ipv4.ip_local_port_range="40000 40015"
done
classes() { # HOST
    local ns=$name-$1 at port class
    tc -n "$ns" qdisc del dev eth0 root 2>/dev/null
    tc -n "$ns" qdisc add dev eth0 root handle 1: htb default 99 r2q 1000 &&
        tc -n "$ns" class add dev eth0 parent 1: classid 1:1 htb rate 200mbit burst 64kb || return
    for port in {40000..40015}; do
        class=1:$((port - 39990))
        tc -n "$ns" class add dev eth0 parent 1:1 classid $class htb rate 10mbit \
            ceil 50mbit burst 16kb cburst 16kb quantum 3000 &&
            tc -n "$ns" qdisc add dev eth0 parent $class bfifo limit 256kb || return
        for at in 20 22; do # where a packet has its ports
            tc -n "$ns" filter add dev eth0 parent 1: protocol ip prio 1 u32 \
                match ip protocol 6 0xff match u16 $port 0xffff at $at flowid $class || return
        done
    done
}
if ! { classes h0 && classes h1; } 2>"$tmp/err"; then
    skip "$what" "tc cannot tell flows apart: $(grep -v Warning "$tmp/err" | head -n 1)"
    finish
fi

sent_now() { # bytes by port
    tc -n "$name-h1" -s class show dev eth0 |
        awk '/^class htb 1:1 / { skip = 1; next } /^class/ { skip = 0; id = $3 }
             /^ Sent/ && !skip { print id, $2 }' | sort
}
# job WHAT COMMAND...: how many sockets had at least a tenth of the bytes, and at
# most twice their part: "4 even"
job() {
    local before title=$1
    shift
    before=$(sent_now)
    run "$lab" run "$name" -- "$@"
    ends "$title" 0
    like "$title: results" "$out" '# Out of bounds values : 0 OK'
    used=$(join <(echo "$before") <(sent_now) | awk '{ n = $3 - $2; all += n; of[NR] = n }
        END { for (i in of) if (of[i] > all / 10) { many++; most = of[i] > most ? of[i] : most }
              print many + 0, most <= 2 * all / many ? "even" : "uneven" }')
}
bench=("$tutti" bench -b 2MiB -e 2MiB -n 4 -w 1 --inplace 0)
job "by default" "${bench[@]}"
is "one socket" "$used" "1 even"
job "TUTTI_SOCKETS=4" env TUTTI_SOCKETS=4 "${bench[@]}"
is "four sockets, each with its part" "$used" "4 even"
cat >"$tmp/differ" <<'S'
#!/bin/sh
TUTTI_SOCKETS=$((4 - 2 * TUTTI_RANK)) exec "$@"
S
chmod +x "$tmp/differ"
job "4 on one side, 2 on the other" "$tmp/differ" "${bench[@]}"
is "the smaller number" "$used" "2 even"
job "with a topology" env TUTTI_TOPOLOGY=star:2@200Mbit TUTTI_SOCKETS=4 "${bench[@]}"
is "as many" "$used" "4 even"

# What the probe finds is what jobs do.
rate='^link h0 h1 (1[6-9]|2[0-4])[0-9](\.[0-9]+)?Mbit'
for i in 1 2 3 4 5; do # a busy machine may need another try
    run env TUTTI_LOG=info "$lab" run "$name" -- "$tutti" probe -o "$tmp/found.net"
    { [ "$rc" != 0 ] || grep -qE "$rate" "$tmp/found.net"; } && break
done
ends "a probe of a network that limits flows" 0
is "four connections fill the link" "$(grep '^sockets' "$tmp/found.net")" "sockets 4"
like "it says so" "$err" 'one connection does not fill a link: every flow is 4 of them'
like "and has the link's rate" "$(cat "$tmp/found.net")" "$rate"
job "with what it has found" env TUTTI_TOPOLOGY="$tmp/found.net" "${bench[@]}"
is "four sockets" "$used" "4 even"
finish
