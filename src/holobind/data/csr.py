"""Sparse matrices in CSR form: the one place that makes them canonical, scales them and cuts rows out of them.

A matrix is canonical if every row has ascending column ids, each once, and no entry that is 0. Column ids and row
offsets are int32 where that suffices, so that compiled kernels need one specialisation; `csr_array` keeps int64.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from holobind._types import CsrArray, FloatArray, IntArray, RowIndex


def from_arrays(data: Any, ids: Any, indptr: Any, shape: tuple[int, int], *, canonical: bool = True) -> CsrArray:
    """Build a matrix from its values, column ids and row offsets.

    canonical   whether the arrays are known to be canonical; that is not checked. With False, scipy finds out itself.
    """
    id_dtype = np.int32 if max(len(ids), *shape) < 2**31 else np.int64
    X: CsrArray = csr_array((data, ids.astype(id_dtype, copy=False), indptr.astype(id_dtype, copy=False)), shape=shape)
    if canonical:
        X.has_sorted_indices = True
        X.has_canonical_format = True
    return X


def from_label_ids(rows: Sequence[Sequence[int]], n_labels: int) -> CsrArray:
    """Build a label matrix of ones from the label ids of each row, in ascending order."""
    indptr = np.cumsum([0, *map(len, rows)])
    ids = np.fromiter((i for row in rows for i in row), np.int32, int(indptr[-1]))
    return from_arrays(np.ones(len(ids), np.int32), ids, indptr, (len(rows), n_labels))


def widen(X: CsrArray, n_columns: int) -> CsrArray:
    """Add empty columns, up to `n_columns` columns."""
    return from_arrays(X.data, X.indices, X.indptr, (X.shape[0], n_columns))


def canonical_csr(X: Any) -> CsrArray:
    """Return the same matrix in canonical form; a copy unless it is canonical already."""
    canonical = csr_array(X)
    if not (canonical.has_canonical_format and canonical.data.all()):
        canonical = canonical.copy()
        canonical.sum_duplicates()
        canonical.eliminate_zeros()
    return canonical


def binary_labels(Y: CsrArray) -> CsrArray:
    """Replace every entry that is not 0 by 1, in float32 and in canonical form."""
    Y = canonical_csr(Y)
    return from_arrays(np.ones(Y.nnz, np.float32), Y.indices, Y.indptr, Y.shape)


def normalise_rows(X: CsrArray) -> CsrArray:
    """Divide each row by its length (L2), in canonical form; a row of zeros stays one."""
    return normalise_rows_unchecked(canonical_csr(X))


def normalise_rows_unchecked(X: CsrArray, square_dtype: DTypeLike = np.float64) -> CsrArray:
    """`normalise_rows` of a matrix in which no row has a column twice.

    square_dtype   in which values are squared; squares of large values do not fit in float32
    """
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    values = X.data.astype(np.float64)
    lengths = np.sqrt(np.bincount(row, X.data.astype(square_dtype) ** 2, minlength=X.shape[0]))
    scaled = (values / np.where(lengths > 0, lengths, 1)[row]).astype(np.float32)
    return from_arrays(scaled, X.indices, X.indptr, X.shape, canonical=bool(X.has_canonical_format))


def idf_weights(X: CsrArray, power: float) -> FloatArray:
    """idf^power of each column, idf = log((1 + n) / (1 + df)) for n rows of which df have it.  Shapes: (n, f) -> (f)"""
    df = np.minimum(np.bincount(X.indices, minlength=X.shape[1]), X.shape[0])  # a row of a file may repeat a column
    return (np.log((1 + X.shape[0]) / (1 + df)) ** power).astype(np.float32)


def scale_columns(X: CsrArray, weights: FloatArray) -> CsrArray:
    """Multiply each column by its weight.  Shapes: (n, f), (f) -> (n, f)"""
    return csr_array((X.data * weights[X.indices], X.indices, X.indptr), X.shape)


def row_entries(indptr: NDArray[Any], rows: RowIndex) -> tuple[IntArray, IntArray]:
    """Positions of the entries of some rows, row by row, and where each row starts in that list.

    Shapes: (n + 1), (m) -> (total), (m)
    """
    if len(rows) and (np.diff(rows) == 1).all():  # the usual case: consecutive rows
        ends = np.asarray(indptr[rows[0] : rows[-1] + 2], np.int64)
        return np.arange(ends[0], ends[-1]), ends[:-1] - ends[0]
    starts = np.asarray(indptr[rows], np.int64)
    counts = np.asarray(indptr[rows + 1], np.int64) - starts
    ends = np.cumsum(counts)
    offsets = ends - counts
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - offsets, counts) + np.arange(total), offsets


def take_rows(X: CsrArray, rows: RowIndex) -> CsrArray:
    """Some rows, in any order; scipy's own slicing would look at all of a matrix that is mapped from a file."""
    at, offsets = row_entries(X.indptr, rows)
    ends = np.append(offsets, len(at))
    return from_arrays(X.data[at], X.indices[at], ends, (len(rows), X.shape[1]), canonical=False)
