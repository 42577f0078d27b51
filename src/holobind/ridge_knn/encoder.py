"""Fast outputs of a ridge regression with kNN: weights, residuals and leaf values as int8 tables.

The output is a sum of terms: the ridge regression x W + b, the mean residual of the nearest training rows, and the mean
leaf value of the trees (`network` has the equations). Each term is a weighted sum of rows of an int8 table. The terms
of a block of rows are added while the block is in the cache. `LinearEncoder` has the first two, for `RidgeKnn` and for
the solved linear path of a trained network (`extra_scores`); `Encoder` has all three.

Residuals are not stored in a model. They are computed from the training rows when a query first needs them, and kept up
to MAX_KNN_TABLE_BYTES. Leaf values are computed when the encoder is built.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind._threads import by_rows
from holobind._types import CsrArray, FloatArray, IntArray
from holobind.codebooks import Codebook, OneHotCodebook, OrbitCodebook
from holobind.data.csr import column_counts, from_arrays, idf_weights
from holobind.ridge_knn._kernels import add_int8_product, add_int8_row_sums, add_slices, add_sparse, quantise_rows
from holobind.ridge_knn.forest import Forest
from holobind.ridge_knn.knn_index import N_NEIGHBOURS, KnnIndex
from holobind.ridge_knn.quantise import unpack_levels

if TYPE_CHECKING:
    from holobind.ridge_knn.network import RidgeKnn

MIN_FEATURES_WITH_FOREST = 4  # of queries and neighbours: rows with fewer features have more than 30 equals
LEAF_RESIDUAL_WEIGHT = 0.6  # of the mean residual in leaves
MAX_KNN_TABLE_BYTES = 1 << 30  # of the residual table; a larger one is not kept
MAX_ROWS_WITHOUT_TABLE = 512  # that are encoded together, if no table keeps residuals: 30 KB each with d = 1024
BLOCK_ROWS = 64  # rows whose terms are added together

Int8Array = NDArray[np.int8]
Neighbours = tuple[NDArray[np.int16], IntArray]  # similarities and indices of training rows, as `KnnIndex` gives them
KnnSearch = Callable[[CsrArray], Neighbours]
AddTerm = Callable[[int, int, FloatArray], None]  # add a term of the rows first to last to an output array


class LinearEncoder:
    """A linear map x W + b and its residuals on training rows, as tables, and the sums over them.

        t_i - (x_i W + b),      t_i = sum over the labels l of row i of y_il c_l

    weights          W as int8 levels and a scale a row (`quantised`)
    codebook         with the label vectors c
    X, Y             the training rows, and their labels times the lengths of target vectors
    max_table_bytes  of residuals that are kept

    Shapes: weights (f, d) and (f), bias (d), X (n, f), Y (n, L)
    """

    def __init__(
        self,
        weights: tuple[Int8Array, FloatArray],
        bias: FloatArray,
        codebook: Codebook,
        X: CsrArray,
        Y: CsrArray,
        max_table_bytes: int = sys.maxsize,
    ) -> None:
        self.weight_levels, self.weight_scales = weights
        self.bias, self.codebook, self.X, self.Y = bias, codebook, X, Y
        n, d = X.shape[0], len(bias)
        # Pages of an empty array that are never written take no memory.
        self.residuals = np.empty((n, d), np.int8) if n * d <= min(MAX_KNN_TABLE_BYTES, max_table_bytes) else None
        self.residual_scales, self.residual_known = np.empty(n, np.float32), np.zeros(n, bool)

    def build_knn_search(
        self, idf_power: float, with_forest: bool, feature_counts: tuple[IntArray, int] | None = None
    ) -> KnnSearch | None:
        """A search for the training rows nearest to given rows; None if there is no row to find.

        idf_power     power of the features' idf weights in the cosine
        with_forest   leave rows with few features out, as queries and as neighbours
        feature_counts   numbers of rows with each feature, and of rows; by default those of the training rows
        """
        min_features = MIN_FEATURES_WITH_FOREST if with_forest else 0
        indexed = np.flatnonzero(np.diff(self.X.indptr) >= min_features)
        if not len(indexed):
            return None
        counts, n_rows = (column_counts(self.X), self.X.shape[0]) if feature_counts is None else feature_counts
        rows = self.X if len(indexed) == self.X.shape[0] else self.X[indexed]
        index = KnnIndex(rows, idf_weights(counts, n_rows, idf_power))

        def search(X: CsrArray) -> Neighbours:
            similarities, neighbours = index.search(X, N_NEIGHBOURS, min_features)
            return similarities, indexed[neighbours]

        return search

    def sum_terms(self, terms: list[AddTerm], n: int, bias_weight: float = 0.0) -> FloatArray:
        """The sum of terms and of `bias_weight` times the bias.  Shapes: -> (n, d)"""
        out, bias = np.empty((n, len(self.bias)), np.float32), np.float32(bias_weight) * self.bias

        def sum_range(first: int, last: int) -> None:
            for top in range(first, last, BLOCK_ROWS):
                block = out[top : min(top + BLOCK_ROWS, last)]
                block[:] = bias
                for add in terms:
                    add(top, top + len(block), block)

        by_rows(sum_range, n)
        return out

    def linear_term(self, X: CsrArray, weight: float = 1.0) -> AddTerm:
        """weight x W.  Shapes: (n, f)"""
        values = X.data * (self.weight_scales * np.float32(weight))[X.indices]
        return _weighted_rows(X.indptr, X.indices, values, self.weight_levels)

    def knn_term(self, neighbours: Neighbours, similarity_power: float, weight: float) -> AddTerm:
        """weight times the mean residual of the neighbours, weighted by powers of their similarities.

        Shapes: 2 x (n, k)
        """
        return self.knn_terms(neighbours, (similarity_power,), weight)[0]

    def knn_terms(
        self,
        neighbours: Neighbours,
        similarity_powers: Sequence[float],
        weight: float,
        local: Callable[[IntArray], tuple[IntArray, NDArray[np.bool_]]] | None = None,
    ) -> list[AddTerm]:
        """`knn_term` of several powers, from the same residuals.

        local   training rows from the neighbours' indices, and whether they are rows of this network: residuals of
                others are left out

        Shapes: 2 x (n, k)
        """
        similarities, ids = neighbours
        has_neighbours = similarities[:, 0] > 0
        ids, is_own = ids[has_neighbours], None
        if local is not None:
            ids, is_own = local(ids)
        table, scales, ids = self._residuals_of(ids)
        indptr = np.append(0, np.cumsum(np.where(has_neighbours, similarities.shape[1], 0)))
        terms = []
        for similarity_power in similarity_powers:
            weights = similarity_weights(similarities[has_neighbours], similarity_power)
            if is_own is not None:
                weights = weights * is_own
            values = weights * np.float32(weight) * scales[ids]
            terms.append(_weighted_rows(indptr, ids.ravel(), values.ravel(), table))
        return terms

    def _residuals_of(self, ids: IntArray) -> tuple[Int8Array, FloatArray, IntArray]:
        """A table of residuals, their scales, and where the residuals of some training rows are in it."""
        table, scales = self.residuals, self.residual_scales
        if table is None:
            used, ids = np.unique(ids, return_inverse=True)
            return *self._residuals(used), ids
        new = np.unique(ids[~self.residual_known[ids]])
        if len(new):
            table[new], scales[new] = self._residuals(new)
            self.residual_known[new] = True
        return table, scales, ids

    def forest_output(self, X: CsrArray) -> FloatArray | None:
        """The mean leaf value of the trees of a network with a forest; this map has none."""
        return None

    def _residuals(
        self, rows: IntArray, target_weight: float = 1.0, linear_weight: float = 1.0
    ) -> tuple[Int8Array, FloatArray]:
        """target_weight t_i - linear_weight (x_i W + b) of some training rows i, as int8 levels and a scale a row.

        Shapes: (m) -> (m, d), (m)
        """
        X, Y, d = self.X[rows], self.Y[rows], len(self.bias)
        values = X.data * self.weight_scales[X.indices] * np.float32(-linear_weight)
        label_values = Y.data * np.float32(target_weight)
        add_targets = _target_term(self.codebook, from_arrays(label_values, Y.indices, Y.indptr, Y.shape))
        levels, scales = np.empty((len(rows), d), np.int8), np.empty(len(rows), np.float32)

        def compute_range(first: int, last: int) -> None:
            buffer = np.empty((min(BLOCK_ROWS, last - first), d), np.float32)
            for top in range(first, last, BLOCK_ROWS):
                end = min(top + BLOCK_ROWS, last)
                block = buffer[: end - top]
                block[:] = np.float32(-linear_weight) * self.bias
                add_targets(top, end, block)
                add_int8_product(X.indptr[top : end + 1], X.indices, values, self.weight_levels, block)
                quantise_rows(block, levels[top:end], scales[top:end])

        by_rows(compute_range, len(rows))
        return levels, scales


class Encoder(LinearEncoder):
    """The tables of a `RidgeKnn` network.

    network    where they come from
    with_knn   whether `encode` is to search neighbours; with False, it has no kNN term, and no residual is kept
    label_counts   by which rare labels are boosted; by default those of the network's training rows
    """

    def __init__(self, network: "RidgeKnn", with_knn: bool = True, label_counts: IntArray | None = None) -> None:
        if network.one_hot:
            weights = quantised(network.weights().numpy())
        else:
            levels = unpack_levels(network.codes.cpu(), network.out_features, network.bits).numpy()
            weights = levels, (network.scales.float() / 2).cpu().numpy()
        super().__init__(
            weights,
            network.bias.float().cpu().numpy(),
            network.codebook(),
            network.training_rows()[0],
            network.targets(label_counts),
            network.max_table_bytes if with_knn else 0,
        )
        self.similarity_power, self.knn_weight = network.similarity_power, network.knn_weight
        self.forest, self.forest_weight = network.forest, network.forest_weight
        self.split_levels = None if self.forest is None else self.forest.split_levels()
        self.leaf_values = None if self.forest is None else self._leaf_values(self.forest)
        self.knn_search: KnnSearch | None = None
        if with_knn and network.knn_weight:
            self.knn_search = self.build_knn_search(network.idf_power, with_forest=self.forest is not None)

    def encode(self, X: CsrArray) -> Tensor:
        """The network's outputs.  Shapes: (n, f) -> (n, d)"""
        if self.residuals is None and X.shape[0] > MAX_ROWS_WITHOUT_TABLE:
            ranges = range(0, X.shape[0], MAX_ROWS_WITHOUT_TABLE)
            return torch.cat([self.encode(X[first : first + MAX_ROWS_WITHOUT_TABLE]) for first in ranges])
        ridge_weight = 1 - self.forest_weight
        terms = [self.linear_term(X, ridge_weight)]
        if self.knn_search is not None:
            terms.append(self.knn_term(self.knn_search(X), self.similarity_power, ridge_weight * self.knn_weight))
        if self.forest is not None:
            terms.append(self.forest_term(X))
        return torch.from_numpy(self.sum_terms(terms, X.shape[0], ridge_weight))

    def forest_output(self, X: CsrArray) -> FloatArray | None:
        """The mean leaf value of the trees; None without a forest.  Shapes: (n, f) -> (n, d)"""
        return None if self.forest is None else self.sum_terms([self.forest_term(X)], X.shape[0])

    def forest_term(self, X: CsrArray) -> AddTerm:
        """The mean over trees of the value of a row's leaf.  Shapes: (n, f)"""
        assert self.forest is not None and self.leaf_values is not None
        (table, unit), leaves = self.leaf_values, self.forest.leaves(X, self.split_levels)
        scale = np.float32(unit / leaves.shape[1])
        return lambda first, last, out: add_int8_row_sums(leaves[first:last], table, scale, out)

    def _leaf_values(self, forest: Forest) -> tuple[Int8Array, float]:
        """The value of each leaf, as integer multiples of one unit, and this unit.

            forest_weight t + (1 - forest_weight) LEAF_RESIDUAL_WEIGHT e

        where t and e are the means of the targets and of the residuals of the training rows in the leaf.

        Shapes: -> (leaves, d), ()
        """
        leaves, d = forest.leaves(self.X, self.split_levels), len(self.bias)
        n, k = leaves.shape
        sizes = np.maximum(np.bincount(leaves.ravel(), minlength=forest.n_leaves), 1).astype(np.float32)
        averages = from_arrays(
            (1 / sizes)[leaves.ravel()],
            leaves.ravel(),
            np.arange(0, n * k + 1, k),
            (n, forest.n_leaves),
            canonical=False,
        )
        residual_weight = (1 - self.forest_weight) * LEAF_RESIDUAL_WEIGHT
        total = np.zeros((forest.n_leaves, d), np.float32)
        step = max(1, MAX_KNN_TABLE_BYTES // (4 * d))
        for start in range(0, n, step):
            levels, scales = self._residuals(
                np.arange(start, min(start + step, n)), self.forest_weight + residual_weight, residual_weight
            )
            by_leaf = averages[start : start + step].T.tocsr()
            values = by_leaf.data * scales[by_leaf.indices]

            def add_leaves(first: int, last: int) -> None:
                indptr = by_leaf.indptr[first : last + 1]  # noqa: B023 - called before the next turn
                add_int8_product(indptr, by_leaf.indices, values, levels, total[first:last])  # noqa: B023

            by_rows(add_leaves, len(total))
        unit = float(np.abs(total).max(initial=0)) / 127 or 1.0
        return np.rint(total / unit, out=total).astype(np.int8), unit


def rare_label_weights(counts: IntArray, boost: float) -> FloatArray:
    """(n_max / n_l)^boost of each label l that n_l rows have; 1 for the most frequent label.  Shapes: (L) -> (L)"""
    return ((max(int(counts.max(initial=1)), 1) / np.maximum(counts, 1)) ** boost).astype(np.float32)


def similarity_weights(similarities: NDArray[np.int16], power: float) -> FloatArray:
    """Powers of similarities, divided by their sum; all 0 in a row without a positive one.  Shapes: (n, k) -> (n, k)"""
    # In float64, whose last bit may depend on the position in an array; after rounding to float32 nothing does.
    ratios = similarities / np.maximum(similarities[:, :1], 1).astype(np.float64)
    powers = ratios
    while power % 2 == 0 and power > 0:  # squaring takes a tenth of the time of a general power
        powers, power = np.square(powers, out=powers), power / 2
    if power == 3:
        powers = powers * powers * powers
    elif power != 1:
        powers = np.where(similarities > 0, powers**power, 0)  # also with power 0
    total = powers.sum(1, keepdims=True)
    return np.divide(powers, total, out=powers, where=total > 0).astype(np.float32)


def _weighted_rows(indptr: NDArray[Any], ids: NDArray[Any], values: FloatArray, table: Int8Array) -> AddTerm:
    """The term sum_j values[j] table[ids[j]] over the entries j of each row."""
    return lambda first, last, out: add_int8_product(indptr[first : last + 1], ids, values, table, out)


def _target_term(codebook: Codebook, Y: CsrArray) -> AddTerm:
    """The sums of the label vectors of rows, each times its value in Y.  Shapes: (n, L)"""
    indptr, ids, values = Y.indptr, Y.indices, Y.data
    if isinstance(codebook, OneHotCodebook):
        return lambda first, last, out: add_sparse(indptr[first : last + 1], ids, values, out)
    if isinstance(codebook, OrbitCodebook):
        bases, starts = codebook.doubled_bases().numpy(), codebook.slice_starts(torch.from_numpy(ids)).numpy()
        return lambda first, last, out: add_slices(indptr[first : last + 1], starts, values, bases, out)

    def add_encoded(first: int, last: int, out: FloatArray) -> None:
        at = slice(indptr[first], indptr[last])
        offsets = torch.from_numpy(indptr[first:last].astype(np.int64) - int(indptr[first]))
        labels = torch.from_numpy(ids[at].astype(np.int64))
        out += codebook.encode(labels, offsets, torch.from_numpy(values[at])).detach().cpu().numpy()

    return add_encoded


def quantised(V: FloatArray) -> tuple[Int8Array, FloatArray]:
    """Rows as int8 levels and a scale a row.  Shapes: (n, d) -> (n, d), (n)"""
    levels, scales = np.empty(V.shape, np.int8), np.empty(len(V), np.float32)
    quantise_rows(V, levels, scales)
    return levels, scales
