#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# survive.sh - `tutti run --keep-going`, and a program that goes on when one of
# its ranks is killed.
. "$(dirname "$0")/lib.sh"

survive=$B/examples/survive

# All that are left end with the same model; the launcher says who was killed.
for transport in shm tcp; do
    for victim in 0 2; do
        run env TUTTI_TRANSPORTS=$transport "$tutti" run -n 4 --keep-going \
            "$survive" --kill "$victim" 40
        ends "$transport, rank $victim is killed" 0
        is "three go on" "$(grep -c 'of 3: mean' <<<"$out")" 3
        is "with the same model" \
            "$(sed -n 's/.*mean //p' <<<"$out" | sort -u | grep -c .)" 1
        like "who was killed is named" "$err" \
            "rank $victim .*was killed by signal 9"
        like "the ranks know it, too" "$err" "step [0-9]+: rank $victim is lost"
    done
done

# Without the option the job has failed, however its ranks end.
run "$tutti" run -n 4 "$survive" --kill 2 40
ends "without --keep-going" 137

# One of two is not more than half, unless it is said to be enough.
run "$tutti" run -n 2 --keep-going "$survive" --kill 1 40
ends "one of two" 1
like "is too few" "$err" 'survive: 1 of 2 ranks are left, 2 are needed'
run env TUTTI_QUORUM=1 "$tutti" run -n 2 --keep-going "$survive" --kill 1 40
ends "one of two, with TUTTI_QUORUM=1" 0
like "goes on" "$out" 'rank 0 of 1: mean'

# Who fails does not end the others, and is named; one must end well.
"$tutti" run -n 2 --grace 0.1 --keep-going sh -c '
    [ $TUTTI_RANK = 0 ] || exit 3
    until [ -e "$0/told" ]; do sleep 0.05; done
    sleep 0.5' "$tmp" 2>"$tmp/failed" &
job=$!
awaits grep -qs 'exited with status 3; the others go on' "$tmp/failed"
touch "$tmp/told"
wait $job
is "the others outlive who fails" $? 0
run "$tutti" run -n 2 --keep-going sh -c '[ $TUTTI_RANK = 0 ] || exit 3'
ends "who fails is forgiven" 0
like "and named" "$err" 'rank 1 .*exited with status 3'
run "$tutti" run -n 2 --keep-going sh -c 'exit 3'
ends "all fail" 3
run "$tutti" run -n 2 --keep-going sh -c 'kill -KILL $$'
ends "all are killed" 137
run "$tutti" run -n 3 --keep-going sh -c \
    '[ $TUTTI_RANK != 1 ] || kill -KILL $$; sleep 0.2'
ends "the others end well" 0

finish
