#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# controller.sh - `tutti controller`: workers find it, its log replays, its
# summary adds up, and what is wrong is said. TAP.
cd "$(dirname "$0")/../.." || exit 1
. tests/proc/lib.sh

# A controller waits for one of three; what it says is looked at in the end.
export TUTTI_PATIENCE=1s
"$tutti" controller -n 3 --group 2 --listen 127.0.0.1:0 \
    >/dev/null 2>"$tmp/waits" &
patient=$!
listens "$tmp/waits"
for worker in 0 2; do
    TUTTI_CONTROLLER=127.0.0.1:$port timeout $limit "$B/examples/partial" \
        --worker "$worker" --steps 30 >/dev/null 2>"$tmp/waits$worker" &
    patients="${patients-} $!"
done
unset TUTTI_PATIENCE

# Three workers of the example, by the controller in another process.
log=$tmp/groups.log
"$tutti" controller -n 3 --group 2 --recentre 10 --listen 127.0.0.1:0 \
    --log "$log" --json >"$tmp/summary" 2>"$tmp/where" &
controller=$!
at_exit='kill "$controller" $patient $patients 2>/dev/null; rm -rf "$tmp"'
listens "$tmp/where"
for worker in 0 1 2; do
    TUTTI_CONTROLLER=127.0.0.1:$port timeout $limit "$B/examples/partial" \
        --worker "$worker" --steps 30 >"$tmp/worker$worker" 2>&1 &
    workers="${workers-} $!"
done
failed=0
for pid in $workers; do
    wait "$pid" || failed=$((failed + 1))
done
is "three workers end well" "$failed" 0
cat "$tmp"/worker* | grep -v '^worker' | sed 's/^/# /'
is "they end with one model" \
    "$(sed -n 's/.*mean //p' "$tmp"/worker* | sort -u | wc -l)" 1
wait "$controller"
is "the controller ends when they have gone" $? 0
like "its summary is JSON" "$(python3 -m json.tool <"$tmp/summary")" '"groups"'
is "all have left" "$(python3 -c 'import json, sys
m = json.load(open(sys.argv[1]))
print(m["joins"], m["leaves"], m["deaths"], m["broken"], m["kinds"][2])' \
    "$tmp/summary")" "3 3 0 0 1"

run "$tutti" controller --replay "$log" --standby 127.0.0.1:1
ends "--replay and --standby together" 2
run "$tutti" controller --replay "$log" --json
ends "the log replays" 0
is "... to the same summary" "$out" "$(cat "$tmp/summary")"
run "$tutti" controller --replay "$log"
like "... in words, too" "$out" '^sizes .* 2: '
sed '0,/^group \([0-9]*\) ordinary/s//group \1 final/' "$log" >"$tmp/other"
run "$tutti" controller --replay "$tmp/other"
ends "a log that was changed does not" 1
like "... and where is said" "$err" 'line [0-9]+: the rule decides otherwise'

head -c -3 "$log" >"$tmp/other"
run "$tutti" controller --replay "$tmp/other"
like "a log that was cut off is damaged" "$err" 'the log ends within a line'
{ head -n 5 "$log"; head -c 100 /dev/zero; tail -n +6 "$log"; } >"$tmp/other"
run "$tutti" controller --replay "$tmp/other"
like "... with zeros in it, too" "$err" 'byte [0-9]+ is 0'
sed '0,/^\([0-9]* announce .*\)$/s//\1 lst/' "$log" >"$tmp/other"
run "$tutti" controller --replay "$tmp/other"
like "an event that was changed is no event" "$err" 'writes this event otherwise'

# Without a secret the job's name says who belongs to a controller that has one.
rm "$tmp/where"
TUTTI_JOB=mine "$tutti" controller -n 1 --listen 127.0.0.1:0 \
    >/dev/null 2>"$tmp/where" &
controller=$!
listens "$tmp/where"
for job in other ''; do
    run env TUTTI_JOB=$job TUTTI_CONTROLLER=127.0.0.1:$port "$B/examples/partial" \
        --worker 0 --steps 3
    like "a worker of the job '$job' is not let in" "$err" "controller is another job's"
done
run env TUTTI_JOB=mine TUTTI_CONTROLLER=127.0.0.1:$port "$B/examples/partial" \
    --worker 0 --steps 3
ends "one of the same job is" 0
wait "$controller"

run "$tutti" controller
ends "a number of workers is needed" 2
run "$tutti" controller -n 4 --group 5
ends "groups that are too large" 1
one_sentence "... are refused in one sentence"
run "$tutti" controller -n 4 --group many
ends "a size that is none" 2
run "$tutti" controller -n 4 --listen nowhere
ends "a place that is none" 1
rm "$tmp/where"
"$tutti" controller -n 2 --max-workers 2 --stay --listen 127.0.0.1:0 --log "$tmp/joined" \
    >/dev/null 2>"$tmp/where" &
controller=$!
listens "$tmp/where"
run env TUTTI_CONTROLLER=127.0.0.1:"$port" "$B/examples/partial" --worker 7
like "a worker that does not exist is refused" "$err" "workers go from 0 to 1.*max-workers 2"
TUTTI_CONTROLLER=127.0.0.1:$port "$B/examples/partial" --worker 1 \
    >/dev/null 2>&1 &
other=$!
at_exit='kill "$controller" "$other" $patient $patients 2>/dev/null; rm -rf "$tmp"'
awaits grep -qs ' join 1 ' "$tmp/joined"
run env TUTTI_START_TIMEOUT=5s TUTTI_CONTROLLER=127.0.0.1:"$port" \
    "$B/examples/partial" --worker 1
like "two cannot be one worker" "$err" 'another process is worker 1'
kill "$other" "$controller"
at_exit='kill $patient $patients 2>/dev/null; rm -rf "$tmp"'

# More workers than there were at the start: by a number, and by none.
rm "$tmp/where"
"$tutti" controller -n 1 --max-workers 50 --listen 127.0.0.1:0 \
    --log "$tmp/grown" --json >"$tmp/summary" 2>"$tmp/where" &
controller=$!
at_exit='kill "$controller" $patient $patients 2>/dev/null; rm -rf "$tmp"'
listens "$tmp/where"
workers=
for worker in 0 49 -1; do
    steps=60
    [ "$worker" != 0 ] || steps=4000 # there until the others have come
    TUTTI_CONTROLLER=127.0.0.1:$port timeout $limit "$B/examples/partial" \
        --worker "$worker" --steps $steps >"$tmp/worker$worker" 2>&1 &
    workers="$workers $!"
    [ "$worker" != 0 ] || awaits grep -qs "join 0" "$tmp/grown"
done
failed=0
for pid in $workers; do
    wait "$pid" || failed=$((failed + 1))
done
is "workers that come later end well" "$failed" 0
is "they end with one model" \
    "$(sed -n 's/.*mean //p' "$tmp"/worker{0,49,-1} | sort -u | wc -l)" 1
wait "$controller"
run "$tutti" controller --replay "$tmp/grown" --json
ends "the log of their coming replays" 0
is "... to the same summary" "$out" "$(cat "$tmp/summary")"
like "... which counts numbers" "$out" '"workers": 50'
at_exit='kill $patient $patients 2>/dev/null; rm -rf "$tmp"'

# Whoever connects and says nothing keeps nobody away, nor does a lack of
# descriptors; and a log that cannot be written is said once. A connection may be
# silent for 10 s: workers do not wait for that.
export TUTTI_START_TIMEOUT=8s
(
    ulimit -n 40
    exec "$tutti" controller -n 3 --group 2 --listen 127.0.0.1:0 \
        --log /dev/full 2>"$tmp/full"
) >"$tmp/summary" &
controller=$!
at_exit='kill "$controller" $patient $patients 2>/dev/null; rm -rf "$tmp"'
listens "$tmp/full"
for _ in $(seq 60); do
    exec {idle}<>"/dev/tcp/127.0.0.1/$port" && printf t >&"$idle"
done 2>/dev/null
workers=
for worker in 0 1 2; do
    TUTTI_CONTROLLER=127.0.0.1:$port timeout $limit "$B/examples/partial" \
        --worker "$worker" --steps 30 >"$tmp/worker$worker" 2>&1 &
    workers="$workers $!"
done
failed=0
for pid in $workers; do
    wait "$pid" || failed=$((failed + 1))
done
is "workers join beside 60 that idle" "$failed" 0
cat "$tmp"/worker* | grep -v '^worker' | sed 's/^/# /'
wait "$controller"
is "the controller ends when they have gone" $? 0
is "a full disk is told once" \
    "$(grep -c 'the log /dev/full ends here' "$tmp/full")" 1
unset TUTTI_START_TIMEOUT

run "$B/examples/partial" --worker 0
ends "a worker without a controller" 1
like "... says what to set" "$err" TUTTI_CONTROLLER
run env TUTTI_START_TIMEOUT=300ms TUTTI_CONTROLLER=127.0.0.1:1 \
    "$B/examples/partial" --worker 0
ends "a controller that is not there" 1
like "... is named" "$err" 'no controller answers at 127.0.0.1:1'

# Nobody waits in silence.
for s in 1 2; do
    awaits grep -qs "waiting $s s" "$tmp/waits"
    awaits grep -qs "waiting $s s" "$tmp/waits0"
    awaits grep -qs "waiting $s s" "$tmp/waits2"
    like "after $s s a controller says for whom it waits" "$(cat "$tmp/waits")" \
        "partial reduce: waiting $s s for worker 1 of 3, which has not come"
    like "... and so do workers" "$(cat "$tmp/waits2")" \
        "worker 2: waiting $s s for worker 1 of 3, which has not come"
done
kill $patient $patients 2>/dev/null

# Between hosts workers meet by TCP, at the addresses that the controller saw.
export B
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
    skip "workers on four hosts" "needs root, iproute2 and tc to make a lab"
else
    run lab/lab run racks:2+2@400Mbit --topology -- \
        "$B/examples/partial" --group 3 --steps 12
    if [ "$rc" != 0 ] && ! grep -q '^worker' <<<"$out"; then
        skip "workers on four hosts" "cannot make a lab: ${err##*$'\n'}"
    else
        is "workers on four hosts end with one model" \
            "$(sed -n 's/.* 0 broke, mean //p' <<<"$out" | sort | uniq -c |
                awk '{ print $1 }')" 4
    fi
fi
finish
