"""Compiled products with weighted rows, each for one thread: neither the transpose nor a weighted copy is stored.

The rows of A are x_r times roots[r], followed by a constant feature roots[r] * constant in the last column, unless
`constant` is 0. `roots` may be empty: then all are 1. Rows whose root is 0 are skipped. A CSR matrix is passed as in
`_kernels`; `indptr` and `roots` may be slices, which select rows.
"""

import numpy as np

from holobind._jit import compiled


@compiled(fastmath=True)
def add_normal_product(indptr, ids, values, roots, constant, P, out):  # type: ignore[no-untyped-def]
    """out += A'(A P), a row of A after the other.  Shapes: P, out (m, w)"""
    w, last_row = P.shape[1], P.shape[0] - 1
    u, total = np.empty(w, P.dtype), np.zeros(w)
    for r in range(len(indptr) - 1):
        weight = roots[r] * roots[r] if len(roots) else np.float32(1)
        if weight == 0:
            continue
        j, last = indptr[r], indptr[r + 1]
        for c in range(w):
            u[c] = constant * P[last_row, c] if constant != 0 else np.float32(0)
        while j + 4 <= last:
            i0, i1, i2, i3 = ids[j], ids[j + 1], ids[j + 2], ids[j + 3]
            v0, v1, v2, v3 = values[j], values[j + 1], values[j + 2], values[j + 3]
            for c in range(w):
                u[c] += v0 * P[i0, c] + v1 * P[i1, c] + v2 * P[i2, c] + v3 * P[i3, c]
            j += 4
        while j < last:
            i0, v0 = ids[j], values[j]
            for c in range(w):
                u[c] += v0 * P[i0, c]
            j += 1
        for c in range(w):
            u[c] *= weight
            total[c] += u[c]
        for j in range(indptr[r], last):
            i0, v0 = ids[j], values[j]
            for c in range(w):
                out[i0, c] += v0 * u[c]
    if constant != 0:
        for c in range(w):
            out[last_row, c] += constant * total[c]


@compiled(fastmath=True)
def weighted_product(indptr, ids, values, roots, constant, V, out):  # type: ignore[no-untyped-def]
    """out = A V.  Shapes: V (m, w), out (n, w)"""
    w, last_row = V.shape[1], V.shape[0] - 1
    for r in range(len(indptr) - 1):
        root = roots[r] if len(roots) else np.float32(1)
        for c in range(w):
            out[r, c] = constant * V[last_row, c] if constant != 0 else np.float32(0)
        if root != 0:
            j, last = indptr[r], indptr[r + 1]
            while j + 4 <= last:
                i0, i1, i2, i3 = ids[j], ids[j + 1], ids[j + 2], ids[j + 3]
                v0, v1, v2, v3 = values[j], values[j + 1], values[j + 2], values[j + 3]
                for c in range(w):
                    out[r, c] += v0 * V[i0, c] + v1 * V[i1, c] + v2 * V[i2, c] + v3 * V[i3, c]
                j += 4
            while j < last:
                i0, v0 = ids[j], values[j]
                for c in range(w):
                    out[r, c] += v0 * V[i0, c]
                j += 1
        for c in range(w):
            out[r, c] *= root


@compiled(fastmath=True)
def add_transposed_product(indptr, ids, values, roots, constant, V, out):  # type: ignore[no-untyped-def]
    """out += A'V.  Shapes: V (n, w), out (m, w)"""
    w, last_row = V.shape[1], out.shape[0] - 1
    u, total = np.empty(w, V.dtype), np.zeros(w)
    for r in range(len(indptr) - 1):
        root = roots[r] if len(roots) else np.float32(1)
        if root == 0:
            continue
        for c in range(w):
            u[c] = root * V[r, c]
            total[c] += u[c]
        for j in range(indptr[r], indptr[r + 1]):
            i0, v0 = ids[j], values[j]
            for c in range(w):
                out[i0, c] += v0 * u[c]
    if constant != 0:
        for c in range(w):
            out[last_row, c] += constant * total[c]


@compiled()
def add_squares(indptr, ids, values, roots, by_row, out):  # type: ignore[no-untyped-def]
    """Squares of the entries of A without its constant feature: out[column] += them, or out[row] += with `by_row`."""
    for r in range(len(indptr) - 1):
        weight = roots[r] * roots[r] if len(roots) else np.float32(1)
        for j in range(indptr[r], indptr[r + 1]):
            square = np.float64(values[j]) * np.float64(values[j]) * weight
            if by_row:
                out[r] += square
            else:
                out[ids[j]] += square


@compiled(fastmath=True)
def start_gradients(B, Q, W, diagonal, l2, R, P, rho, residual_sq, target_sq):  # type: ignore[no-untyped-def]
    """R = B - Q - l2 W, P = R / diagonal, and for each column rho = R.P, |R|^2 and |B|^2, in float64.

    Shapes: B, Q, W, R, P (m, w), diagonal (m), rho, residual_sq, target_sq (w)
    """
    m, w = B.shape
    for i in range(m):
        for c in range(w):
            R[i, c] = B[i, c] - Q[i, c] - l2 * W[i, c]
            P[i, c] = R[i, c] / diagonal[i]
            rho[c] += R[i, c] * P[i, c]
            residual_sq[c] += R[i, c] * R[i, c]
            target_sq[c] += B[i, c] * B[i, c]


@compiled(fastmath=True)
def step_gradients(Q, W, R, P, diagonal, l2, tolerance, rho, residual_sq, target_sq):  # type: ignore[no-untyped-def]
    """One step of conjugate gradients for each column, given Q = S P for the system (S + l2) W = B.

    A column no longer changes once its residual is small enough, so that its result does not depend on the others.

    Shapes: as `start_gradients`
    """
    m, w = Q.shape
    curvature, rho_next, step = np.zeros(w), np.zeros(w), np.zeros(w, Q.dtype)
    for i in range(m):
        for c in range(w):
            Q[i, c] += l2 * P[i, c]
            curvature[c] += P[i, c] * Q[i, c]
    for c in range(w):
        active = residual_sq[c] > tolerance * tolerance * target_sq[c] and curvature[c] > 0
        step[c] = rho[c] / curvature[c] if active else 0
        residual_sq[c] = 0
    for i in range(m):
        for c in range(w):
            W[i, c] += step[c] * P[i, c]
            R[i, c] -= step[c] * Q[i, c]
            residual_sq[c] += R[i, c] * R[i, c]
            rho_next[c] += R[i, c] * R[i, c] / diagonal[i]
    for c in range(w):
        step[c] = rho_next[c] / rho[c] if rho[c] > 0 else 0
        rho[c] = rho_next[c]
    for i in range(m):
        for c in range(w):
            P[i, c] = R[i, c] / diagonal[i] + step[c] * P[i, c]
