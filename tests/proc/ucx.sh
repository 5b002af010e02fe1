#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# ucx.sh - which transport a job takes where UCX is there, or is not, or
# connects only some; and that UCX keeps quiet.
. "$(dirname "$0")/lib.sh"
export TUTTI_UCX_INSECURE=1 # secret.sh is about jobs without it

bench="'$tutti' bench -b 8 -e 64KiB -n 3 -f 64"

# job WHAT COMMAND VARIABLES...: two ranks of a shell command.
job() {
    local what=$1 command=$2
    shift 2
    run env TUTTI_START_TIMEOUT=9s TUTTI_LOG=debug "$@" \
        "$tutti" run -n 2 sh -c "$command"
}

job "auto" "$bench"
ends "no list of transports" 0
if [ -e /sys/class/infiniband ]; then
    skip "no UCX without RDMA" "this host may have RDMA"
else
    like "no UCX without RDMA" "$err$out" 'peer 1 on .* by shm'
fi

run env TUTTI_TRANSPORTS=ucx "$tutti" bench -e 8 -n 1
if [[ $err == *"without UCX"* ]] || [[ $err == *"needs the UCX library"* ]]; then
    ends "UCX that is not there" 1
    one_sentence "UCX that is not there: one sentence"
    like "which says what is missing" "$err" 'libucx'
    skip "the rest" "there is no UCX"
    finish
fi

job "named" "$bench" TUTTI_TRANSPORTS=ucx UCX_TLS=tcp,self
ends "UCX by name" 0
like "UCX by name: it is taken" "$err$out" 'peer 1 on .* by ucx'

job "a nonsense" "$bench" TUTTI_TRANSPORTS=ucx UCX_TLS=pigeon
is "a UCX_TLS that is none" "$((rc != 0 && rc != 124))" 1
like "a UCX_TLS that is none: what and why" "$err$out" \
    'UCX: .* \(UCX_TLS is pigeon'

# Two ranks that have nothing in common but what comes after it in the list.
apart="case \$TUTTI_RANK in 0) export UCX_TLS=tcp,self;; \
       *) export UCX_TLS=posix,self;; esac; exec $bench"
job "a miss" "$apart" TUTTI_TRANSPORTS=ucx,tcp
ends "a pair that UCX misses" 0
like "a pair that UCX misses: the next one is taken" "$err$out" \
    'peer 1 on .* by tcp'
job "a miss" "$apart" TUTTI_TRANSPORTS=ucx
is "nothing else" "$((rc != 0 && rc != 124))" 1
like "nothing else: both ranks and why" "$err$out" \
    'rank (0 does not reach rank 1|1 does not reach rank 0) by UCX: '

# Connections are made where there is something to say: here along the ring, and
# those of the control graph, which are to 1, 2, 4 and 8 places away.
run env TUTTI_TRANSPORTS=ucx UCX_TLS=tcp,self TUTTI_LOG=info TUTTI_PLANNER=ring \
    "$tutti" run -n 16 "$tutti" bench -b 8 -e 64KiB -n 2 -f 64
ends "a ring of 16" 0
is "a ring of 16: no rank has more connections than it needs" \
    "$(grep -c ' 7 of 15 connections were opened' <<<"$out$err")" 16

# A rank that is killed: an error to UCX, which prints to stdout by itself.
run env TUTTI_TRANSPORTS=ucx UCX_TLS=tcp,self "$tutti" run -n 3 sh -c \
    "[ \$TUTTI_RANK = 1 ] && exec timeout -s KILL 0.5 '$tutti' bench -n 100000; \
     exec '$tutti' bench -n 100000 >/dev/null"
is "a killed rank" "$((rc != 0 && rc != 124))" 1
is "a killed rank: UCX is quiet" "$(grep -c 'UCX *\(ERROR\|WARN\)' <<<"$out$err")" 0

finish
