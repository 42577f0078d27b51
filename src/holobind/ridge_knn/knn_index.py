"""Brute-force search for the nearest neighbours by cosine, in eight and sixteen bits, on several threads.

An indexed row x of norm 1 is stored as integers r = trunc(127 x) and the factor a for which a r is closest to x. A
query of norm 1 is rounded to trunc(250 x). By Cauchy and Schwarz no sum of products leaves 16 bits, so that processors
add sixteen of them at once, and the order of a sum does not change its result. Features that can contribute little to
a query's products are skipped; this changes some neighbours, but not how useful they are (experiments/LOG.md).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from holobind._checks import positive
from holobind._jit import compiled
from holobind._threads import by_rows
from holobind._topk import insert
from holobind._types import CsrArray, FloatArray, IntArray
from holobind.data.csr import (
    MAX_BLOCK_ROWS,
    canonical_csr,
    checked_csr,
    from_arrays,
    normalise_rows,
    row_blocks,
    scale_columns,
)
from holobind.errors import ShapeError
from holobind.ridge_knn._kernels import QUERY_NORM, add_columns, quantise_queries

N_NEIGHBOURS = 30  # whose residuals the model averages
ROW_NORM = 127  # norm of an indexed row of integers
assert ROW_NORM * QUERY_NORM < 1 << 15
UNIT_FACTOR = 1 << 14  # fixed-point value of the factor a = 1 / ROW_NORM
MIN_FEATURE_STRENGTH = 0.2  # features with a smaller fraction of the strongest feature's contribution are skipped
MAX_DENSE_BYTES = 1 << 26  # of the dense columns, unless lists of the same features take more
LIST_ENTRY_BYTES = 5
MAX_BUFFER_SCORES = 1 << 20  # scores of queries with all rows that a thread keeps, unless one query has more
TILE_ROWS = 8192  # rows whose scores are computed together, so that dense columns stay in the cache
GROUP_SIZE = 32  # scores that are first compared by their maximum
BLOCK_ENTRIES = 1 << 20  # of rows that are rounded together
assert MAX_BLOCK_ROWS <= 1 << 16  # the rows of a block are numbers of 16 bits
_Block = tuple[NDArray[Any], NDArray[np.uint16], NDArray[np.int8]]  # offsets of features, rows and levels
_U = np.uint64  # unsigned: compiled code need not handle negative indices


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
        self.width = -(-self.n_rows // (16 * GROUP_SIZE)) * 16 * GROUP_SIZE  # padded with rows of zeros
        self.factors = np.zeros(self.width, np.int16)
        blocks: list[tuple[int, _Block]] = []  # first rows, and levels by feature
        counts = np.zeros(X.shape[1], np.int64)
        for first, last in row_blocks(X, max_entries=BLOCK_ENTRIES):
            block, self.factors[first:last] = _quantised(X, first, last, feature_weights)
            counts += np.diff(block[0])
            blocks.append((first, block))
        # Features of many rows, as the dimensions of embeddings, are columns in any case: lists would be larger.
        n_smaller = int((counts * LIST_ENTRY_BYTES >= self.width).sum())
        n_dense = max(n_smaller, MAX_DENSE_BYTES // max(self.width, 1))
        most_frequent = np.argsort(-counts, kind="stable")[:n_dense]
        dense = np.sort(most_frequent[counts[most_frequent] * list_entry_cost > self.n_rows])
        column_of = np.full(len(counts), -1, np.int32)  # the dense column of each feature, or -1
        column_of[dense] = np.arange(len(dense))
        self.columns = np.zeros((len(dense), self.width), np.int8)
        list_ends = np.append(0, np.cumsum(np.where(column_of < 0, counts, 0)))
        list_rows, list_levels = np.empty(list_ends[-1], np.uint32), np.empty(list_ends[-1], np.int8)
        filled = list_ends[:-1].copy()  # where the next row of each list goes
        blocks.reverse()
        while blocks:  # each is freed as soon as it is copied
            first, (ends, rows, levels) = blocks.pop()
            in_block = np.diff(ends)
            columns = np.repeat(column_of, in_block)
            listed = columns < 0
            self.columns[columns[~listed], first + rows[~listed].astype(np.int64)] = levels[~listed]
            lengths = np.where(column_of < 0, in_block, 0)
            at = np.repeat(filled - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
            list_rows[at], list_levels[at] = rows[listed] + np.uint32(first), levels[listed]
            filled += lengths
        self._arrays = column_of, self.columns.ravel(), list_ends, list_rows, list_levels, self.factors

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
            buffer = np.empty((batch, self.width), np.int16)
            levels = quantise_queries(indptr, queries.indices, queries.data, self.feature_weights, MIN_FEATURE_STRENGTH)
            found = cosines[first:last], neighbours[first:last]
            _search(indptr, queries.indices, levels, *self._arrays, min_features, buffer, *found)

        if self.n_rows:
            by_rows(search_range, m)
        return cosines, neighbours


def _quantised(X: CsrArray, first: int, last: int, feature_weights: FloatArray) -> tuple["_Block", NDArray[np.int16]]:
    """The levels of the rows first to last by feature, and their factors a in fixed-point numbers."""
    start, end = int(X.indptr[first]), int(X.indptr[last])
    offsets, shape = X.indptr[first : last + 1] - X.indptr[first], (last - first, X.shape[1])
    rows = from_arrays(X.data[start:end], X.indices[start:end], offsets, shape)
    rows = normalise_rows(scale_columns(rows, feature_weights))
    levels = np.trunc(rows.data * ROW_NORM)
    row = np.repeat(np.arange(last - first), np.diff(rows.indptr))
    squares = np.bincount(row, levels**2, minlength=last - first)
    factors = np.bincount(row, rows.data * levels, minlength=last - first) / np.maximum(squares, 1)
    fixed_point = np.rint(factors * (ROW_NORM * UNIT_FACTOR)).clip(0, 2 * UNIT_FACTOR - 1).astype(np.int16)
    by_feature = csr_array(csr_array((levels.astype(np.int8), rows.indices, rows.indptr), rows.shape).T)
    return (by_feature.indptr, by_feature.indices.astype(np.uint16), by_feature.data), fixed_point


@compiled()
def _search(  # type: ignore[no-untyped-def]
    indptr, ids, levels, column_of, columns, list_ends, list_rows, list_levels, factors, min_features, buffer,
    cosines, neighbours,
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
                        at_row = base + list_rows[t]
                        scores[at_row] = np.int16(scores[at_row] + q * list_levels[t])
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
