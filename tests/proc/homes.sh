#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# homes.sh - machines at home, behind routers that translate addresses, as
# docs/how-to/home-machines.md has them: two homes of the same private network, in
# both a host of the same address, and a server that both can call.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_hosts.sh"

if [ "$(id -u)" != 0 ] || ! command -v nft >/dev/null || ! command -v ip >/dev/null; then
    skip "machines behind routers" "needs root, iproute2 and nft"
    finish
fi
# 0 and 1 are at home, 2 is the server, 3 has the switch; then the routers.
hosts_begin th
names+=("thx$$" "thy$$")

homes() {
    local home router switch=3
    make_hosts net && on 2 link add wan type veth peer name s netns "${names[3]}" &&
        on 3 link set s master net up && on 2 link set wan up &&
        on 2 addr add 203.0.113.10/24 dev wan || return
    for home in 0 1; do
        router=$((home + 4))
        on $router link add wan type veth peer name "r$home" netns "${names[switch]}" &&
            on 3 link set "r$home" master net up && on $router link set wan up &&
            on $router addr add 203.0.113.$((home + 1))/24 dev wan &&
            on $home link add eth0 type veth peer name lan netns "${names[router]}" &&
            on $router link set lan up && on $router addr add 192.168.1.1/24 dev lan &&
            on $home link set eth0 up && on $home addr add 192.168.1.10/24 dev eth0 &&
            on $home route add default via 192.168.1.1 &&
            ip netns exec "${names[router]}" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward' &&
            ip netns exec "${names[router]}" nft -f - <<'N' || return
table ip home {
    chain away {
        type nat hook postrouting priority 100
        oifname "wan" masquerade
    }
    chain through {
        type filter hook forward priority 0; policy drop
        ct state established,related accept
        iifname "lan" accept
    }
}
N
    done
}
if ! homes 2>"$tmp/err"; then
    skip "machines behind routers" "no such network: $(tail -n 1 "$tmp/err")"
    finish
fi
settle

port=$(some_port)
# job HOSTS COMMAND...: a rank on each host of the list; the first has rank 0.
job() {
    local hosts=$1 rank=0 host size pids=()
    shift
    size=$(wc -w <<<"$hosts")
    port=$((port + 1))
    : >"$tmp/out"
    for host in $hosts; do
        TUTTI_RANK=$rank TUTTI_SIZE=$size TUTTI_ADDR=203.0.113.10:$port \
            ip netns exec "${names[host]}" unshare -u sh -c 'echo "$0" >/proc/sys/kernel/hostname
                exec timeout 100 "$@"' "host$host" "$@" >"$tmp/out.$rank" 2>&1 &
        pids+=($!)
        rank=$((rank + 1))
    done
    rc=0
    for host in "${pids[@]}"; do
        wait "$host" || rc=$?
    done
    out=$(cat "$tmp/out".*)
    err=$out
    rm -f "$tmp/out".*
}

bench=("$tutti" bench -b 1MiB -e 1MiB -n 2)
job "2 0" "${bench[@]}"
ends "a server and a machine at home" 0
like "have right results" "$out" 'Out of bounds values : 0 OK'

TUTTI_TOPOLOGY=auto job "2 0" "${bench[@]}"
is "who can be called from one side only is not measured" "$rc" 1
like "and that is said, with what to do" "$out" \
    '1 pair of hosts can call each other from one side only: host2 and host0; .* \(no --probe\)$'

# Two homes: what they have for each other goes by way of the server.
cat >"$tmp/home.net" <<'N'
tutti-topology 1
host server mini tower forwards=no
link server mini 20Mbit
link server tower 20Mbit
N
"$tutti" secret "$tmp/secret" 2>/dev/null && export TUTTI_SECRET_FILE=$tmp/secret
TUTTI_TOPOLOGY=$tmp/home.net job "2 0 1" "${bench[@]}"
ends "two homes and a server" 0
like "have right results, too" "$out" 'Out of bounds values : 0 OK'
TUTTI_TOPOLOGY=$tmp/home.net job "2 0 1" "$tutti" bench all-to-all -b 64KiB -e 64KiB -n 2
ends "what two homes have for each other passes through the server" 0
like "and is right" "$out" 'Out of bounds values : 0 OK'

unset TUTTI_TOPOLOGY
job "2 0 1" "${bench[@]}"
is "without the network's file the job ends" "$((rc != 0 && rc != 124))" 1
like "and says who does not reach whom" "$out" 'rank 2 cannot reach rank 1|rank 1 cannot reach rank 2'
finish
