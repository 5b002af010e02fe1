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
head -c 60 "$tmp/s" >"$tmp/short"
chmod 600 "$tmp/short"
run "$tutti" secret --drop "$tmp/short"
ends "half a secret" 1
one_sentence "in one sentence"
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
run env TUTTI_SECRET_FILE="$tmp/s" "$tutti" run --no-prefix -n 1 sh -c \
    'echo "$TUTTI_SECRET_FILE"'
is "the user's own counts" "$out" "$tmp/s"
run env TUTTI_TLS_CERT=cert "$tutti" run --no-prefix -n 1 sh -c \
    'echo "<$TUTTI_SECRET_FILE>"'
is "certificates take its place" "$out" "<>"

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

finish
