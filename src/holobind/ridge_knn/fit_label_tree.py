"""Fit of a `LabelTree`: clusters of labels (`label_clusters`), then a linear classifier for each node."""

import threading
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from holobind._processes import ALONE, Processes
from holobind._threads import threaded
from holobind._types import CsrArray, FloatArray, IntArray, ProgressCallback
from holobind.data.csr import binary_labels, checked_csr, from_arrays, normalise_rows
from holobind.errors import DataError
from holobind.ridge_knn._tree_kernels import MAX_CHILDREN, fit_squared_hinges, take_local_rows
from holobind.ridge_knn.label_clusters import Group, cluster_labels
from holobind.ridge_knn.label_tree import LabelTree

COST = 1.0  # of the squared hinge loss, for rows of norm 1
TOLERANCE = 0.3  # of projected gradients
MAX_EPOCHS = 20
MIN_WEIGHT = 0.1  # smaller weights are not stored
MAX_LEVEL = 31  # weights are integers from -31 to 31 and a scale: with more, files are larger and scores no better
BLOCK_CHILDREN = 64  # classifiers that are fitted together, at most
MAX_BLOCK_BYTES = 1 << 27  # of their signs and multipliers, unless those of 8 classifiers take more
ROOT_TASK_CHILDREN = 32  # classifiers of the root that one task fits, at most

Task = tuple[int, int, int]  # a parent, and the first and last of its children
# Features and their numbers of weights, children and levels of all weights by feature, and the children's scales and
# biases
Weights = tuple[IntArray, NDArray[np.uint8], NDArray[np.int8]]  # features, children and levels
Entries = tuple[IntArray, IntArray, NDArray[np.uint8], NDArray[np.int8], FloatArray, FloatArray]
ENTRY_DTYPES = (np.int32, np.int32, np.uint8, np.int8, np.float32, np.float32)


def fit_label_tree(
    X: CsrArray,
    Y: CsrArray,
    *,
    seed: int = 0,
    processes: Processes = ALONE,
    on_progress: ProgressCallback | None = None,
) -> LabelTree:
    """Fit a tree to rows of norm 1 and their labels; labels that no row has are not in it.

    processes   that call it together with the same arguments: they share the labels' features, the clusters and the
                classifiers of nodes, and all get the same tree

    Shapes: X (n, f), Y (n, L), with at least one label in Y
    """
    X, Y = checked_csr(X, "X").astype(np.float32, copy=False), binary_labels(checked_csr(Y, "Y"))
    n_labels = Y.shape[1]
    occurring = np.flatnonzero(np.bincount(Y.indices, minlength=n_labels))
    if not len(occurring):
        raise DataError("fit_label_tree: no row has a label; a tree needs at least one")
    rows_of_label = csr_array(Y.T)[occurring]
    rows_of_label.sort_indices()
    levels = cluster_labels(_features_of_labels(rows_of_label, X, processes), MAX_CHILDREN, seed, processes)
    parents = [group for level in levels for group in level]
    children = [_children(group, level, levels) for level, groups in enumerate(levels) for group in groups]
    fitter = _NodeFitter(X, rows_of_label, seed)
    tasks = [
        (parent, first, min(first + step, len(groups)))
        for parent, groups in enumerate(children)
        for step in (len(groups) if parent else _even_step(len(groups), ROOT_TASK_CHILDREN),)
        for first in range(0, len(groups), step)
    ]

    def fit(task: Task) -> tuple[Task, Entries]:
        parent, first, last = task
        return task, fitter.fit(parent, parents[parent], children[parent], first, last)

    found: list[tuple[Task, Entries]] = []
    for result in threaded(fit, processes.queue(tasks, _sizes(tasks, parents, rows_of_label))):
        found.append(result)
        if on_progress:
            on_progress("label tree", min(1.0, len(found) * processes.size / len(tasks)))
    parts: list[list[tuple[int, Entries]]] = [[] for _ in parents]
    for (parent, first, _), entries in _from_all(found, processes):
        parts[parent].append((first, entries))
    results = [_joined([entries for _, entries in sorted(each, key=lambda part: part[0])]) for each in parts]
    return _pack(X.shape[1], n_labels, occurring[np.concatenate(levels[-1])], children, results, len(levels))


def _features_of_labels(rows_of_label: CsrArray, X: CsrArray, processes: Processes) -> CsrArray:
    """The sums of each label's rows, divided by their lengths.  Shapes: (L, n), (n, f) -> (L, f)"""
    n_labels = rows_of_label.shape[0]
    ends = rows_of_label.indptr
    # Shares with about as many rows each, not as many labels.
    first, last = (
        int(np.searchsorted(ends, ends[-1] * i // processes.size)) if i < processes.size else n_labels
        for i in (processes.rank, processes.rank + 1)
    )
    Z = csr_array(rows_of_label[first:last] @ X)
    Z.sum_duplicates()  # in place: `normalise_rows` would copy it
    Z = normalise_rows(Z)
    if processes.size == 1:
        return Z
    lengths = processes.concatenate(np.diff(Z.indptr).astype(np.int64))
    ids = processes.concatenate(Z.indices)
    return from_arrays(processes.concatenate(Z.data), ids, np.append(0, np.cumsum(lengths)), (n_labels, X.shape[1]))


def _sizes(tasks: Sequence[Task], parents: Sequence[Group], rows_of_label: CsrArray) -> list[int]:
    """The work of each task, about: rows below the parent times classifiers."""
    counts = np.diff(rows_of_label.indptr)
    rows = [int(counts[group].sum()) for group in parents]
    return [rows[parent] * (last - first) for parent, first, last in tasks]


def _from_all(found: list[tuple[Task, Entries]], processes: Processes) -> list[tuple[Task, Entries]]:
    """The results of all processes."""
    if processes.size == 1:
        return found
    n_arrays = len(ENTRY_DTYPES)
    tasks = processes.concatenate(np.array([task for task, _ in found], np.int64).reshape(-1, 3))
    columns = [[np.asarray(entries[i]) for _, entries in found] for i in range(n_arrays)]
    lengths = np.array([[len(array) for array in column] for column in columns], np.int64).T.reshape(-1, n_arrays)
    found.clear()  # each array is freed once it is sent
    ends = np.cumsum(processes.concatenate(lengths), axis=0)
    joined = []
    for i, dtype in enumerate(ENTRY_DTYPES):
        own = np.concatenate([np.empty(0, dtype), *columns[i]]).astype(dtype, copy=False)
        columns[i] = []
        joined.append(np.split(processes.concatenate(own), ends[:-1, i]))
    results: list[tuple[Task, Entries]] = []
    for j, (parent, first, last) in enumerate(tasks.tolist()):
        features, counts, child, levels, scales, biases = (cuts[j] for cuts in joined)
        results.append(((parent, first, last), (features, counts, child, levels, scales, biases)))
    return results


def _children(group: Group, level: int, levels: Sequence[Sequence[Group]]) -> list[Group]:
    """The groups of a node's children: those of the next level with the same labels, or single labels."""
    if level == len(levels) - 1:
        return list(group[:, None])
    members = set(group.tolist())
    return [child for child in levels[level + 1] if int(child[0]) in members]


class _NodeFitter:
    """Fits the classifiers of a parent's children, on the rows that have a label below the parent."""

    def __init__(self, X: CsrArray, rows_of_label: CsrArray, seed: int) -> None:
        self.X, self.rows_of_label, self.seed = X, rows_of_label, seed
        self.scratch = threading.local()

    def fit(self, parent: int, group: Group, children: Sequence[Group], first: int, last: int) -> Entries:
        """The classifiers of the children first to last."""
        X, n_children = self.X, last - first
        if not hasattr(self.scratch, "local_of"):
            self.scratch.local_of = np.full(X.shape[1], -1, np.int32)
            self.scratch.position = np.zeros(X.shape[0], np.int64)
        if parent == 0:
            rows, features = np.arange(X.shape[0]), np.arange(X.shape[1])
            indptr, ids, values = X.indptr, X.indices, X.data
        else:
            rows = np.unique(self._rows(group))
            indptr, ids, values, features = take_local_rows(X.indptr, X.indices, X.data, rows, self.scratch.local_of)
        position = self.scratch.position
        position[rows] = np.arange(len(rows))
        width = max(8, min(BLOCK_CHILDREN, MAX_BLOCK_BYTES // (5 * len(rows))))
        weights: list[Weights] = []
        scales: list[FloatArray] = []
        biases: list[FloatArray] = []
        step = _even_step(n_children, width)
        for start in range(first, last, step):
            block = children[start : min(start + step, last)]
            k = -(-len(block) // 8) * 8  # as many as fill vectors; those behind the last child have no row
            signs = np.full((len(rows), k), -1, np.int8)
            for c, labels in enumerate(block):
                signs[position[self._rows(labels)], c] = 1
            W, alpha = np.zeros((len(features) + 1, k), np.float32), np.zeros(signs.shape, np.float32)
            settings = np.float32(COST), np.float32(TOLERANCE), MAX_EPOCHS, self.seed + MAX_CHILDREN * parent + start
            fit_squared_hinges(indptr, ids, values, signs, *settings, W, alpha)
            of_block = _entries(W[:, : len(block)], features, start)
            weights.append(of_block[0])
            scales.append(of_block[1])
            biases.append(of_block[2])
        return *_by_feature(weights), np.concatenate(scales), np.concatenate(biases)

    def _rows(self, labels: Group) -> NDArray[np.int64]:
        """The rows of some labels; a row may come several times."""
        indptr, indices = self.rows_of_label.indptr, self.rows_of_label.indices
        return np.concatenate([indices[indptr[label] : indptr[label + 1]] for label in labels])


def _even_step(n: int, most: int) -> int:
    """The size of parts of n items that are nearly equal, and at most `most`."""
    return -(-n // -(-n // most))


def _entries(W: FloatArray, features: IntArray, first: int) -> tuple[Weights, FloatArray, FloatArray]:
    """The weights of the children from `first` on, their scales and biases.

    Shapes: W (f + 1, k), features (f)
    """
    biases, W = W[-1].copy(), W[:-1]
    scales = np.maximum(np.abs(W).max(0, initial=0) / MAX_LEVEL, 1e-4).astype(np.float16).astype(np.float32)
    by_feature, child = np.nonzero(np.abs(W) >= MIN_WEIGHT)
    levels = np.rint(W[by_feature, child] / scales[child]).clip(-MAX_LEVEL, MAX_LEVEL).astype(np.int8)
    return (features[by_feature], (child + first).astype(np.uint8), levels), scales, biases


def _by_feature(parts: Sequence[Weights]) -> tuple[IntArray, IntArray, NDArray[np.uint8], NDArray[np.int8]]:
    """The weights of several blocks of children as one, by ascending features: the first four arrays of `Entries`."""
    features, child, levels = (np.concatenate([part[i] for part in parts]) for i in range(3))
    order = np.argsort(features, kind="stable")
    distinct, counts = np.unique(features, return_counts=True)
    return distinct, counts, child[order], levels[order]


def _joined(parts: Sequence[Entries]) -> Entries:
    """The entries of several tasks of one parent as one."""
    if len(parts) == 1:
        return parts[0]
    weights = [(np.repeat(features, counts), child, levels) for features, counts, child, levels, _, _ in parts]
    scales, biases = (np.concatenate([part[i] for part in parts]) for i in (4, 5))
    features, counts, child, levels = _by_feature(weights)
    return features, counts, child, levels, scales, biases


def _pack(
    n_features: int,
    n_labels: int,
    leaf_labels: IntArray,
    children: Sequence[Sequence[Group]],
    results: Sequence[Entries],
    n_levels: int,
) -> LabelTree:
    features, counts, child, levels, scales, biases = (np.concatenate(arrays) for arrays in zip(*results, strict=True))
    tree = LabelTree(
        n_features,
        n_labels,
        parents=len(children),
        leaves=len(leaf_labels),
        n_levels=n_levels,
        n_parent_features=len(features),
        n_entries=len(levels),
    )
    offsets = [
        np.append(0, np.cumsum([len(item) for item in items])) for items in (children, [each[0] for each in results])
    ]
    for buffer, array in (
        (tree.child_offsets, offsets[0]),
        (tree.leaf_labels, leaf_labels),
        (tree.feature_offsets, offsets[1]),
        (tree.features, features),
        (tree.entry_counts, counts),
        (tree.entry_children, child),
        (tree.entry_levels, levels),
        (tree.scales, scales),
        (tree.biases, biases),
    ):
        buffer.copy_(torch.from_numpy(np.asarray(array)))
    return tree
