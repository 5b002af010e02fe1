#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# start.sh - what goes wrong before a job starts is told in one sentence, with
# a failing status, and soon.
. "$(dirname "$0")/lib.sh"
limit=50 # less than what TUTTI_START_TIMEOUT is by itself
host=127.0.0.1:$(some_port)

# refused WHAT PATTERN VARIABLES...: a rank with these variables fails.
refused() {
    local what=$1 pattern=$2
    shift 2
    run env TUTTI_START_TIMEOUT=1s "$@" "$tutti" bench -e 8 -n 1
    ends "$what" 1
    one_sentence "$what: one sentence"
    like "$what: a clear one" "$err" "$pattern"
}

refused "a rank that is no number" 'TUTTI_RANK is "x"; expected' \
    TUTTI_RANK=x TUTTI_SIZE=2 TUTTI_ADDR="$host"
refused "a rank outside of the job" 'TUTTI_RANK is "2"; expected .*0 to 1' \
    TUTTI_RANK=2 TUTTI_SIZE=2 TUTTI_ADDR="$host"
refused "no ranks" 'TUTTI_SIZE' TUTTI_RANK=0 TUTTI_SIZE=0
refused "half of torchrun's variables" 'WORLD_SIZE' RANK=0 MASTER_ADDR=127.0.0.1
refused "no meeting place" 'TUTTI_ADDR' TUTTI_RANK=0 TUTTI_SIZE=2
refused "a meeting place that is none" 'TUTTI_ADDR is "nonsense"' \
    TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=nonsense
refused "a port that is none" 'MASTER_PORT is "99999"' \
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=99999
refused "nobody comes" "rank 1 of 2 has not come" \
    TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR="$host"
refused "rank 0 is not there" "did not reach rank 0 at $host" \
    TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_ADDR="$host"
refused "an address that cannot be reached" "rank 0 at 192\.0\.2\.1:" \
    TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_ADDR=192.0.2.1:20000
refused "a host that has no address" "no\.such\.host\.invalid" \
    TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_ADDR=no.such.host.invalid:20000
refused "a setting out of range" 'TUTTI_WINDOW is "1025"; expected' TUTTI_WINDOW=1025
refused "a setting with a wrong unit" 'TUTTI_TIMEOUT is "5 parsec"' \
    'TUTTI_TIMEOUT=5 parsec'
refused "an unknown transport" "TUTTI_TRANSPORTS" TUTTI_TRANSPORTS=pigeon
refused "the transport of the tests" "'loop' is no transport" TUTTI_TRANSPORTS=loop
refused "an unknown planner" '"rign".*"ring"' TUTTI_PLANNER=rign

# shellcheck disable=SC2016 # the ranks' shell
run "$tutti" run -n 2 -- sh -c \
    '[ $TUTTI_RANK = 0 ] || export TUTTI_CHECK=crc; exec "$0" bench -e 8 -n 1' \
    "$tutti"
ends "ranks that check, and ranks that do not" 1
like "ranks that check, and ranks that do not: a clear sentence" "$err" \
    "rank 1 has TUTTI_CHECK=crc, rank 0 has not: it must be the same on all ranks"

# Somebody else listens on the port.
python3 - "$tmp/port" <<'P' &
import socket, sys, time
s = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1] + ".new", "w").write(str(s.getsockname()[1]))
import os
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
P
listener=$!
at_exit="kill $listener 2>/dev/null; $at_exit"
awaits test -s "$tmp/port"
refused "a port in use" 'in use' TUTTI_RANK=0 TUTTI_SIZE=2 \
    TUTTI_ADDR="127.0.0.1:$(cat "$tmp/port")"
refused "a stranger at the port" "rank 0" TUTTI_RANK=1 TUTTI_SIZE=2 \
    TUTTI_ADDR="127.0.0.1:$(cat "$tmp/port")"

# Few descriptors: the soft limit is raised, the hard one is named.
few() { # HARD COMMAND...
    ulimit -Sn 40 && ulimit -Hn "$1" && shift && exec "$@"
}
export -f few
many=(-n 44 sh -c "exec '$tutti' bench -b 64 -e 64 -n 1")
for by in tcp shm; do
    TUTTI_TRANSPORTS=$by run bash -c 'few "$@"' - 4096 "$tutti" run "${many[@]}"
    ends "44 ranks of 40 files each, which may be 4096, by $by" 0
    TUTTI_TRANSPORTS=$by run "$tutti" run -n 44 bash -c 'few "$@"' - 40 \
        "$tutti" bench -b 64 -e 64 -n 1
    is "... and which may not" "$((rc != 0 && rc != 124))" 1
    like "... is told" "$err" '44 ranks .*no more than 40 open files; raise ulimit -n'
done

# A rank that could take in no other must not be taken for dead.
run "$tutti" run -n 12 bash -c 'few "$@"' - 40 \
    "$tutti" bench all-to-all -b 64 -e 64 -n 1
is "12 ranks that would connect to all others" "$((rc != 0 && rc != 124))" 1
like "... are told why they cannot" "$err" \
    'rank [0-9]+ cannot reach rank .*(Too many open files|reset by peer|refused)'
like "... and what is short, there or here" "$err" \
    'Too many open files, ulimit -n is 40'

run env TUTTI_WIDNOW=8 "$tutti" bench -e 8 -n 1
ends "an unknown setting is no failure" 0
like "but a warning with the nearest name" "$err" 'TUTTI_WIDNOW.*TUTTI_WINDOW'
run env TUTTI_START_TIMEOUT=1s "$tutti" run -n 3 sh -c \
    "[ \$TUTTI_RANK = 1 ] && exec sleep 20; exec '$tutti' bench -e 8 -n 1"
is "a rank that never starts" "$((rc != 0 && rc != 124))" 1
like "is named" "$err" 'rank 1'

finish
