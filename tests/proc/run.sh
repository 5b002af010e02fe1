#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh - `tutti run` on this machine: output, input, failures, signals, and
# that nothing is left behind.
. "$(dirname "$0")/lib.sh"

# A word that only the processes of this test have on their command line.
mark=$((RANDOM + 100000)).$$
now_ms() {
    date +%s%3N
}

# -- environment and output ---------------------------------------------------
run env TUTTI_ADDR=stale:1 RANK=7 "$tutti" run -n 3 sh -c \
    'echo "$TUTTI_RANK of $TUTTI_SIZE, job ${TUTTI_JOB:+named}, ${TUTTI_ADDR-no address}"'
ends "three ranks succeed" 0
is "each knows who it is, prefixed with its rank" "$(sort <<<"$out")" \
    "[0] 0 of 3, job named, no address
[1] 1 of 3, job named, no address
[2] 2 of 3, job named, no address"
run "$tutti" run -n 2 --no-prefix echo x
is "--no-prefix" "$out" "x
x"
run "$tutti" run -n 2 sh -c 'echo "error of $TUTTI_RANK" >&2; echo good'
is "standard error stays apart" "$(sort <<<"$err")" \
    "[0] error of 0
[1] error of 1"
run "$tutti" run -n 2 printf 'one\n\nno end'
is "empty lines, and a last line without an end" "$(sort <<<"$out")" \
    "[0] 
[0] no end
[0] one
[1] 
[1] no end
[1] one"
run sh -c 'ulimit -n 64; exec "$@"' sh "$tutti" run -n 64 sleep 300
ends "too few descriptors for so many ranks end the job" 1
like "and it is said" "$err" \
    'cannot start rank [0-9]+: Too many open files'
run "$tutti" run -n 4 seq 20000
is "no line is lost or mixed" \
    "$(sort <<<"$out" | md5sum)" \
    "$(for r in 0 1 2 3; do seq 20000 | sed "s/^/[$r] /"; done | sort | md5sum)"
head -c 3000000 /dev/urandom >"$tmp/binary"
"$tutti" run -n 1 --no-prefix cat "$tmp/binary" >"$tmp/copy"
is "binary output is not changed" \
    "$(cmp "$tmp/binary" "$tmp/copy" && echo same)" same
is "a line of 3 MB in one piece" \
    "$("$tutti" run -n 1 sh -c 'head -c 3000000 /dev/zero | tr "\0" x' | wc -lc |
        tr -s ' ')" " 1 3000005"
is "more ranks than fit one poll of small buffers" \
    "$("$tutti" run -n 150 echo x | wc -l)" 150
is "a reader that goes away ends the job" \
    "$(timeout $limit "$tutti" run -n 2 yes 2>/dev/null | head -1 | tr 1 0)" \
    "[0] y"

# -- input --------------------------------------------------------------------
is "rank 0 gets the input, the others none" \
    "$(seq 3 | "$tutti" run -n 2 sh -c 'wc -l' | sort | tr -s ' ')" "[0] 3
[1] 0"

# -- failures -----------------------------------------------------------------
# The others fail when the launcher has seen it.
run "$tutti" run -n 4 --grace 60 sh -c "[ \$TUTTI_RANK = 3 ] && exit 7
    until grep -q 'rank 3' $tmp/err; do sleep 0.02; done; exit 5"
ends "the job has the first failure's status" 7
like "it says which rank" "$err" \
    '^tutti run: rank 3 \(pid [0-9]+\) exited with status 7$'
is "only the first cause is told" "$(grep -c '^tutti run: ' <<<"$err")" 1
run "$tutti" run -n 3 sh -c '[ $TUTTI_RANK = 1 ] && kill -9 $$; sleep 0.2'
ends "a killed rank: 128 and the signal" 137
like "it says so" "$err" \
    '^tutti run: rank 1 \(pid [0-9]+\) was killed by signal 9 \(Killed\)$'

# The launcher looks for a tenth of a second, in which a busy machine may not come
# to kill it: then once more.
for _ in {1..10}; do
    rm -f "$tmp/here"
    run "$tutti" run -n 3 --grace 0 sh -c "[ \$TUTTI_RANK = 0 ] && exec sleep 60
        if [ \$TUTTI_RANK = 1 ]; then
            until [ -e $tmp/here ]; do sleep 0.01; done
            exit 1
        fi
        : >$tmp/here; sleep 0.03; kill -9 \$\$"
    [ "$rc" = 137 ] && break
done
ends "who is killed a moment after another has failed" 137
like "is named" "$err" '^tutti run: rank 2 .* was killed by signal 9'
start=$(now_ms)
run "$tutti" run --grace 0.5 -n 3 sh -c \
    "[ \$TUTTI_RANK = 1 ] && exit 3; trap '' TERM; sleep $mark & wait; sleep $mark"
ends "ranks that do not end are ended" 3
like "it says so" "$err" '^tutti run: 2 other ranks did not end within 0.5 s'
is "soon" "$(($(now_ms) - start < 20000))" 1
is "their children too" "$(survivors $mark)" 0
run "$tutti" run --json -n 2 sh -c 'exit $TUTTI_RANK'
is "--json tells each rank's end" \
    "$(tail -1 <<<"$out" | python3 -c 'import json,sys; d = json.load(sys.stdin)
print(d["status"], d["first_failed"], [r["exit"] for r in d["ranks"]])')" \
    "1 1 [0, 1]"

# -- signals ------------------------------------------------------------------
# In the background a shell lets its commands ignore SIGINT; env undoes that.
background() {
    rm -f "$tmp/out"
    env --default-signal=INT "$tutti" run -n 3 "$@" \
        >"$tmp/out" 2>"$tmp/err" </dev/null &
    launcher=$!
    until_ready 3
}
ended() { # sets rc and took (ms)
    wait "$launcher"
    rc=$?
    took=$(($(now_ms) - start))
    err=$(cat "$tmp/err")
}

background sh -c "echo ready; sleep $mark"
start=$(now_ms)
kill -INT "$launcher"
ended
ends "Ctrl-C: status 130" 130
is "soon" "$((took < 30000))" 1
is "nothing is left" "$(survivors $mark)" 0

background sh -c "trap '' INT TERM; sleep $mark & echo ready; sleep $mark; sleep $mark"
start=$(now_ms)
kill -INT "$launcher"
ended
ends "Ctrl-C with stubborn ranks: status 130" 130
is "soon, too" "$((took < 30000))" 1
is "nothing is left" "$(survivors $mark)" 0

background sh -c "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
kill -TERM "$launcher"
ended
ends "SIGTERM: status 143" 143
is "ranks may say good-bye" "$(grep -c bye "$tmp/out")" 3

background sh -c "trap 'echo usr; exit 0' USR1; echo ready; while :; do sleep 0.05; done"
kill -USR1 "$launcher"
ended
ends "SIGUSR1 is passed on, and no more" 0
is "all ranks got it" "$(grep -c usr "$tmp/out")" 3

states() { # of the ranks, each letter once
    ps -eo stat=,args= | awk -v mark="$mark" \
        '$2 == "sleep" && $3 == mark { print substr($1, 1, 1) }' |
        sort -u | xargs
}
are_all() {
    [ "$(states)" = "$1" ]
}
background sh -c "echo ready; exec sleep $mark"
kill -TSTP "$launcher"
awaits are_all T
is "Ctrl-Z stops the ranks" "$(states)" T
kill -CONT "$launcher"
awaits are_all S
is "and fg continues them" "$(states)" S
kill -INT "$launcher"
ended
ends "and Ctrl-C ends them" 130

background sh -c "echo ready; sleep $mark & sleep $mark"
kill -KILL "$launcher"
wait "$launcher" 2>/dev/null
is "a killed launcher leaves nothing" "$(survivors $mark)" 0

background sh -c "setsid sleep 20 & echo ready"
start=$(now_ms)
ended
ends "a daemon does not hold the job" 0
is "for long" "$((took < 10000))" 1

# -- a SIGUSR1 for which there is no process, while a rank ends ----------------
what="a launcher that may start no process"
is_taken() { # the signal 10, which it blocks
    [ $((0x$(awk '/^ShdPnd/ { print $2 }' "/proc/$launcher/status") & 0x200)) = 0 ]
}
has_state() { # PID LETTER
    [ "$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)" = "$2" ]
}
has_ended() { # this shell may have seen its end
    [ ! -e "/proc/$1" ] || has_state "$1" Z
}
if [ "$(id -u)" != 0 ] || ! command -v setpriv >/dev/null || ! command -v prlimit >/dev/null; then
    skip "$what" "needs root, setpriv and prlimit"
else
    chmod 711 "$tmp"
    cp "$tutti" "$tmp/tutti"
    chmod 755 "$tmp/tutti"
    mkfifo -m 666 "$tmp/go"
    rm -f "$tmp/out"
    setpriv --reuid 65534 --regid 65534 --clear-groups "$tmp/tutti" run -n 1 \
        sh -c "echo ready; read -r line <$tmp/go" >"$tmp/out" 2>"$tmp/err" </dev/null &
    launcher=$!
    at_exit="kill -KILL $launcher 2>/dev/null; $at_exit"
    until_ready 1
    rank=$(pgrep -P "$launcher" -x sh)
    run setpriv --reuid 65534 --regid 65534 --clear-groups \
        prlimit --pid "$launcher" --nproc=1
    ends "$what" 0
    kill -USR1 "$launcher"
    awaits is_taken
    # Both signals are there when it looks, this one first.
    kill -STOP "$launcher"
    awaits has_state "$launcher" T
    kill -USR1 "$launcher"
    echo >"$tmp/go"
    awaits has_state "$rank" Z
    kill -CONT "$launcher"
    awaits has_ended "$launcher"
    kill -KILL "$launcher" 2>/dev/null
    ended
    ends "sees its ranks' end" 0
fi

finish
