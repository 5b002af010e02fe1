#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# families.sh - jobs of hosts of which some have IPv4, some IPv6, and some both:
# three network namespaces as hosts, which know each other by name.
. "$(dirname "$0")/lib.sh"
. "$here/lib_hosts.sh"

hosts_begin fam
# job HOSTS NAME=VALUE...: a rank on each; what they say of their connections is in
# $chosen, "1>0 10.1.0.1 on p".
job() {
    local on_hosts=$1
    shift
    run env TUTTI_LOG=debug TUTTI_TIMEOUT=60s TUTTI_START_TIMEOUT=60s "$@" \
        "$tutti" run --rsh "$tmp/rsh" -H "$on_hosts" "$tutti" bench -e 64KiB -f 64 -n 3
    chosen=$(sed -nE 's/.*rank ([0-9]+).* tcp: peer ([0-9]+) at (.*):[0-9]+, (on .*|by a route)$/\1>\2 \3 \4/p' \
        <<<"$err" | sort)
}
right() { # WHAT: the last job's results are
    like "$1" "$out" '# Out of bounds values : 0 OK'
}
without_v6() { # HOST
    ip netns exec "${names[$1]}" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 \
        net.ipv6.conf.default.disable_ipv6=1
}
# Each pair of hosts has one family in common, on a cable of its own.
make_triangle() {
    make_hosts x y z &&
        wire 0 p x 1000 10.1.0.1/24 && wire 1 p x 1000 10.1.0.2/24 &&
        wire 0 q y 1000 fd00:1::1/64 && wire 2 q y 1000 fd00:1::3/64 &&
        wire 1 r z 1000 10.3.0.2/24 && wire 2 r z 1000 10.3.0.3/24 && settle
}
# One network for all. The second host has IPv4 only, the third what is given.
make_star() { # ADDRESS...
    make_hosts x && without_v6 1 && wire 0 e x 1000 10.1.0.1/24 fd00:1::1/64 &&
        wire 1 e x 1000 10.1.0.2/24 && wire 2 e x 1000 "$@" && settle
}

what="hosts of IPv4 and IPv6"
if [ "$(id -u)" != 0 ] || ! command -v ip tc >/dev/null; then
    skip "$what" "needs root and the commands ip and tc to make network namespaces"
    finish
elif ! make_triangle 2>"$tmp/err"; then
    skip "$what" "cannot make network namespaces: $(head -1 "$tmp/err")"
    finish
fi
cat >"$tmp/hosts" <<'H'
127.0.0.1 localhost
10.1.0.1 alpha
fd00:1::1 alpha
10.1.0.2 beta
fd00:1::3 gamma
H
cat >"$tmp/rsh" <<R
#!/bin/sh
case \$1 in
alpha | fd00:1::1) ns=${names[0]} name=alpha ;;
beta) ns=${names[1]} name=beta ;;
gamma | me@gamma | fd00:1::3 | me@fd00:1::3) ns=${names[2]} name=gamma ;;
*) echo "there is no host \$1" >&2 && exit 255 ;;
esac
shift
exec ip netns exec \$ns unshare -u sh -c "
    mount --bind '$tmp/hosts' /etc/hosts &&
    echo \$name >/proc/sys/kernel/hostname || exit
    \$*"
R
chmod +x "$tmp/rsh"
all=alpha,beta,gamma

job $all
right "each pair of hosts has another family"
is "which it takes" "$chosen" \
    "1>0 10.1.0.1 on p
2>0 [fd00:1::1] on q
2>1 10.3.0.2 on r"
job '[fd00:1::1],me@[fd00:1::3]'
right "hosts that are named by their IPv6 addresses"
job $all TUTTI_TOPOLOGY=auto
right "such a network is measured"
job beta,alpha
right "rank 0 has IPv4 only, and another host both"

make_star 10.1.0.3/24 fd00:1::3/64
job $all
right "a host of IPv4 only among hosts that have both"
like "it is reached by IPv4" "$chosen" '^2>1 10\.1\.0\.2 on e$'

make_star fd00:1::3/64
start=$SECONDS
job $all TUTTI_START_TIMEOUT=100s
ends "a host of IPv4 only and a host of IPv6 only" 1
like "both are named, with what they have" "$err" \
    'rank 2 cannot reach rank 1: tried 10\.1\.0\.2:[0-9]+ \(Network is unreachable\); rank 2 tells IPv6 addresses only, rank 1 IPv4 addresses only: they need a family in common \(does TUTTI_SOCKET_IFNAME hide one\?\)$'
is "all ranks say so" "$(grep -c 'bench: .*rank 2 cannot reach rank 1: .* family in common' <<<"$err")" 3
is "long before the deadline" "$((SECONDS - start < 60))" 1
job alpha,gamma
right "those that have one in common"
cat >"$tmp/network" <<'T'
tutti-topology 1
host a b c forwards=no
link a b 1Gbit 10us dev=e/e
link a c 1Gbit 10us dev=e/e
T
job $all TUTTI_TOPOLOGY="$tmp/network"
right "a topology that says so: the host between, which has both, passes on"
job $all TUTTI_TOPOLOGY=auto
ends "measuring such a network" 1
like "the two are named" "$err" \
    ': 1 pair of hosts cannot reach each other: beta and gamma; they have no addresses of one family \(IPv4, IPv6, link-local\); .*\(TUTTI_SOCKET_IFNAME\)\?$'
job beta,gamma TUTTI_START_TIMEOUT=3s
ends "rank 0 of the other family" 1
like "who, whom, where, why" "$err" \
    'rank 1 did not reach rank 0 at beta:[0-9]+ within [0-9.]+ s \(last try: 10\.1\.0\.2:[0-9]+: Network is unreachable\)'
finish
