#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# capture.sh - a job over two network namespaces, and all that travels between them:
# with a secret nothing of the data, the job's name, its tokens and the secret is there
# to read.
. "$(dirname "$0")/lib.sh"

what="nothing can be read on the wire"
if ! two_hosts ttc 214; then
    skip "$what" "cannot make two hosts: $(head -1 "$tmp/err")"
    finish
elif ! "$tutti" run -n 1 sh -c '[ "$TUTTI_SECRET_FILE" ]'; then
    skip "$what" "this build has no OpenSSL"
    finish
fi
capture() {
    python3 "$here/capture.py" "$@"
}

# All random values that processes take for themselves (tokens of the listeners and
# of the controller, secrets, numbers of a job) go into $RANDOM_LOG, too.
cat >"$tmp/random.c" <<'C'
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t getrandom(void *out, size_t len, unsigned flags)
{
    ssize_t n = syscall(SYS_getrandom, out, len, flags);
    const char *log = getenv("RANDOM_LOG");
    const int err = errno;
    char line[200];
    int used = 0;
    for (ssize_t i = 0; i < n && n <= 64; i++)
        used += sprintf(line + used, "%02x", ((unsigned char *)out)[i]);
    line[used++] = '\n';
    int fd = log && used > 1 ? open(log, O_CREAT | O_APPEND | O_WRONLY, 0600) : -1;
    if (fd >= 0 && write(fd, line, (size_t)used) != used)
        abort();
    if (fd >= 0)
        close(fd);
    errno = err;
    return n;
}
C
preload=
if cc -D_GNU_SOURCE -shared -fPIC -o "$tmp/random.so" "$tmp/random.c"; then
    preload=$tmp/random.so
fi
cat >"$tmp/named" <<R
#!/bin/sh
echo "\$TUTTI_JOB" >>"\$NAMES_LOG"
exec "\$@"
R
chmod +x "$tmp/named"

# records NAME WORDS...: `tutti run WORDS` on both hosts, and what travels; what
# they take at random, and the job's names.
records() {
    : >"$tmp/out-$1" >"$tmp/random-$1"
    export RANDOM_LOG=$tmp/random-$1 NAMES_LOG=$tmp/names-$1
    ip netns exec "$a" python3 "$here/capture.py" record "v$a" "$tmp/$1" \
        >"$tmp/out-$1" &
    local recorder=$!
    awaits grep -q ready "$tmp/out-$1"
    LD_PRELOAD=$preload run "$tutti" run --no-prefix --rsh "$tmp/netns" \
        -H "$ip_a:2,$ip_b:2" "${@:2}"
    sleep 0.2 # the last words
    kill "$recorder"
    wait "$recorder"
}

# hides NAME WHAT: neither tokens nor the job's names are there to read.
hides() {
    [ "$preload" ] && is "$2 shows no token" \
        "$(capture values "$tmp/$1" "$tmp/random-$1")" 0
    is "$2 does not show the job's name" \
        "$(capture names "$tmp/$1" "$tmp/names-$1")" 0
}

bench=("$tmp/named" "$tutti" bench all-reduce -b 32KiB -e 32KiB -n 1 --type i64)
records plain --no-secret "${bench[@]}"
ends "a job without a secret" 0
records again --no-secret "${bench[@]}"
n=$(capture windows "$tmp/again" "$tmp/plain")
is "can be read: another one sends the same data ($n windows of 16 bytes)" \
    "$((n > 10000))" 1
is "its name is there" "$(($(capture names "$tmp/again" "$tmp/names-again") > 0))" 1
[ "$preload" ] && is "and its tokens are" \
    "$(($(capture values "$tmp/again" "$tmp/random-again") >= 4))" 1

records sealed "${bench[@]}"
ends "a job with the secret of tutti run" 0
like "all results are right" "$out" '^# Out of bounds values : 0 OK'
is "shows nothing of that data" "$(capture windows "$tmp/sealed" "$tmp/plain")" 0
hides sealed "it"
like "all that travels is sealed" "$(capture sealed "$tmp/sealed" 2>&1)" \
    '^[1-9][0-9]* streams$'

"$tutti" secret "$tmp/s"
records given env TUTTI_SECRET_FILE="$tmp/s" "$tmp/named" "$B/examples/partial" --steps 20
ends "partial reduce with a secret of one's own" 0
like "all that travels is sealed" "$(capture sealed "$tmp/given" 2>&1)" \
    '^[1-9][0-9]* streams$'
hides given "partial reduce"
is "and the secret is not there" "$(capture texts "$tmp/given" "$tmp/s")" 0

records proved env TUTTI_ENCRYPT=0 "${bench[@]}"
ends "a job with TUTTI_ENCRYPT=0" 0
like "says so, once" "$(grep -c 'travels in clear' <<<"$err")" '^1$'
n=$(capture windows "$tmp/proved" "$tmp/plain")
is "can be read" "$((n > 10000))" 1
finish
