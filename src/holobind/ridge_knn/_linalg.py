"""Products of sparse matrices and wide dense ones, and the systems made of them, on all cores.

Work is cut into blocks of columns, each done by one thread from end to end: a block's vectors stay in the cache, and
results do not depend on the number of threads, which is torch's. benchmarks/bench_solve.py compares scipy's and
torch's products.
"""

import numpy as np
import torch

from holobind._threads import threaded
from holobind._types import CsrArray, FloatArray
from holobind.ridge_knn._kernels import add_squares, gather

WIDTH = 64  # columns of a block


def product(A: CsrArray, V: FloatArray) -> FloatArray:
    """A V for a CSR matrix, on several threads.  Shapes: (n, m), (m, c) -> (n, c)"""
    out = np.empty((A.shape[0], V.shape[1]), V.dtype)
    width = max(1, min(WIDTH, -(-V.shape[1] // torch.get_num_threads())))

    def block(start: int) -> None:
        part = np.empty((A.shape[0], min(width, V.shape[1] - start)), V.dtype)
        gather(A.indptr, A.indices, A.data, np.ascontiguousarray(V[:, start : start + width]), part)
        out[:, start : start + width] = part

    for _ in threaded(block, range(0, V.shape[1], width)):
        pass
    return out


def gram(A: CsrArray) -> FloatArray:
    """A'A, dense.  Shapes: (n, m) -> (m, m)"""
    n, m = A.shape
    # A multiply-add of a dense product costs a fiftieth or less of one in a sparse product.
    if 50 * float(np.square(np.diff(A.indptr).astype(np.float64)).sum()) < float(n) * m * m:
        if not A.has_canonical_format:
            A = A.copy()
            A.sum_duplicates()  # and in order, for the upper half
        sums = np.zeros((m, m), A.dtype)
        add_squares(A.indptr, A.indices, A.data, sums)
        return sums + np.triu(sums, 1).T
    total = torch.zeros(m, m, dtype=torch.from_numpy(A.data).dtype)
    for top in range(0, n, m):
        part = torch.from_numpy(A[top : top + m].toarray())
        total.addmm_(part.T, part)
    return total.numpy()
