# SPDX-License-Identifier: BSD-3-Clause
"""Charts as SVG, the same bytes for the same numbers."""
import os
import sys


def draw(results, folder):
    """One chart for each part; says in one sentence when there can be none."""
    try:
        import matplotlib
    except ImportError:
        print("bench/papers: no charts, because Python has no matplotlib here "
              "(Debian: python3-matplotlib)", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    plt.rcParams.update({"svg.hashsalt": "tutti", "svg.fonttype": "path",
                         "axes.spines.top": False, "axes.spines.right": False,
                         "font.size": 9, "legend.fontsize": 9,
                         "figure.facecolor": "white"})
    os.makedirs(folder, exist_ok=True)
    for part, result in results:
        figure = part.chart(result, plt)
        figure.savefig(os.path.join(folder, part.NAME + ".svg"),
                       bbox_inches="tight", metadata={"Date": None})
        plt.close(figure)
    print("bench/papers: charts in " + folder, file=sys.stderr)
