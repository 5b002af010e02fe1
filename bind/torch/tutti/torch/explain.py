# SPDX-License-Identifier: BSD-3-Clause
"""The table that explain() prints: which algorithm each bucket got, and why, with
predicted, measured and exposed time."""

HEAD = ("bucket", "layers", "size", "algorithm", "ready", "predicted", "measured", "exposed", "why")


def size_text(n):
    for unit, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= step:
            return f"{n / step:.3g} {unit}"
    return f"{n} B"


def time_text(seconds):
    if seconds is None:
        return "-"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} us"


def buckets_text(rows):
    return f"{len(rows)} bucket{'s' * (len(rows) != 1)}"


def layers_text(names):
    """`a, b`, or `a .. z (9)`."""
    names = list(dict.fromkeys(names))
    if len(names) <= 2:
        return ", ".join(names)
    return f"{names[0]} .. {names[-1]} ({len(names)})"


def table(rows):
    """Columns side by side; the last one is as wide as it likes."""
    cells = [HEAD] + [tuple(map(str, row)) for row in rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(HEAD) - 1)]
    left = {1, 3}
    lines = []
    for row in cells:
        parts = [
            cell.ljust(w) if k in left else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(parts + [row[-1]]).rstrip())
    return lines


def row_of(k, choice, layers, figures):
    """One bucket's row; figures: as record() of parallel.py keeps them."""
    planner = choice.planner or choice.chosen
    return (
        k,
        layers_text(layers),
        size_text(choice.size),
        planner + ("" if choice.planner else " (auto)"),
        time_text(figures.get("ready")),
        time_text(choice.predicted),
        time_text(figures.get("measured")),
        time_text(figures.get("exposed")),
        choice.why,
    )
