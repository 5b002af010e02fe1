#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# manpages.sh - every command has a manual page with all that its help says, and man
# has nothing to complain about.
. "$(dirname "$0")/lib.sh"

run "$here/../../tools/manpages" "$tutti" "$tmp/man"
ends "the pages are made" 0
words=$("$tutti" --help | sed -n '/^example/q; s/^  \([a-z]*\) .*/\1/p')
is "a page for each command, and one for all" "$(cd "$tmp/man" && ls)" \
    "$({ echo tutti.1; printf 'tutti-%s.1\n' $words; } | LC_ALL=C sort)"
is "they are those of the build" "$(diff -r "$tmp/man" "$B/man" 2>&1)" ""
touch "$tmp/man/tutti-gone.1"
run "$here/../../tools/manpages" "$tutti" "$tmp/man"
is "a command that is no more has none" "$(ls "$tmp/man/tutti-gone.1" 2>&1 | grep -c 'No such')" 1

if ! command -v man >/dev/null; then
    skip "what man makes of them" "no man here"
    finish
fi
# shown PAGE: as one line without what man adds to fill lines.
shown() {
    MANWIDTH=100 LC_ALL=C.UTF-8 man --nh --nj --warnings=w -l "$1" 2>>"$tmp/warnings" |
        sed 's/.\x08//g' | tr -s ' \n' ' '
}
for word in $words; do
    # The help's words in the same order, less its headings.
    help=$("$tutti" "$word" --help | sed '/^usage:/d; /^options:$/d; /^examples:$/d; s/`//g' |
        tr -s ' \n' ' ' | sed 's/^ //; s/ $//')
    page=$(shown "$tmp/man/tutti-$word.1")
    page=${page/ OPTIONS / }
    page=${page/ EXAMPLES / }
    is "the page of $word says what its help says" \
        "$(grep -cF -- "$help" <<<"$page")" 1
done
all=$(shown "$tmp/man/tutti.1")
for word in $words; do
    like "tutti(1) names $word" "$all" "tutti-$word\(1\)"
done
for name in $("$tutti" settings --md | sed -n 's/^| `\(TUTTI_[A-Z_]*\)`.*/\1/p'); do
    grep -qF -- "$name (" <<<"$all" || missing="${missing-} $name"
done
is "tutti(1) names every variable" "${missing-}" ""
is "man warns of nothing" "$(cat "$tmp/warnings")" ""

finish
