"""Data for the default model, and its definition in dense float64."""

import numpy as np
import torch
from scipy.sparse import csr_array

from holobind.data import Split
from holobind.data.csr import normalise_rows
from holobind.ridge_knn import fit_ridge_knn, knn_index
from holobind.ridge_knn.knn_index import N_NEIGHBOURS


def clustered(n=90, f=30, labels=20, seed=0):
    """Rows in a few clusters, which decide their labels: one without features, one without labels, two equal ones."""
    draw = np.random.default_rng(seed)
    centre = draw.integers(0, 8, n)
    X = np.abs(draw.normal(size=(8, f)) * (draw.random((8, f)) < 0.3))[centre] + 0.2 * (draw.random((n, f)) < 0.1)
    Y = (draw.random((8, labels)) < 0.15)[centre] ^ (draw.random((n, labels)) < 0.02)
    X[3], Y[4] = 0, 0
    X[1], Y[1] = X[0], Y[0]
    return csr_array(X.astype(np.float32)), csr_array(Y.astype(np.int32))


def clustered_split(n=200):
    return Split(*clustered(n=n))


def parity(n=600, f=20, labels=12, seed=0):
    """A label is whether exactly one of a pair of features is present: not linear; rows of norm 1."""
    draw = np.random.default_rng(seed)
    X = (draw.random((n, f)) < 0.5).astype(np.float32)
    odd = X[:, :labels] != X[:, 1 : labels + 1]
    X[3], odd[4] = 0, False
    return normalise_rows(csr_array(X)), csr_array(odd.astype(np.float32))


def rare_words(n=300, f=80, labels=40, seed=0):
    """Each label has a feature of its own, which many other features hide; the last label has no row, row 0 no label.

    Rows have norm 1; row 1 has no features.
    """
    draw = np.random.default_rng(seed)
    Y = draw.random((n, labels)) < 2 / labels
    Y[0], Y[:, -1] = False, False
    X = 0.6 * np.abs(draw.normal(size=(n, f))) * (draw.random((n, f)) < 0.15)
    X[:, :labels] += Y * draw.uniform(0.5, 1, (n, labels))
    X[1] = 0
    return normalise_rows(csr_array(X.astype(np.float32))), csr_array(Y.astype(np.float32))


def fit_network(X, Y, **options):
    return fit_ridge_knn(normalise_rows(X), Y, **options).network


def quantised_cosines(rows, x, weights):
    """The cosines of `KnnIndex`, for dense float32 rows and one query: integers, without weak features."""
    strength = np.abs(x.astype(np.float64)) * weights.astype(np.float64) ** 2
    rows, x = rows * weights, x * weights
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    units = (rows / np.where(norms > 0, norms, 1)).astype(np.float32)
    levels = np.trunc(units * np.float32(127))
    factors = (units * levels).sum(1, dtype=np.float64) / np.maximum((levels**2).sum(1), 1) * 127
    norm = np.linalg.norm(x.astype(np.float64))
    strong = strength >= knn_index.MIN_FEATURE_STRENGTH * strength.max()
    query = np.trunc(x * (250 / norm)) * strong if norm else x
    return np.floor(np.rint(factors * 2**14).clip(0, 2**15 - 1) * (levels @ query) / 2**16)


def output_by_definition(network, x):
    """v of one row of norm 1 without a forest, in float64, with the neighbours of `quantised_cosines`."""
    W, b = network.weights().double().numpy(), network.bias.double().numpy()
    X, Y = (matrix.toarray().astype(np.float64) for matrix in network.training_rows())
    counts = Y.sum(0)
    label_weights = (counts.max() / np.maximum(counts, 1)) ** network.rare_label_boost
    T = Y * label_weights @ network.codebook().vectors(torch.arange(network.n_labels)).double().numpy()
    idf = np.log((1 + len(X)) / (1 + (X > 0).sum(0))) ** network.idf_power
    cosines = quantised_cosines(*(array.astype(np.float32) for array in (X, x, idf)))
    nearest = np.argsort(-cosines, kind="stable")[:N_NEIGHBOURS]
    powers = np.maximum(cosines[nearest], 0) ** network.similarity_power
    weights = powers / powers.sum() if powers.sum() else powers
    return x @ W + b + network.knn_weight * weights @ (T[nearest] - X[nearest] @ W - b)
