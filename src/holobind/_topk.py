"""The k largest numbers of each row, compiled: most blocks of a row are looked at once, for their largest number."""

import numba
import numpy as np
from numpy.typing import NDArray

BLOCK = 16  # numbers of which the largest is found first
_U = np.uint64  # unsigned: compiled code need not look for negative indices


def largest(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
    """The k largest, largest first, among equals the earlier one first; None if a row has a NaN.

    Shapes: (rows, n) -> (rows, k), (rows, k)
    """
    found, where = np.empty((len(scores), k), np.float32), np.empty((len(scores), k), np.int64)
    return (found, where) if _largest(scores.reshape(-1), scores.shape[1], found, where) else None


@numba.njit(nogil=True, cache=True)
def _largest(flat, n, found, where):  # type: ignore[no-untyped-def]
    """Blocks whose maxima reach the k-th largest of all maxima hold the k largest numbers; no other is looked at."""
    k, blocks = found.shape[1], -(-n // BLOCK)
    maxima, highest, nothing = np.empty(blocks, np.float32), np.empty(k, np.float32), np.empty(k, np.int64)
    for r in range(len(found)):
        start = _U(r) * _U(n)
        if _any_nan(flat, start, _U(n)):
            return False
        _maxima(flat, start, _U(n), maxima)
        filled = 0
        for b in range(blocks):
            filled = insert(maxima[b], b, highest, nothing, filled)
        bar, filled = highest[k - 1] if filled == k else np.float32(-np.inf), 0
        for b in range(blocks):
            if maxima[b] >= bar:
                for i in range(_U(b * BLOCK), _U(min((b + 1) * BLOCK, n))):
                    if flat[start + i] >= bar:
                        filled = insert(flat[start + i], i, found[r], where[r], filled)
    return True


@numba.njit(nogil=True, cache=True)
def insert(x, at, best, which, filled):  # type: ignore[no-untyped-def]
    """Put a number among the best so far, behind its equals, unless it is too small: how many there are then."""
    k = len(best)
    if filled == k and x <= best[k - 1]:
        return filled
    p = min(filled, k - 1)
    while p > 0 and x > best[p - 1]:
        best[p], which[p] = best[p - 1], which[p - 1]
        p -= 1
    best[p], which[p] = x, at
    return min(filled + 1, k)


@numba.njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _maxima(flat, start, n, maxima):  # type: ignore[no-untyped-def]
    """The largest number of each block."""
    size = _U(BLOCK)
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


@numba.njit(nogil=True, cache=True)
def _any_nan(flat, start, n):  # type: ignore[no-untyped-def]
    """All are counted, as that takes vector units."""
    count = np.int32(0)
    for i in range(n):
        x = flat[start + i]
        count = np.int32(count + (1 if np.isnan(x) else 0))
    return count > 0
