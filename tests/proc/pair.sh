#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# pair.sh - one build against another: the verdicts, from records made up here,
# and that it measures, tried with a build against itself and few calls. Says
# nothing about speed.
. "$(dirname "$0")/lib.sh"
pair=$here/../../bench/pair
if ! command -v python3 >/dev/null; then
    skip "bench/pair" "no python3 here"
    finish
fi
pair() {
    run env B="$B" "$pair/run" "$@"
}
ratios() { # EXPRESSION over the module
    python3 -B -c "import sys
sys.path.insert(0, '$pair')
import ratios
print($1)" 2>&1
}

# -- what pairs say -----------------------------------------------------------
is "the order statistics of the sign test" \
    "$(ratios '[ratios.rank_of_end(n) for n in (1, 5, 6, 8, 9, 12, 20, 100)]')" \
    "[0, 0, 1, 1, 2, 3, 6, 40]"
is "no interval of five pairs" "$(ratios 'ratios.interval([1] * 5)')" None
is "an interval of nine" \
    "$(ratios 'ratios.interval([9, 1, 8, 2, 7, 3, 6, 4, 5])')" "(2, 8)"
is "verdicts" "$(ratios '[ratios.verdict(x, 1.02) for x in (
    (1.03, 1.1), (1.02, 1.1), (0.9, 1.02), (0.9, 0.99), None)]')" \
    "['slower', 'unclear', 'same', 'faster', 'unclear']"
is "next to nothing is no ratio" \
    "$(ratios 'ratios.compare([(0.001, 0.1)] * 6, 1.02, 0.5)["verdict"]')" same
is "nine of ten intervals and more enclose the median" "$(ratios 'min(
    sum(low <= 0.5 <= high for low, high in
        (ratios.interval([r.random() for _ in range(n)])
         for _ in range(2000))) > 1880
    for r in [__import__("random").Random(1)] for n in (6, 9, 12, 30))')" True

record() { # RATIO ROUNDS: of one row
    python3 -c 'import json, sys
for k in range(int(sys.argv[2])):
    for build, value in ("before", 10), ("after", 10 * float(sys.argv[1])):
        print(json.dumps({"part": "shm2", "round": k, "build": build, "row":
            "shm2 8 B", "kind": "us", "value": value + (k % 3) / 100}))' \
        "$1" "$2" >"$tmp/record"
}
record 1.05 6
pair --from "$tmp/record"
ends "5 % slower" 1
like "is slower" "$out" '^ +shm2 8 B +time +.* 1\.050 +1\.0.* 6 +slower$'
record 1.01 6
pair --from "$tmp/record"
ends "1 % slower" 0
like "is within what is allowed" "$out" ' same$'
record 1.05 5
pair --from "$tmp/record"
ends "five pairs" 0
like "are too few" "$out" ' 5 +unclear$'
record 1 6
echo '{"part": "shm2", "round": 7, "build": "after", "failure": "x"}' \
    >>"$tmp/record"
pair --from "$tmp/record"
ends "a launch that failed" 1
like "is told" "$out" '; 1 launches failed$'

# -- a build against itself ---------------------------------------------------
pair --before "$B" --rows shm2 --sizes 8,64KiB --rounds 2 --quick \
    --json "$tmp/new"
ends "two pairs on one host" 0
is "rows of both, in turns" "$(python3 -c 'import json, sys
print(*[r["row"].replace(" ", "_") + "," + r["build"][0] + str(r["round"])
        for r in map(json.loads, open(sys.argv[1])) if "8 B" in r.get("row", "")])
' "$tmp/new")" "shm2_8_B,b1 shm2_8_B,a1 shm2_8_B,a2 shm2_8_B,b2"
pair --before "$B" --rows shm2 --sizes 8 --rounds 1 --quick --json "$tmp/new"
ends "a record that has rows" 1
one_sentence "says so once"
if command -v strace >/dev/null && command -v valgrind >/dev/null; then
    pair --before "$B" --rows counts --rounds 1 --quick
    ends "counts" 0
    like "instructions" "$out" '^ +tcp2 8 B +instructions +[1-9][0-9]+ '
    like "system calls" "$out" '^ +tcp2 8 B +system calls +[0-9.]+ '
else
    skip "counts" "no strace or no valgrind here"
fi

for words in "--rows nothing" "--rows shm1" "--rounds 0" ""; do
    pair $words ${words:+--before "$B"}
    ends "${words:-no build}: refused" 2
    one_sentence "in one sentence"
done
pair --before "$tmp" --rows shm2
ends "what is no build" 1
like "is named" "$err" "$tmp has no tutti"
finish
