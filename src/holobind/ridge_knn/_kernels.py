"""Products of sparse matrices and wide dense ones, and the systems made of them, on all cores.

Work is cut into blocks of columns, each done by one thread from end to end: a block's vectors stay in the cache, and
results do not depend on the number of threads, which is torch's. benchmarks/bench_solve.py compares scipy's and
torch's products.
"""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def add_squares(ptr, index, value, out):  # type: ignore[no-untyped-def]
    """out += the upper half of the sum of x x' over rows x in order: no sparse matrix of it is made first."""
    for r in range(len(ptr) - 1):
        for i in range(ptr[r], ptr[r + 1]):
            row, x = out[index[i]], value[i]
            for j in range(i, ptr[r + 1]):
                row[index[j]] += x * value[j]


@numba.njit(nogil=True, fastmath=True, cache=True)
def gather(ptr, index, value, V, out):  # type: ignore[no-untyped-def]
    """out = A V, four entries of a row at a time, so that `out` is read and written a quarter as often."""
    w = V.shape[1]
    for r in range(len(ptr) - 1):
        for c in range(w):
            out[r, c] = 0
        j, last = ptr[r], ptr[r + 1]
        while j + 4 <= last:
            i0, i1, i2, i3 = index[j], index[j + 1], index[j + 2], index[j + 3]
            v0, v1, v2, v3 = value[j], value[j + 1], value[j + 2], value[j + 3]
            for c in range(w):
                out[r, c] += v0 * V[i0, c] + v1 * V[i1, c] + v2 * V[i2, c] + v3 * V[i3, c]
            j += 4
        while j < last:
            i0, v0 = index[j], value[j]
            for c in range(w):
                out[r, c] += v0 * V[i0, c]
            j += 1


@numba.njit(nogil=True, fastmath=True, cache=True)
def add_rows(ptr, index, value, V, out):  # type: ignore[no-untyped-def]
    """out += A V for V in eight bits, eight entries of a row at a time: what is read of V does not wait for itself."""
    w, flat, f = np.uint64(V.shape[1]), V.reshape(-1), np.float32
    for r in range(len(ptr) - 1):
        row, j, last = out[r], ptr[r], ptr[r + 1]
        while j + 8 <= last:
            a, b = np.uint64(index[j]) * w, np.uint64(index[j + 1]) * w
            c, d = np.uint64(index[j + 2]) * w, np.uint64(index[j + 3]) * w
            e, g = np.uint64(index[j + 4]) * w, np.uint64(index[j + 5]) * w
            h, k = np.uint64(index[j + 6]) * w, np.uint64(index[j + 7]) * w
            s, t, u, v = value[j], value[j + 1], value[j + 2], value[j + 3]
            x, y, z, q = value[j + 4], value[j + 5], value[j + 6], value[j + 7]
            for i in range(w):
                some = s * f(flat[a + i]) + t * f(flat[b + i]) + u * f(flat[c + i]) + v * f(flat[d + i])
                more = x * f(flat[e + i]) + y * f(flat[g + i]) + z * f(flat[h + i]) + q * f(flat[k + i])
                row[i] += some + more
            j += 8
        while j + 2 <= last:
            a, b, s, t = np.uint64(index[j]) * w, np.uint64(index[j + 1]) * w, value[j], value[j + 1]
            for i in range(w):
                row[i] += s * f(flat[a + i]) + t * f(flat[b + i])
            j += 2
        if j < last:
            a, s = np.uint64(index[j]) * w, value[j]
            for i in range(w):
                row[i] += s * f(flat[a + i])


@numba.njit(nogil=True, fastmath=True, cache=True)
def add_alike(index, V, scale, out):  # type: ignore[no-untyped-def]
    """out += scale times sums of as many rows of V, in eight bits, for each row; up to 256, whose sums fit 16 bits."""
    k, w, flat = index.shape[1], np.uint64(V.shape[1]), V.reshape(-1)
    sums = np.empty(w, np.int16)
    for r in range(len(index)):
        row, j = index[r], 0
        sums[:] = 0
        while j + 8 <= k:
            a, b, c, d = np.uint64(row[j]), np.uint64(row[j + 1]), np.uint64(row[j + 2]), np.uint64(row[j + 3])
            e, f, g, h = np.uint64(row[j + 4]), np.uint64(row[j + 5]), np.uint64(row[j + 6]), np.uint64(row[j + 7])
            a, b, c, d, e, f, g, h = a * w, b * w, c * w, d * w, e * w, f * w, g * w, h * w
            for i in range(w):
                some = np.int16(flat[a + i] + flat[b + i] + flat[c + i] + flat[d + i])
                more = np.int16(flat[e + i] + flat[f + i] + flat[g + i] + flat[h + i])
                sums[i] = np.int16(sums[i] + some + more)
            j += 8
        while j < k:
            a = np.uint64(row[j]) * w
            for i in range(w):
                sums[i] = np.int16(sums[i] + flat[a + i])
            j += 1
        for i in range(w):
            out[r, i] += scale * np.float32(sums[i])


@numba.njit(nogil=True, cache=True)
def add_entries(ptr, index, value, out):  # type: ignore[no-untyped-def]
    """out += A."""
    for r in range(len(ptr) - 1):
        for j in range(ptr[r], ptr[r + 1]):
            out[r, index[j]] += value[j]


@numba.njit(nogil=True, cache=True)
def add_slices(ptr, start, value, flat, out):  # type: ignore[no-untyped-def]
    """out += scale_columns sums of slices of a long vector."""
    for r in range(len(ptr) - 1):
        for j in range(ptr[r], ptr[r + 1]):
            s, v = start[j], value[j]
            for c in range(out.shape[1]):
                out[r, c] += v * flat[s + c]


@numba.njit(nogil=True, fastmath=True, cache=True)
def round_rows(V, out, steps):  # type: ignore[no-untyped-def]
    """V in eight bits: the largest number of a row is 127 of its steps."""
    for r in range(len(V)):
        largest = np.float32(0)
        for c in range(V.shape[1]):
            x = abs(V[r, c])
            largest = x if x > largest else largest
        steps[r] = largest / np.float32(127)
        inverse = np.float32(127) / largest if largest > 0 else np.float32(0)
        for c in range(V.shape[1]):
            out[r, c] = np.int8(np.rint(V[r, c] * inverse))


@numba.njit(nogil=True, fastmath=True, cache=True)
def conjugate_gradients(  # type: ignore[no-untyped-def]
    ptr, index, value, ptr_t, index_t, value_t, diagonal, l2, B, W, max_iterations, tolerance
):
    """Solve (A'A + l2) W = B in place from W, each column for itself: (iterations, |residual|^2, |B|^2).

    A column stays as it is once its residual is small enough, so its result does not depend on its neighbours.
    Sums over rows are in float64. Shapes: A (n, m) and A' as CSR, diagonal (m), B and W (m, w)
    """
    m, w = B.shape
    R, P, Q, U = np.empty_like(B), np.empty_like(B), np.empty_like(B), np.empty((len(ptr) - 1, w), B.dtype)
    rho, rho_next, curvature, left, size = np.zeros(w), np.zeros(w), np.zeros(w), np.zeros(w), np.zeros(w)
    step = np.zeros(w, B.dtype)
    if np.any(W):
        gather(ptr, index, value, W, U)
        gather(ptr_t, index_t, value_t, U, Q)
    else:
        Q[:] = 0
    for i in range(m):
        for c in range(w):
            R[i, c] = B[i, c] - Q[i, c] - l2 * W[i, c]
            P[i, c] = R[i, c] / diagonal[i]
            rho[c] += R[i, c] * P[i, c]
            left[c] += R[i, c] * R[i, c]
            size[c] += B[i, c] * B[i, c]
    iterations = 0
    while iterations < max_iterations and np.any(left > tolerance * tolerance * size):
        iterations += 1
        gather(ptr, index, value, P, U)
        gather(ptr_t, index_t, value_t, U, Q)
        curvature[:] = 0
        for i in range(m):
            for c in range(w):
                Q[i, c] += l2 * P[i, c]
                curvature[c] += P[i, c] * Q[i, c]
        for c in range(w):
            going = left[c] > tolerance * tolerance * size[c] and curvature[c] > 0
            step[c] = rho[c] / curvature[c] if going else 0
            rho_next[c] = 0
            left[c] = 0
        for i in range(m):
            for c in range(w):
                W[i, c] += step[c] * P[i, c]
                R[i, c] -= step[c] * Q[i, c]
                left[c] += R[i, c] * R[i, c]
                rho_next[c] += R[i, c] * R[i, c] / diagonal[i]
        for c in range(w):
            step[c] = rho_next[c] / rho[c] if rho[c] > 0 else 0
            rho[c] = rho_next[c]
        for i in range(m):
            for c in range(w):
                P[i, c] = R[i, c] / diagonal[i] + step[c] * P[i, c]
    return iterations, left.sum(), size.sum()
