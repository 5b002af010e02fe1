#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# capture.sh - a job over two network namespaces, and all that travels between them:
# with a secret nothing of the data, the job's name and the secret is there to read.
. "$(dirname "$0")/lib.sh"

#     [ ca: 10.214.x.1 ] ---- veth ---- [ cb: 10.214.x.2 ]
id=$(($$ % 250))
a=ttca$$ b=ttcb$$ ip_a=10.214.$id.1 ip_b=10.214.$id.2
at_exit="ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; $at_exit"
make_network() {
    ip netns add "$a" && ip netns add "$b" &&
        ip link add "v$a" netns "$a" type veth peer name "v$b" netns "$b" &&
        ip -n "$a" addr add "$ip_a/24" dev "v$a" &&
        ip -n "$b" addr add "$ip_b/24" dev "v$b" &&
        ip -n "$a" link set "v$a" up && ip -n "$b" link set "v$b" up &&
        ip -n "$a" link set lo up && ip -n "$b" link set lo up
}
what="nothing can be read on the wire"
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
    skip "$what" "needs root and the ip command to make network namespaces"
    finish
elif ! make_network 2>"$tmp/err"; then
    skip "$what" "cannot make network namespaces: $(head -1 "$tmp/err")"
    finish
elif ! "$tutti" run -n 1 sh -c '[ "$TUTTI_SECRET_FILE" ]'; then
    skip "$what" "this build has no OpenSSL"
    finish
fi
cat >"$tmp/netns" <<R
#!/bin/sh
case \$1 in $ip_a) ns=$a ;; *) ns=$b ;; esac
shift
exec ip netns exec \$ns sh -c "\$*"
R
chmod +x "$tmp/netns"
capture() {
    python3 "$here/capture.py" "$@"
}

# records NAME WORDS...: `tutti run WORDS` on both hosts, and what travels.
records() {
    : >"$tmp/out-$1"
    ip netns exec "$a" python3 "$here/capture.py" record "v$a" "$tmp/$1" \
        >"$tmp/out-$1" &
    local recorder=$!
    awaits grep -q ready "$tmp/out-$1"
    run "$tutti" run --no-prefix --rsh "$tmp/netns" -H "$ip_a:2,$ip_b:2" "${@:2}"
    sleep 0.2 # the last words
    kill "$recorder"
    wait "$recorder"
}

bench=("$tutti" bench all-reduce -b 32KiB -e 32KiB -n 1 --type i64)
records plain --no-secret "${bench[@]}"
ends "a job without a secret" 0
records again --no-secret "${bench[@]}"
n=$(capture windows "$tmp/again" "$tmp/plain")
is "can be read: another one sends the same data ($n windows of 16 bytes)" \
    "$((n > 10000))" 1

records sealed "${bench[@]}"
ends "a job with the secret of tutti run" 0
like "all results are right" "$out" '^# Out of bounds values : 0 OK'
is "shows nothing of that data" "$(capture windows "$tmp/sealed" "$tmp/plain")" 0
like "all that travels is sealed" "$(capture sealed "$tmp/sealed" 2>&1)" \
    '^[1-9][0-9]* streams$'

"$tutti" secret "$tmp/s"
records given env TUTTI_SECRET_FILE="$tmp/s" "$B/examples/partial" --steps 20
ends "partial reduce with a secret of one's own" 0
like "all that travels is sealed" "$(capture sealed "$tmp/given" 2>&1)" \
    '^[1-9][0-9]* streams$'
is "and the secret is not there" "$(capture texts "$tmp/given" "$tmp/s")" 0

records proved env TUTTI_ENCRYPT=0 "${bench[@]}"
ends "a job with TUTTI_ENCRYPT=0" 0
like "says so, once" "$(grep -c 'travels in clear' <<<"$err")" '^1$'
n=$(capture windows "$tmp/proved" "$tmp/plain")
is "can be read" "$((n > 10000))" 1
finish
