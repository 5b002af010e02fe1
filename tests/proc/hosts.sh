#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# hosts.sh - `tutti run -H`: a remote shell that runs its commands here, then
# two network namespaces as hosts, where ranks share memory inside and TCP
# across.
. "$(dirname "$0")/lib.sh"

mark=$((RANDOM + 200000)).$$
cat >"$tmp/rsh" <<'R'
#!/bin/sh
# rsh HOST COMMAND: as sshd would, the user's shell gets the command line.
echo "$1" >>"${0%/*}/hosts"
shift
cd / && exec env -i PATH=/usr/bin:/bin sh -c "$*"
R
chmod +x "$tmp/rsh"
on_hosts=("$tutti" run --rsh "$tmp/rsh" -H a:2,user@b)

cd "$tmp" || exit 1
run env TUTTI_LOG=warn "LANG=it's" "${on_hosts[@]}" sh -c \
    'echo "$TUTTI_RANK/$TUTTI_SIZE $PWD $TUTTI_LOG $LANG $1"' - "a  'b\" \$c"
ends "ranks on two hosts" 0
is "environment, directory and arguments arrive" "$(sort <<<"$out")" \
    "[0] 0/3 $tmp warn it's a  'b\" \$c
[1] 1/3 $tmp warn it's a  'b\" \$c
[2] 2/3 $tmp warn it's a  'b\" \$c"
is "each through the shell to its host" "$(sort "$tmp/hosts" | tr '\n' ' ')" \
    "a a user@b "
run "${on_hosts[@]}" --no-prefix sh -c 'echo $TUTTI_ADDR'
like "they meet on the first host" "$(sort -u <<<"$out")" \
    '^a:(2[0-9]|3[01])[0-9]{3}$'
is "at one place" "$(sort -u <<<"$out" | wc -l)" 1
run env TUTTI_PORT_RANGE=41000-41099 "${on_hosts[@]}" --no-prefix sh -c 'echo $TUTTI_ADDR'
like "at a port of TUTTI_PORT_RANGE" "$(sort -u <<<"$out")" '^a:410[0-9]{2}$'
run env TUTTI_PORT_RANGE=41000-41002 "${on_hosts[@]}" --no-prefix sh -c 'echo $TUTTI_ADDR'
is "above those that the host's ranks take" "$(sort -u <<<"$out")" a:41002
run env TUTTI_PORT_RANGE=41000-4 "${on_hosts[@]}" true
ends "a range that is none" 2
like "is told" "$err" 'TUTTI_PORT_RANGE is "41000-4"; expected ports such as'
run "${on_hosts[@]}" --no-prefix --address 10.9.8.7:65 sh -c 'echo $TUTTI_ADDR'
is "or where --address says" "$(sort -u <<<"$out")" 10.9.8.7:65
run "$tutti" run -n 2 --address 10.9.8.7:65 true
ends "--address without hosts" 2
one_sentence "one sentence says so"
head -c 50000 /dev/urandom >"$tmp/in"
"${on_hosts[@]}" --no-prefix sh -c '[ $TUTTI_RANK = 0 ] && cat || true' \
    <"$tmp/in" >"$tmp/copy"
is "rank 0 gets the input" "$(cmp "$tmp/in" "$tmp/copy" && echo same)" same

run "${on_hosts[@]}" --grace 0.3 sh -c \
    "[ \$TUTTI_RANK = 2 ] && exit 9; sleep $mark"
ends "a failing rank on a host" 9
like "it says which and where" "$err" \
    '^tutti run: rank 2 \(host user@b\) exited with status 9$'
run "${on_hosts[@]}" sh -c '[ $TUTTI_RANK = 1 ] && kill -9 $$; exit 0'
ends "a killed rank on a host" 137
like "it says so" "$err" 'rank 1 \(host a\) was killed by signal 9 \(Killed\)'
rm -f "$tmp/out"
env --default-signal=INT "${on_hosts[@]}" sh -c \
    "trap '' INT; sleep $mark & echo ready; wait; sleep $mark" >"$tmp/out" 2>&1 &
launcher=$!
until_ready 3
start=$SECONDS
kill -INT "$launcher"
wait "$launcher"
is "Ctrl-C reaches the hosts soon" "$((SECONDS - start < 30))" 1
is "nothing is left there" "$(survivors "$mark")" 0
rm -f "$tmp/out"
"${on_hosts[@]}" sh -c "echo ready; sleep $mark & sleep $mark" >"$tmp/out" 2>&1 &
launcher=$!
until_ready 3
kill -KILL "$launcher"
wait "$launcher" 2>/dev/null
is "a killed launcher leaves nothing there" "$(survivors "$mark")" 0
run "$tutti" run --rsh "$tmp/none" -H a true
ends "a remote shell that is not there" 1
one_sentence "in one sentence"
printf '#!/bin/sh\nexit 255\n' >"$tmp/broken"
chmod +x "$tmp/broken"
run "$tutti" run --rsh "$tmp/broken" -H a true
ends "a host that cannot be reached" 255
like "it says so" "$err" 'rank 0 \(host a\).*could not reach the host'

# -- two network namespaces ---------------------------------------------------
what="a job over two hosts: memory inside, TCP across"
if ! two_hosts tt 213; then
    skip "$what" "cannot make two hosts: $(head -1 "$tmp/err")"
else
    run "$tutti" run --no-prefix --rsh "$tmp/netns" -H "$ip_a:2,$ip_b:2" \
        "$tutti" bench -e 1MiB -f 32 -n 5
    ends "$what" 0
    is "as rank 0 sees it" \
        "$(sed -n 's/^# *rank.* via //p' <<<"$out" | tr '\n' ' ')" \
        "self shm tcp tcp "
    like "all results are right" "$out" '^# Out of bounds values : 0 OK'
    run env TUTTI_PORT_RANGE=41000-41002 "$tutti" run --no-prefix --rsh "$tmp/netns" \
        -H "$ip_a:2,$ip_b:2" "$tutti" bench -e 4KiB -n 1
    ends "a port for each rank of a host, and one to meet at, are enough" 0
    run env TUTTI_SOCKET_IFNAME==lo TUTTI_START_TIMEOUT=5s "$tutti" run --rsh "$tmp/netns" \
        -H "$ip_a,$ip_b" "$tutti" bench -e 4KiB -n 1
    ends "loopback only, on two hosts" 1
    like "is no way from one to the other" "$err" \
        'rank [01] tells no address that rank [01] could reach: they are those of loopback'
    run env "TUTTI_SOCKET_IFNAME=nothing,^lo,v" "$tutti" run --rsh "$tmp/netns" -H "$ip_a,$ip_b" \
        "$tutti" bench -e 4KiB -n 1
    ends "a list of interfaces with marks in it" 0
    # What costs are told makes links fast: 512 KiB of the vector at a time.
    longest() { # HOSTS BYTES [K=V]...: the longest message of an all-reduce
        local hosts=$1 size=$2
        shift 2
        rm -rf "$tmp/t"
        run env TUTTI_COSTS=20000,500,50 "$@" "TUTTI_TRACE=$tmp/t" "$tutti" run --no-prefix \
            --rsh "$tmp/netns" -H "$hosts" "$tutti" bench -b "$size" -e "$size" -n 1 -p direct --inplace 0
        run "$tutti" trace "$tmp/t" -o "$tmp/trace.json"
        grep -o '"bytes": *[0-9]*' "$tmp/trace.json" | sed 's/.*://' | sort -n |
            grep -v "^ *$size$" | tail -1
    }
    is "rings that no two ranks of a host have cut no message" \
        "$(longest "$ip_a,$ip_b" 4194304)" 262144
    is "but TCP does" "$(longest "$ip_a,$ip_b" 16777216 TUTTI_FRONT=64MiB)" 2097152
    is "those that they have do" \
        "$(($(longest "$ip_a:2,$ip_b:2" 4194304 TUTTI_SHM_RING=256KiB) <= 32768))" 1
    is "on slow links nothing long is passed on" "$(longest "$ip_a:2,$ip_b:2" 4194304 \
        TUTTI_COSTS=20000,9000,50 TUTTI_FRONT=64MiB)" 32768
    is "on slow links all do" "$(longest "$ip_a,$ip_b" 4194304 TUTTI_COSTS=20000,9000,50 \
        TUTTI_SHM_RING=256KiB TUTTI_FRONT=64MiB)" 32768
    # Once it is at work: it has begun its first call.
    run "$tutti" run --grace 60 --rsh "$tmp/netns" -H "$ip_a:2,$ip_b:2" sh -c \
        "[ \$TUTTI_RANK = 2 ] && {
            until grep -qs 'plans all-reduce of 67108864' $tmp/said; do sleep 0.05; done
            kill -9 \$\$
        } &
        [ \$TUTTI_RANK = 2 ] && export TUTTI_LOG=debug && exec 2>$tmp/said
        exec $tutti bench -b 64MiB -e 64MiB -n 1000"
    is "a rank killed on one host ends the job" "$((rc > 0 && rc != 124))" 1
    like "the other host's ranks name it" "$err" '^\[[01]\] .*rank 2'
fi

finish
