"""What a dataset looks like in numbers, beside the published ones, and as a picture."""

from pathlib import Path
from typing import Any

import numpy as np

from holobind.data.dataset import Dataset
from holobind.data.registry import PUBLISHED
from holobind.errors import DataError

RARE_LABEL_BOOST = 10  # a label with fewer training points is in the tail, as in `holobind.metrics`


def statistics(dataset: Dataset) -> dict[str, Any]:
    """Points, features, labels, and how they are spread. Averages are over both parts.

    (The published points a label are over both parts for the four small datasets and over training for the others.)

    tail share   the share of labels with fewer than 10 training points (some with none: `unseen share`)
    density      the share of the entries of X that are stored
    """
    parts = dataset.splits.values()
    points = sum(len(part) for part in parts)
    assigned = sum(part.Y.nnz for part in parts)
    stored = sum(part.X.nnz for part in parts)
    counts = label_counts(dataset)
    return {
        "name": dataset.name,
        "train points": len(dataset.train),
        "test points": points - len(dataset.train),
        "features": dataset.n_features,
        "labels": dataset.n_labels,
        "labels a point": assigned / max(points, 1),
        "points a label": assigned / max(dataset.n_labels, 1),
        "features a point": stored / max(points, 1),
        "density": stored / max(points * dataset.n_features, 1),
        "tail share": float((counts < RARE_LABEL_BOOST).mean()) if len(counts) else 0.0,
        "unseen share": float((counts == 0).mean()) if len(counts) else 0.0,
        "most frequent label": int(counts.max(initial=0)),
        "points without labels": int(sum((np.diff(part.Y.indptr) == 0).sum() for part in parts)),
    }


def paper_table() -> list[dict[str, Any]]:
    """The published statistics of the paper's eight datasets, by the same names."""
    return [
        {
            "name": p.name,
            "train points": p.train,
            "test points": p.test,
            "features": p.features,
            "labels": p.labels,
            "labels a point": p.labels_a_point,
            "points a label": p.points_a_label,
        }
        for p in PUBLISHED.values()
    ]


def label_counts(dataset: Dataset) -> Any:
    """Training points of each label."""
    return np.bincount(dataset.train.Y.indices, minlength=dataset.n_labels)


def plot(dataset: Dataset, path: str | Path) -> None:
    """A PNG of two histograms: training points a label (the power law) and labels a point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = label_counts(dataset)
    sizes = np.diff(dataset.train.Y.indptr)
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    ranked = np.sort(counts)[::-1]
    left.loglog(np.arange(1, len(ranked) + 1), np.maximum(ranked, 0.5), drawstyle="steps-post")
    left.axhline(RARE_LABEL_BOOST, color="grey", linestyle=":", linewidth=1)
    left.annotate(
        f"tail: {(counts < RARE_LABEL_BOOST).mean():.0%} of labels below {RARE_LABEL_BOOST} points",
        (1, RARE_LABEL_BOOST),
        textcoords="offset points",
        xytext=(2, 3),
        color="grey",
    )
    left.set(xlabel="label, by frequency", ylabel="training points", title="training points a label")
    top = int(sizes.max(initial=1))
    right.hist(sizes, bins=np.arange(-0.5, top + 1.5, max(1, top // 60)))
    right.axvline(sizes.mean(), color="grey", linestyle=":", linewidth=1)
    right.set(xlabel="labels", ylabel="training points", title=f"labels a point: {sizes.mean():.2f} on average")
    figure.suptitle(f"{dataset.name}: {len(dataset.train)} training points, {dataset.n_labels} labels")
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
