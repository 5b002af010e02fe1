#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# drift.sh - a link falls to half of its rate in the middle of a job, and later is
# as it was: both are told once, all ranks plan for it, and results stay right.
. "$(dirname "$0")/lib.sh"

export B TUTTI_LOG=info

needs_lab "a link whose rate changes"
name=$("$lab" up star:4@200Mbit) || exit 1
at_exit='"$lab" down "$name" >/dev/null 2>&1;'$at_exit

rate() { # of h1's link, both ways
    local how="root tbf rate $1 burst 128kb limit 1mb"
    tc -n "$name-h1" qdisc change dev eth0 $how
    tc -n "$name+net" qdisc change dev p1b $how
}
# job N NAME=VALUE...: N calls of 1 MiB, of which the first take 80 ms; half a
# second after they have begun h1's link falls to half, until that was told
job() {
    local n=$1
    shift
    rate 200mbit
    : >"$tmp/err"
    timeout -k 5 $limit env TUTTI_TOPOLOGY=star:4@200Mbit "$@" "$lab" run "$name" -- \
        "$tutti" bench -b 1MiB -e 1MiB -n "$n" -w 2 --inplace 0 >"$tmp/out" 2>"$tmp/err" </dev/null &
    pid=$!
    awaits have_begun
    sleep 0.5
    [ -z "$half" ] || rate 100mbit
    awaits has_said "$slower"
    rate 200mbit
    wait $pid
    rc=$?
    out=$(cat "$tmp/out") err=$(cat "$tmp/err")
}
have_begun() {
    [ "$(grep -c ' hosts$' "$tmp/err")" -ge 4 ]
}
has_said() { # PATTERN; or nothing more is to come
    grep -qE -- "$1" "$tmp/err" || ! kill -0 $pid 2>/dev/null
}
right() {
    ends "$1" 0
    like "the results are right" "$out" '# Out of bounds values : 0 OK'
}
# Where ranks wait for processors calls are slow, too: then nothing is changed.
# What is not as it should be may not be Tutti's fault then.
on_quiet_machine() { # CHECK WHAT...
    local starved='; rank [0-3] has waited for a processor for ([2-9][0-9]|100) %'
    if [[ $("$@") == not* ]] && grep -qE "$starved" <<<"$err"; then
        skip "$2" "other work on this machine takes its processors"
    else
        "$@"
    fi
}
# ids: of the networks that ranks have planned for, how many ranks each
ids() { sed -nE 's/.*plans are for the network ([0-9a-f]{16}) .*/\1/p' <<<"$err" | sort | uniq -c | awk '{print $1}' | sort -n | tr '\n' ' '; }

slower='rank 0: the link h1 - core carries [0-9.]+ Mbit/s instead of 200 Mbit/s: .*; from here on all ranks plan for that'
# With TT_LONG there are more calls, and two jobs more (`make check-long`).
again='rank 0: the link h1 - core carries 200 Mbit/s instead of '
half=yes
for try in 1 2 3; do # something else may run at the same time
    n=120
    [ "$try${TT_LONG-}" != 1 ] || n=60
    job $n
    right "a link that falls to half"
    grep -qE -- "$again" <<<"$err" && break
done
on_quiet_machine like "is told" "$err" "$slower"
on_quiet_machine like "and that it is as it was" "$err" "$again"
on_quiet_machine is "all plan for each, once" "$(ids)" "4 8 "

[ -n "${TT_LONG-}" ] || finish

job 30 TUTTI_DRIFT=0
right "with TUTTI_DRIFT=0"
is "nobody looks" "$(ids)" "4 "

half=
job 40
right "a link that stays as it is"
is "is no reason to say anything" "$(grep -c ' instead of ' <<<"$err")" 0
finish
