#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# cli.sh - help, errors and exit statuses of every sub-command.
. "$(dirname "$0")/lib.sh"

run "$tutti" --help
ends "help succeeds" 0
same_file "the list of commands" "$golden/cli-help.txt"
run "$tutti"
ends "no command is a usage error" 2
run "$tutti" --version
like "version" "$out" '^tutti [0-9]+\.[0-9]+\.[0-9]+$'

words=$("$tutti" --help | awk '/^  [a-z]+ /{print $1}' | grep -v '^tutti$')
for word in $words; do
    run "$tutti" "$word" --help
    ends "$word --help succeeds" 0
    like "$word --help shows its use" "$out" "^usage: tutti $word"
    like "$word --help has an example" "$out" "^  .*tutti $word"
    run "$tutti" "$word" --no-such-thing
    ends "$word: an unknown option is a usage error" 2
    one_sentence "$word: it says so in one sentence"
done

run "$tutti" plna full:4
ends "an unknown command is a usage error" 2
like "it names the nearest" "$err" "unknown command 'plna'; did you mean 'plan'"
run "$tutti" plan full:4 --plannre ring
like "an unknown option names the nearest" "$err" "did you mean '--planner'"
run "$tutti" plan full:4 --size
like "a missing value" "$err" '^tutti plan: --size needs a value'
run "$tutti" plan full:4 --size=lots
ends "a bad size is a usage error" 2
like "it says what a size is" "$err" "'lots'.*64KiB"
run "$tutti" plan full:4 --size 1TiB --planner ring
ends "a TiB is a size" 0
run "$tutti" plan full:4 --coll allreduce
like "a bad collective names the nearest, and lists them" "$err" 'did you mean all-reduce\? .*all-reduce, reduce-scatter'
run "$tutti" plan
like "plan needs a network" "$err" 'full:8'
run "$tutti" plan nonsense:4
ends "a bad network fails" 1
one_sentence "in one sentence"
run "$tutti" plan rack:4+4
like "a bad network names the nearest generator" "$err" 'did you mean racks\?$'
run "$tutti" plan xyzzy:4
like "or none" "$err" 'nor a file$'
run "$tutti" plan full:0
like "a spec has letters, not lines" "$err" '^tutti plan: full:0, at its letter 6: '
run "$tutti" plan full:4 --planner rign
is "a bad planner prints no table" "$out" ""
ends "a bad planner fails" 1
like "it names the nearest" "$err" '"rign".*"ring"'
run "$tutti" plan full:4 --coll broadcast --root 4
ends "a root that is no rank fails" 1
one_sentence "in one sentence"
chosen='.* chosen: .*'
explains() { # WHAT ARGUMENTS: what explain says is chosen is what auto takes
    local what=$1 taken
    shift
    run "$tutti" plan "$@"
    taken=$(tail -n 1 <<<"$out")
    run "$tutti" plan --explain "$@"
    ends "explained: $what" 0
    is "it ends with what auto takes" "$(tail -n 1 <<<"$out")" "$taken"
    is "and says why" "# auto takes $(sed -n "s/ $chosen//p" <<<"$out" | sed 's/ .*//')" "$taken"
}
explains "a torus" torus:3x3 --size 1MiB
explains "few bytes between racks, with costs" racks:3+2@nic=1Gbit --size 1KiB --costs 50000,800,100
explains "a broadcast" star:5@1Gbit --coll broadcast --root 2 --size 1MiB
costs_of() { # NUMBERS OPTIONS: the time of ring, in seconds
    "$tutti" plan --explain --ranks 4 --size 1 --costs "$@" --json |
        python3 -c 'import json, sys; d = json.load(sys.stdin); print(*(round(next(p for p in d["planners"] if p["planner"] == "direct")[k] * 1e6) for k in ("time_s", "messages_s")))'
}
is "what messages are charged" "$(costs_of 50000,1,1)" "150 150"
is "a crowd pays for each" "$(costs_of 50000,1,1 --crowd 2)" "200 200"
run env TUTTI_COSTS=1000000000,1,1 "$tutti" plan --explain --ranks 4 --size 1MiB
like "TUTTI_COSTS counts: dear messages" "$out" '^oneshot +1.5 s .* chosen: nothing takes less$'
like "the head tells the costs" "$out" '^# a message: 1 s; a byte: 0.001 ns; reducing one: 0.001 ns$'
like "what needs a network" "$out" '^forest +does not fit: it needs a topology$'
for bad in "--ranks 4" "--explain" "--explain --ranks 4 full:4" "--explain full:4 --planner ring" \
    "--explain full:4 --costs 1,2" "--explain full:4 --crowd 2" "full:4 --costs x" "--explain --ranks 0"; do
    run "$tutti" plan $bad
    ends "plan $bad is a usage error" 2
    one_sentence "in one sentence"
done
run "$tutti" plan --explain --ranks 4 --crowd 1e9
ends "a crowd that is none fails" 1
run env TUTTI_COSTS=1,2 "$tutti" plan full:4
like "a bad setting is named" "$err" '^tutti plan: TUTTI_COSTS: "1,2" is neither off nor three numbers'

run "$tutti" show a b c
ends "too many words" 2
run "$tutti" show "$tmp/none"
ends "a file that is not there" 1
like "it says so" "$err" "cannot read '$tmp/none': No such file"
echo 'tutti-schedule 2' >"$tmp/bad"
run "$tutti" verify "$tmp/bad"
ends "a file that is no schedule" 1
like "it says where" "$err" "^tutti verify: $tmp/bad:1:[0-9]+: "
run "$tutti" bench all-redcue
ends "bench: an unknown collective" 2
run "$tutti" bench --inplace 2
ends "bench: a bad --inplace" 2
run "$tutti" bench -b 2KiB -e 1KiB
ends "bench: -b above -e" 2
run "$tutti" bench --op band --type f32
ends "bench: an operation that the type has not" 2
run "$tutti" bench send-recv
ends "bench: send-recv alone" 2
run "$tutti" bench broadcast --root 1
ends "bench: a root that is no rank" 2
refused() { # PATTERN WORDS...: a usage error, in one sentence
    run "$tutti" "${@:2}"
    ends "${*:2}: a usage error" 2
    one_sentence "in one sentence"
    like "it says what" "$err" "$1"
}
refused 'more than nothing' bench --step 0
refused 'more than nothing' plan full:4 -s 0
refused 'goes alone' topo --json --list
refused 'goes alone' topo --routes --list
refused 'goes alone' topo full:4 --list
run "$tutti" bench --topology ''
ends "bench: an empty network" 1
is "as topo says it" "$err" "$("$tutti" topo '' 2>&1 | sed s/topo:/bench:/)"
for address in '' b b: :9 b:0 b:65536 b:9x fe80::1:9 '[]:9' '[b:9'; do
    refused 'expected host:port or' run -H localhost --address "$address" true
done
refused 'goes with -H' run -n 2 --rsh ssh true
refused 'names no program' run -H localhost --rsh ' ' true
run "$tutti" run -n 2
ends "run: no program" 2
run "$tutti" run true
ends "run: no number of ranks" 2
run "$tutti" run -n 3 -H a,b true
ends "run: more ranks than the hosts take" 2
like "it says how to write them" "$err" 'HOST:N'
run "$tutti" run -n 2 "$tmp/none"
ends "run: no such program" 1
one_sentence "in one sentence"
"$tutti" show ring full:5 >/dev/full 2>"$tmp/err"
is "a full disk is a failure" "$?" 1

run "$tutti" settings --json
ends "settings" 0
is "settings are valid JSON" \
    "$(python3 -c 'import json,sys; print(any(r["name"] == "TUTTI_PLANNER" for r in json.load(sys.stdin)))' <"$tmp/out")" True

finish
