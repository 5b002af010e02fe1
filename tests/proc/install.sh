#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# install.sh - `make install` into an empty folder, then a small program built
# against what lies there, found by pkg-config only: by the shared and by the
# static library, as C and as C++; `make uninstall` leaves nothing. TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
n=0 status=0

# step NAME COMMAND...: passes when the command does.
step() {
    local name=$1 said
    shift
    n=$((n + 1))
    if said=$("$@" 2>&1); then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        status=1
    fi
    [ -z "$said" ] || sed 's/^/# /' <<<"$said"
}

# The make that runs this test has a jobserver that is not ours to use; what
# it was told on its command line (CC=, OPT=) must stay, or it all is rebuilt.
run_make() {
    make --no-print-directory -s B="$B" DESTDIR="$root" PREFIX=/opt/tutti "$@" \
        2> >(grep -v jobserver >&2)
}

flags() {
    PKG_CONFIG_LIBDIR=$root/opt/tutti/lib/pkgconfig \
        PKG_CONFIG_SYSROOT_DIR=$root pkg-config "$@" tutti
}

cat >"$root/small.c" <<'END'
#include <stdio.h>
#include <string.h>
#include <tutti.h>

int main(void)
{
    tutti_comm *comm;
    tutti_comm_opts opts = TUTTI_COMM_OPTS_INIT;
    opts.n_ranks = 1;
    tutti_err err = tutti_comm_create(&opts, &comm);
    if (err) {
        printf("%s: %s\n", tutti_strerror(err), tutti_last_message());
        return 1;
    }
    float x[3] = {1, 2, 3};
    err = tutti_all_reduce(comm, x, x, 3, TUTTI_F32, TUTTI_SUM, NULL, NULL);
    tutti_comm_destroy(comm);
    return err || x[2] != 3 || strcmp(tutti_version(), "0.1.0") != 0;
}
END

check_files() {
    local file
    for file in bin/tutti include/tutti.h include/tutti_partial.h \
        include/tutti_plan.h lib/libtutti.a lib/libtutti.so lib/libtutti.so.0 \
        lib/pkgconfig/tutti.pc; do
        [ -s "$root/opt/tutti/$file" ] || { echo "no $file"; return 1; }
    done
}

shared() {
    ${CC:-cc} "$root/small.c" -o "$root/shared" \
        $(flags --cflags) $(flags --libs) &&
        LD_LIBRARY_PATH=$root/opt/tutti/lib "$root/shared" &&
        readelf -d "$root/shared" | grep -q 'NEEDED.*libtutti.so.0'
}

# Each header by itself, with what it is for.
each_header() {
    local header
    for header in "tutti.h tutti_version()" \
        "tutti_partial.h tutti_group_kind_name(TUTTI_GROUP_FINAL)" \
        "tutti_plan.h tutti_planner_at(0,&(tutti_planner_info){0})"; do
        printf '#include <%s>\nint main(void) { return !%s; }\n' $header \
            >"$root/one.c"
        ${CC:-cc} "$root/one.c" -o "$root/one" \
            $(flags --cflags) $(flags --libs) || return 1
        LD_LIBRARY_PATH=$root/opt/tutti/lib "$root/one" || return 1
    done
}

static() {
    rm "$root"/opt/tutti/lib/libtutti.so*
    ${CC:-cc} "$root/small.c" -o "$root/static" \
        $(flags --cflags) $(flags --static --libs) && "$root/static"
}

cplusplus() {
    g++ -x c++ "$root/small.c" -x none -o "$root/cxx" \
        $(flags --cflags) $(flags --static --libs) && "$root/cxx"
}

version_agrees() {
    [ "$(flags --modversion)" = 0.1.0 ] &&
        [ "$("$root/opt/tutti/bin/tutti" --version)" = "tutti 0.1.0" ]
}

nothing_left() {
    run_make uninstall &&
        [ -z "$(find "$root/opt" -type f -o -type l)" ]
}

if ! command -v pkg-config >/dev/null; then
    echo "1..0 # SKIP no pkg-config here"
    exit 0
fi
step "make install" run_make install
step "every file is there" check_files
step "versions agree" version_agrees
step "a program with the shared library" shared
step "a program with each header" each_header
step "a program with the static library" static
command -v g++ >/dev/null && step "a program in C++" cplusplus
step "make uninstall leaves nothing" nothing_left
echo "1..$n"
exit $status
