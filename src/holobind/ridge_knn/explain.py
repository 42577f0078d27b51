"""The output of a `RidgeKnn` network for one row, as parts that add up to it.

The parts are read from the int8 tables that prediction adds up, so that their sum is the output but for the rounding
of float32 sums. Quantisation changes the output, and it changes the parts in the same way.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from holobind._types import CsrArray, FloatArray, IntArray
from holobind.ridge_knn.encoder import similarity_weights
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
