"""Products of a sparse and a dense matrix, and Gram matrices, on several threads.

Products are computed in blocks of columns, each on one thread, so that a block stays in the cache. The result does not
depend on the number of threads. benchmarks/bench_ridge.py compares with scipy's and torch's products.
"""

from collections.abc import Iterable

import numpy as np
import torch

from holobind._threads import task_threads, threaded
from holobind._types import CsrArray, FloatArray
from holobind.ridge_knn._kernels import add_gram, sparse_dense_product

BLOCK_COLUMNS = 64  # of a dense matrix, at most


def product(A: CsrArray, V: FloatArray) -> FloatArray:
    """A V for a sparse A and a dense V.  Shapes: (n, m), (m, c) -> (n, c)"""
    out = np.empty((A.shape[0], V.shape[1]), V.dtype)
    width = max(1, min(BLOCK_COLUMNS, -(-V.shape[1] // task_threads())))

    def multiply_block(start: int) -> None:
        block = np.empty((A.shape[0], min(width, V.shape[1] - start)), V.dtype)
        sparse_dense_product(A.indptr, A.indices, A.data, np.ascontiguousarray(V[:, start : start + width]), block)
        out[:, start : start + width] = block

    for _ in threaded(multiply_block, range(0, V.shape[1], width)):
        pass
    return out


def gram(A: CsrArray) -> FloatArray:
    """A'A as a dense matrix.  Shapes: (n, m) -> (m, m)"""
    return sum_of_grams([A], A.shape[1])


def sum_of_grams(blocks: Iterable[CsrArray], m: int) -> FloatArray:
    """The sum of A'A over blocks A of rows, as a dense matrix.  Shapes: (n, m) -> (m, m)"""
    total, is_upper = np.zeros((m, m), np.float32), False
    for A in blocks:
        total = total.astype(A.dtype, copy=False)
        # A multiply-add of a dense product takes at most a fiftieth of the time of one in a sparse product.
        if 50 * float(np.square(np.diff(A.indptr).astype(np.float64)).sum()) < float(A.shape[0]) * m * m:
            if not A.has_canonical_format:
                A = A.copy()  # noqa: PLW2901
                A.sum_duplicates()  # sorts columns, too: the kernel fills the upper triangle
            add_gram(A.indptr, A.indices, A.data, total)
            is_upper = True
        else:
            for top in range(0, A.shape[0], m):
                rows = torch.from_numpy(A[top : top + m].toarray())
                torch.from_numpy(total).addmm_(rows.T, rows)
    if is_upper:  # below the diagonal are sums of dense blocks alone, or nothing
        for i in range(m):
            total[i + 1 :, i] = total[i, i + 1 :]
    return total
