"""The k largest scores of each row, compiled: in most blocks of a row only the maximum is ever compared."""

import numpy as np

from holobind._jit import compiled
from holobind._types import FloatArray, IntArray

BLOCK_SIZE = 16  # consecutive scores that are first compared by their maximum
_U = np.uint64  # unsigned: compiled code need not handle negative indices


def top_k(scores: FloatArray, k: int) -> tuple[FloatArray, IntArray] | None:
    """The k largest scores of each row and their columns, largest first, ties to the lowest column.

    The result is None if a score is NaN.

    Shapes: (rows, n) -> (rows, k), (rows, k)
    """
    values, columns = np.empty((len(scores), k), np.float32), np.empty((len(scores), k), np.int64)
    return (values, columns) if _top_k(scores.reshape(-1), scores.shape[1], values, columns) else None


@compiled()
def _top_k(flat, n, values, columns):  # type: ignore[no-untyped-def]
    """Fill `values` and `columns`; False if a score is NaN.

    The k largest scores are in the blocks whose maximum is at least the k-th largest maximum; no other block is read
    again.
    """
    k, n_blocks = values.shape[1], -(-n // BLOCK_SIZE)
    maxima, highest, unused = np.empty(n_blocks, np.float32), np.empty(k, np.float32), np.empty(k, np.int64)
    for r in range(len(values)):
        start = _U(r) * _U(n)
        if _any_nan(flat, start, _U(n)):
            return False
        _block_maxima(flat, start, _U(n), maxima)
        filled = 0
        for b in range(n_blocks):
            filled = insert(maxima[b], b, highest, unused, filled)
        bound, filled = highest[k - 1] if filled == k else np.float32(-np.inf), 0
        for b in range(n_blocks):
            if maxima[b] >= bound:
                for i in range(_U(b * BLOCK_SIZE), _U(min((b + 1) * BLOCK_SIZE, n))):
                    if flat[start + i] >= bound:
                        filled = insert(flat[start + i], i, values[r], columns[r], filled)
    return True


@compiled()
def insert(value, position, best, positions, filled):  # type: ignore[no-untyped-def]
    """Insert a value into the `filled` best so far, behind its equals, unless it is too small; the new count."""
    k = len(best)
    if filled == k and value <= best[k - 1]:
        return filled
    p = min(filled, k - 1)
    while p > 0 and value > best[p - 1]:
        best[p], positions[p] = best[p - 1], positions[p - 1]
        p -= 1
    best[p], positions[p] = value, position
    return min(filled + 1, k)


@compiled(fastmath={"nnan", "nsz"})
def _block_maxima(flat, start, n, maxima):  # type: ignore[no-untyped-def]
    """The maximum of each block of a row."""
    size = _U(BLOCK_SIZE)
    for b in range(n // size):
        highest = flat[start + b * size]
        for i in range(size):
            highest = max(highest, flat[start + b * size + i])
        maxima[b] = highest
    if n % size:
        highest = flat[start + n - _U(1)]
        for i in range(n - n % size, n):
            highest = max(highest, flat[start + i])
        maxima[n // size] = highest


@compiled()
def _any_nan(flat, start, n):  # type: ignore[no-untyped-def]
    """Whether a row has a NaN. The loop counts all of them, because without an early exit it is vectorised."""
    count = np.int32(0)
    for i in range(n):
        x = flat[start + i]
        count = np.int32(count + (1 if np.isnan(x) else 0))
    return count > 0
