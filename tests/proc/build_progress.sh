#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# build_progress.sh - what the build of the torch backend tells of how far it is. TAP.
. "$(dirname "$0")/lib.sh"

python() { # PROGRAM, with build_progress
    run env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/../../bind/torch" python3 -c "$1"
}
python '
from build_progress import Progress
now = [0.0]
p = Progress("x", 40, clock=lambda: now[0])
for done, at in (0, 2), (1, 4), (10, 20), (11, 21), (20, 200), (40, 400):
    now[0] = at
    p.tell(done)'
is "rate and time left, every few seconds and at the end" "$out" \
    "x: 10 of 40 files in 20 s, 0.5 a second, about 60 s left
x: 20 of 40 files in 3.3 min, 0.1 a second, about 3.3 min left
x: 40 of 40 files in 6.7 min"

# As the Makefile does it.
mkdir "$tmp/make"
cat >"$tmp/make/Makefile" <<'M'
say = @printf '  %-5s %s\n' $(1) $(2)
all: a b c
a b:
	$(call say,CC,$@)
	@touch $@
c:
	$(call say,LD,$@)
	@echo "a warning"
	@$(FAIL)touch $@
M
python 'from build_progress import run_make; run_make(["make", "-C", "'"$tmp/make"'"])'
ends "make is run" 0
like "its steps are counted" "$out" '^building libtutti: 3 of 3 files in '
like "what else it says is said" "$out" '^a warning$'
is "and not its steps" "$(grep -c '^  ' <<<"$out")" 0
rm "$tmp/make"/[abc]
python 'from build_progress import run_make; run_make(["make", "-C", "'"$tmp/make"'", "FAIL=false "])'
like "a failure is one" "$err" 'CalledProcessError'
python 'from build_progress import run_make; run_make(["make", "-C", "'"$tmp/none"'"])'
like "also where there is nothing" "$err" 'CalledProcessError'

python '
import os, pathlib, time
from build_progress import Watch
folder = pathlib.Path("'"$tmp"'") / "objects"
folder.mkdir()
(folder / "old.o").touch()
os.utime(folder / "old.o", (1, 1))
with Watch("y", ["a/one.cpp", "two.cpp", "old.cpp"], folder, each_s=0.01) as w:
    w.progress.told = 0
    (folder / "one.o").touch()
    while w.progress.told == 0:
        time.sleep(0.01)
    (folder / "other.o").touch()
    (folder / "two.o").touch()
    os.utime(folder / "old.o")'
like "objects are counted while they come" "$out" '^y: 1 of 3 files in 0 s, .* a second, about '
like "old ones and others are none" "$(tail -1 <<<"$out")" '^y: 3 of 3 files in 0 s$'
finish
