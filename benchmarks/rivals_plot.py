"""Scatter plot of the results of `bench_rivals.py`: P@1 against CPU seconds of training, one panel per dataset.

.venv/bin/python benchmarks/rivals_plot.py experiments/results/rivals.json docs/figures/rivals.png
"""

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from matplotlib.transforms import Bbox
from rivals import METHODS

INK, OURS, THEIRS, QUIET = "#2b2b2b", "#d1495b", "#5b7f95", "#8a8a8a"


def scatter(rows, path):
    """Write the picture of all rows that have results."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    across = min(2, len(names))
    down = -(-len(names) // across)
    figure = Figure(figsize=(6.8 * across, 5.2 * down), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        points(axes, [row for row in rows if row["data"] == name])
        axes.set_title(name, loc="left", fontsize=12, fontweight="bold", color=INK)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    for axes in panels[: len(names)]:
        axes.set_xlabel("training time (CPU seconds, log scale)", fontsize=10, color=INK)
        axes.set_ylabel("P@1 on the test split (%)", fontsize=10, color=INK)
    figure.suptitle("Accuracy against training time; size of the saved model in brackets", fontsize=12, color=INK)
    figure.canvas.draw()  # fixes the layout of the panels, which the positions of the names depend on
    for axes, name in zip(panels, names, strict=False):
        label(axes, [row for row in rows if row["data"] == name])
    figure.savefig(path, format="png", dpi=150)


def points(axes, rows):
    """Draw the points and the axes of a panel."""
    for row in rows:
        ours = row["method"].startswith("holobind")
        axes.scatter(
            row["train cpu s"], row["P@1"], s=90 if ours else 55, color=OURS if ours else THEIRS, zorder=3, linewidths=0
        )
    axes.set_xscale("log")
    # Margins for the names: on the log axis a fraction of the range, and at least half a decade on either side.
    seconds = np.log10([row["train cpu s"] for row in rows])
    margin = max(0.5, 0.35 * np.ptp(seconds))
    axes.set_xlim(10 ** (seconds.min() - margin), 10 ** (seconds.max() + margin))
    scores = [row["P@1"] for row in rows]
    margin = max(0.5, 0.2 * np.ptp(scores))
    axes.set_ylim(min(scores) - margin, max(scores) + margin)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(color="#ececec", zorder=0)
    axes.tick_params(colors=INK, labelsize=9, which="both", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color("#bbbbbb")


def label(axes, rows):
    """Write each method's name next to its point, where it overlaps other names, points and the panel's edge least."""
    canvas = axes.figure.canvas.get_renderer()
    frame = axes.get_window_extent(canvas)
    at = axes.transData.transform([(row["train cpu s"], row["P@1"]) for row in rows])
    unit = axes.figure.dpi / 72
    taken = [Bbox.from_bounds(x - 6 * unit, y - 6 * unit, 12 * unit, 12 * unit) for x, y in at]
    for row, (x, y) in sorted(
        zip(rows, at, strict=True), key=lambda pair: not pair[0]["method"].startswith("holobind")
    ):
        ours = row["method"].startswith("holobind")
        text = axes.annotate(
            f"{METHODS[row['method']][2]} ({row['bytes'] / 1e6:.1f} MB)",
            (row["train cpu s"], row["P@1"]),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=9,
            ha="center",
            va="center",
            color=OURS if ours else INK,
            fontweight="bold" if ours else "normal",
        )
        size = text.get_window_extent(canvas)

        def cost(offset, x=x, y=y, size=size):
            dx, dy = offset
            box = Bbox.from_bounds(x + dx * unit - size.width / 2, y + dy * unit - size.height / 2, *size.size)
            covered = sum(area(Bbox.intersection(box, other)) for other in taken)
            outside = area(box) - area(Bbox.intersection(box, frame))
            return covered + 2 * outside + 0.02 * area(box) * np.hypot(dx / (size.width / unit), dy / 10), box

        half = size.width / unit / 2
        places = [(side * (half + 8), dy) for side, dy in product((1, -1), range(-48, 49, 6))]
        places += [(shift * half, dy) for shift, dy in product((-1, 0, 1), (*range(-60, -11, 6), *range(12, 61, 6)))]
        chosen = min(places, key=lambda offset: cost(offset)[0])
        text.set_position(chosen)
        taken.append(cost(chosen)[1])
        if abs(chosen[1]) > 15:  # far from its point: a line connects them
            edge = (float(np.clip(0, chosen[0] - half, chosen[0] + half)), chosen[1])
            axes.annotate(
                "",
                (row["train cpu s"], row["P@1"]),
                xytext=edge,
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": QUIET, "linewidth": 0.7, "shrinkA": 5, "shrinkB": 4},
            )


def area(box):
    return 0.0 if box is None else box.width * box.height


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="rivals.json of bench_rivals.py")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    options = parser.parse_args()
    rows = json.loads(options.results.read_text())["rows"]
    scatter([row for row in rows if "reason" not in row], options.picture)


if __name__ == "__main__":
    main()
