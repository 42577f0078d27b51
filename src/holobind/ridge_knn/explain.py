"""The output of a `RidgeKnn` network for one row, as parts that add up to it; what extra scores add to any network.

The parts are read from the int8 tables that prediction adds up, so that their sum is the output but for the rounding
of float32 sums. Quantisation changes the output, and it changes the parts in the same way.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind._types import CsrArray, FloatArray, IntArray
from holobind.data.csr import normalise_rows
from holobind.heads import Head
from holobind.networks.base import Network
from holobind.ridge_knn.encoder import similarity_weights
from holobind.ridge_knn.extra_scores import ExtraScores, unpadded
from holobind.ridge_knn.label_tree import search_trees
from holobind.ridge_knn.network import RidgeKnn


@dataclass(frozen=True)
class OutputParts:
    """Parts of the output v of one row. Their sum over all rows of all fields is v.

    bias         (d) of the ridge regression
    features     (m, d) of each feature of the row, in the order of its entries
    rows         (k) the nearest training rows
    similarity   (k) the weight of each of them in the mean residual; they sum to 1
    neighbours   (k, d) of their residuals
    leaves       (t) the leaf of each tree
    trees        (t, d) of the values of these leaves
    """

    bias: FloatArray
    features: FloatArray
    rows: IntArray
    similarity: FloatArray
    neighbours: FloatArray
    leaves: IntArray
    trees: FloatArray

    def scores(self, vector: Tensor) -> "LabelParts":
        """The parts of one label's score, which is <v, c>.  Shapes: c (d)"""
        c = vector.numpy().astype(np.float64)
        return LabelParts(float(self.bias @ c), *(part @ c for part in (self.features, self.neighbours, self.trees)))


@dataclass(frozen=True)
class LabelParts:
    """Parts of a label's score: of the bias, each feature, each neighbour and each tree.  Shapes: (), (m), (k), (t)"""

    bias: float
    features: NDArray[np.float64]
    neighbours: NDArray[np.float64]
    trees: NDArray[np.float64]


def output_parts(network: RidgeKnn, x: CsrArray) -> OutputParts:
    """The parts of the output of one row of norm 1.  Shapes: sparse (1, f)"""
    encoder = network.prepare()
    d, ridge_weight = len(encoder.bias), np.float32(1 - encoder.forest_weight)
    feature_scales = x.data * encoder.weight_scales[x.indices] * ridge_weight
    features = encoder.weight_levels[x.indices] * feature_scales[:, None]
    rows, similarity, neighbours = np.empty(0, np.int64), np.empty(0, np.float32), np.empty((0, d), np.float32)
    if encoder.knn_search is not None:
        similarities, found = encoder.knn_search(x)
        near = similarities[0] > 0
        rows, similarity = found[0][near], similarity_weights(similarities, encoder.similarity_power)[0][near]
        levels, scales = encoder._residuals(rows)
        knn_scales = scales * similarity * (ridge_weight * np.float32(encoder.knn_weight))
        neighbours = levels * knn_scales[:, None]
    leaves, trees = np.empty(0, np.int64), np.empty((0, d), np.float32)
    if encoder.forest is not None and encoder.leaf_values is not None:
        (table, unit), leaf_ids = encoder.leaf_values, encoder.forest.leaves(x, encoder.split_levels)[0]
        leaves, trees = leaf_ids.astype(np.int64), table[leaf_ids] * np.float32(unit / len(leaf_ids))
    return OutputParts(ridge_weight * encoder.bias, features, rows, similarity, neighbours, leaves, trees)


@dataclass(frozen=True)
class ExtraParts:
    """Parts of some labels' scores for one row that `ExtraScores` adds.

    rows         (k) the nearest training rows
    similarity   (k) the weight of each of them
    neighbours   (labels, k) what each of them adds, by its residual or by its vote
    trees        (labels) what label trees add
    """

    rows: IntArray
    similarity: FloatArray
    neighbours: NDArray[np.float64]
    trees: NDArray[np.float64]


def extra_parts(
    extra: ExtraScores, x: CsrArray, labels: IntArray, network: Network, head: Head, order: IntArray | None
) -> ExtraParts:
    """The parts that are added to a trained network; `order` is that of `ExtraScores.add_to_output`.

    Shapes: x sparse (1, f), labels (m)
    """
    x, n = normalise_rows(x), len(labels)
    rows, similarity, neighbours = np.empty(0, np.int64), np.empty(0, np.float32), np.empty((n, 0))
    if extra.knn_weight:
        search = (extra.residual_tables(network, head, order) if extra.residuals else extra.vote_tables()[::-1])[1]
        similarities, found = search(x)
        near = similarities[0] > 0
        rows, similarity = found[0][near], similarity_weights(similarities, extra.similarity_power)[0][near]
        weights = np.float32(extra.knn_weight) * similarity
        if extra.residuals:
            encoder = extra.residual_tables(network, head, order)[0]
            levels, scales = encoder._residuals(rows)
            ids = labels if order is None else np.argsort(order)[labels]
            vectors = head.ridge_codebook().vectors(torch.from_numpy(ids)).detach().cpu().double().numpy()
            neighbours = vectors @ (levels * (weights * scales)[:, None]).T
        else:
            neighbours = extra.vote_tables()[1][rows][:, labels].toarray().T * weights.astype(np.float64)
    trees = np.zeros(n)
    if extra.label_trees:
        scores = unpadded(*search_trees(extra.trees(), x), extra.n_labels)
        trees = extra.tree_weight * scores[:, labels].toarray()[0].astype(np.float64)
    return ExtraParts(rows, similarity, neighbours, trees)
