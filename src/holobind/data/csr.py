"""Sparse matrices in CSR form: the one place that makes them canonical, scales them and cuts rows out of them.

A matrix is canonical if every row has ascending column ids, each once, and no entry that is 0. Column ids and offsets
have 32 bits where these suffice.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from holobind._types import CsrArray, FloatArray, IntArray, RowIndex


def from_arrays(data: Any, ids: Any, indptr: Any, shape: tuple[int, int]) -> CsrArray:
    """A matrix from arrays that are canonical already; nothing is checked."""
    small = max(len(ids), *shape) < 2**31
    kind = np.int32 if small else np.int64
    built: CsrArray = csr_array((data, ids.astype(kind, copy=False), indptr.astype(kind, copy=False)), shape=shape)
    built.has_sorted_indices = True
    built.has_canonical_format = True
    return built


def from_label_ids(rows: Sequence[Sequence[int]], n_labels: int) -> CsrArray:
    """Label sets, each in ascending order, as a matrix of ones."""
    ends = np.cumsum([0, *map(len, rows)])
    ids = np.fromiter((i for row in rows for i in row), np.int32, int(ends[-1]))
    return from_arrays(np.ones(len(ids), np.int32), ids, ends, (len(rows), n_labels))


def widen(X: CsrArray, columns: int) -> CsrArray:
    """The same rows with more columns."""
    return from_arrays(X.data, X.indices, X.indptr, (X.shape[0], columns))


def canonical_csr(X: Any) -> CsrArray:
    """The same matrix in canonical form; a copy unless it is canonical already."""
    found = csr_array(X)
    if not (found.has_canonical_format and found.data.all()):
        found = found.copy()
        found.sum_duplicates()
        found.eliminate_zeros()
    return found


def binary_labels(Y: CsrArray) -> CsrArray:
    """1 where a label is present, in float32."""
    found = canonical_csr(Y)
    return from_arrays(np.ones(found.nnz, np.float32), found.indices, found.indptr, found.shape)


def normalise_rows(X: CsrArray) -> CsrArray:
    """Divide each row by its length (L2); a row of zeros stays one."""
    found = canonical_csr(X)
    row = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    values = found.data.astype(np.float64)  # squares of large numbers fit
    lengths = np.sqrt(np.bincount(row, values**2, minlength=found.shape[0]))
    scaled = (values / np.where(lengths > 0, lengths, 1)[row]).astype(np.float32)
    return from_arrays(scaled, found.indices, found.indptr, found.shape)


def idf_weights(X: CsrArray, power: float) -> FloatArray:
    """idf^power of each column, idf = log((1 + n) / (1 + df)), for n rows of which df have it.  Shapes: (n, f) -> (f)"""
    df = np.minimum(np.bincount(X.indices, minlength=X.shape[1]), X.shape[0])  # a file may have one twice in a row
    return (np.log((1 + X.shape[0]) / (1 + df)) ** power).astype(np.float32)


def scale_columns(X: CsrArray, weights: FloatArray) -> CsrArray:
    """Multiply each column by its weight.  Shapes: (n, f), (f) -> (n, f)"""
    return csr_array((X.data * weights[X.indices], X.indices, X.indptr), X.shape)


def row_entries(indptr: NDArray[Any], rows: RowIndex) -> tuple[IntArray, IntArray]:
    """Where the entries of some rows are, one row after the other, and where in that list each row starts."""
    if len(rows) and (np.diff(rows) == 1).all():  # rows that stand together, mostly
        ends = np.asarray(indptr[rows[0] : rows[-1] + 2], np.int64)
        return np.arange(ends[0], ends[-1]), ends[:-1] - ends[0]
    starts = np.asarray(indptr[rows], np.int64)
    counts = np.asarray(indptr[rows + 1], np.int64) - starts
    ends = np.cumsum(counts)
    offsets = ends - counts
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - offsets, counts) + np.arange(total), offsets


def label_rows(Y: CsrArray, rows: RowIndex) -> CsrArray:
    """Some rows of a matrix of labels; scipy's own slicing would look at all of one that is mapped from a file."""
    at, offsets = row_entries(Y.indptr, rows)
    ends = np.append(offsets, len(at))
    return csr_array((np.ones(len(at), np.int32), Y.indices[at], ends), shape=(len(rows), Y.shape[1]))
