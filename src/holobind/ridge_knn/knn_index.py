"""Brute-force search for the nearest neighbours by cosine, in eight and sixteen bits, on several threads.

An indexed row x of norm 1 is stored as integers r = trunc(127 x) and the factor a for which a r is closest to x. A
query of norm 1 is rounded to trunc(250 x). By Cauchy and Schwarz no sum of products leaves 16 bits, so that processors
add sixteen of them at once, and the order of a sum does not change its result. Features that can contribute little to
a query's products are skipped; this changes some neighbours, but not how useful they are (experiments/LOG.md).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holobind._checks import positive
from holobind._threads import by_rows
from holobind._types import CsrArray, FloatArray, IntArray
from holobind.data.csr import canonical_csr, checked_csr, from_arrays, normalise_rows, row_blocks, scale_columns
from holobind.errors import ShapeError
from holobind.ridge_knn._kernels import QUERY_NORM, quantise_queries
from holobind.ridge_knn._knn_kernels import BUCKET_ROWS, GROUP_SIZE, dense_squares, fill_index, kth_levels, search_rows

N_NEIGHBOURS = 30  # whose residuals the model averages
ROW_NORM = 127  # norm of an indexed row of integers
assert ROW_NORM * QUERY_NORM < 1 << 15
UNIT_FACTOR = 1 << 14  # fixed-point value of the factor a = 1 / ROW_NORM
MIN_FEATURE_STRENGTH = 0.2  # features with a smaller fraction of the strongest feature's contribution are skipped
MAX_DENSE_BYTES = 1 << 26  # of the dense columns, unless lists of the same features take more
LIST_ENTRY_BYTES = 4
MAX_SHORT_ROWS = 1 << 24  # with more rows, a list entry has 8 bytes
MAX_BUFFER_SCORES = 1 << 20  # scores of queries with all rows that a thread keeps, unless one query has more
BLOCK_ENTRIES = 1 << 20  # of rows that are rounded together
ROW_MULTIPLE = 512  # the number of rows is a multiple of it, so that vectorised loops have no rest
assert BUCKET_ROWS % ROW_MULTIPLE == 0 == ROW_MULTIPLE % (4 * GROUP_SIZE)



class KnnIndex:
    """Search for the indexed rows with the largest cosines, with features multiplied by weights.

    Scores are summed over the features of a query. A frequent feature is stored as a dense int8 column, any other one
    as a list of the rows that have it.

    X                 the rows to index
    feature_weights   multiplied with the features of rows and queries
    list_entry_cost   the time to add an entry of a list, in units of the time to add one of a dense column: features of
                      more than n / list_entry_cost of the n rows become dense columns, most frequent first

    Shapes: X (n, f), feature_weights (f)
    """

    def __init__(self, X: CsrArray, feature_weights: FloatArray, list_entry_cost: float = 64) -> None:
        if feature_weights.shape != X.shape[1:]:
            raise ShapeError(f"KnnIndex: wants {X.shape[1]} feature weights, got shape {feature_weights.shape}")
        X = checked_csr(X, "KnnIndex: X")
        self.n_rows, self.feature_weights = X.shape[0], feature_weights
        self.width = -(-max(self.n_rows, 1) // ROW_MULTIPLE) * ROW_MULTIPLE  # padded with rows of zeros
        indptr, ids, levels, factors = _quantised(X, feature_weights)
        counts = np.bincount(ids, minlength=X.shape[1])
        # Features of many rows, as the dimensions of embeddings, are columns in any case: lists would be larger.
        n_smaller = int((counts * LIST_ENTRY_BYTES >= self.width).sum())
        n_dense = max(n_smaller, MAX_DENSE_BYTES // self.width)
        most_frequent = np.argsort(-counts, kind="stable")[:n_dense]
        dense = np.sort(most_frequent[counts[most_frequent] * list_entry_cost > self.n_rows])
        column_of = np.full(len(counts), -1, np.int32)  # the dense column of each feature, or -1
        column_of[dense] = np.arange(len(dense))
        squares = np.empty(self.n_rows, np.int64)
        dense_squares(indptr, ids, levels, column_of, squares)
        reach = np.sqrt(squares) * factors
        rows_of = np.argsort(-reach, kind="stable")
        self.factors, sorted_reach = np.zeros(self.width, np.int16), np.zeros(self.width)
        self.factors[: self.n_rows], sorted_reach[: self.n_rows] = factors[rows_of], reach[rows_of]
        bucket_starts = np.arange(0, self.width, BUCKET_ROWS)
        max_factors = np.append(np.maximum.reduceat(self.factors, bucket_starts), self.factors.max())
        self.columns = np.zeros((len(dense), self.width), np.int8)
        list_ends = np.append(0, np.cumsum(np.where(column_of < 0, counts, 0)))
        entries = np.empty(list_ends[-1], np.uint32 if self.width <= MAX_SHORT_ROWS else np.uint64)
        self._level_counts = np.zeros((len(dense), 128), np.int64)
        fill_index(indptr, ids, levels, rows_of, column_of, list_ends, entries, self.columns, self._level_counts)
        self._has_negative = bool((levels < 0).any())
        self._feature_seeds: dict[int, NDArray[np.int64]] = {}
        self._arrays = (
            column_of, self.columns.ravel(), list_ends, entries, self.factors, sorted_reach[bucket_starts],
            max_factors, int(factors[factors > 0].min(initial=UNIT_FACTOR)), rows_of,
        )  # fmt: skip

    def search(self, X: CsrArray, k: int, min_features: int = 0) -> tuple[NDArray[np.int16], IntArray]:
        """The k largest positive cosines of each query, times a constant, largest first, and the indices of the rows.

        Ties go to the lowest row. Where fewer than k cosines are positive, the rest is cosine 0 and row 0; so is all of
        a query with fewer than `min_features` features, which is not searched.

        Shapes: (m, f) -> (m, k), (m, k)
        """
        positive("search", "k", k)
        queries = canonical_csr(checked_csr(X, "queries", len(self.feature_weights)))
        m = queries.shape[0]
        cosines, neighbours = np.zeros((m, k), np.int16), np.zeros((m, k), np.int64)

        def search_range(first: int, last: int) -> None:
            indptr = queries.indptr[first : last + 1]
            batch = min(last - first, max(1, min(16, MAX_BUFFER_SCORES // self.width)))
            buffer = np.zeros((batch, self.width), np.int16)
            levels = quantise_queries(indptr, queries.indices, queries.data, self.feature_weights, MIN_FEATURE_STRENGTH)
            found = cosines[first:last], neighbours[first:last]
            search_rows(indptr, queries.indices, levels, *self._arrays, seeds, min_features, buffer, *found)

        if self.n_rows:
            seeds = self._seeds(k)
            by_rows(search_range, m)
        return cosines, neighbours

    def _seeds(self, k: int) -> NDArray[np.int64]:
        """The k-th largest level of each feature, of nothing where rows have negative levels.  Shapes: -> (f)"""
        if k not in self._feature_seeds:
            column_of, _, list_ends, entries = self._arrays[:4]
            seeds = np.zeros(0 if self._has_negative else len(column_of), np.int64)
            if len(seeds):
                kth_levels(column_of, self._level_counts, list_ends, entries, k, seeds)
            self._feature_seeds = {k: seeds}
        return self._feature_seeds[k]


def _quantised(
    X: CsrArray, feature_weights: FloatArray
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int8], NDArray[np.int16]]:
    """The levels of rows as the arrays of a CSR matrix, and the factors a in fixed-point numbers."""
    blocks: list[tuple[NDArray[Any], NDArray[np.int8]]] = []
    lengths, factors = np.zeros(X.shape[0], np.int64), np.zeros(X.shape[0], np.int16)
    for first, last in row_blocks(X, max_entries=BLOCK_ENTRIES):
        start, end = int(X.indptr[first]), int(X.indptr[last])
        offsets, shape = X.indptr[first : last + 1] - X.indptr[first], (last - first, X.shape[1])
        rows = from_arrays(X.data[start:end], X.indices[start:end], offsets, shape)
        rows = normalise_rows(scale_columns(rows, feature_weights))
        levels = np.trunc(rows.data * ROW_NORM)
        row = np.repeat(np.arange(last - first), np.diff(rows.indptr))
        squares = np.bincount(row, levels**2, minlength=last - first)
        ratios = np.bincount(row, rows.data * levels, minlength=last - first) / np.maximum(squares, 1)
        factors[first:last] = np.rint(ratios * (ROW_NORM * UNIT_FACTOR)).clip(0, 2 * UNIT_FACTOR - 1)
        lengths[first:last] = np.diff(rows.indptr)
        blocks.append((rows.indices.astype(np.int32, copy=False), levels.astype(np.int8)))
    ids = np.concatenate([block[0] for block in blocks]) if blocks else np.empty(0, np.int32)
    levels = np.concatenate([block[1] for block in blocks]) if blocks else np.empty(0, np.int8)
    return np.append(0, np.cumsum(lengths)), ids, levels, factors
