"""Compiled kernels on the arrays of CSR matrices, each for one thread; callers cut the work into blocks.

A CSR matrix A is passed as (indptr, ids, values): row r has values[j] in column ids[j], indptr[r] <= j < indptr[r + 1].
`indptr` may be a slice of a matrix's offsets, which selects rows. Kernels add to `out`, except where
their docstring has `out =`.
"""

import numpy as np

from holobind._jit import compiled

QUERY_NORM = 250  # norm of a row of integers that `quantise_queries` makes; see `knn_index`


@compiled()
def add_gram(indptr, ids, values, out):  # type: ignore[no-untyped-def]
    """out += the upper triangle of A'A, of rows with ascending ids, without a sparse product in between."""
    for r in range(len(indptr) - 1):
        for i in range(indptr[r], indptr[r + 1]):
            row, x = out[ids[i]], values[i]
            for j in range(i, indptr[r + 1]):
                row[ids[j]] += x * values[j]


@compiled(fastmath=True)
def sparse_dense_product(indptr, ids, values, V, out):  # type: ignore[no-untyped-def]
    """out = A V. Four entries of a row are added at a time, so that `out` is read and written a quarter as often."""
    w = V.shape[1]
    for r in range(len(indptr) - 1):
        for c in range(w):
            out[r, c] = 0
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


@compiled(fastmath=True)
def add_int8_product(indptr, ids, values, V, out):  # type: ignore[no-untyped-def]
    """out += A V for an int8 V. Eight entries of a row are added at a time: reads of V do not wait for each other."""
    w, flat, f = np.uint64(V.shape[1]), V.reshape(-1), np.float32
    for r in range(len(indptr) - 1):
        row, j, last = out[r], indptr[r], indptr[r + 1]
        while j + 8 <= last:
            a, b = np.uint64(ids[j]) * w, np.uint64(ids[j + 1]) * w
            c, d = np.uint64(ids[j + 2]) * w, np.uint64(ids[j + 3]) * w
            e, g = np.uint64(ids[j + 4]) * w, np.uint64(ids[j + 5]) * w
            h, k = np.uint64(ids[j + 6]) * w, np.uint64(ids[j + 7]) * w
            s, t, u, v = values[j], values[j + 1], values[j + 2], values[j + 3]
            x, y, z, q = values[j + 4], values[j + 5], values[j + 6], values[j + 7]
            for i in range(w):
                low = s * f(flat[a + i]) + t * f(flat[b + i]) + u * f(flat[c + i]) + v * f(flat[d + i])
                high = x * f(flat[e + i]) + y * f(flat[g + i]) + z * f(flat[h + i]) + q * f(flat[k + i])
                row[i] += low + high
            j += 8
        while j + 2 <= last:
            a, b, s, t = np.uint64(ids[j]) * w, np.uint64(ids[j + 1]) * w, values[j], values[j + 1]
            for i in range(w):
                row[i] += s * f(flat[a + i]) + t * f(flat[b + i])
            j += 2
        if j < last:
            a, s = np.uint64(ids[j]) * w, values[j]
            for i in range(w):
                row[i] += s * f(flat[a + i])


@compiled(fastmath=True)
def add_int8_row_sums(ids, V, scale, out):  # type: ignore[no-untyped-def]
    """out[r] += scale sum_j V[ids[r, j]] for an int8 V, summed in int16: `ids` has at most 256 columns.

    Shapes: (n, k), (m, d), (), (n, d)
    """
    k, w, flat = ids.shape[1], np.uint64(V.shape[1]), V.reshape(-1)
    sums = np.empty(w, np.int16)
    for r in range(len(ids)):
        row, j = ids[r], 0
        sums[:] = 0
        while j + 8 <= k:
            a, b, c, d = np.uint64(row[j]), np.uint64(row[j + 1]), np.uint64(row[j + 2]), np.uint64(row[j + 3])
            e, f, g, h = np.uint64(row[j + 4]), np.uint64(row[j + 5]), np.uint64(row[j + 6]), np.uint64(row[j + 7])
            a, b, c, d, e, f, g, h = a * w, b * w, c * w, d * w, e * w, f * w, g * w, h * w
            for i in range(w):
                low = np.int16(flat[a + i] + flat[b + i] + flat[c + i] + flat[d + i])
                high = np.int16(flat[e + i] + flat[f + i] + flat[g + i] + flat[h + i])
                sums[i] = np.int16(sums[i] + low + high)
            j += 8
        while j < k:
            a = np.uint64(row[j]) * w
            for i in range(w):
                sums[i] = np.int16(sums[i] + flat[a + i])
            j += 1
        for i in range(w):
            out[r, i] += scale * np.float32(sums[i])


@compiled()
def add_sparse(indptr, ids, values, out):  # type: ignore[no-untyped-def]
    """out += A."""
    for r in range(len(indptr) - 1):
        for j in range(indptr[r], indptr[r + 1]):
            out[r, ids[j]] += values[j]


@compiled()
def add_slices(indptr, starts, values, flat, out):  # type: ignore[no-untyped-def]
    """out[r] += sum_j values[j] flat[starts[j] : starts[j] + d] over the entries j of row r.  Shapes: out (n, d)"""
    for r in range(len(indptr) - 1):
        for j in range(indptr[r], indptr[r + 1]):
            s, v = starts[j], values[j]
            for c in range(out.shape[1]):
                out[r, c] += v * flat[s + c]


@compiled(fastmath=True)
def quantise_rows(V, levels, scales):  # type: ignore[no-untyped-def]
    """V[r] = scales[r] levels[r] with int8 levels; the largest absolute level of a row is 127.

    Shapes: (n, d), (n, d), (n)
    """
    for r in range(len(V)):
        largest = np.float32(0)
        for c in range(V.shape[1]):
            x = abs(V[r, c])
            largest = x if x > largest else largest
        scales[r] = largest / np.float32(127)
        inverse = np.float32(127) / largest if largest > 0 else np.float32(0)
        for c in range(V.shape[1]):
            levels[r, c] = np.int8(np.rint(V[r, c] * inverse))


@compiled()
def quantise_queries(indptr, ids, values, weights, min_strength):  # type: ignore[no-untyped-def]
    """Multiply rows by feature weights, scale them to norm QUERY_NORM and round towards 0: the new values, in int16.

    min_strength   an entry x of weight w becomes 0 if |x| w^2 is below this fraction of the row's largest |x| w^2: w is
                   squared because the rows that a query is multiplied with have the weights, too
    """
    levels = np.zeros(indptr[-1] - indptr[0], np.int16)
    for r in range(len(indptr) - 1):
        squared_norm, strongest = 0.0, 0.0
        for j in range(indptr[r], indptr[r + 1]):
            w = np.float64(weights[ids[j]])
            squared_norm += (values[j] * w) ** 2
            strongest = max(strongest, abs(values[j]) * w * w)
        if squared_norm > 0:
            scale = QUERY_NORM / np.sqrt(squared_norm)
            for j in range(indptr[r], indptr[r + 1]):
                w = np.float64(weights[ids[j]])
                if abs(values[j]) * w * w >= min_strength * strongest:
                    levels[j - indptr[0]] = np.int16(values[j] * w * scale)
    return levels


@compiled()
def add_columns(sums, start, size, columns, offsets, factors, n_columns):  # type: ignore[no-untyped-def]
    """sums[start + i] += sum_u factors[u] columns[offsets[u] + i] for i < size and u < n_columns, in int16.

    Several columns are added at a time, so that sums are read and written less often.
    """
    u = 0
    while u + 8 <= n_columns:
        a0, a1, a2, a3 = offsets[u], offsets[u + 1], offsets[u + 2], offsets[u + 3]
        a4, a5, a6, a7 = offsets[u + 4], offsets[u + 5], offsets[u + 6], offsets[u + 7]
        q0, q1, q2, q3 = factors[u], factors[u + 1], factors[u + 2], factors[u + 3]
        q4, q5, q6, q7 = factors[u + 4], factors[u + 5], factors[u + 6], factors[u + 7]
        for i in range(size):
            low = q0 * columns[a0 + i] + q1 * columns[a1 + i] + q2 * columns[a2 + i] + q3 * columns[a3 + i]
            high = q4 * columns[a4 + i] + q5 * columns[a5 + i] + q6 * columns[a6 + i] + q7 * columns[a7 + i]
            sums[start + i] = np.int16(sums[start + i] + low + high)
        u += 8
    while u + 4 <= n_columns:
        a0, a1, a2, a3 = offsets[u], offsets[u + 1], offsets[u + 2], offsets[u + 3]
        q0, q1, q2, q3 = factors[u], factors[u + 1], factors[u + 2], factors[u + 3]
        for i in range(size):
            low = q0 * columns[a0 + i] + q1 * columns[a1 + i] + q2 * columns[a2 + i] + q3 * columns[a3 + i]
            sums[start + i] = np.int16(sums[start + i] + low)
        u += 4
    while u < n_columns:
        a0, q0 = offsets[u], factors[u]
        for i in range(size):
            sums[start + i] = np.int16(sums[start + i] + q0 * columns[a0 + i])
        u += 1
