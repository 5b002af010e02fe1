#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# install.sh - `make install` into an empty folder, then the program of
# tests/consumer built against what lies there, found by pkg-config and by CMake: by
# the shared and by the static library, as C and as C++, and after the whole was
# moved elsewhere; `make uninstall` leaves nothing. TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
n=0 status=0
version=$(sed -n 's/^VERSION := //p' Makefile)

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

skip() { # NAME WHY
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

# The make that runs this test has a jobserver that is not ours to use; what
# it was told on its command line (CC=, OPT=) must stay, or it all is rebuilt.
run_make() {
    make --no-print-directory -s "$@" 2> >(grep -v jobserver >&2)
}

# install GOAL [VARIABLE=VALUE...]
install() {
    run_make B="$B" DESTDIR="$root" PREFIX=/opt/tutti "$@"
}

flags() {
    PKG_CONFIG_LIBDIR=$root/opt/tutti/lib/pkgconfig \
        PKG_CONFIG_SYSROOT_DIR=$root pkg-config "$@" tutti
}

# consumer NAME: builds it by the Makefile of tests/consumer.
consumer() {
    PKG_CONFIG_LIBDIR=$root/opt/tutti/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root \
        run_make -C tests/consumer OUT="$root" "$root/$1"
}

needs_libtutti() { # PROGRAM
    readelf -d "$1" | grep -q 'NEEDED.*libtutti'
}

check_files() {
    local file
    for file in bin/tutti include/tutti.h include/tutti_partial.h \
        include/tutti_plan.h lib/libtutti.a lib/libtutti.so lib/libtutti.so.0 \
        lib/libnccl-net-tutti.so \
        lib/pkgconfig/tutti.pc lib/pkgconfig/tutti-shared.pc \
        lib/cmake/Tutti/TuttiConfig.cmake \
        lib/cmake/Tutti/TuttiConfigVersion.cmake share/man/man1/tutti.1 \
        share/man/man1/tutti-run.1 share/bash-completion/completions/tutti \
        share/zsh/site-functions/_tutti; do
        [ -s "$root/opt/tutti/$file" ] || { echo "no $file"; return 1; }
    done
    # Every @NAME@ of the templates has been filled in.
    ! grep -r '@[A-Z]*@' "$root/opt/tutti/lib/pkgconfig" "$root/opt/tutti/lib/cmake"
}

shared() {
    consumer shared && LD_LIBRARY_PATH=$root/opt/tutti/lib "$root/shared" &&
        readelf -d "$root/shared" | grep -q 'NEEDED.*libtutti.so.0'
}

# NCCL's plugin takes the library beside it, wherever that is.
plugin() {
    ldd "$root/opt/tutti/lib/libnccl-net-tutti.so" |
        grep -qF "libtutti.so.0 => $root/opt/tutti/lib/libtutti.so.0"
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

# The archive is taken although the shared library lies beside it.
static() {
    consumer static && "$root/static" && ! needs_libtutti "$root/static"
}

# All that it needs is named: so it links where every library is an archive.
whole() {
    consumer whole && "$root/whole" && ! readelf -d "$root/whole" | grep NEEDED
}

cplusplus() {
    g++ -x c++ tests/consumer/consumer.c -x none -o "$root/cxx" \
        $(flags --cflags) $(flags --static --libs) && "$root/cxx"
}

# cmake_builds PREFIX WANTED
cmake_builds() {
    rm -rf "$root/cmake"
    {
        cmake -S tests/consumer -B "$root/cmake" -DCMAKE_PREFIX_PATH="$1" \
            -DWANTED="$2" && cmake --build "$root/cmake"
    } >"$root/cmake.txt" 2>&1 || { cat "$root/cmake.txt"; return 1; }
}

cmake_consumer() { # PREFIX
    cmake_builds "$1" "$version" && "$root/cmake/shared" &&
        "$root/cmake/static" && needs_libtutti "$root/cmake/shared" &&
        ! needs_libtutti "$root/cmake/static"
}

# Before 1.0 another minor version is another interface.
cmake_refuses() {
    local wanted
    for wanted in 0.0 0.99 1.0; do
        ! cmake_builds "$root/opt/tutti" $wanted >/dev/null || return 1
        grep -q 'requested version' "$root/cmake.txt" || return 1
    done
}

# Nothing may be taken from the place it was installed to.
moved() {
    mv "$root/opt/tutti" "$root/opt/else where" || return 1
    cmake_consumer "$root/opt/else where"
    local rc=$?
    mv "$root/opt/else where" "$root/opt/tutti"
    return $rc
}

# The folder of libraries has another depth where several processors share /usr.
deep() {
    local root=$root/deep
    mkdir "$root" && install install LIBDIR=/opt/tutti/lib/some-linux-gnu &&
        cmake_consumer "$root/opt/tutti/lib/some-linux-gnu/cmake" &&
        [ "$(PKG_CONFIG_LIBDIR=$root/opt/tutti/lib/some-linux-gnu/pkgconfig \
            pkg-config --variable=libdir tutti)" = /opt/tutti/lib/some-linux-gnu ]
}

version_agrees() {
    [ "$(flags --modversion)" = "$version" ] &&
        [ "$("$root/opt/tutti/bin/tutti" --version)" = "tutti $version" ]
}

nothing_left() {
    install uninstall && [ -z "$(find "$root/opt" -type f -o -type l)" ] &&
        [ ! -e "$root/opt/tutti/lib/cmake/Tutti" ]
}

if ! command -v pkg-config >/dev/null; then
    echo "1..0 # SKIP no pkg-config here"
    exit 0
fi
step "make install" install install
step "every file is there" check_files
step "versions agree" version_agrees
step "a program with the shared library" shared
step "NCCL's plugin finds the library" plugin
step "a program with each header" each_header
step "a program with the static library" static
if [ -e "$(${CC:-cc} -print-file-name=libgfortran.a)" ]; then
    step "a program without any shared library" whole
else
    skip "a program without any shared library" "no archive of all that Clp needs"
fi
command -v g++ >/dev/null && step "a program in C++" cplusplus
if command -v cmake >/dev/null; then
    step "a project of CMake" cmake_consumer "$root/opt/tutti"
    step "CMake refuses another version" cmake_refuses
    step "CMake finds it where it was moved to" moved
    step "CMake and pkg-config find it in another LIBDIR" deep
else
    skip "projects of CMake" "no cmake here"
fi
step "make uninstall leaves nothing" nothing_left
echo "1..$n"
exit $status
