"""Growing `networks.Forest`: trees that sort rows so that those with similar label sets end together.

At each split, rows are cut into two halves by their label sets (2-means, from two rows drawn), in which rare labels
count more; a linear separator learns the halves from the features (squared hinge loss, dual coordinate descent), is
rounded to a few levels, and decides where rows go. Trees differ by what is drawn.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch

from holobind._threads import threaded
from holobind._types import CsrArray
from holobind.data.csr import idf_weights, normalise_rows, scale_columns
from holobind.ridge_knn.forest import TOP, Forest
from holobind.ridge_knn.knn_index import QUESTION, rounded

TREES = 40
LEAF, LEAVES = 24, 512  # rows that are not split further, and about how many leaves a tree may have
IDF_POWER = 0.5  # power of a label's idf in 2-means
COST, PASSES = 0.3, 3  # of the separator: of errors beside its length, and how often each row is looked at
ROUNDS, SAMPLE = 3, 1024  # of 2-means, and about how many rows all but the last look at


def fit_forest(
    X: CsrArray,
    Y: CsrArray,
    *,
    trees: int = TREES,
    seed: int = 0,
    on_progress: Callable[[str, float], None] | None = None,
) -> Forest:
    """Grow a forest.  Shapes: X (n, f), of rows of length 1, Y (n, L), of ones"""
    n, f = X.shape
    sets = normalise_rows(scale_columns(Y, idf_weights(Y, IDF_POWER)))  # without labels that all rows have
    leaf = max(LEAF, n // LEAVES)
    whole = rounded(X.indptr, X.indices, X.data, np.ones(f, np.float32), 0.0)

    def tree(number: int) -> tuple[Any, Any, Any]:
        draw = np.random.SeedSequence([seed, number]).generate_state(1)[0]
        return _grow(
            X.indptr, X.indices, X.data, whole, sets.indptr, sets.indices, sets.data, Y.shape[1],
            leaf, f, TOP, QUESTION, draw,
        )  # fmt: skip

    grown = []
    for found in threaded(tree, range(trees)):
        grown.append(found)
        if on_progress:
            on_progress("growing trees", len(grown) / trees)
    levels, thresholds, branches = zip(*grown, strict=True)
    first = np.cumsum([0, *map(len, levels)])  # split of each tree, where it has one; and as many leaves and one more
    forest = Forest(f, trees=trees, splits=int(first[-1]))
    forest.levels = torch.from_numpy(np.ascontiguousarray(np.concatenate(levels).T))
    forest.thresholds = torch.from_numpy(np.concatenate(thresholds))
    moved = [
        np.where(part >= 0, part + at, part - at - i) for i, (part, at) in enumerate(zip(branches, first, strict=False))
    ]
    forest.branches = torch.from_numpy(np.concatenate(moved).astype(np.int32))
    alone = np.diff(first) == 0
    forest.roots = torch.from_numpy(np.where(alone, -1 - first[:-1] - np.arange(trees), first[:-1]).astype(np.int32))
    return forest


@numba.njit(nogil=True, cache=True)
def _grow(xptr, xindex, xvalue, whole, yptr, yindex, yvalue, labels, leaf, f, top, length, seed):  # type: ignore[no-untyped-def]
    """One tree: levels, thresholds and branches of its splits, from the root on."""
    np.random.seed(seed)  # noqa: NPY002 - compiled, and of this thread
    n = len(xptr) - 1
    rows = np.arange(n)
    side, alpha, w = np.zeros(n, np.int8), np.zeros(n), np.zeros(f)
    centres = np.zeros(2 * labels)
    most = max(1, 4 * n // leaf)
    levels, thresholds = np.zeros((most, f), np.int8), np.zeros(most, np.float32)
    branches = np.zeros((most, 2), np.int32)
    # What is yet to be split: from and up to which place in `rows`, and whose which child it is.
    first, last = np.zeros(2 * most + 1, np.int64), np.zeros(2 * most + 1, np.int64)
    parent, which = np.zeros(2 * most + 1, np.int64), np.zeros(2 * most + 1, np.int64)
    last[0], parent[0] = n, -1
    waiting, splits, leaves, at = 1, 0, 0, 0
    while at < waiting:
        a, b, up, child = first[at], last[at], parent[at], which[at]
        at += 1
        middle = a
        if b - a > leaf and splits < most:
            some = rows[a:b]
            _halves(some, yptr, yindex, yvalue, centres, side)
            threshold = _separator(some, side, xptr, xindex, xvalue, alpha, w)
            largest = 0.0
            for c in range(f):
                largest = max(largest, abs(w[c]))
            if largest > 0:
                for c in range(f):
                    levels[splits, c] = np.int8(round(w[c] * top / largest))
                thresholds[splits] = threshold * length * top / largest
                middle = a + _sort(some, xptr, xindex, whole, levels[splits], thresholds[splits])
        here = -1 - leaves
        if a < middle < b:
            here = splits
            for k in range(2):
                first[waiting], last[waiting] = (a, middle) if k == 0 else (middle, b)
                parent[waiting], which[waiting] = splits, k
                waiting += 1
            splits += 1
        else:
            leaves += 1
        if up >= 0:
            branches[up, child] = here
    return levels[:splits].copy(), thresholds[:splits].copy(), branches[:splits].copy()


@numba.njit(nogil=True, cache=True)
def _halves(rows, yptr, yindex, yvalue, centres, side):  # type: ignore[no-untyped-def]
    """2-means of label sets at length 1, half of the rows each: 1 for the second in `side`.

    Centres, which are, and stay, empty, are found with about SAMPLE of the rows. Shapes: centres (2 L)
    """
    m, zero, one = len(rows), np.uint64(0), np.uint64(1)
    lean, inverse = np.empty(m), np.ones(2)
    for k in range(2):
        i = rows[np.random.randint(m)]  # noqa: NPY002
        for t in range(yptr[i], yptr[i + 1]):
            centres[2 * yindex[t] + k] = yvalue[t]
    for turn in range(ROUNDS):
        hop = max(1, m // SAMPLE) if turn < ROUNDS - 1 else 1
        seen = 0
        for r in range(0, m, hop):
            first, second = 0.0, 0.0
            for t in range(yptr[rows[r]], yptr[rows[r] + 1]):
                at = np.uint64(2 * yindex[t])
                first += yvalue[t] * centres[at + zero]
                second += yvalue[t] * centres[at + one]
            lean[seen] = second * inverse[1] - first * inverse[0]
            seen += 1
        median, squares = _median(lean[:seen].copy()), np.zeros(2)
        _clear(centres, rows, yptr, yindex)
        for r in range(seen):
            i = rows[r * hop]
            k = 1 if lean[r] > median or (lean[r] == median and np.random.random() < 0.5) else 0  # noqa: NPY002
            side[i] = k
            if turn < ROUNDS - 1:
                for t in range(yptr[i], yptr[i + 1]):
                    at = np.uint64(2 * yindex[t] + k)
                    before = centres[at]
                    centres[at] = before + yvalue[t]
                    squares[k] += yvalue[t] * (yvalue[t] + 2 * before)
        for k in range(2):
            inverse[k] = 1 / np.sqrt(squares[k]) if squares[k] > 0 else 0.0


@numba.njit(nogil=True, cache=True)
def _median(values):  # type: ignore[no-untyped-def]
    """By quickselect, which reorders them; numpy's takes seconds to compile."""
    low, high, middle = 0, len(values) - 1, len(values) // 2
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            break
    return values[middle]


@numba.njit(nogil=True, cache=True)
def _clear(centres, rows, yptr, yindex):  # type: ignore[no-untyped-def]
    if len(centres) < 16 * len(rows):
        centres[:] = 0
        return
    for i in rows:
        for t in range(yptr[i], yptr[i + 1]):
            centres[2 * yindex[t]] = 0
            centres[2 * yindex[t] + 1] = 0


@numba.njit(nogil=True, cache=True)
def _separator(rows, side, xptr, xindex, xvalue, alpha, w):  # type: ignore[no-untyped-def]
    """|w|^2 / 2 + COST sum of squared hinges, over features and a constant: w in place, and the constant's weight."""
    w[:] = 0
    constant, ridge = 0.0, 1 / (2 * COST)
    for i in rows:
        alpha[i] = 0
    order = rows.copy()
    for _ in range(PASSES):
        np.random.shuffle(order)  # noqa: NPY002
        for i in order:
            sign = 1.0 if side[i] else -1.0
            total, square = constant, 1.0
            for t in range(xptr[i], xptr[i + 1]):
                total += w[xindex[t]] * xvalue[t]
                square += xvalue[t] * xvalue[t]
            before = alpha[i]
            alpha[i] = max(before - (sign * total - 1 + ridge * before) / (square + ridge), 0)
            step = sign * (alpha[i] - before)
            if step != 0:
                constant += step
                for t in range(xptr[i], xptr[i + 1]):
                    w[xindex[t]] += step * xvalue[t]
    return constant


@numba.njit(nogil=True, cache=True)
def _sort(rows, xptr, xindex, whole, levels, threshold):  # type: ignore[no-untyped-def]
    """Rows of the first branch before those of the second, in place, as `Forest` decides; how many the first has."""
    low, high = 0, len(rows) - 1
    while low <= high:
        i, total = rows[low], 0
        for t in range(xptr[i], xptr[i + 1]):
            total += levels[xindex[t]] * whole[t]
        if total + threshold > 0:
            rows[low], rows[high] = rows[high], rows[low]
            high -= 1
        else:
            low += 1
    return low
