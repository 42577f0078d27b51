"""Sparse matrices in CSR form: the one place that checks them, makes them canonical, scales them and cuts rows out.

Compiled code, scipy's and ours, trusts the arrays of a matrix: an id outside of it reads or writes memory of others. So
every matrix that a caller or a file gives is checked once, by `checked_csr`, before anything else looks at it.

A matrix is canonical if every row has ascending column ids, each once, and no entry that is 0. Column ids and row
offsets are int32 where that suffices, so that compiled kernels need one specialisation; `csr_array` keeps int64.
"""

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, issparse

from holobind._types import CsrArray, FloatArray, IntArray, RowIndex
from holobind.errors import DataError, DTypeError, ShapeError

MAX_FLOAT32 = float(np.finfo(np.float32).max)
COUNTED_ENTRIES, COUNTED_ROWS = 1 << 22, 1 << 17  # at a time
BLOCK_ENTRIES = 1 << 22  # of a mapped matrix, that are read before their pages are released
MAX_BLOCK_ROWS = 1 << 16
PAGES_AROUND_BYTES = max(1 << 16, mmap.PAGESIZE)  # that Linux maps at once
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None  # other systems have none
CHECKED_FORMATS = ("csr", "csc", "bsr", "coo")  # arrays that compiled code converts; the others are checked as CSR


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


def checked_csr(X: Any, name: str, n_columns: int | None = None) -> CsrArray:
    """A caller's matrix as CSR with ascending ids, each once in a row; a copy only where that changes something.

    Every id and offset is compared with the shape, values must be finite in float32, and what a matrix says about
    itself (`has_canonical_format`) is found out again: duplicates are summed also where it denies them.

    name        of the argument, for messages
    n_columns   that it must have, where that is known
    """
    check_ids(X, name)
    if X.dtype.kind not in "biuf":
        raise DTypeError(f"{name}: wants real numbers, got {X.dtype}; convert it with .astype('float32')")
    if n_columns is not None and X.shape[1] != n_columns:
        raise ShapeError(f"{name}: wants {n_columns} columns, got a matrix of shape {X.shape}")
    rows = csr_array(X)  # without the flags of X
    if X.format not in CHECKED_FORMATS:
        check_ids(rows, name)
    nnz = int(rows.indptr[-1])  # arrays may be longer than that
    data = rows.data if len(rows.data) == nnz else rows.data[:nnz]
    ids = rows.indices if len(rows.indices) == nnz else rows.indices[:nnz]
    checked = from_arrays(data, ids, rows.indptr, rows.shape, canonical=False)
    if is_mapped(checked) and ids_ascend(checked):
        checked.has_sorted_indices = checked.has_canonical_format = True
    if not checked.has_canonical_format:
        checked = checked.copy()
        checked.sum_duplicates()
    low, high = min_max(checked.data)
    if nnz and not (low >= -MAX_FLOAT32 and high <= MAX_FLOAT32):  # false also for NaN
        raise DataError(f"{name}: it holds a NaN or a number too large for float32; replace it by a finite number")
    return checked


def check_ids(X: Any, name: str) -> None:
    """Raise a DataError unless all ids and offsets of a sparse matrix, of any format, are within its shape."""
    is_sparse: bool = issparse(X)
    if not is_sparse:
        raise DTypeError(
            f"{name}: wants a scipy sparse matrix, got {type(X).__name__}; convert it with scipy.sparse.csr_array"
        )
    if X.ndim != 2:
        raise ShapeError(f"{name}: wants a matrix of 2 dimensions, got {X.ndim}")
    if X.format in ("csr", "csc", "bsr"):
        n_rows, n_columns = X.shape if X.format != "csc" else X.shape[::-1]
        height, width = X.blocksize if X.format == "bsr" else (1, 1)
        _check_offsets(X.indptr, n_rows // height, min(len(X.indices), len(X.data)), name)
        _check_range(X.indices[: X.indptr[-1]], n_columns // width, name)
    elif X.format == "coo":
        if not len(X.row) == len(X.col) == len(X.data):
            raise DataError(f"{name}: it has {len(X.row)} rows, {len(X.col)} columns and {len(X.data)} values")
        _check_range(X.row, X.shape[0], name, "row")
        _check_range(X.col, X.shape[1], name)


def _check_offsets(indptr: NDArray[Any], n_rows: int, n_entries: int, name: str) -> None:
    """Offsets are compared with their neighbours, not subtracted: the difference of two int64 may not fit."""
    if indptr.dtype.kind not in "iu" or indptr.shape != (n_rows + 1,):
        raise DataError(
            f"{name}: its indptr has {indptr.dtype} of shape {indptr.shape}; {n_rows + 1} offsets are wanted"
        )
    if indptr[0] != 0 or indptr[-1] > n_entries or _falls(indptr):
        raise DataError(
            f"{name}: its indptr must start at 0, never fall, and end at no more than the {n_entries} entries; "
            "build the matrix again"
        )


def _falls(offsets: NDArray[Any]) -> bool:
    """Whether an offset is below the one before it."""
    for first in range(0, len(offsets), BLOCK_ENTRIES):
        block = offsets[first : first + BLOCK_ENTRIES + 1]
        if (block[1:] < block[:-1]).any():
            return True
        release_array(offsets, first, first + BLOCK_ENTRIES)
    return False


def _check_range(ids: NDArray[Any], n: int, name: str, axis: str = "column") -> None:
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise DataError(f"{name}: its {axis} ids are {ids.dtype} of shape {ids.shape}; whole numbers are wanted")
    low, high = min_max(ids)
    if len(ids) and not 0 <= int(low) <= int(high) < n:
        wrong = int(low) if low < 0 else int(high)
        raise DataError(f"{name}: {axis} {wrong} is outside of its {n} {axis}s (0 to {n - 1}); build the matrix again")


def from_label_ids(rows: Sequence[Sequence[int]], n_labels: int) -> CsrArray:
    """Build a label matrix of ones from the label ids of each row, in ascending order."""
    indptr = np.cumsum([0, *map(len, rows)])
    ids = np.fromiter((i for row in rows for i in row), np.int32, int(indptr[-1]))
    return from_arrays(np.ones(len(ids), np.int32), ids, indptr, (len(rows), n_labels))


def label_id_sets(Y: CsrArray) -> list[list[int]]:
    """The label ids of each row: the inverse of `from_label_ids`."""
    ids = Y.indices.tolist()
    return [ids[first:last] for first, last in zip(Y.indptr[:-1].tolist(), Y.indptr[1:].tolist(), strict=True)]


def widen(X: CsrArray, n_columns: int) -> CsrArray:
    """Add empty columns, up to `n_columns` columns."""
    return from_arrays(X.data, X.indices, X.indptr, (X.shape[0], n_columns))


def canonical_csr(X: Any) -> CsrArray:
    """Return the same matrix in canonical form; a copy unless it is canonical already."""
    canonical = csr_array(X)
    if getattr(X, "has_canonical_format", False) and is_mapped(canonical):  # it was checked block by block
        canonical.has_sorted_indices = canonical.has_canonical_format = True
    if not (canonical.has_canonical_format and _has_no_zero(canonical)):
        canonical = canonical.copy()
        canonical.sum_duplicates()
        canonical.eliminate_zeros()
    return canonical


def binary_labels(Y: CsrArray) -> CsrArray:
    """Replace every entry that is not 0 by 1, in float32 and in canonical form; no copy of what is so already."""
    Y = canonical_csr(Y)
    if Y.dtype == np.float32 and min_max(Y.data) == (1, 1):
        return Y
    # The ones of a matrix in a file take no memory: all of them are one value.
    ones = np.broadcast_to(np.float32(1), Y.nnz) if is_mapped(Y) else np.ones(Y.nnz, np.float32)
    return from_arrays(ones, Y.indices, Y.indptr, Y.shape)


def normalise_rows(X: CsrArray) -> CsrArray:
    """Divide each row by its length (L2), in canonical form; a row of zeros stays one."""
    return normalise_rows_unchecked(canonical_csr(X))


def normalise_rows_in_file(X: CsrArray) -> CsrArray:
    """`normalise_rows` of a matrix that is mapped from a file, into another file, which has no name and ends with it.

    Offsets and ids stay where they are.
    """
    X = canonical_csr(X)
    if not X.nnz:
        return normalise_rows_unchecked(X)
    values = scratch_array(X.nnz, np.float32)
    scaled = from_arrays(values, X.indices, X.indptr, X.shape, canonical=True)
    for first, last in row_blocks(X):
        start, end = int(X.indptr[first]), int(X.indptr[last])
        rows = from_arrays(X.data[start:end], X.indices[start:end], X.indptr[first : last + 1] - start,
                           (last - first, X.shape[1]))  # fmt: skip
        values[start:end] = normalise_rows_unchecked(rows).data
        release_pages(scaled, first, last)
    return scaled


def scratch_array(n: int, dtype: DTypeLike) -> NDArray[Any]:
    """An array in a file of the directory for temporary files ($TMPDIR), which is removed with the array."""
    with tempfile.TemporaryFile(prefix="holobind-") as file:
        return np.memmap(file, dtype, "w+", shape=(n,))


def normalise_rows_unchecked(X: CsrArray, square_dtype: DTypeLike = np.float64) -> CsrArray:
    """`normalise_rows` of a matrix in which no row has a column twice, in little memory besides the result.

    square_dtype   in which values are squared; squares of large values do not fit in float32
    """
    scaled = np.empty(X.nnz, np.float32)
    for first, last in row_blocks(X):
        start, end = int(X.indptr[first]), int(X.indptr[last])
        row = np.repeat(np.arange(last - first), np.diff(X.indptr[first : last + 1]))
        values = X.data[start:end]
        lengths = np.sqrt(np.bincount(row, values.astype(square_dtype) ** 2, minlength=last - first))
        scaled[start:end] = values.astype(np.float64) / np.where(lengths > 0, lengths, 1)[row]
    return from_arrays(scaled, X.indices, X.indptr, X.shape, canonical=bool(X.has_canonical_format))


def column_counts(X: CsrArray, rows: RowIndex | None = None) -> IntArray:
    """The number of entries in each column, of some rows or of all, in little memory.  Shapes: (n, f) -> (f)"""
    total = np.zeros(X.shape[1], np.int64)
    if rows is not None:
        for first in range(0, len(rows), COUNTED_ROWS):
            entries, _ = row_entries(X.indptr, rows[first : first + COUNTED_ROWS])
            total += np.bincount(X.indices[entries], minlength=X.shape[1])
        return total
    for first in range(0, len(X.indices), COUNTED_ENTRIES):  # numpy makes int64 of what it counts
        total += np.bincount(X.indices[first : first + COUNTED_ENTRIES], minlength=X.shape[1])
        release_array(X.indices, first, first + COUNTED_ENTRIES)
    return total


def idf_weights(counts: IntArray, n_rows: int, power: float) -> FloatArray:
    """idf^power of columns, idf = log((1 + n) / (1 + df)) for n rows of which df have it.  Shapes: (f) -> (f)"""
    df = np.minimum(counts, n_rows)  # a row of a file may repeat a column
    return (np.log((1 + n_rows) / (1 + df)) ** power).astype(np.float32)


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


def clear_rows(X: CsrArray, rows: NDArray[np.bool_]) -> CsrArray:
    """The same matrix with nothing in the rows where `rows` is True.  Shapes: (n, f), (n) -> (n, f)"""
    counts = np.diff(X.indptr)
    kept = np.repeat(~rows, counts)
    indptr = np.append(0, np.cumsum(np.where(rows, 0, counts)))
    return from_arrays(X.data[kept], X.indices[kept], indptr, X.shape, canonical=False)


def take_rows(X: CsrArray, rows: RowIndex) -> CsrArray:
    """Some rows, in any order; scipy's own slicing would look at all of a matrix that is mapped from a file."""
    at, offsets = row_entries(X.indptr, rows)
    ends = np.append(offsets, len(at))
    return from_arrays(X.data[at], X.indices[at], ends, (len(rows), X.shape[1]), canonical=False)


def row_range(X: CsrArray, first: int, last: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The arrays of the rows first to last as kernels take them: a slice of the offsets, and all ids and values."""
    return X.indptr[first : last + 1], X.indices, X.data


def row_blocks(
    X: CsrArray, first: int = 0, last: int | None = None, max_entries: int | None = None
) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most BLOCK_ENTRIES entries, unless a row has more; pages of each are released after it."""
    last = X.shape[0] if last is None else last
    while first < last:
        wanted = int(X.indptr[first]) + (max_entries or BLOCK_ENTRIES)
        end = int(np.searchsorted(X.indptr[first + 1 : min(last, first + MAX_BLOCK_ROWS) + 1], wanted, "right"))
        end = min(last, first + max(1, end))
        yield first, end
        release_pages(X, first, end)
        first = end


def is_mapped(X: CsrArray) -> bool:
    """Whether the entries of a matrix are mapped from a file."""
    return _mapping(X.indices) is not None or _mapping(X.data) is not None


def release_pages(X: CsrArray, first: int, last: int) -> None:
    """Let the system take back the memory of the rows first to last, where they are mapped from a file."""
    start, end = int(X.indptr[first]), int(X.indptr[last])
    for array in (X.indices, X.data):
        release_array(array, start, end)
    release_array(X.indptr, first, last)


def min_max(array: NDArray[Any]) -> tuple[Any, Any]:
    """The smallest and the largest value, NaN if there is one, 0 and 0 of nothing; in blocks if it is mapped."""
    if _mapping(array) is None:
        return (array.min(), array.max()) if len(array) else (0, 0)
    low, high = array[0], array[0]
    for first in range(0, len(array), BLOCK_ENTRIES):
        block = array[first : first + BLOCK_ENTRIES]
        low, high = np.minimum(low, block.min()), np.maximum(high, block.max())
        release_array(array, first, first + len(block))
    return low, high


def ids_ascend(X: CsrArray) -> bool:
    """Whether the ids of every row ascend, each once; in blocks, for the matrix may be mapped from a file."""
    return all(_ascend(X, *block) for block in row_blocks(X))


def _ascend(X: CsrArray, first: int, last: int) -> bool:
    """Whether the ids of each of the rows first to last ascend, each once."""
    start, end = int(X.indptr[first]), int(X.indptr[last])
    falls = 1 + np.flatnonzero(X.indices[start + 1 : end] <= X.indices[start : end - 1])
    starts = np.asarray(X.indptr[first:last], np.int64) - start
    return bool(np.isin(falls, starts).all())


def _has_no_zero(X: CsrArray) -> bool:
    if not is_mapped(X):
        return bool(X.data.all())
    return all(bool(X.data[X.indptr[first] : X.indptr[last]].all()) for first, last in row_blocks(X))


def _mapping(array: Any) -> Any:
    """The mapping of a file that an array is a view of; None if it is in memory."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array


def free_memory(X: CsrArray) -> None:
    """Give the pages of a mapped matrix, and memory that was freed, back to the system; nothing if it is in memory.

    glibc keeps freed memory for later, about 0.2 GB in a fit of a million rows.
    """
    if not is_mapped(X):
        return
    release_pages(X, 0, X.shape[0])
    if _TRIM is not None:
        _TRIM(0)


def release_array(array: NDArray[Any], start: int, end: int) -> None:
    """Let the system take back the memory of some elements, where they are mapped from a file."""
    end = min(end, len(array))
    mapping = _mapping(array)
    if mapping is None or not hasattr(mmap, "MADV_DONTNEED"):  # Windows has no madvise
        return
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    if end <= start:
        return
    low, high = (array.ctypes.data - address + array.itemsize * at for at in (start, end))
    # A page that is read brings the pages around it: they are released as well, and read again if they are needed.
    low = max(0, low // PAGES_AROUND_BYTES - 1) * PAGES_AROUND_BYTES
    mapping.madvise(mmap.MADV_DONTNEED, low, min(high + PAGES_AROUND_BYTES, len(mapping)) - low)
