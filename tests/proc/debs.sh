#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# debs.sh - the Debian packages: they are built, lintian has nothing to say, and each
# has its files and its version. What they do once installed is in bare.sh.
. "$(dirname "$0")/lib.sh"
top=$here/../..
limit=3000

if ! command -v dpkg-buildpackage >/dev/null || ! command -v dh >/dev/null; then
    skip "the Debian packages" "no debhelper here (tools/setup debs)"
    finish
fi
version=$(sed -n 's/^VERSION := //p' "$top/Makefile")
mkdir "$tmp/debs"
touch "$tmp/debs/mine" "$tmp/debs/libtutti0_0.0-1_amd64.deb"
run "$top/tools/debs" "$tmp/debs"
ends "tools/debs" 0
is "what else is there stays, packages of an earlier run do not" \
    "$(cd "$tmp/debs" && ls mine libtutti0_0.0-1_amd64.deb 2>/dev/null)" mine
rm -f "$tmp/debs/mine"
[ "$rc" = 0 ] || finish
is "four packages, of the Makefile's version" \
    "$(cd "$tmp/debs" && ls *.deb | cut -d_ -f1,2 | xargs)" \
    "libtutti-dev_$version-1 libtutti0_$version-1 python3-tutti_$version-1 tutti-tools_$version-1"
is "nothing is left of the build" "$(ls "$tmp/debs" | grep -v '\.deb$\|\.changes$\|\.buildinfo$')" ""

contents() { # PACKAGE
    dpkg-deb -c "$tmp/debs/$1"_*.deb | awk '!/^d/ { print $6 }'
}
for want in 'libtutti0 /usr/lib/[^/]*/libtutti\.so\.0$' \
    'libtutti0 /usr/lib/[^/]*/tutti/libnccl-net-tutti\.so$' 'libtutti-dev /usr/include/tutti\.h$' \
    'libtutti-dev /usr/lib/[^/]*/libtutti\.a$' 'libtutti-dev /pkgconfig/tutti\.pc$' \
    'libtutti-dev /cmake/Tutti/TuttiConfig\.cmake$' 'tutti-tools \./usr/bin/tutti$' \
    'tutti-tools /man1/tutti-run\.1\.gz$' 'tutti-tools /bash-completion/completions/tutti$' \
    'tutti-tools /zsh/vendor-completions/_tutti$' \
    'python3-tutti /dist-packages/tutti/__init__\.py$'; do
    like "${want% *} has ${want#* }" "$(contents "${want% *}")" "${want#* }"
done
is "the Python module has nothing that needs a compiled file of PyTorch's" \
    "$(contents python3-tutti | grep -c '/tutti/torch/')" 0
like "libtutti0 names what it needs" "$(dpkg-deb -f "$tmp/debs"/libtutti0_*.deb Depends)" \
    'coinor-libclp1.*libc6.*libssl3.*libxml2'
# Whoever links with the library depends on the first version with its symbols.
like "its symbols have a version" "$(dpkg-deb -I "$tmp/debs"/libtutti0_*.deb symbols)" \
    '^ tutti_all_reduce@TUTTI_0\.1 0\.1\.0'

if command -v lintian >/dev/null; then
    # Only an upload to Debian's archive closes a bug of Debian's.
    run lintian --allow-root --fail-on error,warning --suppress-tags \
        initial-upload-closes-no-bugs "$tmp/debs"/*.changes
    is "lintian" "$rc $out" "0 "
else
    skip "lintian" "there is none here"
fi
finish
