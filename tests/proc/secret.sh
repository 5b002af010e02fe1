#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# secret.sh - secrets: their files, how `tutti run` hands one down, and jobs that
# have one.
. "$(dirname "$0")/lib.sh"

# -- the file -----------------------------------------------------------------

digits='^[0-9a-f]{64}$'
run "$tutti" secret "$tmp/s"
ends "tutti secret" 0
is "only its user may read it" "$(stat -c %a "$tmp/s")" 600
like "a line of digits" "$(cat "$tmp/s")" "$digits"
first=$(cat "$tmp/s")
run "$tutti" secret "$tmp/s"
ends "a file that is there" 1
one_sentence "is named in one sentence"
is "and stays" "$(cat "$tmp/s")" "$first"
run "$tutti" secret --rotate "$tmp/s"
ends "--rotate" 0
is "keeps the old one behind" "$(sed -n 2p "$tmp/s")" "$first"
like "a new one" "$(sed -n 1p "$tmp/s")" "$digits"
is "another one" "$([ "$(sed -n 1p "$tmp/s")" != "$first" ] && echo yes)" yes
is "for its user only" "$(stat -c %a "$tmp/s")" 600
second=$(sed -n 1p "$tmp/s")
run "$tutti" secret --rotate "$tmp/s"
is "two at most" "$(wc -l <"$tmp/s"):$(sed -n 2p "$tmp/s")" "2:$second"
third=$(sed -n 1p "$tmp/s")
run "$tutti" secret --drop "$tmp/s"
ends "--drop" 0
is "leaves the newest" "$(cat "$tmp/s")" "$third"
is "no other file is left" "$(ls "$tmp" | grep -c '^s')" 1
chmod 644 "$tmp/s"
run "$tutti" secret --rotate "$tmp/s"
ends "a file that others may read" 1
like "it says what to do" "$err" 'chmod 600'
chmod 600 "$tmp/s"
head -c 30 "$tmp/s" >"$tmp/short"
chmod 600 "$tmp/short"
run "$tutti" secret --drop "$tmp/short"
ends "half a secret" 1
one_sentence "in one sentence"
{ printf '#%02000d\n\n# short\n' 0; echo "$third"; } >"$tmp/s"
run "$tutti" secret --rotate "$tmp/s"
ends "a long comment" 0
is "is no secret" "$(sed -n 2p "$tmp/s")" "$third"
third=$(sed -n 1p "$tmp/s")
ln -s s "$tmp/link"
run "$tutti" secret --rotate "$tmp/link"
ends "a link" 0
is "stays one" "$(readlink "$tmp/link")" s
is "and the file is changed" "$(sed -n 2p "$tmp/s")" "$third"
rm "$tmp/link"
"$tutti" secret --drop "$tmp/s"
mkfifo -m 600 "$tmp/fifo"
run timeout "$limit" "$tutti" secret --rotate "$tmp/fifo"
ends "a FIFO" 1
like "is no file" "$err" 'must be a file of your own'
rm "$tmp/fifo"
run "$tutti" secret --rotate "$tmp/none"
ends "no file to rotate" 1
run "$tutti" secret
ends "no file named" 2
run "$tutti" secret --rotate --drop "$tmp/s"
ends "two steps at once" 2

# -- tutti run ----------------------------------------------------------------

# shows: what a rank sees of its secret, and everybody of the job.
shows='cat "$TUTTI_SECRET_FILE"; cat "$TUTTI_SECRET_FILE"
    stat -Lc %a "$TUTTI_SECRET_FILE"
    ps -wweo args >>"$0"; cat /proc/self/environ >>"$0"'
if ! "$tutti" run -n 1 sh -c '[ "$TUTTI_SECRET_FILE" ]'; then
    skip "jobs with a secret" "this build has no OpenSSL"
    finish
fi
run "$tutti" run --no-prefix -n 2 sh -c "$shows" "$tmp/seen"
ends "a job of tutti run" 0
is "has one secret, which every rank can read often" \
    "$(grep -cE "$digits" <<<"$out"):$(grep -E "$digits" <<<"$out" | sort -u | wc -l)" 4:1
is "and nobody else" "$(grep -c '^600$' <<<"$out")" 2
of_job=$(grep -E "$digits" <<<"$out" | head -1)
is "no list of processes and no environment shows it" \
    "$(grep -ac "$of_job" "$tmp/seen")" 0
run "$tutti" run --no-prefix -n 1 sh -c 'cat "$TUTTI_SECRET_FILE"'
is "another job has another one" \
    "$([ "$out" != "$of_job" ] && grep -cE "$digits" <<<"$out")" 1
run "$tutti" run --no-prefix -n 1 sh -c \
    '(echo x >>"$TUTTI_SECRET_FILE") 2>/dev/null || cat "$TUTTI_SECRET_FILE"'
is "no rank can change it" "$(grep -cE "$digits" <<<"$out")" 1
run "$tutti" run --no-prefix --no-secret -n 1 sh -c 'echo "<$TUTTI_SECRET_FILE>"'
is "--no-secret: none" "$out" "<>"
run env TUTTI_SECRET_FILE= "$tutti" run --no-prefix -n 1 sh -c \
    'echo "<$TUTTI_SECRET_FILE>"'
is "nor with an empty variable" "$out" "<>"
run env TUTTI_SECRET_FILE="$tmp/s" "$tutti" run --no-prefix -n 1 sh -c \
    'echo "$TUTTI_SECRET_FILE"'
is "the user's own counts" "$out" "$tmp/s"
run env TUTTI_TLS_CERT=cert "$tutti" run --no-prefix -n 1 sh -c \
    'echo "<$TUTTI_SECRET_FILE>"'
is "certificates take its place" "$out" "<>"
run env TUTTI_TLS_CERT= "$tutti" run --no-prefix -n 1 sh -c \
    'cat "$TUTTI_SECRET_FILE"'
is "an empty name of one does not" "$(grep -cE "$digits" <<<"$out")" 1

cat >"$tmp/rsh" <<'R'
#!/bin/sh
# rsh HOST COMMAND: as sshd would; keeps what a list of processes shows.
shift
echo "$*" >>"${0%/*}/line"
cd / && exec env -i PATH=/usr/bin:/bin sh -c "$*"
R
chmod +x "$tmp/rsh"
run env 'TUTTI_WORD=it'\''s "\0101%d\n" $x' TUTTI_LOG=warn \
    "$tutti" run --no-prefix --rsh "$tmp/rsh" -H a,b sh -c \
    "printf '%s\n' \"\$TUTTI_WORD\"; $shows" "$tmp/seen-far"
ends "a job on hosts" 0
is "every host has the same secret" \
    "$(grep -cE "$digits" <<<"$out"):$(grep -E "$digits" <<<"$out" | sort -u | wc -l)" 4:1
is "and nobody else there" "$(grep -c '^600$' <<<"$out")" 2
of_job=$(grep -E "$digits" <<<"$out" | head -1)
is "no command line shows it" \
    "$(cat "$tmp/line" "$tmp/seen-far" | grep -ac "$of_job")" 0
is "nor any TUTTI_ variable" "$(grep -c 'TUTTI_[A-Z]*=[^/]' "$tmp/line")" 0
is "whose values arrive as they are" \
    "$(grep -cxF 'it'\''s "\0101%d\n" $x' <<<"$out")" 2
is "the file has no name there" "$(ls /dev/shm "$tmp" | grep -c '^tutti\.')" 0
run env 'TUTTI_a-b=x' "$tutti" run --no-prefix --rsh "$tmp/rsh" -H a,b \
    sh -c 'echo "$TUTTI_RANK"'
ends "a variable that no shell can export" 0
is "is left out" "$(sort <<<"$out" | xargs)" "0 1"

# A host whose environment has variables of the names that the script uses.
mkdir "$tmp/bin"
printf '#!/bin/sh\nenv >>"%s/mktemp-env"\n. "%s/mktemp-does"\n' \
    "$tmp" "$tmp" >"$tmp/bin/mktemp"
chmod +x "$tmp/bin/mktemp"
sed "s|env -i PATH=|env -i secret=x file='$tmp/mine' PATH=$tmp/bin:|" "$tmp/rsh" \
    >"$tmp/rsh-own"
chmod +x "$tmp/rsh-own"
far=("$tutti" run --no-prefix --rsh "$tmp/rsh-own" -H a sh -c)
echo 'PATH=/usr/bin:/bin; exec mktemp "$@"' >"$tmp/mktemp-does"
run env PATH="$tmp/bin:$PATH" "${far[@]}" 'cat "$TUTTI_SECRET_FILE"'
ends "a host with such variables" 0
of_job=$(grep -E "$digits" <<<"$out")
is "no program there has the secret among them" \
    "${#of_job}:$(grep -c "$of_job" "$tmp/mktemp-env")" 64:0
echo mine >"$tmp/mine"
echo 'exit 1' >"$tmp/mktemp-does"
run env PATH="$tmp/bin:$PATH" "${far[@]}" true
ends "no place for the secret" 1
like "is told" "$err" "no place for the job's secret"
is "and no file of the user's takes it" "$(cat "$tmp/mine")" mine

# -- jobs ---------------------------------------------------------------------

bench=("$tutti" bench -b 64KiB -e 64KiB -n 1)
run env TUTTI_TRANSPORTS=tcp "$tutti" run -n 3 "${bench[@]}"
ends "a job over TCP" 0
like "all results are right" "$out" 'Out of bounds values : 0 OK'

# looks [NAME=VALUE]: how often such a job looks for ipsec-mb.
looks() {
    run env LD_DEBUG=libs TUTTI_TRANSPORTS=tcp "$@" \
        "$tutti" run -n 2 "${bench[@]}"
    grep -c 'find library=libIPSec_MB' <<<"$err"
}
if grep -aq libIPSec_MB "$tutti"; then
    is "each rank looks for ipsec-mb" "$(looks)" 2
else
    skip "each rank looks for ipsec-mb" "this build has none"
fi
is "but not with TUTTI_IPSEC_MB=0" "$(looks TUTTI_IPSEC_MB=0)" 0

run "$tutti" run -n 1 bash -c 'exec 100<&-; exec "$@"' - "${bench[@]}"
ends "a program that closes the descriptor" 1
like "is told" "$err" 'has handed down as /proc/self/fd/[0-9]+ is not there'
run env TUTTI_TRANSPORTS=ucx "$tutti" run -n 2 "${bench[@]}"
ends "ucx beside a secret" 1
like "is refused, or not there" "$err" \
    'sends in clear.*TUTTI_UCX_INSECURE=1|TUTTI_TRANSPORTS: ucx: '
chmod 640 "$tmp/s"
run env TUTTI_SECRET_FILE="$tmp/s" "${bench[@]}"
ends "a secret that others may read" 1
one_sentence "in one sentence"
like "it says what to do" "$err" 'chmod 600'
chmod 600 "$tmp/s"

# By torchrun's variables: rank R with the secret FILE ("": none).
"$tutti" secret "$tmp/other"
port=$(some_port)
rank() { # R FILE
    env TUTTI_SECRET_FILE="$2" TUTTI_TRANSPORTS=tcp RANK="$1" WORLD_SIZE=2 \
        MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" TUTTI_LOG=debug \
        timeout "$limit" "${bench[@]}"
}
rank 0 "$tmp/s" >"$tmp/root" 2>"$tmp/root-says" &
root=$!
awaits grep -q 'rank 0 listens' "$tmp/root-says"
for file in "" "$tmp/other"; do
    rank 1 "$file" >/dev/null 2>"$tmp/err"
    is "rank 1 (secret: ${file##*/})" "$?" 1
    like "it is told so" "$(cat "$tmp/err")" \
        "rank 1 and rank 0 at 127.0.0.1:$port share no secret"
done
is "rank 0 goes on waiting" "$(kill -0 $root && echo yes)" yes
like "and says who was sent away" "$(cat "$tmp/root-says")" \
    'warn rank 0: link: sent 127.0.0.1:[0-9]+ away: it .* secret'
rank 1 "$tmp/s" >/dev/null 2>"$tmp/err"
is "rank 1 with the secret" "$?" 0
wait "$root"
is "is the one" "$?" 0
like "and all results are right" "$(cat "$tmp/root")" \
    'Out of bounds values : 0 OK'
rank 0 "" >/dev/null 2>"$tmp/root-says" &
root=$!
awaits grep -q 'rank 0 listens' "$tmp/root-says"
rank 1 "$tmp/s" >/dev/null 2>"$tmp/err"
is "a rank with a secret and a rank 0 without one" "$?" 1
like "it does not go on in clear" "$(cat "$tmp/err")" 'share no secret'
kill "$root"
wait "$root"

# -- a controller by itself ---------------------------------------------------

env TUTTI_SECRET_FILE="$tmp/s" "$tutti" controller -n 2 --group 2 \
    --listen 127.0.0.1:0 >"$tmp/summary" 2>"$tmp/where" &
controller=$!
at_exit="kill $controller 2>/dev/null; $at_exit"
listens "$tmp/where"
worker() { # NUMBER FILE
    env TUTTI_SECRET_FILE="$2" TUTTI_CONTROLLER=127.0.0.1:"$port" \
        timeout "$limit" "$B/examples/partial" --worker "$1" --steps 5
}
for file in "" "$tmp/other"; do
    worker 0 "$file" >"$tmp/out" 2>&1
    like "a worker (secret: ${file##*/})" \
        "$(cat "$tmp/out")" "controller at 127.0.0.1:$port share no secret"
done
worker 1 "$tmp/s" >/dev/null 2>&1 &
worker=$!
worker 0 "$tmp/s" >/dev/null 2>&1
is "a worker with the secret" "$?" 0
wait "$worker"
is "and another one" "$?" 0
wait "$controller"
is "the controller ends when they have gone" "$?" 0

finish
