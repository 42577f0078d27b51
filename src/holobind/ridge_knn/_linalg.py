"""Products of a sparse and a dense matrix, and Gram matrices, on several threads.

Products are computed in blocks of columns, each on one thread, so that a block stays in the cache. The result does not
depend on the number of threads. benchmarks/bench_ridge.py compares with scipy's and torch's products.
"""

import numpy as np
import torch

from holobind._threads import threaded
from holobind._types import CsrArray, FloatArray
from holobind.ridge_knn._kernels import add_gram, sparse_dense_product

BLOCK_COLUMNS = 64  # of a dense matrix, at most


def product(A: CsrArray, V: FloatArray) -> FloatArray:
    """A V for a sparse A and a dense V.  Shapes: (n, m), (m, c) -> (n, c)"""
    out = np.empty((A.shape[0], V.shape[1]), V.dtype)
    width = max(1, min(BLOCK_COLUMNS, -(-V.shape[1] // torch.get_num_threads())))

    def multiply_block(start: int) -> None:
        block = np.empty((A.shape[0], min(width, V.shape[1] - start)), V.dtype)
        sparse_dense_product(A.indptr, A.indices, A.data, np.ascontiguousarray(V[:, start : start + width]), block)
        out[:, start : start + width] = block

    for _ in threaded(multiply_block, range(0, V.shape[1], width)):
        pass
    return out


def gram(A: CsrArray) -> FloatArray:
    """A'A as a dense matrix.  Shapes: (n, m) -> (m, m)"""
    n, m = A.shape
    # A multiply-add of a dense product takes at most a fiftieth of the time of one in a sparse product.
    if 50 * float(np.square(np.diff(A.indptr).astype(np.float64)).sum()) < float(n) * m * m:
        if not A.has_canonical_format:
            A = A.copy()
            A.sum_duplicates()  # sorts columns, too: the kernel fills the upper triangle
        upper = np.zeros((m, m), A.dtype)
        add_gram(A.indptr, A.indices, A.data, upper)
        return upper + np.triu(upper, 1).T
    total = torch.zeros(m, m, dtype=torch.from_numpy(A.data).dtype)
    for top in range(0, n, m):
        rows = torch.from_numpy(A[top : top + m].toarray())
        total.addmm_(rows.T, rows)
    return total.numpy()
