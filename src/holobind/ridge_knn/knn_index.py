"""Which rows are nearest to others, by cosines in eight bits, on all cores.

A row x of length 1 is rounded towards 0 to whole numbers r = [127 x], and keeps the factor a for which a r is nearest
to x; a question is rounded to [250 x]. Sums of products then fit 16 bits, by Cauchy and Schwarz: processors add sixteen
such numbers at once, and in whatever order, the sum is the same. Features of a question that can add little to it are
left out, which changes which rows are found here and there, and not how useful they are (experiments/LOG.md).
"""

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holobind._threads import by_rows
from holobind._topk import insert
from holobind._types import CsrArray, FloatArray
from holobind.data.csr import canonical_csr, normalise_rows, scale_columns

COLUMNS = 1 << 26  # numbers in the dense columns
ROW, QUESTION = 127, 250  # lengths of what is rounded: together below 2^15
ONE = 1 << 14  # a factor of 1 / ROW
GROUPS = 32  # products of which only the largest is looked at first
TILE = 8192  # rows whose products with some questions are made in turn, so that columns of features stay in the cache
WEAK = 0.2  # of what the strongest feature of a question may add to a sum: weaker ones are not asked for
ROOM = 1 << 20  # products that are made in turn, unless there are more rows
_U = np.uint64  # unsigned: compiled code need not look for negative indices


class KnnIndex:
    """The rows nearest to others, features counting by their weights.

    Products go through the lists of rows that have a feature. An entry of a list is added where it belongs, which takes
    as long as `dense` numbers of a column that has all rows: features of more than that share are kept as columns.
    """

    def __init__(self, X: CsrArray, weight: FloatArray, dense: float = 64) -> None:
        rows = normalise_rows(scale_columns(X, weight))
        self.n, self.weight = rows.shape[0], weight
        self.width = -(-self.n // (16 * GROUPS)) * 16 * GROUPS  # rows of zeros follow the last one
        whole = np.trunc(rows.data * ROW)
        row = np.repeat(np.arange(self.n), np.diff(rows.indptr))
        squares = np.bincount(row, whole**2, minlength=self.width)
        nearest = np.bincount(row, rows.data * whole, minlength=self.width) / np.maximum(squares, 1)
        self.factor = np.rint(nearest * (ROW * ONE)).clip(0, 2 * ONE - 1).astype(np.int16)
        back = sparse.csr_array(sparse.csr_array((whole.astype(np.int8), rows.indices, rows.indptr), rows.shape).T)
        having = np.diff(back.indptr)
        most = np.argsort(-having, kind="stable")[: COLUMNS // max(self.width, 1)]
        frequent = np.sort(most[having[most] * dense > self.n])
        column = np.full(len(having), -1, np.int32)  # of a feature
        column[frequent] = np.arange(len(frequent))
        listed = np.where(column < 0, having, 0)
        kept = np.repeat(listed > 0, having)
        self.columns = np.zeros((len(frequent), self.width), np.int8)
        self.columns[:, : self.n] = back[frequent].toarray()
        lists = back.indices[kept].astype(np.uint32)
        self.features = column, self.columns.ravel(), np.append(0, np.cumsum(listed)), lists, back.data[kept]

    def __call__(self, X: CsrArray, k: int, fewest: int = 0) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """The k largest positive cosines of each row, times a number, largest first, and with which rows.

        Among equals the earlier row comes first. Where fewer than k are positive, 0 and row 0 fill up; so for rows of
        fewer features than `fewest`, which are not looked at.
        Shapes: (m, f) -> (m, k), (m, k)
        """
        rows = canonical_csr(X)
        m = rows.shape[0]
        similar, ids = np.zeros((m, k), np.int16), np.zeros((m, k), np.int64)

        def work(first: int, last: int) -> None:
            ends = rows.indptr[first : last + 1]
            room = np.empty((min(last - first, max(1, min(16, ROOM // self.width))), self.width), np.int16)
            asked = rounded(ends, rows.indices, rows.data, self.weight, WEAK)
            found = similar[first:last], ids[first:last]
            _nearest(ends, rows.indices, asked, *self.features, self.factor, fewest, room, *found)

        if self.n:
            by_rows(work, m)
        return similar, ids


@numba.njit(nogil=True, cache=True)
def rounded(ptr, index, value, weight, weak):  # type: ignore[no-untyped-def]
    """Rows times weights, at length QUESTION, rounded towards 0: all entries one after the other.

    weak   share of the largest |x| w^2 in a row, below which an entry is 0: rows have the weights, too
    """
    asked = np.zeros(ptr[-1] - ptr[0], np.int16)
    for r in range(len(ptr) - 1):
        total, strongest = 0.0, 0.0
        for j in range(ptr[r], ptr[r + 1]):
            w = np.float64(weight[index[j]])
            total += (value[j] * w) ** 2
            strongest = max(strongest, abs(value[j]) * w * w)
        if total > 0:
            scale = QUESTION / np.sqrt(total)
            for j in range(ptr[r], ptr[r + 1]):
                w = np.float64(weight[index[j]])
                if abs(value[j]) * w * w >= weak * strongest:
                    asked[j - ptr[0]] = np.int16(value[j] * w * scale)
    return asked


@numba.njit(nogil=True, cache=True)
def _nearest(ptr, index, asked, column, columns, ends, lists, entries, factor, fewest, room, similar, ids):  # type: ignore[no-untyped-def]
    """Products of a few questions with all rows, through lists and columns; then the best k of each."""
    n, start = len(factor), ptr[0]
    width, flat = _U(n), room.reshape(-1)
    maxima, groups = np.empty(n // GROUPS, np.int16), np.empty(n // GROUPS, np.uint64)
    longest = 0
    for r in range(len(ptr) - 1):
        longest = max(longest, ptr[r + 1] - ptr[r])
    at, by = np.empty(longest, np.uint64), np.empty(longest, np.int16)
    for first in range(0, len(ptr) - 1, len(room)):
        last = min(first + len(room), len(ptr) - 1)
        flat[:] = 0
        for r in range(first, last):
            if ptr[r + 1] - ptr[r] < fewest:
                continue
            base = _U(r - first) * width
            for j in range(ptr[r], ptr[r + 1]):
                f, q = index[j], asked[j - start]
                if column[f] < 0 and q != 0:
                    for t in range(_U(ends[f]), _U(ends[f + 1])):
                        at_row = base + lists[t]
                        flat[at_row] = np.int16(flat[at_row] + q * entries[t])
        for top in range(0, n, TILE):
            size = _U(min(TILE, n - top))
            for r in range(first, last):
                if ptr[r + 1] - ptr[r] < fewest:
                    continue
                used = 0
                for j in range(ptr[r], ptr[r + 1]):
                    c, q = column[index[j]], asked[j - start]
                    if c >= 0 and q != 0:
                        at[used], by[used] = _U(c) * width + _U(top), q
                        used += 1
                add_columns(flat, _U(r - first) * width + _U(top), size, columns, at, by, used)
        for r in range(first, last):
            if ptr[r + 1] - ptr[r] < fewest:
                continue
            base = _U(r - first) * width
            for i in range(width):
                flat[base + i] = np.int16((np.int32(flat[base + i]) * np.int32(factor[i])) >> np.int32(16))
            _best(flat, base, maxima, groups, similar[r], ids[r])


@numba.njit(nogil=True, cache=True)
def add_columns(flat, base, size, columns, at, by, used):  # type: ignore[no-untyped-def]
    """Columns times numbers, several at a time, so that sums are read and written less often."""
    u = 0
    while u + 8 <= used:
        a0, a1, a2, a3 = at[u], at[u + 1], at[u + 2], at[u + 3]
        a4, a5, a6, a7 = at[u + 4], at[u + 5], at[u + 6], at[u + 7]
        q0, q1, q2, q3 = by[u], by[u + 1], by[u + 2], by[u + 3]
        q4, q5, q6, q7 = by[u + 4], by[u + 5], by[u + 6], by[u + 7]
        for i in range(size):
            more = q0 * columns[a0 + i] + q1 * columns[a1 + i] + q2 * columns[a2 + i] + q3 * columns[a3 + i]
            rest = q4 * columns[a4 + i] + q5 * columns[a5 + i] + q6 * columns[a6 + i] + q7 * columns[a7 + i]
            flat[base + i] = np.int16(flat[base + i] + more + rest)
        u += 8
    while u + 4 <= used:
        a0, a1, a2, a3 = at[u], at[u + 1], at[u + 2], at[u + 3]
        q0, q1, q2, q3 = by[u], by[u + 1], by[u + 2], by[u + 3]
        for i in range(size):
            more = q0 * columns[a0 + i] + q1 * columns[a1 + i] + q2 * columns[a2 + i] + q3 * columns[a3 + i]
            flat[base + i] = np.int16(flat[base + i] + more)
        u += 4
    while u < used:
        a0, q0 = at[u], by[u]
        for i in range(size):
            flat[base + i] = np.int16(flat[base + i] + q0 * columns[a0 + i])
        u += 1


@numba.njit(nogil=True, cache=True)
def _best(flat, base, maxima, groups, best, which):  # type: ignore[no-untyped-def]
    """The k largest numbers: k groups reach the k-th of their maxima, so smaller numbers are not wanted.

    Numbers i, i + q, i + 2 q and so on are a group: maxima of q groups are made side by side.
    """
    k, q = len(best), _U(len(maxima))
    maxima[:] = 0
    for g in range(_U(0), _U(GROUPS), _U(4)):
        a = base + g * q
        b, c, d = a + q, a + q + q, a + q + q + q
        for i in range(q):
            maxima[i] = max(maxima[i], flat[a + i], flat[b + i], flat[c + i], flat[d + i])
    bound = _largest_that_many_reach(maxima, k)
    reaching = 0
    for i in range(q):
        if maxima[i] >= bound:
            groups[reaching] = i
            reaching += 1
    filled = 0
    for g in range(_U(GROUPS)):  # in the order of rows: among equals the earlier ones are in before the later ones
        for j in range(reaching):
            at = g * q + groups[j]
            if flat[base + at] >= bound:
                filled = insert(flat[base + at], at, best, which, filled)


@numba.njit(nogil=True, cache=True)
def _largest_that_many_reach(numbers, many):  # type: ignore[no-untyped-def]
    """The largest bound that so many numbers reach, or 1, by bisection."""
    low, high = 1, 1 << 15
    while high - low > 1:
        middle = (low + high) >> 1
        bound, count = np.int16(middle), 0
        for first in range(0, len(numbers), 1 << 14):
            count += _reaching(numbers[first : first + (1 << 14)], bound)
        if count >= many:
            low = middle
        else:
            high = middle
    return np.int16(low)


@numba.njit(nogil=True, cache=True)
def _reaching(numbers, bound):  # type: ignore[no-untyped-def]
    count = np.int16(0)  # as wide as what is compared, for vector units
    for i in range(len(numbers)):
        count = np.int16(count + (1 if numbers[i] >= bound else 0))
    return count
