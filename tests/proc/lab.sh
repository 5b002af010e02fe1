#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# lab.sh - networks in a box: what a lab is made of, which needs no root, then
# real ones: names, rates, ways, jobs, and what is left after a crash. No
# timings, except that Ctrl-C ends soon.
. "$(dirname "$0")/lib.sh"

lab=$here/../../lab/lab
mark=$((RANDOM + 300000)).$$
export B
net() { # NAME: a topology file from stdin
    cat >"$tmp/$1.net"
}

#     a ==100/50== s ==200== b     c's two ranks share one link of 30
net uneven <<'END'
tutti-topology 1
switch s
host a b
host c ranks=2
link a s 100Mbit/50Mbit dev=lan0
link b s 200Mbit
link c s 30Mbit/600Mbit 1ms
END
#     two ways into a and into c; d is linked with a directly
net many <<'END'
tutti-topology 1
switch s0 s1 s2
host a b
host c d ranks=2
link a s0 100Mbit dev=eth5
link a s1 100Mbit
link b s1 100Mbit
link c s0 100Mbit
link c s2 100Mbit
link d s2 100Mbit
link s0 s1 100Mbit
link s0 s1 100Mbit
link s1 s2 100Mbit
link s0 s2 100Mbit
link a d 10Mbit
END
#     a - s ==== t - b - c: a's packets for b and for c would go by different
#     trunks, to the same interface of b
net twisted <<'END'
tutti-topology 1
switch s t
host a b c
link a s 10Mbit
link s t 10Mbit
link s t 10Mbit
link t b 10Mbit
link b c 10Mbit
END

# -- plans --------------------------------------------------------------------
specs=(star:5 rails:3 racks:3+2 racks:4+4@order=interleaved fattree:2x3 fattree:4x4
    bigraph:4x4 mesh:2x3 torus:4x4 torus:2x3x3 ring:5 full:4 minsky:2 ring:4@forwards=no
    boxes:4+4 star:60 "$tmp/uneven.net" "$tmp/many.net")
run python3 "$here/lab_walk.py" "$tutti" "$lab" "${specs[@]}"
is "tables lead where the topology's routes do" "$(wc -l <<<"$out")" \
    "${#specs[@]}"
run "$lab" plan "$tmp/uneven.net"
json() { python3 -c "import json; d = json.load(open('$tmp/out')); print($1)"; }
is "hosts, ranks and interfaces" "$(json '[(h["name"], h["ranks"],
    h["ifname"]) for h in d["hosts"]]')" \
    "[('a', [0], 'lan0'), ('b', [1], 'eth0'), ('c', [2, 3], 'eth0')]"
is "a burst for each rate" "$(json '[[e["burst"] for e in w]
    for w in d["wires"]]')" \
    "[[131072, 131072], [131072, 131072], [131072, 262144]]"

shape() { # MICROSECONDS: what tc is told where the kernel has netem
    python3 -B -c "import sys; sys.path.insert(0, '$here/../../lab')
import script
print(*script.shape({'ifname': 'e', 'rate_bps': 8000000, 'burst': 131072,
                     'queue': 1000000, 'latency_s': $1e-6}, True), sep='\n')"
}
is "latency by netem, then the rate" "$(shape 20.5)" \
    "qdisc add dev e root handle 2: netem delay 20.500us limit 1000000
qdisc add dev e parent 2:1 handle 1: tbf rate 8000000bit burst 131072 limit \
1000000"
is "no netem without a latency" "$(shape 0)" \
    "qdisc add dev e root handle 1: tbf rate 8000000bit burst 131072 limit 1000000"

run "$lab" plan star:2@1Gbit --unlimited
is "without limits nothing is shaped" "$(python3 -B -c "import json, sys
sys.path.insert(0, '$here/../../lab')
import script
plan = json.load(open('$tmp/out'))
print([script.shape(dict(end, latency_s=us * 1e-6), True)
       for end in plan['wires'][0] for us in (0, 5)])" 2>&1)" \
    "[[], ['qdisc add dev eth0 root handle 2: netem delay 5.000us limit 1000000'],\
 [], ['qdisc add dev p0b root handle 2: netem delay 5.000us limit 1000000']]"
order() { # SPEC ORDER: hosts of the ranks
    run "$lab" plan "$1" --order "$2"
    json '" ".join(d["host_of_rank"])'
}
is "interleaved over racks" "$(order racks:4+2+1 interleaved)" \
    "h0 h4 h6 h1 h5 h2 h3"
is "down the columns of a mesh" "$(order mesh:2x3 interleaved)" \
    "h0 h3 h1 h4 h2 h5"
is "any order" "$(order star:4 2,0,3,1)" "h2 h0 h3 h1"
is "of a host's ranks too" "$(order "$tmp/uneven.net" 3,0,1,2)" "c a b c"

refused() { # WHAT PATTERN COMMAND...: status 2 and one sentence
    local what=$1 pattern=$2
    shift 2
    run "$@"
    ends "$what: refused" 2
    one_sentence "$what: in one sentence"
    like "$what: it says why" "$err" "$pattern"
}
refused "a small burst" 'at least 128 KiB, else' \
    "$lab" run star:2@100Mbit --burst 64KiB -- true
refused "a burst that is small for the rate" 'at least 256 KiB, else' \
    "$lab" up star:2@500Mbit --burst 128KiB
refused "a burst without limits" 'leaves nothing to' \
    "$lab" plan star:2@500Mbit --unlimited --burst 1MiB
refused "a rate beyond tc" 'tc can do' "$lab" up star:2@2000Gbit
refused "a wrong order" 'all ranks from 0 to 2 once' \
    "$lab" up star:3 --order 0,1,1
refused "no such topology" 'neither a generator.*nor a file' \
    "$lab" run nonsense -- true
printf 'tutti-topology 1\nhost a b\nlink a x 1Gbit\n' >"$tmp/bad.net"
refused "a broken topology" 'bad.net:3:8: ' "$lab" up "$tmp/bad.net"
refused "too many hosts" 'at most 250' "$lab" up star:251
sed s/lan0/mgmt0/ "$tmp/uneven.net" >"$tmp/taken.net"
refused "an interface that cannot be" 'cannot be an interface' \
    "$lab" up "$tmp/taken.net"
refused "what no bridge can express" 'by two ports' "$lab" up "$tmp/twisted.net"
refused "no command" 'give a command' "$lab" run star:2
refused "no program" 'there is no' "$lab" up star:2 --tutti "$tmp/none"
refused "a folder as program" 'there is no program' \
    "$lab" up star:2 --tutti "$tmp"
refused "another program" 'is no program `tutti`' \
    "$lab" up star:2 --tutti "$(type -P true)"
refused "a small queue" 'hold the burst of 128 KiB' \
    "$lab" up star:2@100Mbit --queue 64KiB
sed 's/host a b/host .. b/; s/link a/link ../' "$tmp/uneven.net" >"$tmp/dots.net"
refused "a host that is no file" "\`\.\.\` cannot be a host's name" \
    "$lab" up "$tmp/dots.net"
for grace in -1 nan inf; do
    refused "--grace $grace" 'no time in seconds' \
        "$lab" run star:2 --grace $grace -- true
done
refused "--once --json" 'not with --once' "$lab" run star:2 --once --json -- true
refused "no such lab" 'there is no lab' "$lab" exec tutti-0 h0 -- true

if [ "$(id -u)" != 0 ]; then
    refused "not root" 'needs root' "$lab" up star:2@10Mbit
    skip "labs" "root is needed for them"
    finish
fi
if ! ip netns add "ttlab$$" 2>/dev/null; then
    skip "labs" "no network namespaces can be made here"
    finish
fi
at_exit="ip netns del ttlab$$; $at_exit"
for kind in "link add p type veth peer name q" "link add br0 type bridge"; do
    ip -n "ttlab$$" $kind 2>/dev/null || missing=$kind
done
tc -n "ttlab$$" qdisc add dev lo root tbf rate 1mbit burst 128k limit 128k \
    2>/dev/null || missing=tbf
if [ -n "${missing-}" ]; then
    skip "labs" "this kernel has not all of veth, bridge and tbf"
    finish
fi
# The build directory may be closed to others: take the scripts elsewhere.
cp -r "$here/../../lab" "$tmp/lab" && cp "$tutti" "$tmp/" && chmod -R a+rX "$tmp"
refused "not root" 'needs root' setpriv --reuid 65534 --clear-groups \
    "$tmp/lab/lab" up star:2@10Mbit --tutti "$tmp/tutti"

# -- traffic ------------------------------------------------------------------
specs=(star:4@100Mbit racks:2+2@100Mbit fattree:2x2@100Mbit mesh:2x3@100Mbit
    torus:3x3@50Mbit "$tmp/uneven.net" "$tmp/many.net")
run python3 "$here/lab_traffic.py" "$tutti" "$lab" "${specs[@]}"
is "packets take the topology's links" "$(wc -l <<<"$out")" "${#specs[@]}"

# -- a lab that stays ---------------------------------------------------------
up() { # SPEC...: sets name
    run "$lab" up "$@"
    name=$out
    at_exit="$lab down $name 2>/dev/null; $at_exit"
}
up "$tmp/uneven.net" --queue 600KiB
ends "up" 0
like "a latency that this kernel cannot make is told, or made" \
    "$err$("$lab" exec "$name" c -- tc qdisc)" 'no netem|netem.*delay 1ms'
rates() { # HOST INTERFACE
    tc -j -n "$name$1" qdisc show dev "$2" | python3 -c '
import json, sys
q = [q["options"] for q in json.load(sys.stdin) if q["kind"] == "tbf"][0]
print(q["rate"] * 8 // 10**6, round(q["burst"] / 1024))'
}
is "the rate up" "$(rates -a lan0)" "100 128"
is "the rate down" "$(rates +net p0b)" "50 128"
is "fast ends have a larger burst" "$(rates -c eth0) $(rates +net p2b)" \
    "30 128 600 256"
# As long as the queue lasts, less the burst: (600 - 128) KiB / 12.5 MB/s.
like "the queue" "$(tc -n "$name-a" qdisc show dev lan0)" 'lat 38\.7ms'
at() { "$lab" exec "$name" "$@" 2>&1; }
is "a host's name" "$(at c -- hostname)" c
is "names of the others" "$(at a -- getent hosts b | tr -s ' ')" "10.0.0.2 b"
is "arguments arrive" "$(at a -- printf '%s|' "x  y" "'" '$z')" "x  y|'|\$z|"
is "its status" "$(at a -- sh -c 'exit 9'; echo $?)" 9
like "TCP has cubic, or reno" "$(at b -- cat \
    /proc/sys/net/ipv4/tcp_congestion_control)" '^(cubic|reno)$'
is "nothing is seen outside" "$(ip -o link | grep -c "$name")" 0
is "variables" "$(at a -- sh -c \
    'echo $LAB_HOST $LAB_ADDR $LAB_IFNAME $TUTTI_SOCKET_IFNAME')" \
    "a 10.0.0.1 lan0 =lan0"
is "a remote shell" "$(LAB_NAME=$name "$lab" rsh -x -o A=b me@b 'echo $LAB_HOST' \
    '"x  y"')" "b x  y"
run "$lab" exec "$name" nowhere -- true
ends "an unknown host" 255
one_sentence "an unknown host: in one sentence"
like "it says which there are" "$err" 'no host .nowhere.; it has a b c$'
run "$lab" run "$name" -- sh -c 'echo $TUTTI_RANK $(hostname)'
is "a job in it" "$(sort <<<"$out")" "0 a
1 b
2 c
3 c"
rm "$tmp/uneven.net"
run "$lab" run "$name" --topology -- sh -c 'grep -c ^host $TUTTI_TOPOLOGY'
is "the lab has a copy of its topology" "$rc $out" "0 2
2
2
2"
run "$lab" run "$name" --order interleaved -- true
ends "another order needs another lab" 2
like "list" "$("$lab" list)" "^$name +up +3 hosts .*uneven.net$"
run "$lab" down "$name"
ends "down" 0
is "nothing is left" "$(ip netns list | grep -c "$name")" 0

# -- jobs ---------------------------------------------------------------------
run "$lab" run racks:2+1@100Mbit --order 2,0,1 --topology -- sh -c \
    'echo $TUTTI_RANK $LAB_HOST $(grep "host $LAB_HOST " $TUTTI_TOPOLOGY)'
is "a job in another order" "$(sort <<<"$out")" "0 h2 host h2 rank=0
1 h0 host h0 rank=1
2 h1 host h1 rank=2"
run "$lab" run star:3@100Mbit --grace 0.2 -- sh -c \
    "[ \$TUTTI_RANK = 1 ] && exit 6; sleep $mark"
ends "the status of who failed" 6
is "the others are ended" "$(survivors "$mark")" 0
run "$lab" run full:1 -- sh -c 'echo $LAB_ADDR $LAB_IFNAME'
is "one host without a link" "$rc $out" "0 10.0.0.1 host0"
run "$lab" run star:2@100Mbit --once --env X=1 -- sh -c 'echo $X $LAB_HOST'
is "one command" "$out" "1 h0"
run "$lab" run star:3@100Mbit --topology star:5 -- "$tutti" bench -e 8
like "a topology that does not match" "$err" 'describes 5 ranks and the job has 3'
printf 'tutti-topology 1\nswitch s\nhost h0 h1 x\nlink h0 s 1Gbit\n%s\n%s\n' \
    'link h1 s 1Gbit' 'link x s 1Gbit' >"$tmp/other.net"
run "$lab" run star:3@100Mbit --topology "$tmp/other.net" -- "$tutti" bench -e 8
like "one of other hosts" "$err" 'no place for rank 2: no host "h2"'
run "$lab" run star:2@100Mbit --hold -- false
held=$(sed -n 's/^lab: the lab stays: //p' <<<"$err")
like "a lab that is kept after a failure" "$("$lab" list)" "^$held +up"
"$lab" down "$held"
bench=("$tutti" bench -b 4KiB -e 1MiB -f 256 -n 1 -w 0 --inplace 0)
planners=$("$tutti" plan mesh:2x3 --json | python3 -c '
import json, sys
print(*(p["planner"] for p in json.load(sys.stdin)["planners"] if p["fits"]))')
up mesh:2x3@300Mbit
for planner in $planners auto; do
    run "$lab" run "$name" --topology -- "${bench[@]}" -p "$planner"
    is "bench of $planner on a mesh" "$rc $(grep -c 'values : 0 OK' <<<"$out")" \
        "0 1"
done
"$lab" down "$name"

# -- two at once --------------------------------------------------------------
"$lab" run star:3@100Mbit -- "${bench[@]}" >"$tmp/one" 2>&1 &
first=$!
run "$lab" run racks:2+2@100Mbit -- "${bench[@]}"
wait "$first"
is "two labs at once" "$? $rc $(cat "$tmp/one" "$tmp/out" |
    grep -c 'values : 0 OK')" "0 0 2"

# -- the end ------------------------------------------------------------------
start() { # sets maker: a job that prints ready, then waits
    rm -f "$tmp/out"
    env --default-signal=INT "$lab" run star:3@100Mbit -- sh -c \
        "trap '' INT; echo ready; sleep $mark & sleep $mark" \
        >"$tmp/out" 2>"$tmp/err" &
    maker=$!
    until_ready 3
}
start
begin=$(date +%s%3N)
kill -INT "$maker"
wait "$maker"
is "Ctrl-C" $? 130
took=$(($(date +%s%3N) - begin))
is "ends it soon" "$((took < 30000)) $took" "1 $took"
is "and leaves nothing" "$(ip netns list | grep -c "tutti-$maker-") \
$(survivors "$mark")" "0 0"
start
kill -KILL "$maker"
wait "$maker" 2>/dev/null
like "a crash leaves a lab over" "$("$lab" list)" "^tutti-$maker +left over"
like "its namespaces" "$(ip netns list)" "^tutti-$maker-h2"
ip netns exec "tutti-$maker-h1" sleep "$mark" >/dev/null 2>&1 &
foreign=/run/tutti-lab/tutti-$maker.x
mkdir "$foreign"
run "$lab" down --stale
rmdir "$foreign"
is "what is no lab stays" "$rc $?" "0 0"
like "which down --stale takes away" "$out" "^tutti-$maker$"
is "whole" "$(ip netns list | grep -c "tutti-$maker-") \
$("$lab" list | grep -c "^tutti-$maker ") $(survivors "$mark")" "0 0 0"
finish
