#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# probe.sh - `tutti probe` on networks of the lab, and on hosts with interfaces
# that lead astray. Rates are looked at with a wide margin: this is no benchmark.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_hosts.sh"

export B

# links FILE: "a net0 200Mbit 201Mbit" for each, without latency and comments.
links() {
    python3 - "$tutti" "$1" <<'P'
import json, subprocess, sys
net = json.loads(subprocess.check_output([sys.argv[1], "topo", sys.argv[2], "--json"]))
for link in net["links"]:
    print(link["from"], link["to"], link["dev"] or "-", round(link["rate_bps"] / 1e6))
P
}
# near FILE HOST MBIT: the links that leave HOST, or with >HOST lead to it, carry
# that, within a quarter.
near() {
    links "$1" | awk -v host="${2#>}" -v want="$3" -v to="${2%%[^>]*}" '
        (to ? $2 : $1) == host { n++; if ($4 < want * 0.75 || $4 > want * 1.25) bad = 1 }
        END { exit !n || bad }'
}
all_near() { # WHAT FILE HOST:MBIT...
    local what=$1 file=$2 one bad=
    shift 2
    for one in "$@"; do
        near "$file" "${one%:*}" "${one#*:}" || bad="$bad $one"
    done
    if [ -z "$bad" ]; then pass "$what"; else fail "$what" "not so:$bad" "$(links "$file")"; fi
}

# -- without a network ----------------------------------------------------------
run "$tutti" probe --help
ends "help" 0
like "it has an example" "$out" 'tutti run .* tutti probe'
run "$tutti" probe --time 0
ends "no time" 2
one_sentence "is a usage error"
run "$tutti" probe extra
ends "a word too much" 2

what="probes of networks in a box"
needs_lab "$what"

# -- networks of the lab --------------------------------------------------------
for i in 1 2 3 4 5; do # a busy machine may need another try
    run "$lab" run star:3@200Mbit -- "$tutti" probe -o "$tmp/star.net" --explain
    [[ $rc != 0 || $(all_near "" "$tmp/star.net" h0:200 h1:200 h2:200) == ok* ]] && break
done
ends "a star" 0
like "it is a topology file" "$(head -1 "$tmp/star.net")" '^tutti-topology 1$'
like "that says how it came about" "$(cat "$tmp/star.net")" \
    '^# measured by tutti probe: 3 hosts, 3 interfaces, [0-9]+ rounds of flows, [0-9.]+ s$'
all_near "200 Mbit/s each" "$tmp/star.net" h0:200 h1:200 h2:200
like "the interface is named" "$(links "$tmp/star.net")" '^h1 .* eth0 '
like "explained" "$out" \
    'eth0 10\.0\.0\.1 -> eth0 10\.0\.0\.2: connects, in one subnet, .* CHOSEN: the only pair'
is "once, by rank 0" "$(grep -c 'h0 to h1' <<<"$out")" 1

cat >"$tmp/uneven.net" <<'N'
tutti-topology 1
switch s
host a b c
link a s 400Mbit/100Mbit
link b s 200Mbit
link c s 50Mbit/200Mbit
N
uneven=(a:400 ">a:100" b:200 ">b:200" c:50 ">c:200")
for i in 1 2 3 4 5; do # a busy machine may need another try
    run "$lab" run "$tmp/uneven.net" -- "$tutti" probe -o "$tmp/got.net"
    [[ $rc != 0 || $(all_near "" "$tmp/got.net" "${uneven[@]}") == ok* ]] && break
done
ends "uneven links, both ways" 0
all_near "as they are" "$tmp/got.net" "${uneven[@]}"
run "$lab" run racks:2+2@nic=200Mbit,trunk=200Mbit -- "$tutti" probe \
    --json --verbose -o "$tmp/racks.json"
ends "two racks" 0
like "how far it is is told" "$err" '^probe: +[0-9]+ % trying addresses$'
like "up to the end" "$err" '^probe: +[1-9][0-9] % '
is "by rank 0" "$(grep -c '% meeting$' <<<"$err")" 1
run python3 -c 'import json, sys
net = json.load(open(sys.argv[1]))
print(net["ranks"], net["hosts"], net["seconds"] < 30, len(net["ways"]))' "$tmp/racks.json"
is "as JSON, in time" "$out" "4 4 True 12"

# What there was no time for is said, and jobs do not rely on it.
run env TUTTI_PROBE_CACHE="$tmp/cache" TUTTI_LOG=info "$lab" run star:3@50Mbit -- \
    "$tutti" probe --time 0.1 -o "$tmp/short.net"
ends "a probe in a hurry" 0
like "says that it is not complete" "$(cat "$tmp/short.net")" \
    '^# not known: ended after [0-9]+ rounds, before everything was measured'
is "is not kept" "$(ls "$tmp/cache" 2>/dev/null)" ""
like "and says so" "$err" 'what was measured in so little time is not kept for jobs'

# Whoever stops in the middle is named; the rest ends.
cat >"$tmp/stop" <<'S'
#!/bin/sh
# stop TUTTI FILE SAID: a probe; rank 2 stops when SAID, what rank 0 has said,
# tells of rounds.
[ "$TUTTI_RANK" != 0 ] || exec 2>"$3"
[ "$TUTTI_RANK" = 2 ] || exec "$1" probe -o "$2"
"$1" probe &
until grep -qs 'round 3, ' "$3"; do sleep 0.05; done
kill -STOP $!; sleep 60
kill -KILL $!; wait
S
chmod +x "$tmp/stop"
run env TUTTI_LOG=debug "$lab" run star:5@5Mbit --grace 4 -- \
    "$tmp/stop" "$tutti" "$tmp/lost.net" "$tmp/said"
err=$err$(cat "$tmp/said")
[ "$rc" != 0 ] && pass "a rank that stops" || fail "a rank that stops" "$err"
like "is named, with its host" "$err" \
    'rank 2 (did not take part in|died or left during).* the probe.*\(rank 2 is on h2\)'

# -- interfaces that lead astray ------------------------------------------------
#     aa0    10.200.0.1..3, where ranks meet, slow
#     fast0  10.77.0.1..3, under another name on each host; an address with a
#            label is no other interface
hosts_begin tp
cat >"$tmp/rsh" <<R
#!/bin/sh
case \$1 in *.1) ns=${names[0]} ;; *.2) ns=${names[1]} ;; *) ns=${names[2]} ;; esac
shift
exec ip netns exec \$ns sh -c "\$*"
R
chmod +x "$tmp/rsh"
probe() { # ARGUMENTS...: on three hosts
    rm -f "$tmp/net"
    run "$tutti" run --no-prefix --rsh "$tmp/rsh" \
        -H 10.200.0.1,10.200.0.2,10.200.0.3 "$tutti" probe -o "$tmp/net" \
        --explain "$@"
}

has_vlan=0
make_hosts swm swf 2>"$tmp/err" || { fail "network namespaces" "$(cat "$tmp/err")"; finish; }
for i in 0 1 2; do
    wire "$i" aa0 swm 20 "10.200.0.$((i + 1))/24"
    wire "$i" "fast$i" swf 200 "10.77.0.$((i + 1))/24"
    on "$i" addr add "10.78.0.$((i + 1))/24" dev "fast$i" label "fast$i:old"
    # on the same card; not every kernel has it
    on "$i" link add link "fast$i" name vlan type macvlan mode bridge 2>/dev/null &&
        on "$i" addr add "10.79.0.$((i + 1))/24" dev vlan && on "$i" link set vlan up &&
        has_vlan=1
done
add_docker
settle
probe
ends "a slow interface first, docker0, names that differ" 0
like "labels are no interfaces" "$(cat "$tmp/net")" "3 hosts, $((has_vlan ? 12 : 9)) interfaces"
if [ $has_vlan = 1 ]; then
    like "one of two on a card is left out" "$(cat "$tmp/net")" \
        '^# not known: vlan of [^ ]+ is left out, and so are 2 more: it is on one card with fast0$'
    is "and not in the network" "$(grep -c 'dev=vlan' "$tmp/net")" 0
else
    skip "interfaces on one card" "this kernel has no macvlan"
fi
is "the fast one is chosen, everywhere" \
    "$(grep -c '^  fast[0-2] 10.7[78].0.[123] -> fast[0-2] 10.7[78].0.[123]: .*CHOSEN' <<<"$out")" 6
like "docker0 is no way" "$out" \
    'docker0 172\.17\.0\.1 -> docker0 172\.17\.0\.1: is an address of the calling host itself$'
like "nor from another interface" "$out" \
    'docker0 172\.17\.0\.1 -> aa0 10\.200\.0\.2: (no answer|[A-Z])'

# An interface with so many addresses that there is no room for others
for i in 0 1 2; do
    for k in $(seq 40); do on "$i" addr add "10.30.$i.$k/16" dev aa0; done
done
probe
ends "an interface with many addresses" 0
is "leaves room for the fast one" \
    "$(grep -c '^  fast[0-2] 10.7[78].0.[123] -> .*CHOSEN' <<<"$out")" 6
run env TUTTI_TOPOLOGY=auto TUTTI_LOG=debug "$tutti" run --rsh "$tmp/rsh" \
    -H 10.200.0.1,10.200.0.2,10.200.0.3 "$tutti" bench -e 4KiB
ends "a job there" 0
is "takes it" "$(grep -c ' tcp: peer .* on fast[0-2]$' <<<"$err")" 3
for i in 0 1 2; do on "$i" addr flush dev aa0 to 10.30.0.0/16; done

# These hosts have one name: what was written of them is theirs all the same
run env TUTTI_TOPOLOGY="$tmp/net" TUTTI_LOG=debug "$tutti" run --rsh "$tmp/rsh" \
    -H 10.200.0.1,10.200.0.2,10.200.0.3 "$tutti" bench -e 4KiB
ends "hosts of one name, and a file of tutti probe" 0
is "names the interfaces of each" "$(grep -c ' tcp: peer .* on fast[0-2]$' <<<"$err")" 3

# The kernel answers for an address by any interface on its network: packets to
# the fast one of host 1 come by its other one
if [ $has_vlan = 1 ]; then
    mac=$(on 1 link show vlan | awk '/ether/ { print $2 }')
    on 2 neigh replace 10.77.0.2 lladdr "$mac" dev fast2 nud permanent
    run env TUTTI_TOPOLOGY="$tmp/net" TUTTI_LOG=debug "$tutti" run --rsh "$tmp/rsh" \
        -H 10.200.0.1,10.200.0.2,10.200.0.3 "$tutti" bench -e 4KiB
    ends "packets that come by the wrong interface" 0
    is "lose no connection" "$(grep -c 'away' <<<"$err")" 0
    like "and are noticed" "$err" 'rank 1: tcp: peer 2 reaches fast1 by another interface'
    on 2 neigh del 10.77.0.2 dev fast2
else
    skip "packets that come by the wrong interface" "this kernel has no macvlan"
fi

# IPv6 only, apart from where they meet
for i in 0 1 2; do
    on "$i" addr flush dev "fast$i" scope global
    on "$i" -6 addr add "fd00:7::$((i + 1))/64" dev "fast$i" nodad
    on "$i" link del docker0
    on "$i" link del vlan 2>/dev/null
done
probe
ends "IPv6" 0
is "is chosen, by addresses that mean something everywhere" \
    "$(grep -c '^  fast[0-2] fd00:7::[123] -> .*CHOSEN' <<<"$out")" 6
for i in 0 1 2; do on "$i" -6 addr flush dev "fast$i" scope global; done
probe
ends "link-local addresses alone" 0
is "are chosen" "$(grep -c '^  fast[0-2] fe80:.* -> fast[0-2] fe80:.*CHOSEN' <<<"$out")" 6

# A host that is cut off
run env TUTTI_SOCKET_IFNAME=fast "$tutti" run --no-prefix --rsh "$tmp/rsh" \
    -H 10.200.0.1,10.200.0.2,10.200.0.3 "$tutti" probe -o "$tmp/net"
ends "with TUTTI_SOCKET_IFNAME" 0
on 3 link set swf-2 nomaster
run env TUTTI_SOCKET_IFNAME=fast "$tutti" run --no-prefix --rsh "$tmp/rsh" \
    -H 10.200.0.1,10.200.0.2,10.200.0.3 "$tutti" probe -o "$tmp/net"
ends "a host that nobody reaches" 1
like "pairs are named" "$err" \
    '2 pairs of hosts cannot reach each other: [^;]* and [^;]*, [^;]* and [^;]*; tried fast0 .* to fast2 .*'

finish
