"""Pictures of training: the curves of one model, and several models beside each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind.errors import FileError


def curves(metadata: dict[str, Any], path: Path) -> None:
    """A PNG of what `Model.metadata` tells: loss and validation by epoch, or validation by l2 for the closed form."""
    training, ridge = metadata.get("training"), metadata.get("ridge")
    figure, axes = _figure(7, 4)
    if training:
        history, measure = training["history"], training["plan"]["measure"]
        epochs = [row["epoch"] for row in history]
        best = training["best epoch"]
        axes.plot(epochs, [row["loss"] for row in history], color="tab:blue", marker="o", markersize=3)
        axes.set(xlabel="epoch")
        axes.set_ylabel("training loss", color="tab:blue")
        axes.axvline(best, color="grey", linestyle=":", linewidth=1)
        if measure in history[0]:  # rows were held out
            right = axes.twinx()
            right.plot(epochs, [row[measure] for row in history], color="tab:orange", marker="o", markersize=3)
            right.set_ylabel(f"{measure} on validation, percent", color="tab:orange")
        axes.set_title(f"{metadata.get('data', 'training')}: best at epoch {best}")
    elif ridge:
        tried = ridge["validation"]
        axes.semilogx([l2 for l2, _ in tried], [score for _, score in tried], marker="o", color="tab:orange")
        axes.axvline(ridge["l2"], color="grey", linestyle=":", linewidth=1)
        axes.set(xlabel="l2", ylabel="nDCG@5 on validation, percent")
        axes.set_title(f"{metadata.get('data', 'closed form')}: l2 {ridge['l2']:.3g}")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
    _save(figure, path)


def comparison(rows: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """A PNG of accuracy against seconds of training; areas are sizes of models.

    Names stand below the picture: beside their points they would cover each other where models are alike.
    """
    figure, axes = _figure(8, 5)
    largest = max(row["parameters"] for row in rows)
    for i, row in enumerate(rows):
        at, size = (max(row["train seconds"], 1e-2), row["P@1"]), row["parameters"]
        said = f"{row['name']} ({size / 1e6:.1f} M parameters)"
        axes.scatter(*at, s=900 * size / largest, color=f"C{i}", alpha=0.4, linewidths=0)
        axes.scatter(*at, s=40, color=f"C{i}", edgecolor="white", marker="osD^"[i % 4], zorder=2, label=said)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.margins(x=0.15, y=0.2)
    axes.set(xlabel="seconds of training", ylabel="P@1 on test, percent", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    _save(figure, path)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror or error}); name another place") from error
