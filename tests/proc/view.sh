#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# view.sh - the page of `tutti view`, its inputs and errors, and, where there is
# a Chromium, what happens in it; pictures of networks and schedules as SVG and
# for a terminal.
. "$(dirname "$0")/lib.sh"
limit=600 # planning for 64 ranks beside other work
cd "$tmp" || exit 1

json() { # EXPRESSION: of the data d, made by the last run
    python3 -c "import json, sys
d = json.load(open('$tmp/out'))
print($1)" 2>&1
}

# ---------------------------------------------------------------- inputs --

run "$tutti" view full:4 --size 1MiB
ends "a network" 0
like "it says where the page is" "$out" '^view.html: .*open it in a browser'
like "the page is HTML" "$(head -1 view.html)" '<!DOCTYPE html>'
is "nothing in it comes from elsewhere" \
    "$(grep -cE '<(script|img|iframe)[^>]* src=|<link[^>]* href="[^d]|@import' view.html)" 0
run "$tutti" plan full:4 --size 1MiB --json
cp "$tmp/out" plan.json
run "$tutti" view full:4 --size 1MiB --json
ends "its data" 0
is "rows are those of tutti plan" "$(json "[r['efficiency'] for r in d['planners']] == [r['efficiency'] for r in json.load(open('plan.json'))['planners']]")" True
is "every planner that fits is played" "$(json "sorted(r['name'] for r in d['runs']) == sorted(r['planner'] for r in d['planners'] if r['fits'])")" True
is "auto's choice is first" "$(json "d['runs'][0]['name'] == d['chosen']")" True
is "routes are of what is sent" "$(json "all(len(r[3]) == 1 for r in d['routes'])")" True

run "$tutti" plan full:4 --planner ring -o ring.schedule
run "$tutti" view ring.schedule --json
ends "a schedule alone" 0
is "is drawn on an assumed network" "$(json "(d['spec'], d['assumed'], d['optimum_s'])")" "('full:4', True, None)"
is "with all its transfers" "$(json "len({(sum(r['step'][:i+1]), sum(r['chunk'][:i+1]), sum(r['src'][:i+1])) for r in d['runs'] for i in range(len(r['step']))})")" 24
run "$tutti" sim ring racks:2+2 --size 1MiB --trace trace.json
run "$tutti" view racks:2+2 ring trace.json --size 1MiB --json
ends "a network, a planner, a trace" 0
is "the recorded run is as long as the predicted" "$(json "[(r['kind'], '%.3g' % r['time_s']) for r in d['runs'] if r['kind'] == 'measured']")" \
    "$("$tutti" sim ring racks:2+2 --size 1MiB --json | python3 -c "import json, sys
print([('measured', '%.3g' % json.load(sys.stdin)['time_s'])])")"
is "only the planner that is named" "$(json "[r['planner'] for r in d['planners']]")" "['ring']"
run "$tutti" view trace.json --json
is "a trace alone" "$(json "(d['spec'], len(d['runs']))")" "('full:4', 1)"
sed 's/"bytes"/"call":17,"bytes"/' trace.json >calls.json
run "$tutti" view calls.json trace.json --json
is "calls are told apart" "$(json "[(r['name'], r['call']) for r in d['runs']]")" "[('calls.json', 17), ('trace.json', 0)]"
# A job's trace: calls of two ranks that all begin before any slice, and all but the
# first predicted, too.
job() { # CALLS
    python3 - "$1" <<'END'
import json, sys
n = int(sys.argv[1])
items = [{"name": "process_name", "ph": "M", "pid": p, "tid": 0, "args": {
    "name": "a: rank %d%s" % (p // 2, ", predicted" * (p % 2))}}
    for p in range(4)]
for rank in range(2):
    for call in range(n):
        items.append({"name": "all-reduce 8 B", "ph": "X", "pid": 2 * rank,
                      "tid": 2 ** 26 + call % 8, "ts": call, "dur": 9000,
                      "args": {"call": 5 + call, "bytes": 8}})
for view, call in [(0, c) for c in range(n)] + [(1, c) for c in range(1, n)]:
    dur = 30 if view else 20 * (call + 1)
    for rank in range(2):
        items.append({"name": "copy", "cat": "copy", "ph": "X",
                      "pid": 2 * rank + view, "tid": 1 + 256 * (1 - rank),
                      "ts": 100 * call + 10, "dur": dur, "args": {
                          "step": 0, "chunk": rank, "slice": 0, "bytes": 4,
                          "call": 5 + call}})
print(json.dumps({"traceEvents": items}))
END
}
job 2 >job.json
run "$tutti" view job.json --json
is "a job's calls, measured and predicted" \
    "$(json "[(r['kind'], r['call'], round(r['time_s'] * 1e6), len(r['step'])) for r in d['runs']]")" \
    "[('measured', 5, 20, 2), ('measured', 6, 40, 2), ('predicted', 6, 30, 2)]"
is "on as many ranks as it has" "$(json "d['spec']")" full:2
job 20 >long.json
run "$tutti" view long.json --json
is "of many calls the first eight, and of the predicted" \
    "$(json "[[r['call'] for r in d['runs'] if r['kind'] == k] for k in ('measured', 'predicted')]")" \
    "$(python3 -c 'print([list(range(5, 13)), list(range(6, 14))])')"
sed 's/"tid": 257/"tid": 92417/' job.json >far.json # to rank 361
run "$tutti" view far.json --json
is "a network is assumed for all that a picture can have" "$(json "d['spec']")" full:362
run "$tutti" view ring.schedule --json
fast=$(json "d['runs'][0]['time_s']")
run "$tutti" view ring.schedule --json --tcp
is "TCP's payload on an assumed network" "$(json "round(d['runs'][0]['time_s'] / $fast, 2)")" 1.05
# Names of files are bytes: what is no UTF-8 is told so.
for bytes in '\xff' '\x80' '\xc1\xbf' '\xe0\x9f\xbf' '\xed\xa0\x80' '\xf0\x8f\xbf\xbf' \
    '\xf4\x90\x80\x80' '\xf5\x80\x80\x80' '\xe2\x82' '\xe2\x82z'; do
    name=$(printf "ok\xc3\xa9\xed\x9f\xbf\xf4\x8f\xbf\xbf$bytes.json")
    cp trace.json "$name"
    run "$tutti" view "$name" --json
    is "a name with $bytes" "$(python3 - "$bytes" "$tmp/out" <<'END' 2>&1
import json, sys
said = json.loads(open(sys.argv[2], 'rb').read().decode())['runs'][0]['name']
bad = eval("b'%s'" % sys.argv[1])
said_bad = ''.join('\ufffd' if b > 127 else chr(b) for b in bad)
print(said == 'ok\xe9\ud7ff\U0010ffff' + said_bad + '.json')
END
)" True
done
run "$tutti" view ring star:2 --size 4KiB -o -
like "to standard output" "$out" '</html>'
printf 'tutti-topology 1\nhost a b\nlink a b 1Gbit\n' >two.net
run "$tutti" view two.net ring --size 64KiB -o two.html
ends "a network from a file" 0
run bash -c "'$tutti' plan full:4 --planner ring -o - | '$tutti' view - --json"
ends "a schedule from standard input" 0

# ---------------------------------------------------------------- errors --

refused() { # STATUS PATTERN WORDS...
    run "$tutti" view "${@:3}"
    ends "${*:3}: refused" "$1"
    one_sentence "in one sentence"
    like "it says why" "$err" "$2"
}
refused 2 'give a network'
refused 2 'one network, not both' full:4 full:5
refused 2 'more than nothing' full:4 --size 0
refused 1 'neither a generator' nothing.here
refused 1 'root 4 is not a rank' full:4 --coll broadcast --root 4
refused 1 'ranks, and the network full:3 only 3' full:3 ring.schedule
refused 1 'does not|BiGraph' hdrm full:4
refused 1 'cannot write' full:2 -o no/such/folder.html
grep -v 'transfer 3 0 0 1' ring.schedule >wrong.schedule
refused 1 'wrong.schedule is not proven: .*rank 1' wrong.schedule
echo '{"traceEvents":[{"ph":"X",]}' >bad.json
refused 1 'bad.json:1: no trace: here should be a string' bad.json
echo '{"traceEvents":[]}' >empty.json
refused 1 'no transfers in this trace' empty.json
printf 'tutti-topology 1\nhost a\nhoost b\n' >bad.net
refused 1 'bad.net:3:1: ' bad.net
sed 's/"tid": 257/"tid": 92673/' job.json >far.json # to rank 362
refused 1 'give the network of these 363 ranks' far.json
sed 's/"tid": 257/"tid": 15360001/' job.json >far.json # to rank 60000
refused 1 'give the network of these 60001 ranks' far.json

# -------------------------------------------------------------- pictures --

run "$tutti" topo racks:5+3@nic=400Mbit,trunk=200Mbit,nic.7=100Mbit --draw
ends "a network for a terminal" 0
like "switches from the top" "$(sed -n 3p <<<"$out")" '^core  -- 200 Mbit/s, 10 us -- rack0 rack1$'
like "a line for each speed" "$out" '^      -- 100 Mbit/s, 10 us -- h7\(7\)$'
run "$tutti" topo torus:2x3 --draw
is "a grid" "$(sed -n 3,5p <<<"$out")" "  0 --  1 --  2
  |     |     |
  3 --  4 --  5"
run "$tutti" topo full:40 --draw
is "no line is too long" "$(awk 'length > 80' <<<"$out" | wc -l)" 0
for spec in full:1 full:2 ring:5 star:8 torus:4x4 torus:2x2x2 mesh:5 fattree:8x8 bigraph:4x4 \
    minsky:3 rails:4@eth0=400Mbit,eth1=100Mbit boxes:8+4+1; do
    run "$tutti" topo "$spec" --to svg
    is "$spec as SVG: well-formed, a disc for each rank" \
        "$(python3 -c "import sys, xml.etree.ElementTree as e
t = e.parse('$tmp/out')
print(len([c for c in t.iter() if c.tag.endswith('circle')]))" 2>&1)" \
        "$("$tutti" topo "$spec" --json | python3 -c "import json, sys
print(json.load(sys.stdin)['ranks'])")"
done
run "$tutti" show ring full:5 --to svg
is "a schedule as SVG: an arrow for each transfer" "$(grep -c 'path class="[rc]" d="M[0-9 ]*L' "$tmp/out")" 40
run "$tutti" export ring.schedule --to svg -o ring.svg
ends "export has it, too" 0
run "$tutti" show biring full:110 --to svg
ends "too many transfers are refused" 1
like "with what to do" "$err" '20000 transfers.*tutti view'
run "$tutti" topo full:4 --to png
ends "no such picture" 2
run "$tutti" topo full:400 --draw
ends "too large a network" 1
like "it says how large is too large" "$err" '131072'

# --------------------------------------------------------------- browser --

page() { # NAME RANKS WORDS...: its checks are counted here
    run "$tutti" view "${@:3}" -o "$1.html"
    ends "a page of $2 ranks" 0
    cp "$tmp/out" "$1.said"
    is "of less than 3 MB" "$(($(wc -c <"$1.html") < 3000000))" 1
    run python3 "$here/view_page.py" "$1.html" "$2" ${TT_SHOTS:+"$TT_SHOTS"}
    if [ "$rc" = 77 ]; then
        skip "$2 ranks in a browser" "no chromium and chromedriver"
        return
    fi
    ends "$2 ranks in a browser" 0
    grep '^#' <<<"$out"
    [ "$rc" = 0 ] || sed 's/^/# /' <<<"$out$err"
}
page four 4 full:4 --size 1MiB
page sixteen 16 racks:5+11@nic=400Mbit,trunk=200Mbit,order=interleaved ring forest trace.json --size 4MiB
page sixtyfour 64 torus:8x8
page many 256 fattree:16x16
page grid 256 torus:16x16 ring multitree

# ------------------------------------------------------- what is left out --

data() { # PAGE EXPRESSION: of the data d of a page
    python3 -c "import json, re
d = json.loads(re.search(r'id=\"data\">(.*?)</script>', open('$1.html').read(), re.S)[1])
$2" 2>&1
}
is "small pages have all" "$(data four "print([r['every'] for r in d['runs']] == [1] * sum(p['fits'] for p in d['planners']))")" True
is "and nothing is said of it" "$(grep -cE 'not played|chunks shown' four.said)" 0
is "what is named is there" "$(data grid "print([r['name'] for r in d['runs']])")" "['ring', 'multitree']"
is "with one of so many chunks" "$(data grid "
def chunks(r):
    at = 0
    for step in r['chunk']:
        at += step
        yield at
print([r['every'] > 1 and set(chunks(r)) == set(range(0, r['n_chunks'], r['every'])) for r in d['runs']])")" "[True, True]"
# Both send everything from neighbour to neighbour, 510 times a share of a rank.
is "links carry what all chunks do" "$(data grid "print([round(sum(b) / 510 / 2**20, 3) for b in d['link_bytes']])")" "[64.0, 64.0]"
like "the command says it" "$(cat grid.said)" '^  chunks shown: ring [0-9]+ of 256, multitree [0-9]+ of [0-9]+$'
is "the best is there, and first" "$(data many "print(d['runs'][0]['name'] == d['chosen'])")" True
is "the slowest are left out" "$(data many "
small = [p for p in d['planners'] if p['fits'] and p['transfers'] <= 24000]
here = {r['name'] for r in d['runs']}
out = [p['time_s'] for p in small if p['planner'] not in here]
print(max([p['time_s'] for p in small if p['planner'] in here and p['planner'] != d['chosen']] + [0]) <= min(out + [9e9]))")" True
like "and named" "$(cat many.said)" '^  not played, so that the page stays small: .*ring'
finish
