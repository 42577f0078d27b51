"""Fit of a `LabelTree`: clusters of labels, then a linear classifier for each node.

Labels are clustered by the means of their training rows with spherical k-means, in two levels. The number of clusters
of a node is the cube root of the number of labels, so that nodes of all three levels have about as many children.
Clusters may have different sizes, as in Bonsai. Only clusters that would give a node more than MAX_CHILDREN children
are divided, and more than MAX_CHILDREN^3 labels need further levels.
"""

import threading
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from holobind._processes import ALONE, Processes
from holobind._threads import threaded
from holobind._types import CsrArray, FloatArray, IntArray, ProgressCallback
from holobind.data.csr import binary_labels, checked_csr, normalise_rows
from holobind.errors import DataError
from holobind.ridge_knn._tree_kernels import MAX_CHILDREN, fit_squared_hinges, nearest_centroids, take_local_rows
from holobind.ridge_knn.label_tree import LabelTree

MIN_INNER_LEVELS = 2
KMEANS_ITERATIONS = 8
MIN_KMEANS_CHANGE = 0.01  # iterations end when a smaller fraction of the labels changes its cluster
COST = 1.0  # of the squared hinge loss, for rows of norm 1
TOLERANCE = 0.3  # of projected gradients
MAX_EPOCHS = 20
MIN_WEIGHT = 0.1  # smaller weights are not stored
BLOCK_CHILDREN = 64  # classifiers that are fitted together, at most
MAX_BLOCK_BYTES = 1 << 27  # of their signs and multipliers, unless those of 8 classifiers take more
ROOT_TASK_CHILDREN = 32  # classifiers of the root that one task fits, at most

Group = NDArray[np.int64]  # the labels below a node
Task = tuple[int, int, int]  # a parent, and the first and last of its children
N_ENTRY_ARRAYS = 5
Entries = tuple[IntArray, NDArray[np.uint8], NDArray[np.int8], FloatArray, FloatArray]


def fit_label_tree(
    X: CsrArray,
    Y: CsrArray,
    *,
    seed: int = 0,
    processes: Processes = ALONE,
    on_progress: ProgressCallback | None = None,
) -> LabelTree:
    """Fit a tree to rows of norm 1 and their labels; labels that no row has are not in it.

    processes   that call it together with the same arguments: each fits the classifiers of some nodes

    Shapes: X (n, f), Y (n, L), with at least one label in Y
    """
    X, Y = checked_csr(X, "X").astype(np.float32, copy=False), binary_labels(checked_csr(Y, "Y"))
    n_labels = Y.shape[1]
    occurring = np.flatnonzero(np.bincount(Y.indices, minlength=n_labels))
    if not len(occurring):
        raise DataError("fit_label_tree: no row has a label; a tree needs at least one")
    rows_of_label = csr_array(Y.T)[occurring]
    rows_of_label.sort_indices()
    features_of_label = csr_array(rows_of_label @ X)
    features_of_label.sum_duplicates()  # in place: `normalise_rows` would copy it
    features_of_label = normalise_rows(features_of_label)
    levels = _cluster(features_of_label, np.random.default_rng(seed))
    del features_of_label
    parents = [group for level in levels for group in level]
    children = [_children(group, level, levels) for level, groups in enumerate(levels) for group in groups]
    fitter = _NodeFitter(X, rows_of_label, seed)
    tasks = [
        (parent, first, min(first + step, len(groups)))
        for parent, groups in enumerate(children)
        for step in (len(groups) if parent else _even_step(len(groups), ROOT_TASK_CHILDREN),)
        for first in range(0, len(groups), step)
    ]
    own = processes.balanced(tasks, _sizes(tasks, parents, rows_of_label))
    results: list[list[tuple[int, Entries]]] = [[] for _ in parents]

    def fit(task: Task) -> tuple[Task, Entries]:
        parent, first, last = task
        return task, fitter.fit(parent, parents[parent], children[parent], first, last)

    found: list[tuple[Task, Entries]] = []
    for done, result in enumerate(threaded(fit, own), 1):
        found.append(result)
        if on_progress:
            on_progress("label tree", done / len(own))
    for (parent, first, _), entries in _from_all(found, processes):
        results[parent].append((first, entries))
    ordered = [[entries for _, entries in sorted(parts, key=lambda part: part[0])] for parts in results]
    return _pack(X.shape[1], n_labels, occurring[np.concatenate(levels[-1])], children, ordered, len(levels))


def _sizes(tasks: Sequence[Task], parents: Sequence[Group], rows_of_label: CsrArray) -> list[int]:
    """The work of each task, about: rows below the parent times classifiers."""
    counts = np.diff(rows_of_label.indptr)
    rows = [int(counts[group].sum()) for group in parents]
    return [rows[parent] * (last - first) for parent, first, last in tasks]


def _from_all(found: list[tuple[Task, Entries]], processes: Processes) -> list[tuple[Task, Entries]]:
    """The results of all processes."""
    if processes.size == 1:
        return found
    tasks = np.array([task for task, _ in found], np.int64).reshape(-1, 3)
    columns = [[np.asarray(entries[i]) for _, entries in found] for i in range(N_ENTRY_ARRAYS)]
    lengths = np.array([[len(array) for array in column] for column in columns], np.int64).T.reshape(-1, N_ENTRY_ARRAYS)
    all_tasks, all_lengths = processes.gather(tasks), processes.gather(lengths)
    joined = []
    for dtype, column in zip((np.int32, np.uint8, np.int8, np.float32, np.float32), columns, strict=True):
        joined.append(processes.gather(np.concatenate([np.empty(0, dtype), *column]).astype(dtype, copy=False)))
    results: list[tuple[Task, Entries]] = []
    for rank in range(processes.size):
        cuts = [np.split(joined[i][rank], np.cumsum(all_lengths[rank][:, i])[:-1]) for i in range(N_ENTRY_ARRAYS)]
        for j, (parent, first, last) in enumerate(all_tasks[rank].tolist()):
            features, child, levels, scales, biases = (cuts[i][j] for i in range(N_ENTRY_ARRAYS))
            results.append(((parent, first, last), (features, child, levels, scales, biases)))
    return results


def _cluster(Z: CsrArray, rng: np.random.Generator) -> list[list[Group]]:
    """The groups of labels of the inner nodes, level by level from the root; each level has the labels in one order.

    Shapes: (L, f)
    """
    n_labels, n_inner = Z.shape[0], MIN_INNER_LEVELS
    while MAX_CHILDREN ** (n_inner + 1) < n_labels:
        n_inner += 1
    k = min(MAX_CHILDREN, max(2, round(n_labels ** (1 / (n_inner + 1)))))
    levels = [[np.arange(n_labels)]]
    for level in range(n_inner):
        capacity = MAX_CHILDREN ** (n_inner - level)  # labels that fit below a node of the next level
        levels.append([part for group in levels[-1] for part in _child_groups(Z, group, k, capacity, rng)])
    # Below each node, labels are in the order of its children.
    for level in range(n_inner - 1, -1, -1):
        ends = np.cumsum([len(group) for group in levels[level]])
        levels[level] = np.split(np.concatenate(levels[level + 1]), ends[:-1])
    return levels


def _child_groups(Z: CsrArray, group: Group, k: int, capacity: int, rng: np.random.Generator) -> list[Group]:
    """About k clusters of a group's labels: at most MAX_CHILDREN, of at most `capacity` labels each.

    The group has at most MAX_CHILDREN * capacity labels.
    """
    parts = [small for part in _split(Z, group, k, rng) for small in _limit(Z, part, capacity, rng)]
    return parts if len(parts) <= MAX_CHILDREN else _slices(np.concatenate(parts), capacity)


def _limit(Z: CsrArray, group: Group, capacity: int, rng: np.random.Generator) -> list[Group]:
    """A group in parts of at most `capacity` labels."""
    if len(group) <= capacity:
        return [group]
    parts = _split(Z, group, 2 * -(-len(group) // capacity), rng)
    if max(len(part) for part in parts) > len(group) // 2:  # as of equal labels, which cannot be told apart
        return _slices(np.concatenate(parts), capacity)
    return [small for part in parts for small in _limit(Z, part, capacity, rng)]


def _slices(group: Group, size: int) -> list[Group]:
    """The labels in parts of about equal sizes, at most `size`."""
    return np.array_split(group, -(-len(group) // size))


def _split(Z: CsrArray, group: Group, k: int, rng: np.random.Generator) -> list[Group]:
    """At most k clusters of a group's labels, by spherical k-means from k of the labels."""
    k = min(k, -(-len(group) // 3))
    if k < 2:
        return [group]
    indptr, ids, values, features = take_local_rows(
        Z.indptr, Z.indices, Z.data, group, np.full(Z.shape[1], -1, np.int32)
    )
    rows = csr_array((values, ids, indptr), shape=(len(group), max(len(features), 1)))
    centroids = np.ascontiguousarray(rows[rng.choice(len(group), k, replace=False)].toarray().T)
    cluster, columns = np.full(len(group), -1), csr_array(rows.T)
    for _ in range(KMEANS_ITERATIONS):
        before, cluster = cluster, np.empty(len(group), np.int64)
        nearest_centroids(rows.indptr, rows.indices, rows.data, centroids, cluster)
        if np.mean(cluster != before) < MIN_KMEANS_CHANGE:
            break
        members = csr_array((np.ones(len(group), np.float32), cluster, np.arange(len(group) + 1)), (len(group), k))
        sums = (columns @ members).toarray()
        norms = np.linalg.norm(sums, axis=0)
        centroids = np.ascontiguousarray(np.divide(sums, norms, out=sums, where=norms > 0))
    return [group[cluster == c] for c in np.unique(cluster)]


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
        """Features, children and levels of all weights, by ascending features, and the children's scales and biases."""
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
        parts: list[Entries] = []
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
            parts.append(_entries(W[:, : len(block)], features, start))
        return _joined(parts)

    def _rows(self, labels: Group) -> NDArray[np.int64]:
        """The rows of some labels; a row may come several times."""
        indptr, indices = self.rows_of_label.indptr, self.rows_of_label.indices
        return np.concatenate([indices[indptr[label] : indptr[label + 1]] for label in labels])


def _even_step(n: int, most: int) -> int:
    """The size of parts of n items that are nearly equal, and at most `most`."""
    return -(-n // -(-n // most))


def _entries(W: FloatArray, features: IntArray, first: int) -> Entries:
    """The stored form of the classifiers of the children from `first` on.  Shapes: W (f + 1, k), features (f)"""
    biases, W = W[-1].copy(), W[:-1]
    scales = np.maximum(np.abs(W).max(0, initial=0) / 127, 1e-4).astype(np.float16).astype(np.float32)
    by_feature, child = np.nonzero(np.abs(W) >= MIN_WEIGHT)
    levels = np.rint(W[by_feature, child] / scales[child]).clip(-127, 127).astype(np.int8)
    return features[by_feature], (child + first).astype(np.uint8), levels, scales, biases


def _joined(parts: Sequence[Entries]) -> Entries:
    """The entries of several blocks of children as one, by ascending features."""
    features, child, levels, scales, biases = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(features, kind="stable")
    return features[order], child[order], levels[order], scales, biases


def _pack(
    n_features: int,
    n_labels: int,
    leaf_labels: IntArray,
    children: Sequence[Sequence[Group]],
    results: Sequence[Sequence[Entries]],
    n_levels: int,
) -> LabelTree:
    parts: list[list[NDArray[np.generic]]] = [[] for _ in range(6)]
    for entries in results:
        features, child, levels, scales, biases = _joined(entries)
        distinct, counts = np.unique(features, return_counts=True)
        arrays: list[NDArray[np.generic]] = [distinct, counts, child, levels, scales, biases]
        for part, array in zip(parts, arrays, strict=True):
            part.append(array)
    features, counts, child, levels, scales, biases = (np.concatenate(part) for part in parts)
    tree = LabelTree(
        n_features,
        n_labels,
        parents=len(children),
        leaves=len(leaf_labels),
        n_levels=n_levels,
        n_parent_features=len(features),
        n_entries=len(levels),
    )
    offsets = [np.append(0, np.cumsum([len(item) for item in items])) for items in (children, parts[0])]
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
