#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# status.sh - what a job tells while it runs: `tutti status` in all its forms,
# Prometheus, SIGUSR1, other users, other hosts; the log at info, its file, and the calls
# before a failure; and who waits at the start says for whom. TAP.
. "$(dirname "$0")/lib.sh"

# -------------------------------------------------------------- the start --
export TUTTI_PATIENCE=1s TUTTI_START_TIMEOUT=3.5s TUTTI_JOB=waits-$$
TUTTI_SIZE=3 TUTTI_RANK=0 run "$tutti" bench -b 8 -e 8
like "rank 0 says who is missing" "$err" "rank 0: waiting 1 s for ranks 1-2 of 3 to come to "
like "and again after twice as long" "$err" "rank 0: waiting 2 s for ranks 1-2 of 3 "
is "and no more" "$(grep -c waiting <<<"$err")" 2
TUTTI_SIZE=3 TUTTI_RANK=1 run "$tutti" bench -b 8 -e 8
like "another rank says that rank 0 is" "$err" "rank 1: waiting 1 s for rank 0 at "
TUTTI_PATIENCE=0s TUTTI_START_TIMEOUT=1.5s TUTTI_SIZE=3 TUTTI_RANK=1 run "$tutti" bench -b 8 -e 8
is "0s: nothing is said" "$(grep -c waiting <<<"$err")" 0
unset TUTTI_PATIENCE TUTTI_START_TIMEOUT TUTTI_JOB

# ---------------------------------------------------------- a job that runs --
metrics=127.0.0.1:$(some_port)
TUTTI_METRICS=$metrics "$tutti" run -n 2 --no-prefix "$tutti" bench \
    -b 1MiB -e 1MiB -n 100000000 >"$tmp/job" 2>"$tmp/job.err" &
launcher=$!
at_exit="kill -KILL $launcher 2>/dev/null; $at_exit"
ranks() {
    pgrep -P "$launcher" -f "^$tutti bench" | head -2
}
is_seen() {
    pid=$(ranks | head -1)
    [ -n "$pid" ] && "$tutti" status "$pid" 2>/dev/null | grep -q 'all-reduce of 1 MiB'
}
awaits is_seen
run "$tutti" status "$pid"
ends "a job by one of its processes" 0
like "its ranks" "$out" "^job .*: 2 ranks"
like "their connections" "$out" " 1 shm"
job=$(sed -n 's/^job \(.*\): 2 ranks/\1/p' <<<"$out")
run "$tutti" status "$job" --json
is "the same as JSON, by its name" "$(python3 -c '
import json, sys
job = json.load(sys.stdin)["jobs"][0]
print(len(job["ranks"]), [r["transports"] for r in job["ranks"]],
      all(r["calls"] > 0 and r["pid"] > 0 for r in job["ranks"]))' <<<"$out")" "2 ['shm', 'shm'] True"
run "$tutti" status no-such-job
ends "a job that is not there" 1
one_sentence "is said so"
like "and where to look" "$err" 'no job no-such-job .* on this host: look on a host of its ranks'
run "$tutti" status "$job" --prometheus
like "for Prometheus" "$out" '^tutti_up\{job="[^"]*",communicator="[0-9a-f]{16}",rank="1",host="[^"]*"\} 1$'
is "each metric has its type" "$(grep -c '^# TYPE tutti_' <<<"$out")" "$(grep -c '^# HELP tutti_' <<<"$out")"
fetch() { # PATH
    python3 -c '
import sys, urllib.request as u
try:
    answer = u.urlopen(f"http://{sys.argv[1]}/{sys.argv[2]}", timeout=60)
    print(answer.status, answer.headers["Content-Type"]); print(answer.read().decode())
except u.HTTPError as e:
    print(e.code)' "$metrics" "$1"
}
out=$(fetch metrics)
like "TUTTI_METRICS answers" "$out" "^200 text/plain; version=0.0.4"
like "with the same" "$out" '^tutti_calls_total\{job="[^"]*",communicator="[0-9a-f]{16}",rank="0",host="[^"]*"\} [0-9]'
is "there is nothing else" "$(fetch other)" 404
printf 'nonsense' | timeout 5 bash -c "cat >/dev/tcp/${metrics/:/\/}" 2>/dev/null
like "nonsense does no harm" "$(fetch metrics)" "^200 "
: >"$tmp/watch"
"$tutti" status "$job" --watch --each 0.1 >"$tmp/watch" 2>&1 &
watcher=$!
is_watched() {
    [ "$(grep -c '^job ' "$tmp/watch")" -ge 3 ]
}
awaits is_watched
kill "$watcher"
wait "$watcher"
pass "--watch looks again and again"
# More microseconds than 32 bits have.
"$tutti" status "$job" --watch --each 4294.98 >"$tmp/rarely" 2>&1 &
watcher=$!
: >"$tmp/watch"
"$tutti" status "$job" --watch --each 0.5 >"$tmp/watch" 2>&1 &
other=$!
awaits is_watched
kill "$watcher" "$other"
is "--each of more than an hour" "$(grep -c '^job ' "$tmp/rarely")" 1

# ------------------------------------------------------------- another user --
name=tutti-status-$(id -u)-$pid
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && [ -x /usr/bin/python3 ]; then
    as_nobody() {
        run setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
    }
    cp "$tutti" "$tmp/tutti"
    chmod 711 "$tmp"
    chmod 755 "$tmp/tutti"
    as_nobody "$tmp/tutti" status "$job"
    ends "another user sees no job" 1
    as_nobody /usr/bin/python3 -c "
import socket
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect('\0$name')
try:
    s.sendall(bytes(160))
    print(len(s.recv(1)))
except ConnectionError:
    print(0)"
    is "and is refused where he knows the socket" "$out" 0
else
    skip "another user" "needs root, setpriv and the system's python3"
fi

# ------------------------------------------------------------------ SIGUSR1 --
has_table() { # FILE N
    [ "$(grep -c "^job $job: 2 ranks" "$1")" -ge "$2" ]
}
kill -USR1 "$launcher"
awaits has_table "$tmp/job.err" 1
pass "SIGUSR1 to tutti run shows it"
kill -USR1 "$pid"
awaits has_table "$tmp/job.err" 2
pass "and to a rank"
"$tutti" status "$job" >/dev/null
is "nobody has died of it" "$?" 0
kill "$launcher"
wait "$launcher"
run "$tutti" status "$job"
ends "when the job is over there is none" 1

# --------------------------------------------------------------- two hosts --
sees() { # HOST'S-NAMESPACE STATES: of the ranks, as that host tells them
    out=$(ip netns exec "$1" "$tutti" status 2>&1)
    rows=$(awk -F '  +' '/^[0-3] / { printf "%s%s %s", sep, $2, $4; sep = ", " }' \
        <<<"$out")
    grep -qE "^$2\$" <<<"$rows"
}
told() { # WHAT HOST'S-NAMESPACE STATES
    if awaits sees "$2" "$3"; then
        pass "$1"
    else
        fail "$1" "wanted: $3" "got: $out"
    fi
}
works='(in calls?|outside)' silent='no answer'
what="four ranks on two hosts"
if ! two_hosts ts 215; then
    skip "$what" "cannot make two hosts: $(head -1 "$tmp/err")"
else
    TUTTI_LIVENESS=100s TUTTI_RECONNECT=100s "$tutti" run --rsh "$tmp/netns" \
        -H "$ip_a:2,$ip_b:2" "$tutti" bench -b 1MiB -e 1MiB -n 100000000 \
        >"$tmp/job" 2>"$tmp/job.err" &
    launcher=$!
    at_exit="kill -KILL $launcher 2>/dev/null; $at_exit"
    all="left $works, left $works, right $works, right $works"
    for host in "$a" "$b"; do
        told "$what, seen from each" "$host" "$all"
    done
    like "each has its connections" "$out" '  3 (shm,tcp|tcp,shm)$'
    kill -USR1 "$launcher"
    awaits grep -q '^job run-.*: 4 ranks$' "$tmp/job.err"
    pass "SIGUSR1 to a tutti run that has no rank beside it shows them all the same"
    job=$(sed -n 's/^job \(run-.*\): 4 ranks$/\1/p' "$tmp/job.err")
    said=$("$tutti" status "$job" --json 2>&1)
    is "on its host it is seen by its name, as JSON" "$(python3 -c '
import json, sys
job = json.load(sys.stdin)["jobs"][0]
print([r["host"] for r in job["ranks"]], all(r["pid"] > 0 for r in job["ranks"]))' \
        <<<"$said" 2>&1)" "['left', 'left', 'right', 'right'] True"
    said=$("$tutti" status "$job-not" 2>&1)
    is "another name is not there" "$?" 1
    far=$(awk -F '  +' '/^[23] / { print $3 }' <<<"$out")
    at_exit="kill -KILL $(echo $far) 2>/dev/null; $at_exit"
    kill -STOP $far
    told "a host that is frozen" "$a" "left $works, left $works, right $silent, right $silent"
    like "is said to be" "$out" '^rank 2 does not answer \(stopped, or cut off\?\)'
    like "there itself, too" "$(ip netns exec "$b" "$tutti" status 2>&1)" \
        "^process ${far##*$'\n'} does not answer: it is stopped$"
    kill -CONT $far
    told "it goes on" "$a" "$all"
    ip -n "$a" link set "v$a" down
    told "a link that is down" "$a" "left $works, left $works, right $silent, right $silent"
    told "seen from the other end" "$b" "left $silent, left $silent, right $works, right $works"
    ip -n "$a" link set "v$a" up
    told "it is up again" "$a" "$all"
    kill "$launcher"
    wait "$launcher"
    is "what ranks answer is not among what they print" "$(grep -c 'tutti-status' "$tmp/job.err")" 0

    # Ranks that are none of Tutti's have nothing to tell; what they print stays whole,
    # a line without an end, too.
    rm -f "$tmp/out"
    cat >"$tmp/stranger" <<'R'
#!/bin/sh
printf "no " >&2
echo "ready $TUTTI_JOB"
read -r line </proc/self/fd/8
echo "end: ${#line}" >&2
sleep 100
R
    chmod +x "$tmp/stranger"
    "$tutti" run --rsh "$tmp/netns" -H "$ip_a,$ip_b" --no-prefix "$tmp/stranger" \
        >"$tmp/out" 2>"$tmp/job.err" &
    launcher=$!
    at_exit="kill -KILL $launcher 2>/dev/null; $at_exit"
    until_ready 2
    job=$(sed -n 's/^ready //p' "$tmp/out" | head -1)
    run "$tutti" status "$job"
    ends "ranks that are no job of Tutti's" 1
    like "are said to be none" "$err" "no job $job of this user has a process on this host"
    run "$tutti" status
    is "and not to be silent" "$(grep -c "process $launcher does not" <<<"$out")" 0
    awaits grep -q '^no end: 16$' "$tmp/job.err"
    pass "though they have been asked"
    kill "$launcher"
    wait "$launcher"
fi

# ------------------------------------------------- the calls before a failure --
has_many() {
    "$tutti" status "$pid" --json | grep -qE '"calls":[0-9]{4}'
}
kill_one() { # SETTING: a job that has made many calls loses a rank
    env "$1" "$tutti" run -n 2 "$tutti" bench -b 1MiB -e 1MiB \
        -n 100000000 >"$tmp/job" 2>"$tmp/job.err" &
    launcher=$!
    at_exit="kill -KILL $launcher 2>/dev/null; $at_exit"
    awaits is_seen
    awaits has_many
    kill -KILL "$(ranks | tail -1)"
    wait "$launcher"
}
kill_one TUTTI_CALLS_FILE="$tmp/calls.%r"
calls=$(cat "$tmp"/calls.*)
is "who is left writes the last calls" "$(ls "$tmp"/calls.* | wc -l)" 1
like "why" "$calls" "^# tutti .*, rank [01] of 2: rank [01] is lost: "
like "the last one" "$(tail -1 <<<"$calls")" "^call [0-9]+: all-reduce of 262144 f32 sum, begun .* ago, failed after "
is "256 of them" "$(grep -c '^call' <<<"$calls")" 256
kill_one TUTTI_LOG=info
is "without a file the log has eight" "$(grep -c 'info rank .: call [0-9]*: all-reduce' "$tmp/job.err")" 8

# ------------------------------------------------------------------ the log --
run env TUTTI_LOG=info TUTTI_TOPOLOGY=star:2@1Gbit TUTTI_LOG_FILE="$tmp/%r.log" \
    "$tutti" run -n 2 "$tutti" bench -b 1KiB -e 64KiB -f 64
ends "a log file for each rank" 0
log=$(cat "$tmp/0.log")
like "version and launcher" "$log" "info rank 0: tutti [0-9.]+.*: rank 0 of 2 on .*, started by TUTTI_RANK, 1 host$"
like "binding" "$log" "processors: [0-9,-]+, of [0-9]+ for the 2 ranks"
like "transports" "$log" "connects by shm with 1; planner auto"
like "plans beside the optimum" "$log" \
    'all-reduce up to 64 KiB: [a-z]+, predicted [0-9.]+ us, 0\.[0-9]{2} of the optimum$'
like "or beside a bound of it" "$log" \
    'all-reduce up to 8 B: [a-z]+, predicted [0-9.]+ us, at least [01]\.[0-9]{2} of the optimum$'
like "what ends" "$log" "communicator .* ends: [0-9]+ calls, "
is "rank 1 has a file of its own" "$(grep -c 'rank 1 of 2' "$tmp/1.log")" 1
mkfifo "$tmp/pipe"
run env TUTTI_LOG=info TUTTI_LOG_FILE="$tmp/pipe" "$tutti" run -n 1 "$tutti" bench -b 8 -e 8
ends "a pipe that nobody reads holds up nobody" 0
like "and is told" "$err" "TUTTI_LOG_FILE: cannot write .*/pipe: "
cat "$tmp/pipe" >/dev/null &
reader=$!
at_exit="kill -KILL $reader 2>/dev/null; $at_exit"
exec 9<>"$tmp/pipe"
run env TUTTI_LOG_FILE="$tmp/pipe" "$tutti" run -n 1 "$tutti" bench -b 8 -e 8
like "nor does one that somebody might read" "$err" "pipe: it is a pipe; name a file"
exec 9>&-
mkdir "$tmp/shared"
chmod 1777 "$tmp/shared"
echo mine >"$tmp/precious"
ln -s "$tmp/precious" "$tmp/shared/log"
run env TUTTI_LOG=info TUTTI_LOG_FILE="$tmp/shared/log" "$tutti" run -n 1 "$tutti" bench -b 8 -e 8
is "where everybody may write links are not followed" "$(cat "$tmp/precious")" mine
run env TUTTI_LOG=info TUTTI_LOG_FILE="$tmp/shared/own" "$tutti" run -n 1 "$tutti" bench -b 8 -e 8
like "a file of one's own is fine there" "$(cat "$tmp/shared/own")" "info rank 0: tutti "
if [ "$(id -u)" = 0 ]; then
    echo theirs >"$tmp/shared/theirs"
    chown 65534 "$tmp/shared/theirs"
    run env TUTTI_LOG=info TUTTI_LOG_FILE="$tmp/shared/theirs" "$tutti" run -n 1 "$tutti" bench -b 8 -e 8
    is "one of another user is not" "$(cat "$tmp/shared/theirs")" theirs
else
    skip "one of another user is not" "needs root to make one"
fi
run env TUTTI_LOG=trace "$tutti" run -n 2 "$tutti" bench -b 8 -e 8 -n 1 -w 0
like "trace tells each call" "$err" "trace rank 1: communicator .* call [0-9]+: all-reduce of 8 B is done"
run env TUTTI_LOG=debug "$tutti" run -n 2 "$tutti" bench -b 8 -e 8 -n 1 -w 0
is "debug does not" "$(grep -c 'call [0-9]*: all-reduce' <<<"$err")" 0
finish
