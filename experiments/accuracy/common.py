"""What the accuracy experiments share: data with a validation part cut from TRAIN, and one line of figures."""

from pathlib import Path

import numpy as np

import holobind as hb
from holobind import metrics
from holobind.data import Split

NAMES = ["bibtex", "delicious", "cooking-stackexchange", "tibkat-core-en"]
ROOT = Path(__file__).parents[3] / "shared" / "data"


def split(name, part="validation", share=0.2, seed=0, root=ROOT):
    """Two parts: train and test as they are, or train without a fifth, and that fifth."""
    data = hb.data.load(root / name)
    if part == "test":
        return data.train, data.test
    order = np.random.default_rng(seed).permutation(len(data.train))
    held = int(share * len(order))
    return _some(data.train, np.sort(order[held:])), _some(data.train, np.sort(order[:held]))


def _some(part, rows):
    return Split(part.X[rows], part.Y[rows], part.texts and [part.texts[i] for i in rows])


def figures(Y, top, Y_train):
    P = metrics.precision_at_k(Y, top)
    S = metrics.psp_at_k(Y, top, metrics.propensity(Y_train))
    return {"P@1": P[0], "P@3": P[2], "P@5": P[4], "PSP@1": S[0], "PSP@3": S[2], "PSP@5": S[4]}


def line(tag, f):
    return f"{tag:44s} " + " ".join(f"{f[k]:6.2f}" for k in ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"))
