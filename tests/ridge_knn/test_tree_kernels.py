"""The compiled kernels of label trees against scikit-learn and dense arrays."""

import numpy as np
import pytest
from helpers.ridge_knn import rare_words
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

from holobind.ridge_knn._tree_kernels import (
    fit_squared_hinges,
    mean_log_probabilities,
    nearest_centroids,
    take_local_rows,
)

seeds = st.integers(0, 2**16)


def objective(weights, X, signs, cost):
    weights = weights.astype(np.float64)
    gaps = np.maximum(0, 1 - signs * (X @ weights[:-1] + weights[-1]))
    return weights @ weights / 2 + cost * (gaps**2).sum()


def squared_hinges(X, signs, cost=1.0, tolerance=1e-4, max_epochs=1000, seed=7):
    weights = np.zeros((X.shape[1] + 1, signs.shape[1]), np.float32)
    settings = np.float32(cost), np.float32(tolerance), max_epochs, seed
    alpha = np.zeros(signs.shape, np.float32)
    fit_squared_hinges(X.indptr, X.indices, X.data, signs.astype(np.int8), *settings, weights, alpha)
    return weights


def squared_hinge(X, signs, *settings, **named):
    return squared_hinges(X, signs[:, None], *settings, **named)[:, 0]


@pytest.mark.parametrize("cost", [0.1, 1.0])
@settings(max_examples=8)
@given(seeds)
def test_the_classifier_minimises_the_squared_hinge_loss(cost, seed):
    X, Y = rare_words(seed=seed)
    signs = np.where(Y[:, [seed % 39]].toarray().ravel() > 0, 1, -1).astype(np.float32)
    signs[:2] = 1, -1  # both classes occur
    exact = LinearSVC(loss="squared_hinge", C=cost, intercept_scaling=1, tol=1e-6, max_iter=100_000).fit(X, signs)
    least = objective(np.append(exact.coef_[0], exact.intercept_), X, signs, cost)
    assert objective(squared_hinge(X, signs, cost), X, signs, cost) <= least * (1 + 1e-3)
    assert objective(squared_hinge(X, signs, cost, 0.3, 20), X, signs, cost) <= least * 1.02


@settings(max_examples=8)
@given(seeds, st.integers(1, 39))
def test_classifiers_that_are_fitted_together_are_those_fitted_alone(seed, k):
    X, Y = rare_words(seed=seed)
    signs = np.where(Y[:, :k].toarray() > 0, 1, -1).astype(np.float32)
    together = squared_hinges(X, signs, tolerance=0, max_epochs=3)  # all of them for as many epochs
    for c in range(k):
        np.testing.assert_allclose(together[:, c], squared_hinge(X, signs[:, c], tolerance=0, max_epochs=3), atol=1e-4)


@pytest.mark.parametrize("sign", [-1, 1])
def test_one_class_has_a_classifier(sign):
    X, _ = rare_words(n=20)
    signs = np.full(20, sign, np.float32)
    weights = squared_hinge(X, signs)
    assert np.isfinite(weights).all() and np.all(signs * (X @ weights[:-1] + weights[-1]) > 0)


def test_the_order_of_the_rows_depends_on_the_seed():
    X, Y = rare_words()
    signs = np.where(Y[:, [0]].toarray().ravel() > 0, 1, -1).astype(np.float32)
    same, again, other = (squared_hinge(X, signs, tolerance=0.3, max_epochs=2, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(same, again) and not np.array_equal(same, other)


@given(seeds)
def test_local_rows_are_the_rows_with_other_ids(seed):
    X, _ = rare_words(n=12, f=50, seed=seed)
    rows = np.random.default_rng(seed).permutation(12)[: seed % 12]
    local_of = np.full(50, -1, np.int32)
    indptr, ids, values, features = take_local_rows(X.indptr, X.indices, X.data, rows, local_of)
    found = np.zeros((len(rows), 50), np.float32)
    found[:, features] = csr_array((values, ids, indptr), shape=(len(rows), len(features))).toarray()
    np.testing.assert_array_equal(found, X[rows].toarray())
    assert len(set(features.tolist())) == len(features) and (local_of == -1).all()


@given(seeds)
def test_the_nearest_centroid_has_the_largest_product(seed):
    X, _ = rare_words(n=30, f=20, labels=10, seed=seed)
    centroids = np.random.default_rng(seed).normal(size=(20, 5)).astype(np.float32)
    centroids[:, 3] = centroids[:, 1]  # of equal ones, the first
    found = np.empty(30, np.int64)
    nearest_centroids(X.indptr, X.indices, X.data, centroids, found)
    products = X.toarray().astype(np.float64) @ centroids
    np.testing.assert_allclose(products[np.arange(30), found], products.max(1), atol=1e-6)
    assert 3 not in found and found[1] == 0


@given(seeds)
def test_probabilities_are_means_over_trees(seed):
    draw = np.random.default_rng(seed)
    labels = np.stack([[draw.permutation(9)[:4] for _ in range(5)] for _ in range(3)])
    labels[draw.random(labels.shape) < 0.2] = -1
    logs = -draw.exponential(3, labels.shape).astype(np.float32)
    logs[0, 0, 0] = -200  # a probability of 0 in float32
    out_labels, out, out_weights = np.empty((5, 12), np.int64), np.empty((5, 12), np.float32), np.empty((5, 12))
    weights = draw.random(9).astype(np.float32)[labels]
    mean_log_probabilities(labels, logs, weights, out_labels, out, out_weights)
    for row in range(5):
        expected = np.zeros(9)
        for tree in range(3):
            for label, log in zip(labels[tree, row], logs[tree, row], strict=True):
                if label >= 0:
                    expected[label] += np.exp(np.float64(log)) / 3
        known = out_labels[row] >= 0
        assert sorted(out_labels[row][known]) == sorted(set(labels[:, row].ravel().tolist()) - {-1})
        np.testing.assert_allclose(np.exp(out[row][known]), expected[out_labels[row][known]], rtol=1e-4, atol=1e-30)
        assert (out[row][~known] == -np.inf).all() and not known[known.sum() :].any()
        for label, weight in zip(out_labels[row][known], out_weights[row][known], strict=True):
            assert (weights[:, row][labels[:, row] == label] == weight).all()
        assert (out_weights[row][~known] == 0).all()
