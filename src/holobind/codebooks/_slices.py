"""Products of rows with slices of an array, compiled. Importing this module imports numba."""

import numpy as np

from holobind._jit import compiled


@compiled(fastmath={"reassoc", "contract", "nsz"})
def slice_products(v, flat, starts, out):  # type: ignore[no-untyped-def]
    """out[r, j] = <v[r], flat[starts[r, j] : starts[r, j] + d]>.  Shapes: (n, d), (any), (n, m), (n, m)"""
    d = np.uint64(v.shape[1])
    for r in range(len(v)):
        row = v[r]
        for j in range(starts.shape[1]):
            start, total = np.uint64(starts[r, j]), np.float32(0)
            for i in range(d):
                total += row[i] * flat[start + i]
            out[r, j] = total
