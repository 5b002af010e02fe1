# SPDX-License-Identifier: BSD-3-Clause
"""Says how far a build is: how many of its files are done, how fast that goes, and for
how long it will go on. pip shows it with -v.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

# As the Makefile says what it does, one line for each step ("say" there).
STEP = "  "
EACH_S = 5


def time_text(seconds):
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.0f} s"


class Progress:
    """Tells on standard output, every few seconds, and at the end."""

    def __init__(self, what, total, out=None, clock=time.monotonic):
        self.what, self.total = what, total
        self.out = out or sys.stdout
        self.clock = clock
        self.begun = self.told = clock()

    def line(self, done):
        took = self.clock() - self.begun
        text = f"{self.what}: {done} of {self.total} files in {time_text(took)}"
        if 0 < done < self.total and took > 0:
            rate, left = done / took, took / done * (self.total - done)
            text += f", {rate:.2g} a second, about {time_text(left)} left"
        return text

    def tell(self, done):
        now = self.clock()
        if done < self.total and now - self.told < EACH_S:
            return
        self.told = now
        print(self.line(done), file=self.out, flush=True)


def run_make(command):
    """Runs make, and tells of its steps. What it is to do it says itself (-n)."""
    dry = subprocess.run([*command, "-n"], capture_output=True, text=True, check=False)
    total = sum(line.startswith("printf '  %-5s") for line in dry.stdout.splitlines())
    progress = Progress("building libtutti", total)
    done = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as make:
        for line in make.stdout:
            if not line.startswith(STEP):
                sys.stdout.write(line)
            done += line.startswith(STEP)
            if done <= total:
                progress.tell(done)
    if make.returncode:
        raise subprocess.CalledProcessError(make.returncode, command)


class Watch:
    """While it is open: tells how many of the objects of `sources` there are below
    `folder` that are newer than the watch."""

    def __init__(self, what, sources, folder, each_s=EACH_S, out=None):
        self.stems = {Path(source).stem for source in sources}
        self.folder = Path(folder)
        self.progress = Progress(what, len(self.stems), out)
        self.each_s = each_s
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def count(self):
        done = set()
        try:
            paths = list(self.folder.rglob("*.o"))
        except OSError:  # a folder has just been removed
            paths = []
        for path in paths:
            try:
                is_new = path.stat().st_mtime >= self.since
            except OSError:  # it is being written anew
                continue
            if is_new and path.stem in self.stems:
                done.add(path.stem)
        return len(done)

    def _watch(self):
        while not self.is_over.wait(self.each_s):
            done = self.count()
            if done < self.progress.total:
                self.progress.tell(done)

    def __enter__(self):
        self.since = time.time() - 1  # file systems round times
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        done = self.count()
        if done:  # nothing was to be done otherwise
            self.progress.tell(done)
