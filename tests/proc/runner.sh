#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# runner.sh - tools/run-tests must count what programs print, and notice what
# they do not: each case is a small program and the last line it must give. TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
unset TT_RETRY # of the run that this is part of
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

# Fails when it runs for the first time, and then passes.
once() {
    rm -f "$dir/ran"
    cat <<END
if [ -e $dir/ran ]; then echo 1..1; echo "ok 1 - a"; exit; fi
touch $dir/ran; echo why it failed; echo 1..1; echo "not ok 1 - a"; exit 1
END
}
try "fails once, which counts" "0 passed, 1 failed" "why it failed" < <(once)
TT_RETRY=1 try "fails once, and passes alone: its sum" "1 passed, 0 failed" \
    "unsteady: $dir/program" < <(once)
TT_RETRY=1 try "and its first output" "1 passed, 0 failed" "why it failed" \
    < <(once)
TT_RETRY=1 try "fails twice" "1 passed, 1 failed" "program, once more" <<'END'
echo 1..2; echo "ok 1 - a"; echo "not ok 2 - b"; exit 1
END
try "all of a long output" "0 passed, 1 failed" "| line 4999$" <<'END'
i=0; while [ $i -lt 9999 ]; do echo line $i; i=$((i + 1)); done
echo 1..1; echo "not ok 1 - a"; exit 1
END

# Six programs that fail: they are not tried again.
n=$((n + 1))
for i in 1 2 3 4 5 6; do
    printf '#!/bin/sh\necho x >>%s\necho 1..1; echo not ok 1; exit 1\n' \
        "$dir/runs" >"$dir/bad$i"
    chmod +x "$dir/bad$i"
done
said=$(TT_RETRY=1 tools/run-tests "$dir"/bad?)
if [ "$(tail -1 <<<"$said")" = "0 passed, 6 failed" ] &&
    [ "$(wc -l <"$dir/runs")" = 6 ]; then
    echo "ok $n - many fail"
else
    echo "not ok $n - many fail"
    sed 's/^/# /' <<<"$said"
    status=1
fi
echo "1..$n"
exit $status
