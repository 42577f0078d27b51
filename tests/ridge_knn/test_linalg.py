"""Products and Gram matrices compared with scipy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from holobind._threads import num_threads
from holobind.ridge_knn._linalg import gram, product


def sparse_matrix(n, f, density, seed=0):
    draw = np.random.default_rng(seed)
    return csr_array((draw.normal(size=(n, f)) * (draw.random((n, f)) < density)).astype(np.float32))


@pytest.mark.parametrize("threads", [1, 3])
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 200), st.integers(0, 2**16))
def test_product_is_the_dense_product(threads, n, m, columns, seed):
    A = sparse_matrix(n, m, 0.4, seed)
    V = np.random.default_rng(seed).normal(size=(m, columns)).astype(np.float32)
    with num_threads(threads):
        np.testing.assert_allclose(product(A, V), A.toarray() @ V, atol=1e-4)


@pytest.mark.parametrize("density", [0.02, 1.0])
def test_gram_matrix_of_sparse_and_of_dense_rows(density):
    X = sparse_matrix(300, 70, density)
    np.testing.assert_allclose(gram(X), (X.T @ X).toarray(), atol=1e-3)


@pytest.mark.parametrize("density", [0.02, 1.0])
def test_gram_matrix_of_unsorted_and_repeated_columns(density):
    X = sparse_matrix(300, 70, density)
    repeated = csr_array((X.data[::-1].copy(), X.indices[::-1] // 2, X.indptr), X.shape)
    before = repeated.copy()
    np.testing.assert_allclose(gram(repeated), (repeated.T @ repeated).toarray(), atol=1e-3)
    assert np.array_equal(repeated.indices, before.indices)
