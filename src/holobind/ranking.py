"""The k largest numbers of each row, compiled: one look at each number, of which few ever enter."""

import numba
import numpy as np
from numpy.typing import NDArray

BLOCK = 64  # numbers that are compared with the least of the best so far together


def largest(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
    """The k largest, largest first, among equals the earlier one first; None if a row has a NaN.

    Shapes: (rows, n) -> (rows, k), (rows, k)
    """
    found, where = np.empty((len(scores), k), np.float32), np.empty((len(scores), k), np.int64)
    return (found, where) if _largest(scores.reshape(-1), scores.shape[1], found, where) else None


@numba.njit(nogil=True, cache=True)
def _largest(flat, n, found, where):  # type: ignore[no-untyped-def]
    k = found.shape[1]
    for r in range(len(found)):
        best, which, filled = found[r], where[r], 0
        for first in range(0, n, BLOCK):
            last = min(first + BLOCK, n)
            if filled == k and not _any_above(flat[r * n + first : r * n + last], best[k - 1]):
                continue
            for i in range(first, last):
                s = flat[r * n + i]
                if np.isnan(s):
                    return False
                if filled < k or s > best[k - 1]:
                    c = min(filled, k - 1)
                    while c > 0 and s > best[c - 1]:
                        best[c], which[c] = best[c - 1], which[c - 1]
                        c -= 1
                    best[c], which[c] = s, i
                    filled = min(filled + 1, k)
    return True


@numba.njit(nogil=True, cache=True)
def _any_above(some, bar):  # type: ignore[no-untyped-def]
    """Whether a number is above the bar, or a NaN; all are counted, as that takes vector units."""
    count = np.int32(0)
    for i in range(len(some)):
        count = np.int32(count + (0 if some[i] <= bar else 1))
    return count > 0
