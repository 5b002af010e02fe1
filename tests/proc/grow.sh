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

# More at once than one or two.
unset TUTTI_TRANSPORTS
TUTTI_TRACE=$tmp/trace "$tutti" run -n 2 --keep-going "$grow" 20 10 \
    >"$tmp/members" 2>"$tmp/job" &
job=$!
run env TUTTI_LOG=info TUTTI_LOG_FILE="$tmp/log.%r" \
    "$tutti" run -n 8 --join $job "$grow" 20 10
ends "eight who come at once end well" 0
wait $job
is "and so does the job" $? 0
is "all ten are there" \
    "$(cat "$tmp/members" "$tmp/out" | grep -c 'of 10: step')" 10
is "each start has records of its own" "$(ls "$tmp/trace" | sed 's/.*-//' |
    sort | uniq -c | awk '$2 == "0.record" { print ($1 > 1) }')" 1
run "$tutti" trace "$tmp/trace" -o "$tmp/trace.json"
like "the last start is of all" "$out" ': 10 ranks,'
like "a newcomer's log has its file" "$(cat "$tmp/log.9")" 'info rank 9: '

gone=$(sh -c 'echo $$')
run "$tutti" run -n 1 --join "$gone" "$grow"
ends "a launcher that is gone" 1
like "is named" "$err" "process $gone has started no rank"
run env TUTTI_START_TIMEOUT=0.3 "$tutti" run -n 1 --join nobody-is-here "$grow"
ends "a job that is not there" 1
like "is waited for, and named" "$err" 'no job at .*nobody-is-here'

like "with what to do" "$err" 'TUTTI_START_TIMEOUT'
run env TUTTI_START_TIMEOUT=4 "$tutti" run -n 1 --join nobody-is-here "$grow"
like "it says that it takes long" "$err" 'still looking for a job at'

for bad in '' 127.0.0.1:99999 127.0.0.1:0 127.0.0.1: :29500 127.0.0.1 -5 12.5 0; do
    run "$tutti" run -n 1 --join "$bad" "$grow"
    ends "--join '$bad' is refused" 2
    one_sentence "... in a sentence"
done
run env TUTTI_JOIN= "$tutti" run -n 1 "$grow"
ends "an empty TUTTI_JOIN is refused" 2
run env TUTTI_JOIN= "$grow"
ends "by a newcomer, too" 1
like "which says what it needs" "$err" 'newcomers need a place'

# The job ends while somebody knocks: its ranks never let anybody in.
"$tutti" run -n 1 sh -c 'until [ -e "$0/end" ]; do sleep 0.05; done' "$tmp" &
job=$!
TUTTI_START_TIMEOUT=$limit "$tutti" run -n 1 --join $job "$grow" \
    2>"$tmp/late" &
late=$!
awaits grep -qs 'still looking' "$tmp/late"
if [ -e /proc/$job/fd/100 ]; then
    touch "$tmp/end"
    wait $job $late
    is "a job that has ended meanwhile" $? 1
    like "is named" "$(cat "$tmp/late")" "the job of process $job has ended"
    is "and nothing else is said" \
        "$(grep -c 'proves who we are' "$tmp/late")" 0
else
    kill $job $late
    skip "a job that has ended meanwhile" "it has no secret of its own"
fi

finish
