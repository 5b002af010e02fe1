#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# grow.sh - `tutti run --join`: processes come to a job that runs, one is killed,
# and more come; all end with the same model.
. "$(dirname "$0")/lib.sh"

grow=$B/examples/grow

# A job of three; one comes, rank 1 is killed, and two come at once.
for transport in shm tcp; do
    export TUTTI_TRANSPORTS=$transport
    rm -f "$tmp"/*
    "$tutti" run -n 3 --keep-going sh -c '
        if [ $TUTTI_RANK = 1 ]; then
            (until [ -e $0/kill ]; do sleep 0.05; done; kill -9 $$) &
        fi
        exec "$1" 50 5' "$tmp" "$grow" >"$tmp/members" 2>"$tmp/job" &
    job=$!
    timeout "$limit" "$tutti" run -n 1 --join $job "$grow" 50 5 \
        >"$tmp/first" 2>"$tmp/first.err" &
    first=$!
    awaits grep -qs 'comes in at step' "$tmp/first.err"
    touch "$tmp/kill"
    run "$tutti" run -n 2 --join $job "$grow" 50 5
    ends "$transport: two who come at once end well" 0
    wait $first
    is "so does who came first" $? 0
    wait $job
    is "and the job, that has lost a rank" $? 0
    all=$(cat "$tmp/members" "$tmp/first" "$tmp/out")
    is "all five are there" "$(grep -c 'of 5: step' <<<"$all")" 5
    is "with the same model" \
        "$(sed -n 's/.*model //p' <<<"$all" | sort -u | grep -c .)" 1
    like "which is named" "$(cat "$tmp/job")" 'rank 1 .*killed by signal 9'
done

gone=$(sh -c 'echo $$')
run "$tutti" run -n 1 --join "$gone" "$grow"
ends "a launcher that is gone" 1
like "is named" "$err" "process $gone has started no rank"
run env TUTTI_START_TIMEOUT=0.3 "$tutti" run -n 1 --join nobody-is-here "$grow"
ends "a job that is not there" 1
like "is waited for, and named" "$err" 'no job at .*nobody-is-here'

finish
