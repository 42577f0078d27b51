"""The picture of `bench_rivals.py`: P@1 against CPU seconds of training, a panel for each dataset."""

from itertools import product

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from matplotlib.transforms import Bbox

INK, OURS, THEIRS, QUIET = "#2b2b2b", "#d1495b", "#5b7f95", "#8a8a8a"
TITLES = {
    "holobind-features": "holobind --features",
    "omikuji-bonsai": "omikuji Bonsai",
    "omikuji-parabel": "omikuji Parabel",
    "napkinxc-plt": "napkinXC PLT",
    "napkinxc-br": "napkinXC BR",
    "pecos": "PECOS",
    "pecos-ovr": "PECOS 1-vs-rest",
    "sklearn-ovr": "scikit-learn 1-vs-rest",
    "fasttext": "fastText",
}


def scatter(rows, path):
    names = list(dict.fromkeys(row["data"] for row in rows))
    across = min(2, len(names))
    down = -(-len(names) // across)
    figure = Figure(figsize=(6.4 * across, 4.6 * down), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        points(axes, [row for row in rows if row["data"] == name])
        axes.set_title(name, loc="left", fontsize=12, fontweight="bold", color=INK)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    figure.supxlabel("CPU seconds of training (log scale); the size of the model in brackets", fontsize=10, color=INK)
    figure.supylabel("P@1 on test, percent", fontsize=10, color=INK)
    figure.canvas.draw()  # labels are placed where the layout has put the panels
    for axes, name in zip(panels, names, strict=False):
        label(axes, [row for row in rows if row["data"] == name])
    figure.savefig(path, format="png", dpi=150)


def points(axes, rows):
    for row in rows:
        ours = row["contender"].startswith("holobind")
        axes.scatter(
            row["train cpu s"], row["P@1"], s=90 if ours else 55, color=OURS if ours else THEIRS, zorder=3, linewidths=0
        )
    axes.set_xscale("log")
    # Room for labels: the log axis by a share of decades, at least half a decade on either side.
    seconds = np.log10([row["train cpu s"] for row in rows])
    room = max(0.5, 0.35 * np.ptp(seconds))
    axes.set_xlim(10 ** (seconds.min() - room), 10 ** (seconds.max() + room))
    scores = [row["P@1"] for row in rows]
    room = max(0.5, 0.2 * np.ptp(scores))
    axes.set_ylim(min(scores) - room, max(scores) + room)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(color="#ececec", zorder=0)
    axes.tick_params(colors=INK, labelsize=9, which="both", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color("#bbbbbb")


def label(axes, rows):
    """Each name near its point, where it covers least: no other name, no point, nothing outside of the panel."""
    canvas = axes.figure.canvas.get_renderer()
    frame = axes.get_window_extent(canvas)
    at = axes.transData.transform([(row["train cpu s"], row["P@1"]) for row in rows])
    unit = axes.figure.dpi / 72
    taken = [Bbox.from_bounds(x - 6 * unit, y - 6 * unit, 12 * unit, 12 * unit) for x, y in at]
    for row, (x, y) in sorted(
        zip(rows, at, strict=True), key=lambda pair: not pair[0]["contender"].startswith("holobind")
    ):
        ours = row["contender"].startswith("holobind")
        said = f"{TITLES.get(row['contender'], row['contender'])} ({row['bytes'] / 1e6:.1f} MB)"
        text = axes.annotate(
            said,
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
        if abs(chosen[1]) > 15:  # far enough that a line must say whose it is
            edge = (chosen[0] - np.sign(chosen[0]) * half, chosen[1]) if abs(chosen[0]) > half else chosen
            axes.annotate(
                "",
                (row["train cpu s"], row["P@1"]),
                xytext=edge,
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": QUIET, "linewidth": 0.7, "shrinkA": 5, "shrinkB": 4},
            )


def area(box):
    return 0.0 if box is None else box.width * box.height
