#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# runner.sh - tools/run-tests must count what programs print, and notice what
# they do not: each case is a small program and the last line it must give. TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=0 status=0

# try NAME SUM [WORD [SECONDS]]: the program on stdin must give that sum, its
# report must contain the word.
try() {
    local said
    n=$((n + 1))
    { echo '#!/bin/sh'; cat; } >"$dir/program"
    chmod +x "$dir/program"
    said=$(tools/run-tests -t "${4:-60}" "$dir/program")
    if [ "$(tail -1 <<<"$said")" = "$2" ] && grep -q -e "${3:-}" <<<"$said"; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        sed 's/^/# /' <<<"$said"
        status=1
    fi
}

try "passes" "2 passed, 0 failed" <<'END'
echo 1..2; echo "ok 1 - a"; echo "ok 2 - b"
END
try "fails" "1 passed, 1 failed" "not ok 2" <<'END'
echo 1..2; echo "ok 1 - a"; echo "not ok 2 - b"; exit 1
END
try "skips with a reason" "1 passed, 0 failed, 1 skipped" "no net here" <<'END'
echo 1..2; echo "ok 1 - a"; echo "ok 2 - b # SKIP no net here"
END
try "cmocka's way to skip" "1 passed, 0 failed, 1 skipped" "b" <<'END'
echo 1..2; echo "ok 1 - a"; echo "not ok 2 # SKIP b"
END
try "skips all" "0 passed, 0 failed, 1 skipped" "no mpi here" <<'END'
echo "1..0 # SKIP no mpi here"
END
try "exit status 77" "0 passed, 0 failed, 1 skipped" "no root" <<'END'
echo no root; exit 77
END
try "a plan that was not kept" "1 passed, 1 failed" "planned 2" <<'END'
echo 1..2; echo "ok 1 - a"
END
try "no TAP" "0 passed, 1 failed" "no plan" <<'END'
echo hello
END
try "an exit status of its own" "1 passed, 1 failed" "exit status 3" <<'END'
echo 1..1; echo "ok 1 - a"; exit 3
END
try "death by a signal" "1 passed, 1 failed" "signal 11" <<'END'
echo 1..2; echo "ok 1 - a"; kill -SEGV $$
END
try "too slow, children included" "1 passed, 1 failed" "more than 5 s" 5 <<'END'
echo 1..2; echo "ok 1 - a"; sleep 60 & sleep 60
END
try "a process left behind" "1 passed, 1 failed" "left processes" <<'END'
echo 1..1; echo "ok 1 - a"; sleep 60 &
END
echo "1..$n"
exit $status
