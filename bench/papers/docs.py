# SPDX-License-Identifier: BSD-3-Clause
"""Puts the figures into docs/explanation/papers.md: what stands between a line
`<!-- figures: NAME -->` and the next `<!-- end -->` is replaced. tools/charts
then draws the document's charts from its tables."""
import os
import subprocess

import desk

FOLDER = os.path.join(desk.ROOT, "docs")


def figures(results):
    """{name: lines}."""
    found = {"headlines": desk.markdown(*desk.headlines(results)) + [
        "", "*: what theory gives; the paper has no number for it."]}
    for part, result in results:
        found[part.NAME] = part.digest(result)
    return found


def fill(results):
    path = os.path.join(FOLDER, "explanation", "papers.md")
    found, lines, skipping = figures(results), [], False
    with open(path) as file:
        for line in file.read().splitlines():
            if line == "<!-- end -->":
                skipping = False
            if not skipping:
                lines.append(line)
            if line.startswith("<!-- figures: "):
                skipping = True
                lines += [""] + found[line.split()[2]] + [""]
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    subprocess.run([os.path.join(desk.ROOT, "tools", "charts")], check=True)
