"""What the accuracy experiments share: data with a validation part cut from TRAIN, and one line of figures."""

from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

import holobind as hb
from holobind import metrics

NAMES = ["bibtex", "delicious", "cooking-stackexchange", "tibkat-core-en"]
ROOT = Path(__file__).parents[3] / "shared" / "data"


def split(name, part="validation", share=0.2, seed=0, root=ROOT):
    """Rows of length 1: train and test as they are, or a fifth of train held out.  -> X, Y, X held, Y held"""
    data = hb.data.load(root / name)
    X, Y = sparse.csr_matrix(normalize(data.train.X)), sparse.csr_matrix(data.train.Y)
    if part == "test":
        return X, Y, sparse.csr_matrix(normalize(data.test.X)), sparse.csr_matrix(data.test.Y)
    order = np.random.default_rng(seed).permutation(X.shape[0])
    held = int(share * X.shape[0])
    a, b = np.sort(order[held:]), np.sort(order[:held])
    return X[a], Y[a], X[b], Y[b]


def figures(Y, top, Y_train):
    P = metrics.precision_at_k(Y, top)
    S = metrics.psp_at_k(Y, top, metrics.propensity(Y_train))
    return {"P@1": P[0], "P@3": P[2], "P@5": P[4], "PSP@1": S[0], "PSP@3": S[2], "PSP@5": S[4]}


def line(tag, f):
    return f"{tag:44s} " + " ".join(f"{f[k]:6.2f}" for k in ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"))
