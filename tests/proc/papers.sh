#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# papers.sh - bench/papers and bench/scale work, and their small versions say
# what theory says.
. "$(dirname "$0")/lib.sh"
export B
papers=$here/../../bench/papers/run
scale=$here/../../bench/scale/run

if ! command -v python3 >/dev/null; then
    skip "bench/papers" "no python3 here"
    finish
fi

json() { # PYTHON EXPRESSION over d, the JSON of the last run
    python3 -c "import json,sys; d = json.load(sys.stdin); print($1)" \
        <"$tmp/out" 2>&1
}

run "$papers" --quick --json - --charts "$tmp/charts"
ends "all papers, quickly" 0
is "every part is there" "$(json '" ".join(d)')" \
    "multitree flexreduce blueconnect hybrid preduce efficiency"
is "MultiTree is three times as fast as a ring on a 4x4 torus" \
    "$(json 'next(2.9 < r["seconds"]["ring"][0] / r["seconds"]["multitree"][0]
        < 3.1 for r in d["multitree"]["machines"]
        if r["label"] == "torus 4x4")')" True
is "FlexReduce gains what theory says" \
    "$(json 'all(abs(r["seconds"][k] / r["seconds"]["flexreduce"] /
        r["theory"][k] - 1) < .02 for r in d["flexreduce"]["machines"]
        for k in ("equal", "ring"))')" True
is "nothing is faster than the optimum" \
    "$(json 'all(t is None or t > .999 * r["optimum_s"]
        for r in d["efficiency"]["networks"]
        for t in r["seconds"].values())')" True
is "BlueConnect is faster than a ring across dealt ranks" \
    "$(json 'd["blueconnect"]["seconds"]["blueconnect"] <
        .5 * d["blueconnect"]["seconds"]["naive-dealt"]')" True
if python3 -c 'import matplotlib' 2>/dev/null; then
    is "a chart for each, twice" "$(find "$tmp/charts" -type f | wc -l)" 12
else
    # Beside it a slow machine may tell how far it is.
    is "why there are no charts" "$(grep -c 'no charts, because' <<<"$err")" 1
fi

run "$papers" --quick --no-charts flexreduce
like "a table" "$out" "^ *flexreduce-2\+4 .*1.33 / 1.33x"
like "headlines" "$out" "^ *FlexReduce .*2\+4 .*1.33x / 1.67x"
run "$papers" nothing
ends "no such part" 2
B=$tmp/nowhere run "$papers" flexreduce --no-charts
ends "what is not built" 1
like "is named" "$err" "nowhere"
run "$papers" --quick --no-charts flexreduce --json "$tmp/no/such/folder"
ends "no such folder" 1
one_sentence "one sentence about it"

run "$scale" --quick --rounds 1 --json "$tmp/scale.json"
ends "large networks, quickly" 0
like "its target is met" "$out" "^torus:8x8, plan forest.* (met$|does not fit)"
cp "$tmp/scale.json" "$tmp/out"
is "memory is told" \
    "$(json 'all(r.get("peak_rss_bytes", 2 << 20) > 1 << 20 for r in d)')" True
finish
