# SPDX-License-Identifier: BSD-3-Clause
"""How the words of a benchmark's options are read."""
import argparse
import re
import sys


def read_size(text):
    match = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB)?", text.strip())
    size = match and int(match.group(1)) << 10 * (
        "B", "KiB", "MiB", "GiB").index(match.group(2) or "B")
    if not size or size % 4:
        raise argparse.ArgumentTypeError(
            "`%s` is no size: whole f32 elements, like 8, 64KiB or 128MiB"
            % text)
    return size


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print("%s: %s (see --help)" % (self.prog, message), file=sys.stderr)
        sys.exit(2)


def words(text):
    found = [word for word in text.split(",") if word]
    if not found:
        raise argparse.ArgumentTypeError("the list is empty")
    return found


def sizes(text):
    return sorted({read_size(word) for word in words(text)})


def counts(text):
    try:
        numbers = [int(word) for word in words(text)]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("`%s` is no list of counts" % text)
    return numbers


def count(text):
    if not re.fullmatch("0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError("`%s` is not 1 or more" % text)
    return int(text)
