"""A linear encoder that recalls its own errors, in a few bits a weight, and trees beside it.

    v(x) = x W + b + knn_weight sum_i w_i (t_i - x_i W - b)          i over the nearest training rows
    w_i  = cos(x, x_i)^similarity_power / sum_j cos(x, x_j)^similarity_power     features scale_columns by idf^idf_power
    t_i  = sum_l (n_max / n_l)^rare_label_boost c_l                            l over the labels of row i; n_l rows have label l

and with trees, where t and e are means over training rows in leaves of x of t_i and of t_i - x_i W - b,

    (1 - share) (v(x) + MEND e) + share t

What a linear encoder cannot say, because it is linear or because a penalty holds it back, shows in its errors on rows
like x, and these are known: the second term is their mean, added as a vector, so that reading labels off v stays one
transform. Errors are not stored but made when they are asked for, from the training rows and label sets, which are
sparse, and W, in few bits a weight. Where labels are no more than the d numbers of v, these are their scores: label
vectors are unit vectors, and W is turned before it is packed (bound with a random unitary vector), as few bits hold
numbers best that are spread evenly. Where features are few and rows many, more can be known than a linear map holds,
and trees (`forest`) know some of it; what is in their leaves is not stored either.

A penalty shrinks the scores of rare labels more than those of frequent ones. Vectors that are longer the rarer their
label is make up for it: all is linear, so scores come out times these lengths, and prediction knows nothing of it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from holobind._threads import by_rows
from holobind._types import CsrArray, FloatArray
from holobind.codebooks import OrbitCodebook
from holobind.data.csr import idf_weights, scale_columns
from holobind.ridge_knn import quantise as quantise
from holobind.ridge_knn._kernels import add_alike, add_entries, add_rows, add_slices, round_rows
from holobind.ridge_knn.forest import Forest
from holobind.ridge_knn.knn_index import KnnIndex

if TYPE_CHECKING:
    from holobind.ridge_knn.network import RidgeKnn


Counts = NDArray[np.int16]


Ids = NDArray[np.int64]


# Adds to the outputs of some rows, from a first up to a last one, what they are the sum of.
AddTerm = Callable[[int, int, FloatArray], None]


NEAREST = 30  # rows whose errors are recalled


FEWEST = 4  # features of a row that recalls, or is recalled, beside trees: with fewer it has more equals than 30


TABLE = 1 << 30  # bytes of errors that are kept once they have been made


SOME = 64  # rows that are summed up together


MEND = 0.6  # how much of the mean error in leaves is added


class Encoder:
    """A packed network made ready: weights in eight bits, and so the errors, which are made when they are asked for.

    near   whether near rows will be asked for
    """

    def __init__(self, packed: "RidgeKnn", near: bool = True) -> None:
        if packed.plain:
            self.levels, self.scales = _rounded(packed.weights().numpy())
        else:
            self.levels = quantise.levels(packed.codes, packed.out_features, packed.bits).numpy()
            self.scales = (packed.scales.float() / 2).numpy()
        self.bias, self.book = packed.bias.float().numpy(), packed.codebook()
        self.similarity_power, self.knn_weight = packed.similarity_power, packed.knn_weight
        self.X, sets = packed.training_rows()
        self.Y = scale_columns(
            sets, lengths(np.bincount(sets.indices, minlength=sets.shape[1]), packed.rare_label_boost)
        )
        # Pages that are never written take no memory.
        n, d = self.X.shape[0], packed.out_features
        self.table = np.empty((n, d), np.int8) if n * d <= TABLE else None
        self.steps, self.made = np.empty(n, np.float32), np.zeros(n, bool)
        self.forest, self.share = packed.forest, packed.share
        self.splits = None if self.forest is None else self.forest.laid_out()
        self.leaves = None if self.forest is None else self._leaves(self.forest)
        self.nearest = self.search(packed.idf_power, self.forest is not None) if near and packed.knn_weight else None

    def search(self, idf_power: float, beside_trees: bool) -> Callable[[CsrArray], tuple[Counts, Ids]] | None:
        """What finds the stored rows nearest to others, and how similar they are; None, if there are none to find.

        Beside trees, rows of few features neither ask nor are found.

        idf_power   how much more rare features count
        """
        fewest = FEWEST if beside_trees else 0
        some = np.flatnonzero(np.diff(self.X.indptr) >= fewest)
        if not len(some):
            return None
        near = KnnIndex(self.X[some], idf_weights(self.X, idf_power))

        def nearest(X: CsrArray) -> tuple[Counts, Ids]:
            similar, ids = near(X, NEAREST, fewest)
            return similar, some[ids]

        return nearest

    def encode(self, X: CsrArray) -> Tensor:
        """v of rows.  Shapes: (n, f) -> (n, d)"""
        rest = 1 - self.share
        parts = [self.linear(X, rest)]
        if self.nearest is not None:
            parts.append(self.recalled(*self.nearest(X), self.similarity_power, rest * self.knn_weight))
        if self.forest is not None:
            parts.append(self.consulted(X))
        return torch.from_numpy(self.total(parts, X.shape[0], rest))

    def total(self, parts: list[AddTerm], n: int, rest: float = 0.0) -> FloatArray:
        """The sums, and so much of the bias; a few rows at a time, which stay in the cache.  Shapes: -> (n, d)"""
        v, bias = np.empty((n, len(self.bias)), np.float32), np.float32(rest) * self.bias

        def block(first: int, last: int) -> None:
            for top in range(first, last, SOME):
                some = v[top : min(top + SOME, last)]
                some[:] = bias
                for add in parts:
                    add(top, top + len(some), some)

        by_rows(block, n)
        return v

    def linear(self, X: CsrArray, rest: float = 1.0) -> AddTerm:
        """x W, times a number."""
        return _sums(X.indptr, X.indices, X.data * (self.scales * np.float32(rest))[X.indices], self.levels)

    def recalled(self, similar: Counts, ids: Ids, similarity_power: float, knn_weight: float) -> AddTerm:
        """The mean errors of the nearest rows, by powers of their similarities.  Shapes: 2 x (n, k)"""
        table, steps = self.table, self.steps
        found = similar[:, 0] > 0  # rows that are near to some
        ids = ids[found]
        if table is None:
            used, ids = np.unique(ids, return_inverse=True)
            table, steps = self._errors(used)
        else:
            new = np.unique(ids[~self.made[ids]])
            if len(new):
                table[new], steps[new] = self._errors(new)
                self.made[new] = True
        ends = np.append(0, np.cumsum(np.where(found, similar.shape[1], 0)))
        values = shares(similar[found], similarity_power) * np.float32(knn_weight) * steps[ids]
        return _sums(ends, ids.ravel(), values.ravel(), table)

    def consulted(self, X: CsrArray) -> AddTerm:
        """The trees' mean of what is in the leaves of rows.  Shapes: (n, f)"""
        assert self.forest is not None and self.leaves is not None
        (table, step), ids = self.leaves, self.forest.leaves(X, self.splits)
        scale = np.float32(step / ids.shape[1])
        return lambda first, last, out: add_alike(ids[first:last], table, scale, out)

    def _leaves(self, forest: Forest) -> tuple[NDArray[np.int8], float]:
        """What the rows in each leaf say, share t + (1 - share) MEND e, rounded, and the step that all are rounded to.

        Shapes: -> (leaves, d), ()
        """
        at, d = forest.leaves(self.X, self.splits), len(self.bias)
        n, k = at.shape
        sizes = np.maximum(np.bincount(at.ravel(), minlength=forest.n_leaves), 1).astype(np.float32)
        of_rows = (1 / sizes)[at.ravel()], at.ravel(), np.arange(0, n * k + 1, k)
        means = sparse.csr_array(of_rows, (n, forest.n_leaves))
        mend = (1 - self.share) * MEND
        total = np.zeros((forest.n_leaves, d), np.float32)
        step = max(1, TABLE // (4 * d))
        for first in range(0, n, step):
            said, scales = self._errors(np.arange(first, min(first + step, n)), self.share + mend, mend)
            some = means[first : first + step].T.tocsr()
            values = some.data * scales[some.indices]

            def block(first: int, last: int) -> None:
                add_rows(some.indptr[first : last + 1], some.indices, values, said, total[first:last])  # noqa: B023

            by_rows(block, len(total))
        unit = float(np.abs(total).max(initial=0)) / 127 or 1.0
        return np.rint(total / unit, out=total).astype(np.int8), unit

    def _errors(self, rows: Ids, t: float = 1.0, linear: float = 1.0) -> tuple[NDArray[np.int8], FloatArray]:
        """What the linear encoder lacks on some training rows, rounded, and the steps that it is rounded to.

        t, linear   how much targets and the encoder count: t t_i - linear (x_i W + b)

        Shapes: (m) -> (m, d), (m)
        """
        X, Y, d = self.X[rows], self.Y[rows], len(self.bias)
        values, lengths = X.data * self.scales[X.indices] * np.float32(-linear), Y.data * np.float32(t)
        book = self.book
        if isinstance(book, OrbitCodebook):
            rings, starts = book.rings().numpy(), book.starts(torch.from_numpy(Y.indices)).numpy()
        found, steps = np.empty((len(rows), d), np.int8), np.empty(len(rows), np.float32)

        def block(first: int, last: int) -> None:
            room = np.empty((min(SOME, last - first), d), np.float32)
            for top in range(first, last, SOME):
                end = min(top + SOME, last)
                lacking = room[: end - top]
                lacking[:] = np.float32(-linear) * self.bias
                if isinstance(book, OrbitCodebook):
                    add_slices(Y.indptr[top : end + 1], starts, lengths, rings, lacking)
                else:
                    add_entries(Y.indptr[top : end + 1], Y.indices, lengths, lacking)
                add_rows(X.indptr[top : end + 1], X.indices, values, self.levels, lacking)
                round_rows(lacking, found[top:end], steps[top:end])

        by_rows(block, len(rows))
        return found, steps


def _sums(ends: NDArray[Any], index: NDArray[Any], values: FloatArray, table: NDArray[np.int8]) -> AddTerm:
    """Sums over rows of a table in eight bits: where each sum ends, which rows, and times what."""
    return lambda first, last, out: add_rows(ends[first : last + 1], index, values, table, out)


def lengths(counts: NDArray[np.int64], rare_label_boost: float) -> FloatArray:
    """(n_max / n)^rare_label_boost of labels that n rows have: 1 of the most frequent, more of others.  Shapes: (L) -> (L)"""
    return ((max(int(counts.max(initial=1)), 1) / np.maximum(counts, 1)) ** rare_label_boost).astype(np.float32)


def shares(similar: Counts, similarity_power: float) -> FloatArray:
    """Powers of similarities, as shares of their sum; all 0 where nothing is similar.  Shapes: (n, k) -> (n, k)"""
    # In float64, whose last bit may differ with the place in an array: float32's then does not.
    ratios = similar / np.maximum(similar[:, :1], 1).astype(np.float64)
    powers = ratios
    while similarity_power % 2 == 0 and similarity_power > 0:  # products take a tenth of the time of powers
        powers, similarity_power = np.square(powers, out=powers), similarity_power / 2
    if similarity_power == 3:
        powers = powers * powers * powers
    elif similarity_power != 1:
        powers = np.where(similar > 0, powers**similarity_power, 0)  # also at similarity_power 0
    total = powers.sum(1, keepdims=True)
    return np.divide(powers, total, out=powers, where=total > 0).astype(np.float32)


def _rounded(V: FloatArray) -> tuple[NDArray[np.int8], FloatArray]:
    """Rows in eight bits, and their steps.  Shapes: (n, d) -> (n, d), (n)"""
    found, steps = np.empty(V.shape, np.int8), np.empty(len(V), np.float32)
    round_rows(V, found, steps)
    return found, steps
