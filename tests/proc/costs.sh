#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# costs.sh - what messages and bytes cost is measured when a job starts, or told,
# and plans go by it; the plans of all ranks are the same, or no call would end. No
# timings.
. "$(dirname "$0")/lib.sh"

bench="bench -b 1KiB -e 1MiB -f 32 -n 2 -w 1"
large="bench -b 1MiB -e 1MiB -n 2 -w 1"
measured='measured in .*: a message takes .* us, a byte .* ns, reducing one .* ns'
n_measured() { # on a busy machine calls may be too long for it
    grep -cE "$measured|costs could not be measured" <<<"$out$err"
}
# Of all-reduces of a size. A plan is told once, of the first size that has it: the
# first call of all is the program's own, by which ranks tell their names.
planner() {
    sed -nE "s/.*all-reduce of ($1|[1-9][0-9][0-9] B): ([a-z0-9]*); charged: .*/\2/p" \
        <<<"$out$err" | tail -1
}
told() { # the numbers, as they are told to another job
    grep -oE 'TUTTI_COSTS=[0-9]+,[0-9]+,[0-9]+' <<<"$out$err"
}

export TUTTI_LOG=info
for n in 2 3 8; do
    run "$tutti" run -n $n -- "$tutti" $bench
    ends "$n ranks of one host end well" 0
    is "they have measured, rank 0 says so" "$(n_measured)" 1
    TUTTI_TRANSPORTS=tcp run "$tutti" run -n $n -- "$tutti" $bench
    ends "$n ranks over tcp end well" 0
    is "they have measured, too" "$(n_measured)" 1
done
run "$tutti" run -n 1 -- "$tutti" $bench
is "one rank has nothing to measure" "$(n_measured)" 0
TUTTI_COSTS=off run "$tutti" run -n 3 -- "$tutti" $bench
ends "a job that does not measure ends well" 0
is "it has not measured" "$(n_measured)" 0
TUTTI_TOPOLOGY=star:3@1Gbit run "$tutti" run -n 3 -- "$tutti" $bench
ends "a job whose network is told ends well" 0
is "nor is there anything measured" "$(n_measured)" 0

# What is planned to measure serves the program's first calls as well.
TUTTI_COSTS=measure TUTTI_LOG=debug run "$tutti" run -n 4 -- "$tutti" bench -b 8 -e 8 -n 1 -w 0
ends "a job that measures ends well" 0
like "it has planned" "$out$err" 'rank 1: doubling plans all-reduce'
is "nothing twice" \
    "$(grep -oE 'rank 1: [a-z0-9]+ plans [a-z-]+' <<<"$out$err" | sort | uniq -d)" ""

# A message for a second, a byte for nothing; and the other way round.
TUTTI_COSTS=1000000000,1,1 run "$tutti" run -n 4 -- "$tutti" $large
ends "a job whose costs are told ends well" 0
is "it has not measured" "$(n_measured)" 0
cpus=$(nproc)
case $cpus in
2) dear=doubling charged=2.25 ;; # two ranks to each: all have one turn
*) dear=oneshot charged=1.5 ;;
esac
is "dear messages: the fewest steps" "$(planner '1 MiB')" $dear
like "what each planner is charged" "$out$err" \
    "all-reduce of (1 MiB|512 B): $dear; charged: ring 6 s, .*oneshot $charged s"
explained() { # COSTS: what the program says that 4 ranks of this host take
    local crowd=()
    [ "$cpus" -ge 4 ] || crowd=(--crowd "$(python3 -c "print(4 / $cpus)")")
    TUTTI_COSTS=$1 "$tutti" plan --explain --ranks 4 --one-host "${crowd[@]}" --size 1MiB |
        sed -n 's/^# auto takes //p'
}
is "the program explains the same" "$(explained 1000000000,1,1)" $dear
TUTTI_COSTS=1,1000000,1 run "$tutti" run -n 4 -- "$tutti" $large
is "dear bytes: the fewest bytes" "$(planner '1 MiB')" ring
is "the program explains the same" "$(explained 1,1000000,1)" ring
TUTTI_COSTS=20000,900,90 run "$tutti" run -n 4 -- "$tutti" $large
is "between, it explains the same" "$(explained 20000,900,90)" "$(planner '1 MiB')"
TUTTI_COSTS=1,1000000,1 run "$tutti" run -n 4 -- "$tutti" $bench
is "also for few of them" "$(planner '1 KiB')" ring
for again in 1 2 3 4 5; do # likewise
    run "$tutti" run -n 2 -- "$tutti" $large
    costs=$(told) first=$(planner '1 MiB')
    [ -z "$costs" ] || break
done
like "what was measured is told in full" "$out$err" "$measured"
run env "$costs" "$tutti" run -n 2 -- "$tutti" $large
is "what one job has measured is told to the next, which plans alike" \
    "$(planner '1 MiB')" "$first"

# What was measured is kept, and found by the next job of the same ranks.
export TUTTI_PROBE_CACHE=$tmp/cache
found='found: a message takes'
n_found() { grep -cE "$found" <<<"$out$err"; }
files() { find "$tmp/cache" -name '*.costs' | wc -l; }
measures() { # until it has, and keeps it: on a busy machine calls may be too long
    local i
    for i in 1 2 3 4 5 6 7 8; do
        run "$@"
        [ -z "$(told)" ] || grep -q 'these costs are not kept' <<<"$out$err" || break
    done
}
measures "$tutti" run -n 2 -- "$tutti" $large
costs=$(told) first=$(planner '1 MiB')
is "the first job measures" "$(n_found)" 0
is "and keeps it" "$(files)" 1
run "$tutti" run -n 2 -- "$tutti" $large
ends "the second ends well" 0
is "it has found what was kept" "$(n_found)" 1
is "the same numbers" "$(told)" "$costs"
is "the same plan" "$(planner '1 MiB')" "$first"
run env TUTTI_SPIN=2ms "$tutti" run -n 2 -- "$tutti" $large
is "who polls for longer is another job" "$(n_found)" 0
run "$tutti" run -n 3 -- "$tutti" $large
is "so are more ranks" "$(n_found)" 0
run taskset -c "$(awk '/Cpus_allowed_list/ { split($2, a, "[-,]"); print a[1] }' /proc/self/status)" \
    "$tutti" run -n 2 -- "$tutti" $large
[ "$(nproc)" = 1 ] || is "and fewer processors" "$(n_found)" 0
run env TUTTI_COSTS=measure "$tutti" run -n 2 -- "$tutti" $large
ends "who says measure measures anew" 0
is "it has not looked" "$(n_found)" 0
run env TUTTI_PROBE_CACHE=off "$tutti" run -n 2 -- "$tutti" $large
is "without a cache it is measured" "$(n_found)" 0
# Ranks have other caches, or none, or another value: rank 0's counts.
measures "$tutti" run -n 2 -- "$tutti" $large
costs=$(told)
cat >"$tmp/apart" <<'END'
[ "$TUTTI_RANK" = 0 ] || export TUTTI_PROBE_CACHE=$OTHER TUTTI_COSTS=off
exec "$@"
END
for other in off "$tmp/none" "$tmp/wrong"; do
    mkdir -p "$tmp/wrong"
    for file in "$tmp"/cache/*.costs; do
        sed 's/^[0-9].*/1,1,1/' "$file" >"$tmp/wrong/${file##*/}"
    done
    OTHER=$other run "$tutti" run -n 2 -- bash "$tmp/apart" "$tutti" $large
    ends "rank 1 has another cache: it ends well" 0
    is "rank 0's counts" "$(told)" "$costs"
done
# Damaged, or writable by others: a warning, and measured.
spoil() { # WHAT SENTENCE COMMAND...: on each file
    local what=$1 sentence=$2
    shift 2
    measures "$tutti" run -n 2 -- "$tutti" $large
    find "$tmp/cache" -name '*.costs' -exec "$@" {} +
    run "$tutti" run -n 2 -- "$tutti" $large
    ends "$what: the job ends well" 0
    is "it has measured" "$(n_found)" 0
    like "and says why" "$err" "tutti warn rank 0: .*$sentence; the cost of messages is measured again"
}
spoil "a damaged file" "is damaged" sed -i 's/^[0-9][0-9]*,/7,/'
spoil "an empty file" "is damaged" truncate -s 0
spoil "a file that others can write" "users other than this one can write to it" chmod o+w
# An old one does not count, and goes.
rm -r "$tmp/cache"
measures "$tutti" run -n 2 -- "$tutti" $large
touch "$tmp/cache/report.costs" # somebody else's
find "$tmp/cache" -name '*.costs' -exec touch -d '2 days ago' {} +
measures "$tutti" run -n 3 -- "$tutti" $large
is "an old one is removed when another is kept, and no file of others" "$(files)" 2
find "$tmp/cache" -name '*.costs' -exec touch -d '2 days ago' {} +
run "$tutti" run -n 3 -- "$tutti" $large
is "an old one is not found" "$(n_found)" 0
run env TUTTI_PROBE_CACHE=/proc/nowhere "$tutti" run -n 2 -- "$tutti" $large
ends "a cache that cannot be: it ends well" 0
is "without a warning" "$(grep -c 'tutti warn' <<<"$err")" 0
export TUTTI_PROBE_CACHE=off

unset TUTTI_LOG
for bad in x 1 1,2 1,2,3,4 0,1,1 1,2,x ,, auto,1 99999999999999999999,1,1; do
    TUTTI_COSTS=$bad run "$tutti" bench -b 8 -e 8 -n 1 -w 0
    is "TUTTI_COSTS=$bad is refused" "$(grep -cF "TUTTI_COSTS: \"$bad\" is none of auto, measure, off, and three numbers" <<<"$err")" 1
done
finish
