#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# settings.sh - `tutti settings`: the committed page is what it prints, values
# come from the environment, and a wrong one is said in one sentence. TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
tutti=${B:-build}/tutti
for name in $(compgen -v TUTTI_); do
    unset "$name"
done
n=0 status=0

# check NAME COMMAND...: passes when the command does.
check() {
    local name=$1 said
    shift
    n=$((n + 1))
    if said=$("$@" 2>&1); then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        status=1
        sed 's/^/# /' <<<"$said"
    fi
}

page() {
    TUTTI_WINDOW=9 "$tutti" settings --md | diff docs/reference/settings.md -
}

row() {
    TUTTI_WINDOW=9 "$tutti" settings | grep -q '^TUTTI_WINDOW  *9  *environment '
}

# Lines would wrap beyond 80 columns.
narrow() {
    ! "$tutti" settings | grep '.\{81\}'
}

json() {
    TUTTI_JOB='a"b\c' "$tutti" settings --json | python3 -c '
import json, sys
rows = {row["name"]: row for row in json.load(sys.stdin)}
assert rows["TUTTI_JOB"]["value"] == "a\"b\\c", rows["TUTTI_JOB"]
assert rows["TUTTI_JOB"]["source"] == "environment"
assert rows["TUTTI_WINDOW"]["most"] == "1024"
assert all(row["help"] for row in rows.values())'
}

wrong() {
    local said
    said=$(TUTTI_WINDOW=many "$tutti" settings 2>&1 >/dev/null)
    [ $? -eq 1 ] && [ "$said" = 'tutti settings: TUTTI_WINDOW is "many";'\
' expected: count, 0 to 1024' ]
}

usage() {
    "$tutti" settings TUTTI_WINDOW >/dev/null 2>&1
    [ $? -eq 2 ]
}

check "docs/reference/settings.md is what --md prints" page
check "a value of the environment" row
check "lines end by column 80" narrow
if command -v python3 >/dev/null; then
    check "--json" json
else
    n=$((n + 1))
    echo "ok $n - --json # SKIP python3 is not there to read it"
fi
check "a wrong value" wrong
check "words are a usage error" usage
echo "1..$n"
exit $status
