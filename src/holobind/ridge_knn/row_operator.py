"""Products with the normal equations of a ridge regression, whose rows may lie in memory, in a file or on machines.

    S = A'A        A (n, m): rows times the roots of their weights, with a constant feature

Conjugate gradients need S P for blocks P of columns, and nothing else of the data. `RowOperator` goes through the rows
block by block: the arrays of X may be mapped from a file, whose pages are released after each block. Several processes
each go through their share of the rows for the columns of all, and add up the products for their own (`_processes`).
`GramOperator` has S itself, which pays where features are few and rows are many.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, hstack

from holobind._processes import ALONE, Processes
from holobind._threads import task_threads, threaded
from holobind._types import CsrArray, FloatArray, RowIndex
from holobind.data.csr import MAX_BLOCK_ROWS, row_blocks, row_range, take_rows
from holobind.ridge_knn._linalg import BLOCK_COLUMNS, sum_of_grams
from holobind.ridge_knn._row_kernels import add_normal_product, add_squares, add_transposed_product, weighted_product

# Seconds of one processor (benchmarks/bench_out_of_core.py fits them), for the choice between the two operators
SPARSE_SECONDS, GRAM_SECONDS, DENSE_SECONDS = 3e-10, 1e-9, 2e-11
EXPECTED_PRODUCTS = 30  # of each column, over the search for l2 and both solutions


class RowOperator:
    """A and S by the rows of X.

    roots       square roots of the rows' weights, or None; rows with 0 are left out
    constant    value of the constant feature, the last one; 0 for none
    processes   that share the rows

    Shapes: X (n, f), roots (n)
    """

    def __init__(
        self, X: CsrArray, roots: FloatArray | None = None, constant: float = 0.0, processes: Processes = ALONE
    ) -> None:
        self.X, self.constant, self.processes = X, np.float32(constant), processes
        self.roots = np.empty(0, np.float32) if roots is None else roots
        self.n_unknowns = X.shape[1] + bool(constant)
        self.first, self.last = processes.share(X.shape[0])
        self._squares: FloatArray | None = None

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of this process's rows; pages of the block before are released."""
        yield from row_blocks(self.X, self.first, self.last)

    def normal_product(self, P: FloatArray) -> FloatArray:
        """S P, with the rows of all processes for the columns of this one.  Shapes: (m, w) -> (m, w)"""
        return self.processes.exchange(P, self._local_normal_product)

    def squares(self) -> FloatArray:
        """The diagonal of S.  Shapes: -> (m)"""
        if self._squares is None:
            total = np.zeros(self.n_unknowns)
            for first, last in self.blocks():
                add_squares(*self.arrays(first, last), False, total)
            if self.constant:
                roots = self.roots[self.first : self.last].astype(np.float64)
                n = float(roots @ roots) if len(self.roots) else self.last - self.first
                total[-1] = n * float(self.constant) ** 2
            self._squares = self.processes.sum(total).astype(np.float32)
        return self._squares

    def product(self, V: FloatArray) -> FloatArray:
        """A V, of all rows in this process.  Shapes: (m, w) -> (n, w)"""
        out = np.empty((self.X.shape[0], V.shape[1]), V.dtype)
        for first, last in row_blocks(self.X, 0, len(out)):
            weighted_product(*self.arrays(first, last), self.constant, V, out[first:last])
        return out

    def transposed_product(self, V: FloatArray) -> FloatArray:
        """A'V, of all rows in this process.  Shapes: (n, w) -> (m, w)"""
        out = np.zeros((self.n_unknowns, V.shape[1]), V.dtype)
        for first, last in row_blocks(self.X, 0, len(V)):
            self.add_transposed(first, last, V[first:last], out)
        return out

    def add_transposed(self, first: int, last: int, V: FloatArray, out: FloatArray) -> None:
        """out += A'V for the rows first to last.  Shapes: V (last - first, w), out (m, w)"""
        add_transposed_product(*self.arrays(first, last), self.constant, V, out)

    def row_squares(self) -> FloatArray:
        """Squared norms of the rows of A, of all rows in this process.  Shapes: -> (n)"""
        total = np.zeros(self.X.shape[0])
        for first, last in row_blocks(self.X, 0, len(total)):
            add_squares(*self.arrays(first, last), True, total[first:last])
        weights = np.square(self.roots.astype(np.float64)) if len(self.roots) else 1.0
        return np.asarray(total + weights * float(self.constant) ** 2, np.float32)

    def rows(self, rows: RowIndex, weighted: bool = True) -> CsrArray:
        """Some rows of A as a matrix, without their weights if not `weighted`.  Shapes: (k) -> (k, m)"""
        X = take_rows(self.X, rows)
        if self.constant:
            X = csr_array(hstack([X, csr_array(np.full((len(rows), 1), self.constant))]))
        if weighted and len(self.roots):
            X.data *= np.repeat(
                self.roots[rows], np.diff(X.indptr)
            )  # a product with a matrix would not keep ids ascending
        X.has_canonical_format = True
        return X

    def arrays(self, first: int, last: int) -> tuple[Any, ...]:
        """The rows first to last as kernels take them."""
        return *row_range(self.X, first, last), self.roots[first:last]

    def _local_normal_product(self, P: FloatArray) -> FloatArray:
        """S P with the rows of this process, on several threads where it has them."""
        out = np.zeros_like(P)
        width = -(-P.shape[1] // task_threads())
        if width == P.shape[1]:
            self._add_normal_product(P, out)
            return out
        width = min(width, BLOCK_COLUMNS)

        def multiply_block(start: int) -> None:
            block = np.ascontiguousarray(P[:, start : start + width])
            result = np.zeros_like(block)
            self._add_normal_product(block, result)
            out[:, start : start + width] = result

        for _ in threaded(multiply_block, range(0, P.shape[1], width)):
            pass
        return out

    def _add_normal_product(self, P: FloatArray, out: FloatArray) -> None:
        for first, last in self.blocks():
            add_normal_product(*self.arrays(first, last), self.constant, P, out)


class DualOperator:
    """A A' by the rows of X: the system of the dual, whose unknowns are the n rows."""

    def __init__(self, rows: RowOperator) -> None:
        self.rows, self.n_unknowns = rows, rows.X.shape[0]

    def normal_product(self, P: FloatArray) -> FloatArray:
        """A A'P.  Shapes: (n, w) -> (n, w)"""
        return self.rows.product(self.rows.transposed_product(P))

    def squares(self) -> FloatArray:
        return self.rows.row_squares()


class GramOperator:
    """S as a dense matrix, summed over the rows of all processes once."""

    def __init__(self, rows: RowOperator) -> None:
        self.n_unknowns = rows.n_unknowns
        blocks = (rows.rows(np.arange(first, last)) for first, last in rows.blocks())
        self.gram = rows.processes.sum(sum_of_grams(blocks, rows.n_unknowns))

    def normal_product(self, P: FloatArray) -> FloatArray:
        """S P.  Shapes: (m, w) -> (m, w)"""
        return np.asarray(torch.from_numpy(self.gram) @ torch.from_numpy(P))

    def squares(self) -> FloatArray:
        return self.gram.diagonal().copy()


Operator = RowOperator | DualOperator | GramOperator


def costs(rows: RowOperator, columns: int) -> dict[str, float]:
    """Estimated seconds of one processor to solve with each operator: {"rows": ..., "gram": ...}"""
    m, n = rows.n_unknowns, max(rows.X.shape[0], 1)
    entries = float(rows.X.indptr[-1]) + n * bool(rows.constant)
    sample = np.diff(rows.X.indptr[:: max(1, n // MAX_BLOCK_ROWS)]) if n < MAX_BLOCK_ROWS else np.array([entries / n])
    pairs = float(np.square(sample + 1.0).mean()) * n / 2
    products = EXPECTED_PRODUCTS * columns
    return {
        "rows": SPARSE_SECONDS * 2 * entries * products,
        "gram": 3 * min(GRAM_SECONDS * pairs, DENSE_SECONDS * n * m * m) + DENSE_SECONDS * m * m * products,
    }
