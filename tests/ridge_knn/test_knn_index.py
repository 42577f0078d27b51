"""The kNN search compared with its definition on dense rows."""

import numpy as np
import pytest
from helpers.ridge_knn import quantised_cosines
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from holobind.ridge_knn import KnnIndex, knn_index


@pytest.mark.parametrize("max_dense_bytes", [knn_index.MAX_DENSE_BYTES, 1200])
@pytest.mark.parametrize("list_entry_cost", [0, 1.4, 100])
@pytest.mark.parametrize("min_sorted_rows", [0, knn_index.MIN_SORTED_ROWS])
@given(k=st.integers(1, 40), n=st.sampled_from([1, 30, 600]), seed=st.integers(0, 2**16))
def test_neighbours_have_the_largest_cosines_and_ties_go_to_the_lowest_row(
    k, n, seed, list_entry_cost, max_dense_bytes, min_sorted_rows
):
    """With all, some or no features as dense columns: no more than memory allows, or than are smaller than lists."""
    draw = np.random.default_rng(seed)
    queries, rows = (draw.integers(-1, 3, (m, 6)).astype(np.float32) for m in (5, n))
    weights = draw.random(6).astype(np.float32) + 0.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knn_index, "MAX_DENSE_BYTES", max_dense_bytes)
        index = KnnIndex(csr_array(rows), weights, list_entry_cost, min_sorted_rows)
    counts, width = (rows != 0).sum(0), index.columns.shape[1]
    frequent, smaller = (counts * list_entry_cost > n).sum(), (4 * counts >= width).sum()
    assert len(index.columns) == min(frequent, max(smaller, max_dense_bytes // width))
    assert index.columns.nbytes <= max(max_dense_bytes, 4 * counts.sum())
    found, neighbours = index.search(csr_array(queries), k)
    for x, best, which in zip(queries, found, neighbours, strict=True):
        cosines = quantised_cosines(rows, x, weights)
        order = np.argsort(-cosines, kind="stable")[:k]
        order = order[cosines[order] > 0]
        assert which[: len(order)].tolist() == order.tolist()
        assert best.tolist() == [*cosines[order].tolist(), *[0] * (k - len(order))]


@pytest.mark.parametrize("values", ["few", "many", "signed"])
@given(
    n=st.sampled_from([1, 29, 1024, 1025, 3000]),
    f=st.integers(1, 40),
    k=st.sampled_from([1, 7, 30, 2000]),
    n_columns=st.integers(0, 20),
    seed=st.integers(0, 2**16),
)
def test_bounds_of_sorted_rows_leave_no_neighbour_out(values, n, f, k, n_columns, seed):
    """Frequent features in columns, rare ones in lists, rows without any feature, many equal rows, values near the
    limits of 8 and 16 bits (rows and queries of one feature): the neighbours are those
    of the search without bounds, which the test above compares with the definition.
    """
    draw = np.random.default_rng(seed)
    frequency = draw.random(f) ** 3
    rows, queries = ((draw.random((m, f)) < frequency).astype(np.float32) for m in (n, 6))
    queries[0], queries[1, 1:] = 0, 0
    if values != "few":
        rows *= draw.random((n, f)).astype(np.float32) ** 2
        queries *= draw.random((6, f)).astype(np.float32)
    if values == "signed":
        rows *= draw.choice([-1, 1], (n, f))
        queries *= draw.choice([-1, 1], (6, f))
    weights = draw.random(f).astype(np.float32) + 0.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knn_index, "MAX_DENSE_BYTES", n_columns * (-(-n // 512) * 512))
        patch.setattr(knn_index, "LIST_ENTRY_BYTES", 0.0)
        index, plain = (KnnIndex(csr_array(rows), weights, f, least) for least in (0, n + 1))
    assert len(index.columns) <= n_columns
    wanted = plain.search(csr_array(queries), k)
    for _ in range(2):  # the buffers of sums are clean afterwards
        found = index.search(csr_array(queries), k)
        assert np.array_equal(found[0], wanted[0]) and np.array_equal(found[1], wanted[1])


@given(st.integers(1, 3000), st.integers(0, 2**16))
def test_quantised_cosines_are_cosines(f, seed):
    """Also for rows of many features and of one, if no feature is skipped; no sum overflows 16 bits."""
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(8, f)).astype(np.float32) * (draw.random((8, f)) < draw.random())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knn_index, "MIN_FEATURE_STRENGTH", 0.0)
        found, neighbours = KnnIndex(csr_array(rows), np.ones(f, np.float32)).search(csr_array(rows), 1)
    for row in range(8):
        if rows[row].any():
            assert found[row, 0] == pytest.approx(250 * 127 / 4, rel=0.1)
            pair = [neighbours[row, 0], row]
            assert rows[pair[0]] @ rows[row] / np.linalg.norm(rows[pair], axis=1).prod() > 0.99


def test_weak_features_of_a_query_are_skipped():
    """The contribution of a feature grows with the square of its weight, as indexed rows have the weight, too."""
    draw = np.random.default_rng(0)
    rows = csr_array((draw.random((300, 6)) < 0.5).astype(np.float32))
    weights = np.array([2, 1.3, 1.1, 1, 0.5, 0.1], np.float32)
    limit = knn_index.MIN_FEATURE_STRENGTH
    strength = np.array([-1, 1.1 * limit, 0.9 * limit, 2 * limit, 0.5 * limit, 0.01], np.float32)
    index, query = KnnIndex(rows, weights), (strength / weights**2)[None]
    strong = query * np.array([1, 1, 0, 1, 0, 0], np.float32)
    (found, ids), (alone, same) = (index.search(csr_array(x), 300) for x in (query, strong))
    assert np.array_equal(found > 0, alone > 0) and set(ids[found > 0]) == set(same[alone > 0])


def test_queries_with_few_features_are_not_searched():
    rows = csr_array(np.tri(5, dtype=np.float32))
    found, _ = KnnIndex(rows, np.ones(5, np.float32)).search(rows, 2, min_features=3)
    assert (found[:2] == 0).all() and (found[2:, 0] > 0).all()


def test_an_empty_index_has_no_neighbours():
    found, neighbours = KnnIndex(csr_array((0, 4), dtype=np.float32), np.ones(4, np.float32)).search(
        csr_array(np.eye(2, 4, dtype=np.float32)), 3
    )
    assert not found.any() and not neighbours.any() and found.shape == (2, 3)
