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
from holobind._jit import compiled
from holobind._threads import by_rows
from holobind._topk import insert
from holobind._types import CsrArray, FloatArray, IntArray
from holobind.data.csr import canonical_csr, checked_csr, from_arrays, normalise_rows, row_blocks, scale_columns
from holobind.errors import ShapeError
from holobind.ridge_knn._kernels import QUERY_NORM, add_columns, quantise_queries
from holobind.ridge_knn._knn_kernels import BUCKET_ROWS, TILE_ROWS, dense_squares, fill_index, kth_levels, search_rows

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
GROUP_SIZE = 32  # scores that are first compared by their maximum
ROW_MULTIPLE = 16 * GROUP_SIZE  # rows are padded to a multiple of it, so that vectorised loops have no rest
assert BUCKET_ROWS % ROW_MULTIPLE == 0
MIN_SORTED_ROWS = 1 << 18  # with fewer rows, adding the columns of all of them takes less time than bounds
_U = np.uint64  # unsigned: compiled code need not handle negative indices


class KnnIndex:
    """Search for the indexed rows with the largest cosines, with features multiplied by weights.

    Scores are summed over the features of a query. A frequent feature is stored as a dense int8 column, any other one
    as a list of the rows that have it.

    X                 the rows to index
    feature_weights   multiplied with the features of rows and queries
    list_entry_cost   the time to add an entry of a list, in units of the time to add one of a dense column: features of
                      more than n / list_entry_cost of the n rows become dense columns, most frequent first
    min_sorted_rows   from so many rows on, they are sorted, and most of them are found or left out by bounds
                      (`_knn_kernels`); the result is the same

    Shapes: X (n, f), feature_weights (f)
    """

    def __init__(
        self,
        X: CsrArray,
        feature_weights: FloatArray,
        list_entry_cost: float = 32,
        min_sorted_rows: int = MIN_SORTED_ROWS,
    ) -> None:
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
        self._is_sorted = self.n_rows >= min_sorted_rows
        rows_of = np.argsort(-reach, kind="stable") if self._is_sorted else np.arange(self.n_rows)
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
            if self._is_sorted:
                search_rows(indptr, queries.indices, levels, *self._arrays, seeds, min_features, buffer, *found)
            else:
                _search(indptr, queries.indices, levels, *self._arrays[:5], min_features, buffer, *found)

        if self.n_rows:
            seeds = self._seeds(k) if self._is_sorted else np.zeros(0, np.int64)
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


@compiled()
def _search(  # type: ignore[no-untyped-def]
    indptr, ids, levels, column_of, columns, list_ends, entries, factors, min_features, buffer, cosines, neighbours
):  # fmt: skip
    """Scores of a batch of queries with all rows, from lists and dense columns; then the best k of each query."""
    n, start = len(factors), indptr[0]
    width, scores = _U(n), buffer.reshape(-1)
    maxima, groups = np.empty(n // GROUP_SIZE, np.int16), np.empty(n // GROUP_SIZE, np.uint64)
    max_entries = 0
    for r in range(len(indptr) - 1):
        max_entries = max(max_entries, indptr[r + 1] - indptr[r])
    offsets, query_levels = np.empty(max_entries, np.uint64), np.empty(max_entries, np.int16)
    for first in range(0, len(indptr) - 1, len(buffer)):
        last = min(first + len(buffer), len(indptr) - 1)
        scores[:] = 0
        for r in range(first, last):
            if indptr[r + 1] - indptr[r] < min_features:
                continue
            base = _U(r - first) * width
            for j in range(indptr[r], indptr[r + 1]):
                f, q = ids[j], levels[j - start]
                if column_of[f] < 0 and q != 0:
                    for t in range(_U(list_ends[f]), _U(list_ends[f + 1])):
                        at_row = base + _U(entries[t] >> 8)
                        scores[at_row] = np.int16(scores[at_row] + q * np.int8(entries[t]))
        for top in range(0, n, TILE_ROWS):
            size = _U(min(TILE_ROWS, n - top))
            for r in range(first, last):
                if indptr[r + 1] - indptr[r] < min_features:
                    continue
                used = 0
                for j in range(indptr[r], indptr[r + 1]):
                    c, q = column_of[ids[j]], levels[j - start]
                    if c >= 0 and q != 0:
                        offsets[used], query_levels[used] = _U(c) * width + _U(top), q
                        used += 1
                add_columns(scores, _U(r - first) * width + _U(top), size, columns, offsets, query_levels, used)
        for r in range(first, last):
            if indptr[r + 1] - indptr[r] < min_features:
                continue
            base = _U(r - first) * width
            for i in range(width):
                scores[base + i] = np.int16((np.int32(scores[base + i]) * np.int32(factors[i])) >> np.int32(16))
            _top_k(scores, base, maxima, groups, cosines[r], neighbours[r])


@compiled()
def _top_k(scores, base, maxima, groups, best, positions):  # type: ignore[no-untyped-def]
    """The k largest scores of one query.

    The k-th largest of the groups' maxima is a lower bound of the k-th largest score; only groups that reach it are
    read again. Group i of q groups has the scores i, i + q, i + 2 q and so on, so that maxima are vectorised over i.
    """
    k, q = len(best), _U(len(maxima))
    maxima[:] = 0
    for g in range(_U(0), _U(GROUP_SIZE), _U(4)):
        a = base + g * q
        b, c, d = a + q, a + q + q, a + q + q + q
        for i in range(q):
            maxima[i] = max(maxima[i], scores[a + i], scores[b + i], scores[c + i], scores[d + i])
    bound = _kth_largest_bound(maxima, k)
    n_groups = 0
    for i in range(q):
        if maxima[i] >= bound:
            groups[n_groups] = i
            n_groups += 1
    filled = 0
    for g in range(_U(GROUP_SIZE)):  # in the order of rows, so that the lower one of two equal rows comes first
        for j in range(n_groups):
            position = g * q + groups[j]
            if scores[base + position] >= bound:
                filled = insert(scores[base + position], position, best, positions, filled)


@compiled()
def _kth_largest_bound(values, k):  # type: ignore[no-untyped-def]
    """The largest bound that at least k values reach, or 1 if fewer than k are positive, by bisection."""
    low, high = 1, 1 << 15
    while high - low > 1:
        middle = (low + high) >> 1
        bound, count = np.int16(middle), 0
        for first in range(0, len(values), 1 << 14):
            count += _count_reaching(values[first : first + (1 << 14)], bound)
        if count >= k:
            low = middle
        else:
            high = middle
    return np.int16(low)


@compiled()
def _count_reaching(values, bound):  # type: ignore[no-untyped-def]
    count = np.int16(0)  # as wide as the values, so that the loop is vectorised
    for i in range(len(values)):
        count = np.int16(count + (1 if values[i] >= bound else 0))
    return count
