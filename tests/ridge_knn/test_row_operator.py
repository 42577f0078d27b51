"""Products with rows in memory, in files and of several processes, against dense matrices."""

import numpy as np
import pytest
from helpers.processes import run_together
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import random_array

from holobind.data import csr
from holobind.data.csr import canonical_csr, from_arrays, scratch_array
from holobind.ridge_knn.row_operator import DualOperator, GramOperator, RowOperator, costs

seeds = st.integers(0, 10**6)


def rows(n=60, f=17, seed=0, density=0.2):
    return canonical_csr(random_array((n, f), density=density, format="csr", dtype=np.float32, rng=seed))


def roots(n, seed):
    generator = np.random.default_rng(seed)
    return (generator.random(n) * (generator.random(n) < 0.7)).astype(np.float32)


def dense(X, weights, constant):
    A = np.hstack([X.toarray(), np.full((X.shape[0], 1), constant)]) if constant else X.toarray()
    return A if weights is None else weights[:, None] * A


def mapped(X):
    """The same matrix with its entries in files."""
    values, ids = scratch_array(X.nnz, np.float32), scratch_array(X.nnz, np.int32)
    values[:], ids[:] = X.data, X.indices
    return from_arrays(values, ids, X.indptr, X.shape)


@pytest.mark.parametrize("density", [0.05, 0.8])  # the Gram matrix by sparse and by dense products
@pytest.mark.parametrize("constant", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@settings(max_examples=5, deadline=None)
@given(seed=seeds)
def test_products_are_those_of_the_dense_matrix(weighted, constant, density, seed):
    X = rows(seed=seed, density=density)
    weights = roots(X.shape[0], seed) if weighted else None
    A, operator = dense(X, weights, constant), RowOperator(X, weights, constant)
    generator = np.random.default_rng(seed)
    P, V = (generator.standard_normal((n, 5)).astype(np.float32) for n in (A.shape[1], A.shape[0]))
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(operator.normal_product(P), A.T @ (A @ P), **close)
    np.testing.assert_allclose(operator.product(P), A @ P, **close)
    np.testing.assert_allclose(operator.transposed_product(V), A.T @ V, **close)
    np.testing.assert_allclose(operator.squares(), (A**2).sum(0), **close)
    np.testing.assert_allclose(GramOperator(operator).normal_product(P), A.T @ (A @ P), **close)
    np.testing.assert_allclose(DualOperator(operator).normal_product(V), A @ (A.T @ V), **close)
    np.testing.assert_allclose(DualOperator(operator).squares(), (A**2).sum(1), **close)
    some = np.array([3, 7, 50])
    np.testing.assert_allclose(operator.rows(some).toarray(), A[some], **close)
    np.testing.assert_allclose(operator.rows(some, weighted=False).toarray(), dense(X, None, constant)[some], **close)


def test_rows_in_files_give_the_bits_of_rows_in_memory(monkeypatch):
    X = rows(500, 40)
    P = np.random.default_rng(0).standard_normal((41, 9)).astype(np.float32)
    monkeypatch.setattr(csr, "BLOCK_ENTRIES", 64)
    wanted = RowOperator(X, None, 0.3).normal_product(P)
    in_file = mapped(X)
    assert csr.is_mapped(in_file) and not csr.is_mapped(X) and len(list(csr.row_blocks(in_file))) > 20
    for _ in range(2):  # pages that were released are read again
        np.testing.assert_array_equal(RowOperator(in_file, None, 0.3).normal_product(P), wanted)


def test_blocks_cover_every_row_once(monkeypatch):
    X = rows(300, 40)
    monkeypatch.setattr(csr, "BLOCK_ENTRIES", 60)
    monkeypatch.setattr(csr, "MAX_BLOCK_ROWS", 7)
    blocks = list(csr.row_blocks(X, 5, 290))
    assert [first for first, _ in blocks[1:]] == [last for _, last in blocks[:-1]]
    assert blocks[0][0] == 5 and blocks[-1][1] == 290 and max(last - first for first, last in blocks) == 7
    assert all(int(X.indptr[last] - X.indptr[first]) <= 60 or last - first == 1 for first, last in blocks)


@pytest.mark.parametrize("size", [2, 3])
def test_processes_add_up_the_products_of_their_rows(size):
    X, weights = rows(70), roots(70, 1)
    P = [np.random.default_rng(i).standard_normal((18, 4)).astype(np.float32) for i in range(size)]
    A = dense(X, weights, 0.3)
    found = run_together(
        size, lambda processes: RowOperator(X, weights, 0.3, processes).normal_product(P[processes.rank])
    )
    for own, product in zip(P, found, strict=True):
        np.testing.assert_allclose(product, A.T @ (A @ own), rtol=1e-4, atol=1e-4)


def test_the_gram_matrix_pays_where_rows_are_many_and_features_few():
    few, many = costs(RowOperator(rows(200, 1000, density=0.01)), 512), costs(RowOperator(rows(20_000, 20)), 512)
    assert few["rows"] < few["gram"] and many["gram"] < many["rows"]


def test_rows_are_not_changed_by_their_weights():
    X = rows(20, 10, density=0.5)
    before = X.copy()
    RowOperator(X, roots(20, 0), 0.3).rows(np.arange(20))
    RowOperator(X, roots(20, 0)).rows(np.arange(20))
    assert (before != X).nnz == 0
