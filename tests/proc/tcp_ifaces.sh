#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tcp_ifaces.sh - which addresses TCP takes where hosts have several: three
# network namespaces as hosts, one interface per neighbour, and what goes wrong
# there.
. "$(dirname "$0")/lib.sh"

#            mg 10.200.0.1..3, the network where ranks meet
#     [ a ] p -- p [ b ] q -- p [ c ]     no network in common but that
#  lo 10.9.0.1    lo 10.9.0.2    lo 10.9.0.3
hosts=(a b c)
names=("tia$$" "tib$$" "tic$$" "tis$$")
at_exit='for ns in "${names[@]}"; do ip netns del "$ns" 2>/dev/null; done;'$at_exit

ns() { # HOST: its namespace
    case $1 in a) echo "${names[0]}" ;; b) echo "${names[1]}" ;; c) echo "${names[2]}" ;; *) echo "${names[3]}" ;; esac
}
on() { # HOST IP-ARGUMENTS...
    local at
    at=$(ns "$1")
    shift
    ip -n "$at" "$@"
}
wire() { # HOST DEV ADDRESS HOST DEV ADDRESS: a cable; "-": no address
    ip link add "$2" netns "$(ns "$1")" type veth peer name "$5" \
        netns "$(ns "$4")" &&
        on "$1" link set "$2" up && on "$4" link set "$5" up || return
    [ "$3" = - ] || on "$1" addr add "$3" dev "$2" || return
    [ "$6" = - ] || on "$4" addr add "$6" dev "$5"
}
set_on() { # HOST NAME=VALUE: a sysctl
    ip netns exec "$(ns "$1")" sysctl -qw "$2"
}
make_hosts() { # three hosts and the network where they meet
    local i
    for i in "${names[@]}"; do
        ip netns del "$i" 2>/dev/null
        ip netns add "$i" || return
    done
    on s link add br0 type bridge && on s link set br0 up || return
    for i in 1 2 3; do
        wire "${hosts[i - 1]}" mg "10.200.0.$i/24" s "port$i" - &&
            on s link set "port$i" master br0 &&
            on "${hosts[i - 1]}" link set lo up || return
    done
}
make_line() {
    make_hosts && wire a p 10.1.0.1/30 b p 10.1.0.2/30 &&
        wire b q 10.1.0.5/30 c p 10.1.0.6/30 || return
    for i in 1 2 3; do
        on "${hosts[i - 1]}" addr add "10.9.0.$i/32" dev lo || return
    done
    on a route add 10.9.0.2 via 10.1.0.2 && on b route add 10.9.0.1 via 10.1.0.1 &&
        on b route add 10.9.0.3 via 10.1.0.6 &&
        on c route add 10.9.0.2 via 10.1.0.5
}
# job NAME=VALUE...: a rank on each host of `on_hosts`; what they say of their
# connections is in $chosen, "1>0 10.1.0.1 on p".
on_hosts=10.200.0.1,10.200.0.2,10.200.0.3
job() {
    run env TUTTI_LOG=debug TUTTI_TIMEOUT=20s TUTTI_START_TIMEOUT=20s "$@" \
        "$tutti" run --rsh "$tmp/rsh" -H "$on_hosts" "$tutti" bench -e 64KiB \
        -f 64 -n 3
    chosen=$(sed -nE 's/.*rank ([0-9]+).* tcp: peer ([0-9]+) at (.*):[0-9]+, (on .*|by a route)$/\1>\2 \3 \4/p' \
        <<<"$err" | sort)
}
right() { # WHAT: the last job's results are
    like "$1" "$out" '# Out of bounds values : 0 OK'
}

what="addresses on several interfaces"
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
    skip "$what" "needs root and the ip command to make network namespaces"
    finish
elif ! make_line 2>"$tmp/err"; then
    skip "$what" "cannot make network namespaces: $(head -1 "$tmp/err")"
    finish
fi
cat >"$tmp/rsh" <<R
#!/bin/sh
case \$1 in *.1) ns=${names[0]} ;; *.2) ns=${names[1]} ;; *) ns=${names[2]} ;; esac
shift
exec ip netns exec \$ns sh -c "\$*"
R
chmod +x "$tmp/rsh"

# -- a line of hosts ----------------------------------------------------------
no_network='they have no network in common, so both need a route, and what is between must forward \(hosts: net.ipv4.ip_forward=1\)$'
set_on b net.ipv4.ip_forward=1
on a route add 10.9.0.3 via 10.1.0.2
on c route add 10.9.0.1 via 10.1.0.5
job TUTTI_SOCKET_IFNAME=^mg
right "a line of hosts that forward"
is "neighbours by their cable, others by a route" "$chosen" \
    "1>0 10.1.0.1 on p
2>0 10.9.0.1 by a route
2>1 10.1.0.5 on p"
job
right "with the network where they meet as well"
is "which serves those that have no cable" "$chosen" \
    "1>0 10.1.0.1 on p
2>0 10.200.0.1 on mg
2>1 10.1.0.5 on p"
job TUTTI_SOCKET_IFNAME==mg
is "one interface at both ends" "$chosen" \
    "1>0 10.200.0.1 on mg
2>0 10.200.0.1 on mg
2>1 10.200.0.2 on mg"
set_on b net.ipv4.ip_forward=0
job TUTTI_SOCKET_IFNAME=^mg TUTTI_START_TIMEOUT=5s
ends "hosts that do not forward" 1
like "who, whom, what was tried, what to do" "$err" \
    "rank [02] cannot reach rank [02]: tried 10\.9\.0\.[0-9]:[0-9]+ \(no answer\), 10\.1\.0\.[0-9]:[0-9]+ \(Network is unreachable\),.*; $no_network"
is "all ranks say so" "$(grep -c 'bench: .*rank [02] cannot reach rank [02]' \
    <<<"$err")" 3
on c route del 10.9.0.1
start=$SECONDS
job TUTTI_SOCKET_IFNAME=^mg TUTTI_START_TIMEOUT=100s
ends "no route" 1
like "it says so" "$err" \
    "rank 2 cannot reach rank 0: tried 10\.9\.0\.1:[0-9]+ \(Network is unreachable\),.*; $no_network"
is "long before the deadline, on all ranks" "$((SECONDS - start < 40))" 1

# -- cables without any address -----------------------------------------------
set_on b net.ipv6.conf.all.forwarding=1
for i in 1 2 3; do on "${hosts[i - 1]}" addr del "10.9.0.$i/32" dev lo; done
on a addr flush dev p scope global
on b addr flush dev p scope global
on b addr flush dev q
on c addr flush dev p
on_hosts=10.200.0.1,10.200.0.2
job TUTTI_SOCKET_IFNAME=^mg
right "link-local addresses only"
like "with the scope of the own interface" "$chosen" '^1>0 \[fe80:.*%p\] on p$'
on_hosts=10.200.0.1,10.200.0.2,10.200.0.3

# -- several sockets ----------------------------------------------------------
make_hosts || exit 1
wire a p 10.1.0.1/30 b p 10.1.0.2/30
wire a q 10.1.0.5/30 b q 10.1.0.6/30
on_hosts=10.200.0.1,10.200.0.2
job TUTTI_SOCKETS=3
right "three sockets and two cables"
is "both of which they use, in turn" "$chosen" \
    "1>0 10.1.0.1 on p
1>0 10.1.0.1 on p
1>0 10.1.0.5 on q"
on b link set q down
job TUTTI_SOCKETS=3 TUTTI_START_TIMEOUT=10s
right "three sockets, and one of two cables is cut"
is "the other one serves all" "$(grep -c ' on p$' <<<"$chosen")" 3
on_hosts=10.200.0.1,10.200.0.2,10.200.0.3

# -- networks that lead astray ------------------------------------------------
# x: the same private network on cables of their own, and smaller than that of
# mg, so it is tried first; docker0: the same address everywhere.
make_hosts || exit 1
for i in 1 2 3; do
    h=${hosts[i - 1]}
    wire "$h" x "192.168.7.$i/28" s "x$i" -
    on "$h" link add docker0 type bridge
    on "$h" addr add 172.17.0.1/16 dev docker0
    on "$h" link set docker0 up
done
job TUTTI_PORT_RANGE=41000
right "one dead network, one address that all have, one port"
is "are no way" "$(grep -c ' on mg$' <<<"$chosen")" 3

# -- what a topology file says ------------------------------------------------
# z: a second network of all, smaller than that of mg.
make_line || exit 1
on s link add br1 type bridge && on s link set br1 up
for i in 1 2 3; do
    wire "${hosts[i - 1]}" z "10.201.0.$i/28" s "z$i" - &&
        on s link set "z$i" master br1
    [ $i = 2 ] || on "${hosts[i - 1]}" route add default via 10.1.0.$((i == 1 ? 2 : 5))
done
set_on b net.ipv4.ip_forward=1
in_file() { # LINE...: a job on a topology file
    { echo "tutti-topology 1" && printf '%s\n' "$@"; } >"$tmp/network"
    job TUTTI_TOPOLOGY="$tmp/network"
}
in_file "switch s" "host a b c" "link a s 1Gbit 1us dev=z" \
    "link b s 1Gbit 1us dev=z" "link c s 1Gbit 1us dev=z"
right "interfaces of a topology file"
is "are taken, and no others" "$chosen" \
    "1>0 10.201.0.1 on z
2>0 10.201.0.1 on z
2>1 10.201.0.2 on z"
in_file "host a b c" "link a b 1Gbit 1us dev=p/p" "link b c 1Gbit 1us dev=q/p"
right "a topology file of cables"
is "none but cables are taken" "$chosen" \
    "1>0 10.1.0.1 on p
2>0 10.9.0.1 by a route
2>1 10.1.0.5 on p"
in_file "switch s" "host a b c" "link a s 1Gbit 1us dev=none" \
    "link b s 1Gbit 1us dev=z" "link c s 1Gbit 1us dev=z"
ends "an interface that is not there" 1
like "is named" "$err" \
    'TUTTI_TOPOLOGY says that rank [12] reaches rank 0 from interface z at interface none; they are not up'

# -- IPv6 only ----------------------------------------------------------------
make_hosts || exit 1
for i in 1 2 3; do
    on "${hosts[i - 1]}" addr add "fd00:200::$i/64" dev mg nodad
    on "${hosts[i - 1]}" addr del "10.200.0.$i/24" dev mg
done
port=$(some_port)
for i in 3 2 1; do
    ip netns exec "${names[i - 1]}" env TUTTI_LOG=debug TUTTI_RANK=$((i - 1)) \
        TUTTI_SIZE=3 TUTTI_ADDR="[fd00:200::1]:$port" timeout $limit \
        "$tutti" bench -e 64KiB -f 64 -n 3 >"$tmp/out$i" 2>"$tmp/err$i" &
done
wait
out=$(cat "$tmp/out1") err=$(cat "$tmp"/err?)
right "IPv6 only"
is "on the network of all" "$(grep -c 'at \[fd00:200::[12]\]:.* on mg$' <<<"$err")" 3
finish
