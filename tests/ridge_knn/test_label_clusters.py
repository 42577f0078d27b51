"""Clusters of labels against k-means by its definition, and those of several processes against those of one."""

from itertools import pairwise

import numpy as np
import pytest
from helpers.processes import run_together
from helpers.ridge_knn import rare_words
from scipy.sparse import csr_array

from holobind.data.csr import normalise_rows
from holobind.ridge_knn import label_clusters
from holobind.ridge_knn.label_clusters import cluster_labels


@pytest.fixture(scope="module")
def features():
    X, Y = rare_words(n=900, f=300, labels=250)
    return normalise_rows(csr_array(Y.T @ X))


def k_means(rows, starts):
    """Spherical k-means of dense rows, by its definition."""
    centroids, cluster = rows[starts], np.full(len(rows), -1)
    for _ in range(label_clusters.KMEANS_ITERATIONS):
        before, cluster = cluster, (rows @ centroids.T).argmax(1)
        if (cluster != before).mean() < label_clusters.MIN_KMEANS_CHANGE:
            break
        sums = np.stack([rows[cluster == c].sum(0) for c in range(len(starts))])
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centroids = sums / np.where(norms > 0, norms, 1)
    return cluster


@pytest.mark.parametrize("part", [np.arange(250), np.arange(0, 250, 2)])
def test_clusters_are_those_of_spherical_k_means(features, part):
    starts = np.random.default_rng(1).choice(len(part), 7, replace=False)
    cluster = k_means(features.toarray().astype(np.float64)[part], starts)
    found = label_clusters._split(features, part, starts)
    assert [group.tolist() for group in found] == [part[cluster == c].tolist() for c in np.unique(cluster)]


@pytest.mark.parametrize("max_children", [5, 12, 256])  # with few children, clusters are divided, and levels are more
@pytest.mark.parametrize("size", [2, 3])
def test_processes_find_the_clusters_of_one(features, max_children, size):
    alone = cluster_labels(features, max_children, 4)
    for levels in run_together(size, lambda processes: cluster_labels(features, max_children, 4, processes)):
        assert [[group.tolist() for group in level] for level in levels] == [
            [group.tolist() for group in level] for level in alone
        ]


@pytest.mark.parametrize("max_children", [5, 12, 256])
def test_every_level_has_each_label_once_in_one_order_and_no_node_has_too_many_children(features, max_children):
    levels = cluster_labels(features, max_children)
    order = np.concatenate(levels[-1])
    assert sorted(order.tolist()) == list(range(250))
    for level, below in pairwise(levels):
        assert (np.concatenate(level) == order).all()
        ends = set(np.cumsum([len(group) for group in below]).tolist())
        first = 0
        for group in level:
            assert 1 <= sum(first < end <= first + len(group) for end in ends) <= max_children
            first += len(group)
    assert max(len(group) for group in levels[-1]) <= max_children
