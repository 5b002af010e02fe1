# SPDX-License-Identifier: BSD-3-Clause
# lib.sh - what the tests of the command line share; not a test itself.
#
# A test sources it, calls the checks below, and ends with `finish`. B is the
# build directory. Nothing runs for longer than `limit` seconds: a
# limit is there for what hangs, and other work on the machine may make all ten
# times as slow. Where something must have happened, `awaits` it; do not sleep.

case ${B:=build} in
/*) ;;
*) B=$PWD/$B ;;
esac
tutti=$B/tutti
here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
golden=$here/../golden
limit=120
n_checks=0
n_failed=0
tmp=$(mktemp -d) || exit 1
at_exit='rm -rf "$tmp"'
trap '[ "$BASHPID" != "$$" ] || eval "$at_exit"' EXIT
trap 'exit 130' INT TERM
# The tests say themselves how a job is started, and so does no launcher that
# they happen to run under.
for name in $(env | sed -n 's/^\(TUTTI_[A-Z_]*\|OMPI_[A-Za-z_]*\|PMIX\?_[A-Za-z_]*\|SLURM_[A-Z_]*\|RANK\|WORLD_SIZE\|MASTER_[A-Z]*\)=.*/\1/p'); do
    unset "$name"
done
export TUTTI_PROBE_CACHE=off # nor do they leave anything at home

# run COMMAND...: sets out, err (texts) and rc. 124: it took too long.
run() {
    timeout -k 5 "$limit" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
    out=$(cat "$tmp/out")
    err=$(cat "$tmp/err")
}

pass() {
    n_checks=$((n_checks + 1))
    echo "ok $n_checks $1"
}

fail() {
    n_checks=$((n_checks + 1))
    n_failed=$((n_failed + 1))
    echo "not ok $n_checks $1"
    shift
    printf '%s\n' "$@" | sed 's/^/# /'
}

skip() { # WHAT WHY
    n_checks=$((n_checks + 1))
    echo "ok $n_checks $1 # SKIP $2"
}

is() { # WHAT GOT WANTED
    if [ "$2" = "$3" ]; then
        pass "$1"
    else
        fail "$1" "got:    $2" "wanted: $3" "stderr: ${err-}"
    fi
}

like() { # WHAT TEXT PATTERN (extended regular expression, some line of it)
    if grep -qE -- "$3" <<<"$2"; then
        pass "$1"
    else
        fail "$1" "no line matches: $3" "in: $2" "stderr: ${err-}"
    fi
}

ends() { # WHAT STATUS: of the last run
    is "$1" "$rc" "$2"
}

one_sentence() { # WHAT: the last run said one line on stderr
    is "$1" "$(grep -c . <<<"$err")" 1
}

same_file() { # WHAT FILE: the last run's output is that of the file
    if diff -u "$2" "$tmp/out" >"$tmp/diff"; then
        pass "$1"
    else
        fail "$1" "$(cat "$tmp/diff")"
    fi
}

# awaits COMMAND...: until it succeeds; fails when that takes too long.
awaits() {
    local end=$((SECONDS + limit))
    until "$@"; do
        [ $SECONDS -lt $end ] || return
        sleep 0.05
    done
}

# until_ready N: waits until N lines of $tmp/out say "ready". Whoever starts the
# job removes the file before.
until_ready() {
    awaits are_ready "$1"
}
are_ready() {
    [ "$(grep -cs ready "$tmp/out")" = "$1" ]
}

# survivors MARK: how many processes still sleep for MARK seconds, a number like
# no other; those that have been killed get the time to be gone.
survivors() {
    awaits no_survivors "$1"
    pgrep -fc "sleep $1"
}
no_survivors() {
    ! pgrep -f "sleep $1" >/dev/null
}

# listens FILE: waits until a controller says there at which port, and sets it.
listens() {
    awaits has_port "$1"
}
has_port() {
    port=$(sed -n 's/.* at port //p' "$1" 2>/dev/null)
    [ -n "$port" ]
}

# A port that is likely to be free: two tests at a time must not meet.
some_port() {
    echo $((20000 + (RANDOM * 32768 + RANDOM) % 12000))
}

# two_hosts LETTERS NET [COMMAND...]: hosts "left" and "right", which see each other at
# $ip_a and $ip_b (10.NET.*), as network namespaces $a and $b with a cable between
# them, and $tmp/netns, which runs what it is told there (right: by COMMAND). False: the
# file $tmp/err says why not.
#     [ a: 10.NET.x.1 ] va ---- veth ---- vb [ b: 10.NET.x.2 ]
two_hosts() {
    local id=$(($$ % 250))
    a=${1}a$$ b=${1}b$$ ip_a=10.$2.$id.1 ip_b=10.$2.$id.2
    shift 2
    cat >"$tmp/netns" <<R
#!/bin/sh
case \$1 in $ip_a) ns=$a by= name=left ;; *) ns=$b by="$*" name=right ;; esac
shift
exec ip netns exec \$ns \$by unshare -u sh -c "
    echo \$name >/proc/sys/kernel/hostname || exit
    \$*"
R
    chmod +x "$tmp/netns"
    if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
        echo "it needs root and the ip command" >"$tmp/err"
        return 1
    fi
    at_exit="ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; $at_exit"
    {
        ip netns add "$a" && ip netns add "$b" &&
            ip link add "v$a" netns "$a" type veth peer name "v$b" netns "$b" &&
            ip -n "$a" addr add "$ip_a/24" dev "v$a" &&
            ip -n "$b" addr add "$ip_b/24" dev "v$b" &&
            ip -n "$a" link set "v$a" up && ip -n "$b" link set "v$b" up &&
            ip -n "$a" link set lo up && ip -n "$b" link set lo up &&
            "$tmp/netns" "$ip_b" true
    } 2>"$tmp/err"
}

# For tests on networks of the lab, which it names: ends the script where no
# lab can be made.
needs_lab() { # WHAT
    lab=$here/../../lab/lab
    if [ "$(id -u)" != 0 ] || ! "$lab" run star:2@100Mbit --once -- true >/dev/null 2>&1; then
        skip "$1" "needs root and what lab/lab needs"
        finish
    fi
}

finish() {
    echo "1..$n_checks"
    [ "$n_failed" = 0 ]
    exit
}
