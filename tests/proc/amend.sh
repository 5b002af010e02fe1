#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# amend.sh - a job whose costs were told wrong: planners are tried, each once, by
# what calls take, and the job ends well. No timings.
. "$(dirname "$0")/lib.sh"

export TUTTI_LOG=info
large="bench -b 1MiB -e 1MiB -n 150 -w 2"
says='all-reduce of 1 MiB: by [a-z]* they take .*, predicted were .*; (tried is|from now on they go by) [a-z]*$'
n_said() { grep -cE "$says" <<<"$out$err"; }
tried() { sed -nE 's/.*all-reduce of 1 MiB: by ([a-z]*) they take .*/\1/p' <<<"$out$err"; }

# A message for a second, a byte for nothing: nobody would choose but doubling.
for transport in shm tcp; do
    TUTTI_TRANSPORTS=$transport TUTTI_COSTS=1000000000,1,1 run "$tutti" run -n 4 -- "$tutti" $large
    ends "$transport: a job with wrong costs ends well" 0
    is "it begins by what it was told" "$(tried | head -n 1)" doubling
    like "that is not what calls take" "$out$err" \
        'all-reduce of 1 MiB: by doubling they take [0-9.]* [mu]s, predicted were 2 s; tried is '
    is "nobody is tried twice" "$(tried | sort | uniq -d)" ""
    like "it comes to an end" "$out$err" 'from now on they go by [a-z]*$'
done
no_trial() { # WHAT COMMAND...
    local what=$1
    shift
    run "$@"
    ends "$what: the job ends well" 0
    is "nothing is tried" "$(n_said)" 0
}
no_trial "TUTTI_DRIFT=0" env TUTTI_DRIFT=0 TUTTI_COSTS=1000000000,1,1 "$tutti" run -n 4 -- "$tutti" $large
no_trial "TUTTI_COSTS=off" env TUTTI_COSTS=off "$tutti" run -n 4 -- "$tutti" $large
no_trial "a named planner" env TUTTI_PLANNER=doubling TUTTI_COSTS=1000000000,1,1 "$tutti" run -n 4 -- "$tutti" $large
no_trial "a named network" env TUTTI_TOPOLOGY=star:4@1Gbit TUTTI_COSTS=1000000000,1,1 "$tutti" run -n 4 -- "$tutti" $large
finish
