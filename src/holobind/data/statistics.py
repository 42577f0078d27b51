"""Statistics of a dataset, the published statistics of the paper's datasets, and histograms."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holobind._files import atomic_write, write_errors
from holobind.data.dataset import Dataset
from holobind.data.registry import PUBLISHED

TORSO_MIN_ROWS = 10  # labels with fewer training points are tail labels
MAX_HISTOGRAM_BINS = 60
N_FIRST_ROWS = 5  # that are shown, so that a misreading is seen


def statistics(dataset: Dataset) -> dict[str, Any]:
    """The number of points, features and labels, and averages over both splits.

    (The published points per label are over both splits for the four small datasets and over training for the others.)

    tail fraction     labels with fewer than 10 training points, as a fraction of all labels
    unseen fraction   labels without training points, as a fraction of all labels
    density           stored entries of X as a fraction of all entries
    """
    splits = dataset.splits.values()
    n_points = sum(len(split) for split in splits)
    n_label_entries = sum(split.Y.nnz for split in splits)
    n_feature_entries = sum(split.X.nnz for split in splits)
    counts = label_counts(dataset)
    return {
        "name": dataset.name,
        "train points": len(dataset.train),
        "test points": n_points - len(dataset.train),
        "features": dataset.n_features,
        "labels": dataset.n_labels,
        "labels per point": n_label_entries / max(n_points, 1),
        "points per label": n_label_entries / max(dataset.n_labels, 1),
        "features per point": n_feature_entries / max(n_points, 1),
        "density": n_feature_entries / max(n_points * dataset.n_features, 1),
        "tail fraction": float((counts < TORSO_MIN_ROWS).mean()) if len(counts) else 0.0,
        "unseen fraction": float((counts == 0).mean()) if len(counts) else 0.0,
        "most frequent label": int(counts.max(initial=0)),
        "points without labels": int(sum((np.diff(split.Y.indptr) == 0).sum() for split in splits)),
    }


def first_rows(dataset: Dataset, n: int = N_FIRST_ROWS) -> list[dict[str, Any]]:
    """The first rows of the training split as they were read: the text, or else the features, and the labels."""
    split, found = dataset.train, []
    for i in range(min(n, len(split))):
        ids = split.Y.indices[split.Y.indptr[i] : split.Y.indptr[i + 1]].tolist()
        labels = ids if dataset.label_names is None else [dataset.label_names[j] for j in ids]
        if split.texts is not None:
            row = {"text": split.texts[i]}
        else:
            entries = slice(split.X.indptr[i], split.X.indptr[i + 1])
            pairs = zip(split.X.indices[entries].tolist(), split.X.data[entries].tolist(), strict=True)
            row = {"features": " ".join(f"{feature}:{value:.4g}" for feature, value in pairs)}
        found.append({**row, "labels": labels})
    return found


def paper_table() -> list[dict[str, Any]]:
    """The published statistics of the paper's eight datasets, with the keys of `statistics`."""
    return [
        {
            "name": info.name,
            "train points": info.train,
            "test points": info.test,
            "features": info.features,
            "labels": info.labels,
            "labels per point": info.labels_per_point,
            "points per label": info.points_per_label,
        }
        for info in PUBLISHED.values()
    ]


def label_counts(dataset: Dataset) -> NDArray[np.intp]:
    """The number of training points of each label.  Shapes: -> (labels)"""
    return np.bincount(dataset.train.Y.indices, minlength=dataset.n_labels)


def plot(dataset: Dataset, path: str | Path) -> None:
    """Write a PNG of the training points per label, by rank, and a histogram of the labels per point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = label_counts(dataset)
    labels_per_point = np.diff(dataset.train.Y.indptr)
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    ranked = np.sort(counts)[::-1]
    left.loglog(np.arange(1, len(ranked) + 1), np.maximum(ranked, 0.5), drawstyle="steps-post")
    left.axhline(TORSO_MIN_ROWS, color="grey", linestyle=":", linewidth=1)
    left.annotate(
        f"tail: {(counts < TORSO_MIN_ROWS).mean():.0%} of labels have fewer than {TORSO_MIN_ROWS} points",
        (1, TORSO_MIN_ROWS),
        textcoords="offset points",
        xytext=(2, 3),
        color="grey",
    )
    left.set(xlabel="rank of the label by frequency", ylabel="training points", title="training points per label")
    largest = int(labels_per_point.max(initial=1))
    right.hist(labels_per_point, bins=np.arange(-0.5, largest + 1.5, max(1, largest // MAX_HISTOGRAM_BINS)))
    mean = labels_per_point.mean()
    right.axvline(mean, color="grey", linestyle=":", linewidth=1)
    right.set(xlabel="labels", ylabel="training points", title=f"labels per point: {mean:.2f} on average")
    figure.suptitle(f"{dataset.name}: {len(dataset.train)} training points, {dataset.n_labels} labels")
    with write_errors(path), atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=120)
