#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# standby.sh - `tutti controller --standby`: the controller is killed, frozen and
# woken, or closed, while workers run; a standby leads, and they go on. TAP.
. "$(dirname "$0")/lib.sh"
export TUTTI_LIVENESS=${TUTTI_LIVENESS:-30s} TUTTI_RECONNECT=110s

# start STEPS NAME=VALUE...: a leader, its standby, and three workers.
start() {
    local steps=$1 worker
    shift
    rm -f "$tmp"/where* "$tmp"/groups* "$tmp"/worker*
    env "$@" "$tutti" controller -n 3 --group 2 --listen 127.0.0.1:0 \
        --log "$tmp/groups0" >"$tmp/summary0" 2>"$tmp/where0" &
    leader=$!
    listens "$tmp/where0"
    local first=$port
    env "$@" TUTTI_LOG=info "$tutti" controller --standby "127.0.0.1:$first" \
        --listen 127.0.0.1:0 --log "$tmp/groups1" \
        >"$tmp/summary1" 2>"$tmp/where1" &
    standby=$!
    at_exit='kill -KILL $leader $standby $workers 2>/dev/null; rm -rf "$tmp"'
    listens "$tmp/where1"
    workers=
    for worker in 0 1 2; do
        env "$@" TUTTI_CONTROLLER="127.0.0.1:$first,127.0.0.1:$port" \
            timeout -k 5 $limit "$B/examples/partial" --worker "$worker" \
            --steps "$steps" >"$tmp/worker$worker" 2>&1 &
        workers="$workers $!"
    done
}
has_groups() { # FILE N: so many lines of groups are in the log
    [ "$(grep -cs '^group' "$1")" -ge "$2" ]
}
# all_end WHAT: the workers end well, with one model.
all_end() {
    local pid failed=0
    for pid in $workers; do
        wait "$pid" || failed=$((failed + 1))
    done
    workers=
    is "$1: all workers end well" "$failed" 0
    [ $failed = 0 ] || sed 's/^/# /' "$tmp"/worker* "$tmp"/where*
    is "... with one model" \
        "$(sed -n 's/.*mean //p' "$tmp"/worker* | sort -u | wc -l)" 1
}

start 600
awaits has_groups "$tmp/groups0" 20
kill -KILL $leader
all_end "a leader that is killed"
wait $standby
is "its standby ends when they have gone" $? 0
like "... which has led" "$(cat "$tmp/where1")" 'this standby leads now, in term'
run "$tutti" controller --replay "$tmp/groups1"
ends "its log replays" 0
last=$(sed -n 's/^group \([0-9]*\) .*/\1/p' "$tmp/groups0" | tail -1)
next=$(sed -n 's/^group \([0-9]*\) .*/\1/p' "$tmp/groups1" | head -1)
[ "$next" -ge "$last" ] && pass "its groups follow" ||
    fail "its groups follow" "$last, then $next"

like "... where workers have found it" "$(cat "$tmp/worker0")" \
    "worker 0: the controller at (127.0.0.1:$port|this host) leads now, found after"

start 300
awaits has_groups "$tmp/groups0" 20
kill -KILL $standby
all_end "a standby that is killed"
wait $leader
is "the leader goes on" $? 0

start 600 TUTTI_LIVENESS=1s
awaits has_groups "$tmp/groups0" 20
kill -STOP $leader
awaits has_groups "$tmp/groups1" 20
kill -CONT $leader
all_end "a leader that is frozen"
wait $leader
is "... ends when it is woken" $? 1
# Who wakes late on a busy machine may count its workers before one tells it.
like "... and says why" "$(cat "$tmp/where0")" \
    'another controller leads these workers now|of 3 workers know that this controller'
wait $standby
is "who leads now ends well" $? 0

head -c 40 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$tmp/secret"
chmod 600 "$tmp/secret"
start 600 TUTTI_SECRET_FILE="$tmp/secret"
awaits has_groups "$tmp/groups0" 20
kill -TERM $leader
all_end "a leader that is closed, with a secret"
wait $standby
is "its standby leads" $? 0

run "$tutti" controller --standby 127.0.0.1:9 --listen 127.0.0.1:0
ends "nobody to follow" 1
one_sentence "... is said in one sentence"
finish
