"""Shared by the accuracy experiments: a validation split held out of the training split, and one line of metrics."""

from pathlib import Path

import numpy as np
from holobind_paper.datasets import data_folder

import holobind as hb
from holobind import metrics
from holobind.data import Split

DATASETS = ["bibtex", "delicious", "cooking-stackexchange", "tibkat-core-en"]
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def load_splits(
    name: str, split: str = "validation", fraction: float = 0.2, seed: int = 0, folder: Path | None = None
) -> tuple[Split, Split]:
    """Rows to train on and rows to measure on.

    "test": the train and test split of the dataset. "validation": the train split without a fraction of its rows, and
    that fraction. `folder` is by default the one that HOLOBIND_DATA names.
    """
    data = hb.data.load((folder or data_folder()) / name)
    if split == "test":
        return data.train, data.test
    order = np.random.default_rng(seed).permutation(len(data.train))
    n_held = int(fraction * len(order))
    return take_rows(data.train, np.sort(order[n_held:])), take_rows(data.train, np.sort(order[:n_held]))


def take_rows(split: Split, rows: np.ndarray) -> Split:
    return Split(split.X[rows], split.Y[rows], split.texts and [split.texts[i] for i in rows])


def evaluate(Y, top, Y_train) -> dict[str, float]:
    """P@k and PSP@k of the top labels, with propensities from the training split."""
    P = metrics.precision_at_k(Y, top)
    S = metrics.psp_at_k(Y, top, metrics.propensity(Y_train))
    return {"P@1": P[0], "P@3": P[2], "P@5": P[4], "PSP@1": S[0], "PSP@3": S[2], "PSP@5": S[4]}


def line(title: str, found: dict[str, float]) -> str:
    return f"{title:44s} " + " ".join(f"{found[name]:6.2f}" for name in METRICS)
