#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# nccl.sh - NCCL's net plugin where only neighbours reach each other: a ring and
# a line of hosts that do not forward, and between all hosts connections as NCCL
# makes them (nccl_test.c). No NCCL, no timings.
. "$(dirname "$0")/lib.sh"

export B
needs_lab "hosts that do not forward"

job() { # NAME=VALUE... -- ; the board is new each time
    rm -f "$tmp/board"
    run "$lab" run "$name" --topology -- env TUTTI_TIMEOUT=40s \
        TUTTI_RECONNECT=5s "$@" \
        "$B/tests/proc/nccl_test" "$tmp/board"
}
right() {
    ends "$1: ends" 0
    like "$1: messages" "$out" 'all is well on 4 ranks'
    is "$1: nobody is missed at the end" "$(grep -c 'is away' <<<"$err")" 0
}
up() { # SPEC
    name=$("$lab" up "$1") || exit 1
    at_exit='"$lab" down "$name" >/dev/null 2>&1;'$at_exit
}
head -c 32 /dev/urandom | base64 >"$tmp/secret"
chmod 600 "$tmp/secret"

for network in ring:4 mesh:4; do
    up $network@1Gbit,forwards=no
    job
    right "$network"
    job TUTTI_ADDR=h0:29519 TUTTI_VIA=h0,h1,h2,h3 TUTTI_SECRET_FILE="$tmp/secret"
    right "$network, that meets by way of others, with a secret"
    "$lab" down "$name" >/dev/null
done
finish
