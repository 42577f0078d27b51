"""Clusters of labels, from which a label tree is built.

Labels are clustered by the means of their training rows with spherical k-means, in two levels. The number of clusters
of a node is the cube root of the number of labels, so that nodes of all three levels have about as many children.
Clusters may have different sizes, as in Bonsai. Only clusters that would give a node more than `max_children` children
are divided, and more than max_children^3 labels need further levels.

Several processes share the labels of the first level, and the nodes of the others. The draws of a node do not depend on
what other nodes of its level are, so that every process knows them.
"""

import numpy as np
from numpy.typing import NDArray

from holobind._processes import ALONE, Processes
from holobind._types import CsrArray, FloatArray, IntArray
from holobind.ridge_knn._tree_kernels import (
    add_to_clusters,
    features_by_occurrence,
    nearest_centroids,
    take_local_rows,
)

MIN_INNER_LEVELS = 2
KMEANS_ITERATIONS = 8
MIN_KMEANS_CHANGE = 0.01  # iterations end when a smaller fraction of the labels changes its cluster
MIN_LABELS_PER_CLUSTER = 3

Group = NDArray[np.int64]  # the labels below a node


def cluster_labels(Z: CsrArray, max_children: int, seed: int = 0, processes: Processes = ALONE) -> list[list[Group]]:
    """The groups of labels of the inner nodes, level by level from the root; each level has the labels in one order.

    Z              the features of labels, of norm 1
    max_children   of a node
    processes      that call it together with the same arguments

    Shapes: (L, f)
    """
    n_labels, n_inner = Z.shape[0], MIN_INNER_LEVELS
    while max_children ** (n_inner + 1) < n_labels:
        n_inner += 1
    k = min(max_children, max(2, round(n_labels ** (1 / (n_inner + 1)))))
    rng, levels = np.random.default_rng(seed), [[np.arange(n_labels)]]
    for level in range(n_inner):
        capacity = max_children ** (n_inner - level)  # labels that fit below a node of the next level
        nodes = [_Node(Z, group, k, capacity, max_children, _draw(len(group), k, rng), seed) for group in levels[-1]]
        if len(nodes) == 1:
            levels.append(nodes[0].child_groups(processes))
        else:
            levels.append(_shared_groups(nodes, processes))
    # Below each node, labels are in the order of its children.
    for level in range(n_inner - 1, -1, -1):
        ends = np.cumsum([len(group) for group in levels[level]])
        levels[level] = np.split(np.concatenate(levels[level + 1]), ends[:-1])
    return levels


def _shared_groups(nodes: "list[_Node]", processes: Processes) -> list[Group]:
    """The child groups of all nodes, in their order; each process clusters the labels of some nodes."""
    if processes.size == 1:
        return [child for node in nodes for child in node.child_groups()]
    parts, of_node = [np.empty(0, np.int64)], []
    for i in processes.queue(range(len(nodes)), [len(node.group) for node in nodes]):
        children = nodes[i].child_groups()
        parts += children
        of_node += [i] * len(children)
    order = np.argsort(processes.concatenate(np.array(of_node, np.int64)), kind="stable")
    sizes = processes.concatenate(np.array([len(part) for part in parts[1:]], np.int64))
    groups = np.split(processes.concatenate(np.concatenate(parts)), np.cumsum(sizes)[:-1])
    return [groups[i] for i in order]


class _Node:
    """The clustering of the labels of one node.

    k, starts   number of clusters, and the labels that they start from
    capacity    labels that a cluster may have
    """

    def __init__(
        self, Z: CsrArray, group: Group, k: int, capacity: int, max_children: int, starts: IntArray, seed: int
    ) -> None:
        self.Z, self.group, self.k, self.capacity, self.max_children = Z, group, k, capacity, max_children
        self.starts, self.seed = starts, seed

    def child_groups(self, processes: Processes = ALONE) -> list[Group]:
        """About k clusters: at most `max_children`, of at most `capacity` labels each.

        The node has at most max_children * capacity labels.
        """
        clusters = _split(self.Z, self.group, self.starts, processes)
        parts = [small for part in clusters for small in self._limit(part)]
        return parts if len(parts) <= self.max_children else _slices(np.concatenate(parts), self.capacity)

    def _limit(self, group: Group) -> list[Group]:
        """A group in parts of at most `capacity` labels."""
        if len(group) <= self.capacity:
            return [group]
        k = 2 * -(-len(group) // self.capacity)
        rng = np.random.default_rng([self.seed, int(group[0]), len(group)])  # of its own: others do not wait for it
        parts = _split(self.Z, group, _draw(len(group), k, rng))
        if max(len(part) for part in parts) > len(group) // 2:  # as of equal labels, which cannot be told apart
            return _slices(np.concatenate(parts), self.capacity)
        return [small for part in parts for small in self._limit(part)]


def _slices(group: Group, size: int) -> list[Group]:
    """The labels in parts of about equal sizes, at most `size`."""
    return np.array_split(group, -(-len(group) // size))


def _draw(n: int, k: int, rng: np.random.Generator) -> IntArray:
    """The labels, of n, from which at most k clusters start; none for a single cluster."""
    k = min(k, -(-n // MIN_LABELS_PER_CLUSTER))
    return rng.choice(n, k, replace=False) if k >= 2 else np.empty(0, np.int64)


def _split(Z: CsrArray, group: Group, starts: IntArray, processes: Processes = ALONE) -> list[Group]:
    """At most as many clusters of a group's labels as there are starts, by spherical k-means from these."""
    n, k = len(group), len(starts)
    if k < 2:
        return [group]
    if n == Z.shape[0]:  # all labels, in order: no copy
        indptr, ids, values, n_features = Z.indptr, Z.indices, Z.data, Z.shape[1]
        order = features_by_occurrence(ids, n_features)
    else:
        indptr, ids, values, features = take_local_rows(
            Z.indptr, Z.indices, Z.data, group, np.full(Z.shape[1], -1, np.int32)
        )
        n_features = max(len(features), 1)
        order = np.arange(n_features)
    centroids = np.zeros((n_features, k), np.float32)
    for c, label in enumerate(starts.tolist()):
        own = slice(int(indptr[label]), int(indptr[label + 1]))
        centroids[ids[own], c] = values[own]
    cluster = np.full(n, -1)

    def nearest(first: int, last: int) -> tuple[IntArray]:
        found = np.empty(last - first, np.int64)
        nearest_centroids(indptr[first : last + 1], ids, values, centroids, found)
        return (found,)

    for _ in range(KMEANS_ITERATIONS):
        before, (cluster,) = cluster, processes.by_rows(n, nearest)
        if np.mean(cluster != before) < MIN_KMEANS_CHANGE:
            break
        centroids[:] = 0
        add_to_clusters(indptr, ids, values, cluster, centroids)
        norms = _column_norms(centroids, order)
        np.divide(centroids, norms, out=centroids, where=norms > 0)
    return [group[cluster == c] for c in np.unique(cluster)]


def _column_norms(V: FloatArray, order: IntArray) -> FloatArray:
    """Lengths of columns, of which some rows are summed up in an order.  Shapes: (f, k), (m) -> (k)"""
    return np.asarray(np.linalg.norm(V[order], axis=0), np.float32)
