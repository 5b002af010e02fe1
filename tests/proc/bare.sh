#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# bare.sh - Tutti on a Debian that has nothing: the steps of packaging/Dockerfile, in
# a folder for each image; there a job, the program of tests/consumer in every way,
# the Python module; in a third folder the way from the source, `make demo`. It says
# how long the ways take. The packages come from where apt of this machine has them.
. "$(dirname "$0")/lib.sh"
top=$(cd "$here/../.." && pwd)
limit=3000
suite=bookworm

sources=/etc/apt/sources.list.d/debian.sources
[ -e $sources ] || sources=/etc/apt/sources.list
if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
    skip "a bare Debian" "needs root and mmdebstrap"
    finish
fi
if ! grep -qs $suite $sources; then
    skip "a bare Debian" "apt has no $suite here"
    finish
fi
if ! unshare -m true 2>/dev/null; then
    skip "a bare Debian" "no mount namespaces here"
    finish
fi

# What this machine's apt was told of the way to its packages.
options=()
while IFS= read -r line; do
    options+=("--aptopt=${line%;}")
done < <(apt-config dump | grep -E '^Acquire::(Check-|http|https|ftp|Retries|ForceIPv)[^ ]* "..*"')
run mmdebstrap --quiet --variant=minbase "${options[@]}" $suite "$tmp/base.tar" $sources
ends "a bare Debian is made" 0
[ "$rc" = 0 ] || finish

# image DIR: a new one.
image() {
    mkdir "$1" && tar -xf "$tmp/base.tar" -C "$1" --exclude='./dev/*' &&
        cp /etc/resolv.conf "$1/etc/resolv.conf"
}

# inside DIR FOLDER COMMAND: by the shell of the image, with nothing of this machine's
# environment. Its mounts go with it.
cat >"$tmp/inside" <<'S'
#!/bin/sh
exec unshare -m --propagation private sh -euc '
    mount --rbind /dev "$1/dev"
    mount -t proc proc "$1/proc"
    exec chroot "$1" /usr/bin/env -i HOME=/root DEBIAN_FRONTEND=noninteractive \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        sh -c "cd $2 && $3"
' sh "$1" "$2" "$3"
S
chmod +x "$tmp/inside"

# copy_tree DIR: this tree, as .dockerignore has it.
copy_tree() {
    mkdir -p "$1" && tar -C "$top" -c --anchored \
        --exclude-from=<(sed 's|^|./|' "$top/.dockerignore") . | tar -x -C "$1"
}

# ---- packaging/Dockerfile

# build_images FILE: sets `last`, the folder of the last image; fails with a sentence.
build_images() {
    local line word rest from source n=0 folder=/ names=
    while IFS= read -r line; do
        word=${line%% *} rest=${line#* }
        case $word in
        FROM)
            n=$((n + 1)) folder=/ last=$tmp/image-$n
            image "$last" || return 1
            [[ $rest != *" AS "* ]] || ln -s "$last" "$tmp/stage-${rest##* AS }"
            began=$SECONDS
            ;;
        WORKDIR) folder=$rest && mkdir -p "$last$folder" ;;
        COPY)
            if [[ $rest == --from=* ]]; then
                from=${rest#--from=} source=${from#* }
                mkdir -p "$last${source##* }" &&
                    cp "$tmp/stage-${from%% *}"${source%% *} "$last${source##* }"
            elif [ "$rest" = ". ." ]; then
                copy_tree "$last$folder"
            else
                mkdir -p "$(dirname "$last$folder/${rest##* }")" &&
                    cp "$top/${rest%% *}" "$last$folder/${rest##* }"
            fi || return 1
            ;;
        RUN)
            "$tmp/inside" "$last" "$folder" "$rest" || { echo "failed: $line" >&2; return 1; }
            ;;
        CMD) "$tmp/inside" "$last" "$folder" "$(tr -d '[]",' <<<"$rest")" >/dev/null || return 1 ;;
        *) echo "bare.sh does not know $word" >&2; return 1 ;;
        esac
    done < <(sed -e '/^#/d' -e '/^$/d' -e ':a; /\\$/ { N; s/\\\n *//; ba }' "$1")
}
begin=$SECONDS
build_images "$top/packaging/Dockerfile" >"$tmp/built" 2>&1
rc=$?
err=$(tail -30 "$tmp/built")
ends "packaging/Dockerfile, step by step" 0
[ "$rc" = 0 ] || finish
"$tmp/inside" "$last" / "tutti run -n 2 tutti bench -b 8 -e 8" >"$tmp/out" 2>&1
like "a job of two ranks" "$(cat "$tmp/out")" 'Out of bounds values : 0 OK'
echo "# packages built in $((began - begin)) s; from them to a first result $((SECONDS - began)) s"

run "$tmp/inside" "$last" / "TUTTI_LOG=info tutti plan racks:4+4 --planner forest | grep -c '^forest'"
is "its planner that needs Clp" "$out" 1
run "$tmp/inside" "$last" / "tutti secret /root/s && TUTTI_SECRET_FILE=/root/s tutti run -n 2 tutti bench -b 8 -e 8 | grep -c OK"
is "its secret, which needs OpenSSL" "$out" 1

# ---- the program of tests/consumer

copy_tree "$last/src"
run "$tmp/inside" "$last" / "apt-get update -q && apt-get install -yq --no-install-recommends \
    cmake g++ make pkg-config >/dev/null"
ends "a compiler" 0
version=$(sed -n 's/^VERSION := //p' "$top/Makefile")
run "$tmp/inside" "$last" /src/tests/consumer "make OUT=/tmp /tmp/shared && /tmp/shared &&
    readelf -d /tmp/shared | grep -q NEEDED.*libtutti.so.0"
ends "a program with the shared library" 0
run "$tmp/inside" "$last" /src/tests/consumer "apt-get install -yq --no-install-recommends \
    \$(dpkg-query -W -f '\${Recommends}' libtutti-dev | tr -d ,) >/dev/null"
ends "what libtutti-dev recommends" 0
run "$tmp/inside" "$last" /src/tests/consumer "make OUT=/tmp /tmp/static && /tmp/static &&
    ! readelf -d /tmp/static | grep NEEDED.*libtutti"
ends "a program with the static library" 0
run "$tmp/inside" "$last" /src/tests/consumer "make OUT=/tmp /tmp/whole && /tmp/whole &&
    ! readelf -d /tmp/whole | grep NEEDED"
ends "a program without any shared library" 0
run "$tmp/inside" "$last" /src/tests/consumer "cmake -S . -B /tmp/cmake -DWANTED=$version &&
    cmake --build /tmp/cmake && /tmp/cmake/shared && /tmp/cmake/static"
ends "a project of CMake" 0

# ---- Python, manual pages, completion

run "$tmp/inside" "$last" / "python3 -c 'import tutti; print(tutti.__file__)'"
is "the Python module" "$out" /usr/lib/python3/dist-packages/tutti/__init__.py
if grep -q __version__ "$top/bind/torch/tutti/__init__.py"; then
    run "$tmp/inside" "$last" / "python3 -c 'import tutti; print(tutti.__version__)'"
    is "its version" "$out" "$version"
fi
run "$tmp/inside" "$last" / "bash -c '. /usr/share/bash-completion/completions/tutti && complete -p tutti'"
is "completion in bash" "$out" "complete -F _tutti tutti"
run "$tmp/inside" "$last" / "apt-get purge -yq libtutti0 libtutti-dev tutti-tools python3-tutti >/dev/null &&
    find / -xdev -name '*tutti*' -not -path '/proc/*' -not -path '/src*' -not -path '/tmp/*' -not -path '/var/lib/apt/*'"
is "nothing is left when they have gone" "$out" ""

# ---- from the source

image "$tmp/source" && copy_tree "$tmp/source/src"
begin=$SECONDS
run "$tmp/inside" "$tmp/source" /src "apt-get update -q && apt-get install -yq --no-install-recommends make && make demo"
ends "make demo, from the source" 0
like "trains" "$out" 'accuracy'
echo "# from the source to a first result $((SECONDS - begin)) s"
finish
