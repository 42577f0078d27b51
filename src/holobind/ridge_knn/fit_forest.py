"""Training of a `Forest`: trees in whose leaves the rows have similar label sets.

At each split the label sets of the rows are divided into two equal halves by spherical 2-means with idf weights, which
starts from two random rows. A linear classifier of the two halves is trained on the features (squared hinge loss, dual
coordinate descent) and quantised. Its sign decides where rows go. Trees differ by their random draws.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from holobind._jit import compiled
from holobind._threads import threaded
from holobind._types import CsrArray, FloatArray, ProgressCallback
from holobind.data.csr import column_counts, idf_weights, normalise_rows, scale_columns
from holobind.ridge_knn._kernels import QUERY_NORM, quantise_queries
from holobind.ridge_knn.forest import MAX_DEPTH, MAX_LEVEL, Forest

N_TREES = 40
MIN_LEAF_ROWS = 24  # nodes of up to so many rows are leaves
MAX_LEAVES = 512  # of a tree, about: with more rows, leaves are larger
SPLITS_PER_LEAF = 4  # that a tree may have, where splits are uneven
assert SPLITS_PER_LEAF * 2 * MAX_LEAVES <= MAX_DEPTH  # rows of a tree, in units of a leaf's, are less than 2 MAX_LEAVES
LABEL_IDF_POWER = 0.5  # power of a label's idf in 2-means
HINGE_WEIGHT = 0.3  # of the classifier's errors, compared with its squared norm
N_PASSES = 3  # of coordinate descent over the rows of a node
N_ROUNDS = 3  # of 2-means
MAX_SAMPLE_ROWS = 1024  # about; of a node, in all rounds of 2-means but the last

Tree = tuple[NDArray[np.int8], FloatArray, NDArray[np.int32]]


def fit_forest(
    X: CsrArray,
    Y: CsrArray,
    *,
    n_trees: int = N_TREES,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> Forest:
    """Train a forest on rows of norm 1 and label matrix of ones.  Shapes: X (n, f), Y (n, L)"""
    n, f = X.shape
    idf = idf_weights(column_counts(Y), Y.shape[0], LABEL_IDF_POWER)
    labels = normalise_rows(scale_columns(Y, idf))  # drops labels that all rows have
    leaf_rows = max(MIN_LEAF_ROWS, n // MAX_LEAVES)
    levels = quantise_queries(X.indptr, X.indices, X.data, np.ones(f, np.float32), 0.0)

    def fit_tree(tree: int) -> Tree:
        tree_seed = np.random.SeedSequence([seed, tree]).generate_state(1)[0]
        return _fit_tree(
            X.indptr, X.indices, X.data, levels, labels.indptr, labels.indices, labels.data, Y.shape[1],
            leaf_rows, f, MAX_LEVEL, QUERY_NORM, tree_seed,
        )  # fmt: skip

    trees = []
    for tree in threaded(fit_tree, range(n_trees)):
        trees.append(tree)
        if on_progress:
            on_progress("fitting trees", len(trees) / n_trees)
    return _join(trees, f)


def _join(trees: list[Tree], n_features: int) -> Forest:
    """Number the splits and leaves of all trees consecutively; a tree has one leaf more than splits."""
    levels, thresholds, branches = zip(*trees, strict=True)
    first_split = np.cumsum([0, *map(len, levels)])
    forest = Forest(n_features, n_trees=len(trees), n_splits=int(first_split[-1]))
    forest.levels = torch.from_numpy(np.ascontiguousarray(np.concatenate(levels).T))
    forest.thresholds = torch.from_numpy(np.concatenate(thresholds))
    renumbered = [
        np.where(nodes >= 0, nodes + first, nodes - first - tree)
        for tree, (nodes, first) in enumerate(zip(branches, first_split, strict=False))
    ]
    forest.branches = torch.from_numpy(np.concatenate(renumbered).astype(np.int32))
    first_leaf = -1 - first_split[:-1] - np.arange(len(trees))
    roots = np.where(np.diff(first_split) == 0, first_leaf, first_split[:-1])  # a tree without splits is a leaf
    forest.roots = torch.from_numpy(roots.astype(np.int32))
    return forest


@compiled()
def _fit_tree(  # type: ignore[no-untyped-def]
    xptr, xids, xvalues, xlevels, yptr, yids, yvalues, n_labels, leaf_rows, f, max_level, query_norm, seed
):
    """One tree: levels, thresholds and branches of its splits, from the root on."""
    np.random.seed(seed)  # noqa: NPY002 - compiled: the generator of this thread
    n = len(xptr) - 1
    rows = np.arange(n)
    side, alpha, w = np.zeros(n, np.int8), np.zeros(n), np.zeros(f)
    centres = np.zeros(2 * n_labels)
    max_splits = max(1, SPLITS_PER_LEAF * n // leaf_rows)
    levels, thresholds = np.zeros((max_splits, f), np.int8), np.zeros(max_splits, np.float32)
    branches = np.zeros((max_splits, 2), np.int32)
    # The queue of nodes: a node has rows[first:last] and is branch `which` of the split `parent`.
    first, last = np.zeros(2 * max_splits + 1, np.int64), np.zeros(2 * max_splits + 1, np.int64)
    parent, which = np.zeros(2 * max_splits + 1, np.int64), np.zeros(2 * max_splits + 1, np.int64)
    last[0], parent[0] = n, -1
    n_nodes, n_splits, n_leaves, node = 1, 0, 0, 0
    while node < n_nodes:
        a, b, up, branch = first[node], last[node], parent[node], which[node]
        node += 1
        middle = a
        if b - a > leaf_rows and n_splits < max_splits:
            node_rows = rows[a:b]
            _two_means(node_rows, yptr, yids, yvalues, centres, side)
            threshold = _fit_classifier(node_rows, side, xptr, xids, xvalues, alpha, w)
            largest = 0.0
            for c in range(f):
                largest = max(largest, abs(w[c]))
            if largest > 0:
                for c in range(f):
                    levels[n_splits, c] = np.int8(round(w[c] * max_level / largest))
                thresholds[n_splits] = threshold * query_norm * max_level / largest
                middle = a + _partition(node_rows, xptr, xids, xlevels, levels[n_splits], thresholds[n_splits])
        index = -1 - n_leaves
        if a < middle < b:
            index = n_splits
            for k in range(2):
                first[n_nodes], last[n_nodes] = (a, middle) if k == 0 else (middle, b)
                parent[n_nodes], which[n_nodes] = n_splits, k
                n_nodes += 1
            n_splits += 1
        else:
            n_leaves += 1
        if up >= 0:
            branches[up, branch] = index
    return levels[:n_splits].copy(), thresholds[:n_splits].copy(), branches[:n_splits].copy()


@compiled()
def _two_means(rows, yptr, yids, yvalues, centres, side):  # type: ignore[no-untyped-def]
    """Divide rows into two halves by spherical 2-means of their label sets: `side` is 0 or 1.

    All rounds but the last use about MAX_SAMPLE_ROWS rows. `centres` is zero before and after.  Shapes: centres (2 L)
    """
    m, zero, one = len(rows), np.uint64(0), np.uint64(1)
    margin, inverse_norm = np.empty(m), np.ones(2)
    for k in range(2):
        i = rows[np.random.randint(m)]  # noqa: NPY002
        for t in range(yptr[i], yptr[i + 1]):
            centres[2 * yids[t] + k] = yvalues[t]
    for turn in range(N_ROUNDS):
        stride = max(1, m // MAX_SAMPLE_ROWS) if turn < N_ROUNDS - 1 else 1
        n_sampled = 0
        for r in range(0, m, stride):
            first, second = 0.0, 0.0
            for t in range(yptr[rows[r]], yptr[rows[r] + 1]):
                at = np.uint64(2 * yids[t])
                first += yvalues[t] * centres[at + zero]
                second += yvalues[t] * centres[at + one]
            margin[n_sampled] = second * inverse_norm[1] - first * inverse_norm[0]
            n_sampled += 1
        median, squares = _median(margin[:n_sampled].copy()), np.zeros(2)
        _clear(centres, rows, yptr, yids)
        for r in range(n_sampled):
            i = rows[r * stride]
            k = 1 if margin[r] > median or (margin[r] == median and np.random.random() < 0.5) else 0  # noqa: NPY002
            side[i] = k
            if turn < N_ROUNDS - 1:
                for t in range(yptr[i], yptr[i + 1]):
                    at = np.uint64(2 * yids[t] + k)
                    before = centres[at]
                    centres[at] = before + yvalues[t]
                    squares[k] += yvalues[t] * (yvalues[t] + 2 * before)
        for k in range(2):
            inverse_norm[k] = 1 / np.sqrt(squares[k]) if squares[k] > 0 else 0.0


@compiled()
def _median(values):  # type: ignore[no-untyped-def]
    """The median by quickselect, which reorders the values; numpy's median takes seconds to compile."""
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


@compiled()
def _clear(centres, rows, yptr, yids):  # type: ignore[no-untyped-def]
    """Set the centres to zero: all of them, or where few rows made them, only the labels of these rows."""
    if len(centres) < 16 * len(rows):
        centres[:] = 0
        return
    for i in rows:
        for t in range(yptr[i], yptr[i + 1]):
            centres[2 * yids[t]] = 0
            centres[2 * yids[t] + 1] = 0


@compiled()
def _fit_classifier(rows, side, xptr, xids, xvalues, alpha, w):  # type: ignore[no-untyped-def]
    """Minimise |w|^2 / 2 + HINGE_WEIGHT sum of squared hinges over features and a constant feature.

    The result is in `w`; the weight of the constant feature is returned.
    """
    w[:] = 0
    constant, ridge = 0.0, 1 / (2 * HINGE_WEIGHT)
    for i in rows:
        alpha[i] = 0
    order = rows.copy()
    for _ in range(N_PASSES):
        np.random.shuffle(order)  # noqa: NPY002
        for i in order:
            sign = 1.0 if side[i] else -1.0
            total, square = constant, 1.0
            for t in range(xptr[i], xptr[i + 1]):
                total += w[xids[t]] * xvalues[t]
                square += xvalues[t] * xvalues[t]
            before = alpha[i]
            alpha[i] = max(before - (sign * total - 1 + ridge * before) / (square + ridge), 0)
            step = sign * (alpha[i] - before)
            if step != 0:
                constant += step
                for t in range(xptr[i], xptr[i + 1]):
                    w[xids[t]] += step * xvalues[t]
    return constant


@compiled()
def _partition(rows, xptr, xids, xlevels, levels, threshold):  # type: ignore[no-untyped-def]
    """Move rows of the first branch before those of the second, as `Forest` decides; the number of the first."""
    low, high = 0, len(rows) - 1
    while low <= high:
        i, total = rows[low], 0
        for t in range(xptr[i], xptr[i + 1]):
            total += levels[xids[t]] * xlevels[t]
        if total + threshold > 0:
            rows[low], rows[high] = rows[high], rows[low]
            high -= 1
        else:
            low += 1
    return low
