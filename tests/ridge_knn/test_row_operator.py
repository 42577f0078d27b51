"""The operators of the ridge regression against dense matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from holobind.ridge_knn.row_operator import DualOperator, GramOperator, RowOperator

seeds = st.integers(0, 2**16)


def weighted_rows(n, f, seed, density):
    """A sparse matrix, square roots of weights with zeros among them, and the dense rows with both and a constant."""
    rng = np.random.default_rng(seed)
    X = csr_array(random_array((n, f), density=density, rng=rng, dtype=np.float32))
    X.sort_indices()
    roots = (rng.random(n) * (rng.random(n) > 0.3)).astype(np.float32)
    return X, roots, np.hstack([X.toarray(), np.full((n, 1), 0.3, np.float32)]) * roots[:, None]


@pytest.mark.parametrize("density", [0.05, 0.8])  # the Gram matrix by sparse and by dense products
@settings(max_examples=10)
@given(seeds)
def test_operators_with_weights_are_products_of_dense_rows(density, seed):
    X, roots, A = weighted_rows(40, 30, seed, density)
    rows = RowOperator(X, roots, 0.3)
    some = np.array([3, 4, 5, 39, 0])
    np.testing.assert_allclose(rows.rows(some).toarray(), A[some], atol=1e-6)
    P = np.random.default_rng(seed).normal(size=(31, 3)).astype(np.float32)
    np.testing.assert_allclose(GramOperator(rows).gram, A.T @ A, atol=1e-4)
    for operator in (rows, GramOperator(rows)):
        np.testing.assert_allclose(operator.normal_product(P), A.T @ (A @ P), atol=1e-3)
        np.testing.assert_allclose(operator.squares(), np.square(A).sum(0), atol=1e-4)
    Q = np.random.default_rng(seed).normal(size=(40, 3)).astype(np.float32)
    np.testing.assert_allclose(DualOperator(rows).normal_product(Q), A @ (A.T @ Q), atol=1e-3)


def test_rows_are_not_changed_by_their_weights():
    X, roots, _ = weighted_rows(20, 10, 0, 0.5)
    before = X.copy()
    RowOperator(X, roots, 0.3).rows(np.arange(20))
    RowOperator(X, roots).rows(np.arange(20))
    assert (before != X).nnz == 0
