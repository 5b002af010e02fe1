# SPDX-License-Identifier: BSD-3-Clause
# lib_hosts.sh - three hosts (network namespaces) with cables to switches, for
# tests of interfaces that lead astray, which lab/lab does not make; after lib.sh.
# Not a test itself. Hosts are 0, 1 and 2; 3 has the switches.

hosts_begin() { # LETTERS: their names begin so; they are gone when the test ends
    names=("${1}a$$" "${1}b$$" "${1}c$$" "${1}s$$")
    at_exit='for ns in "${names[@]}"; do ip netns del "$ns" 2>/dev/null; done;'$at_exit
}
on() { # HOST IP-ARGUMENTS...
    local ns=${names[$1]}
    shift
    ip -n "$ns" "$@"
}
make_hosts() { # SWITCH...: anew, without cables
    local i
    for i in "${names[@]}"; do
        ip netns del "$i" 2>/dev/null
        ip netns add "$i" && ip -n "$i" link set lo up || return
    done
    for i; do
        on 3 link add "$i" type bridge mcast_snooping 0 && on 3 link set "$i" up || return
    done
}
wire() { # HOST DEV SWITCH MBIT [ADDRESS...]: a cable to a switch, as slow both ways
    local host=$1 dev=$2 port=$3-$1 address burst=$(($4 < 100 ? 16 : 128))kb
    local limit="rate ${4}mbit burst $burst limit 1mb"
    on "$1" link add "$2" type veth peer name "$port" netns "${names[3]}" &&
        on "$1" link set "$2" up && on 3 link set "$port" master "$3" up &&
        tc -n "${names[$1]}" qdisc add dev "$2" root tbf $limit &&
        tc -n "${names[3]}" qdisc add dev "$port" root tbf $limit || return
    shift 4
    for address; do
        case $address in
        *:*) on "$host" addr add "$address" dev "$dev" nodad || return ;;
        *) on "$host" addr add "$address" dev "$dev" || return ;;
        esac
    done
}
add_docker() { # docker0: the same address on all, up because something hangs on it
    local i
    for i in 0 1 2; do
        on "$i" link add docker0 type bridge &&
            on "$i" link add veth0 type veth peer name veth1 &&
            on "$i" link set veth0 master docker0 up &&
            on "$i" link set veth1 up &&
            on "$i" addr add 172.17.0.1/16 dev docker0 &&
            on "$i" link set docker0 up || return
    done
}
settle() { # the kernel takes up to a second to call a bridge running
    local i k
    for i in $(seq 30); do
        [ "$(for k in 0 1 2; do on $k link show; done | grep -c 'LOWERLAYERDOWN\|NO-CARRIER')" = 0 ] && return
        sleep 0.1
    done
}
