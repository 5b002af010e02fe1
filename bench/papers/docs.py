# SPDX-License-Identifier: BSD-3-Clause
"""Puts the figures into bench/results: of each section named below, commands
and words stay, and the tables become those of this run. The page and the charts
are then made from them."""
import os
import subprocess
import sys

import desk

sys.path.insert(0, os.path.join(desk.ROOT, "bench", "results"))
import blocks  # noqa: E402 - it lies in that folder


def figures(results):
    """{name: lines}."""
    found = {"headlines": desk.markdown(*desk.headlines(results)) + [
        "", "*: what theory gives; the paper has no number for it."]}
    for part, result in results:
        found[part.NAME] = part.digest(result)
    return found


def fill(results):
    sections = blocks.load()
    for name, lines in figures(results).items():
        table = "papers-" + name
        place = next(key for key, section in sections.items()
                     if any(isinstance(item, dict) and
                            item.get("table") == table
                            for item in section["body"]))
        section = sections[place]
        section["body"] = blocks.read(lines, table)
        blocks.save(place, section)
    for program in ("bench/report", "tools/charts"):
        subprocess.run([os.path.join(desk.ROOT, program)], check=True)
