"""Plots: the training of one model, a comparison of several models, and the reliability of probabilities."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holobind._files import atomic_write, write_errors

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from holobind._types import IntArray

LOSS_COLOUR, METRIC_COLOUR = "tab:blue", "tab:orange"
MIN_PLOTTED_SECONDS = 1e-2  # a logarithmic axis has no 0
FORMATS = ("png", "svg", "pdf", "jpg", "jpeg")  # of a picture, by the end of its path
MAX_MARKER_AREA = 900  # points squared


def curves(metadata: dict[str, Any], path: Path) -> None:
    """Write a PNG of the training that `Model.metadata` records.

    A trained model has its loss and its validation metric by epoch; a closed form has nDCG@5 by l2 penalty.
    """
    training, ridge = metadata.get("training"), metadata.get("ridge")
    figure, axes = _figure(7, 4)
    if training:
        _plot_epochs(axes, training, metadata.get("data", "training"))
    elif ridge:
        _plot_penalties(axes, ridge, metadata.get("data", "closed form"))
    _save(figure, path)


def _plot_epochs(axes: "Axes", training: dict[str, Any], title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    history, metric, best = training["history"], training["config"]["metric"], training["best epoch"]
    epochs = [entry["epoch"] for entry in history]
    axes.plot(epochs, [entry["loss"] for entry in history], color=LOSS_COLOUR, marker="o", markersize=3)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("training loss, mean per row", color=LOSS_COLOUR)
    axes.axvline(best, color="grey", linestyle=":", linewidth=1)
    if metric in history[0]:  # some rows were held out
        right = axes.twinx()
        right.plot(epochs, [entry[metric] for entry in history], color=METRIC_COLOUR, marker="o", markersize=3)
        right.set_ylabel(f"{metric} on held-out rows, percent", color=METRIC_COLOUR)
    axes.set_title(f"{title}: best epoch {best} (dotted)")


def _plot_penalties(axes: "Axes", ridge: dict[str, Any], title: str) -> None:
    tried = ridge["validation"]
    axes.plot([l2 for l2, _ in tried], [score for _, score in tried], marker="o", color=METRIC_COLOUR)
    _log_x(axes)
    axes.axvline(ridge["l2"], color="grey", linestyle=":", linewidth=1)
    axes.set(xlabel="l2 penalty", ylabel="nDCG@5 on held-out rows, percent")
    axes.set_title(f"{title}: chosen l2 {ridge['l2']:.3g} (dotted)")


def comparison(rows: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Write a PNG of accuracy against training time; the area of a disc is the number of parameters.

    The names are in a legend below the axes: next to their markers they would overlap where models are alike.
    """
    figure, axes = _figure(8, 5)
    largest = max(row["parameters"] for row in rows)
    for i, row in enumerate(rows):
        x, y, n_parameters = max(row["train seconds"], MIN_PLOTTED_SECONDS), row["P@1"], row["parameters"]
        label = f"{row['name']} ({n_parameters:,})"
        axes.scatter(x, y, s=MAX_MARKER_AREA * n_parameters / largest, color=f"C{i}", alpha=0.4, linewidths=0)
        axes.scatter(x, y, s=40, color=f"C{i}", edgecolor="white", marker="osD^"[i % 4], zorder=2, label=label)
    _log_x(axes)
    axes.margins(x=0.15, y=0.2)
    axes.set(xlabel="training time, seconds", ylabel="P@1 on test rows, percent", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
        title="model (number of parameters, also shown by the area of the disc)",
        title_fontsize=9,
    )
    _save(figure, path)


def reliability(bins: Sequence[tuple[float, float, int]], title: str, path: Path) -> None:
    """Write a PNG of the fraction of hits against the probability; the area of a disc is the number of labels.

    bins   (mean probability, fraction of hits, number of labels) of each bin
    """
    figure, axes = _figure(5.6, 5.4)
    total = max(sum(n for _, _, n in bins), 1)
    error = sum(abs(p - hit) * n for p, hit, n in bins) / total
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":", linewidth=1, zorder=1)
    axes.vlines([p for p, _, _ in bins], [p for p, _, _ in bins], [hit for _, hit, _ in bins], color="tab:red", lw=1.5)
    areas = [12 + MAX_MARKER_AREA * n / total for _, _, n in bins]
    axes.scatter([p for p, _, _ in bins], [hit for _, hit, _ in bins], s=areas, color=LOSS_COLOUR, alpha=0.45, lw=0)
    axes.plot([p for p, _, _ in bins], [hit for _, hit, _ in bins], color=LOSS_COLOUR, marker="o", ms=3, lw=1)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axes.set(xlabel="predicted probability of the five best labels", ylabel="fraction that is right")
    axes.set_title(f"{title}\nexpected calibration error {error:.2%}; area: number of labels", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def label_quality(support: "IntArray", f1: "NDArray[np.float64]", title: str, path: Path) -> None:
    """Write a PNG of the F1 of each label against its number of rows, with the mean in bands of this number."""
    import numpy as np

    figure, axes = _figure(7.5, 4)
    seen = np.flatnonzero(support)
    shift = np.random.default_rng(0).uniform(-0.18, 0.18, len(seen))  # labels of equal support side by side
    axes.scatter(support[seen] * 2**shift, f1[seen], s=9, color=LOSS_COLOUR, alpha=0.25, lw=0)
    band = np.floor(np.log2(support[seen])).astype(int)
    n = np.bincount(band)
    centres, means = (np.bincount(band, x) / np.maximum(n, 1) for x in (np.log2(support[seen]), f1[seen]))
    axes.plot(2 ** centres[n > 0], means[n > 0], color=METRIC_COLOUR, marker="o", ms=5, label="mean of labels")
    _log_x(axes)
    axes.set(xlabel="rows that have the label", ylabel="F1, percent", ylim=(-3, 103))
    axes.set_title(f"{title}: {len(seen):,} labels", fontsize=10)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    """A figure without pyplot: it needs no display and leaves the caller's backend alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _log_x(axes: "Axes") -> None:
    """A logarithmic x axis with ticks at 1, 2 and 5 times a power of ten, in plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _save(figure: "Figure", path: Path) -> None:
    """As PNG, unless the path ends in another of FORMATS."""
    suffix = path.suffix[1:].lower()
    with write_errors(path), atomic_write(path) as file:
        figure.savefig(file, format=suffix if suffix in FORMATS else "png", dpi=120)
