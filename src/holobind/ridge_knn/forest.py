"""A forest of quantised linear splits, which sorts rows into leaves; `fit_forest` builds it.

    at a split    second branch if sum_f level_f trunc(250 x_f) + threshold > 0, else first branch
    level         an integer from -3 to 3, the split's weight of a feature
    x             a row of norm 1, rounded like a query of `KnnIndex`

A branch is the index of a split, or -1 - l for leaf l. Sums are sums of integers, so that a row ends in the same leaves
on every machine, and they fit 16 bits for up to MAX_FEATURES features.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind._jit import compiled
from holobind._threads import by_rows
from holobind._types import CsrArray
from holobind.data.csr import checked_csr
from holobind.errors import OptionError
from holobind.ridge_knn._kernels import QUERY_NORM, add_columns, quantise_queries
from holobind.ridge_knn._module import FixedDtypeModule

MAX_LEVEL = 3
MAX_FEATURES = 1024
assert MAX_LEVEL * MAX_FEATURES**0.5 * QUERY_NORM < 1 << 15  # by Cauchy and Schwarz
MAX_DEPTH = 4096  # splits on a path, which bounds the time of a row; a fitted tree has fewer splits in all
MAX_TREES = 256  # the sum of so many leaf values in eight bits fits 16 bits
TOP_SPLITS = 64  # first splits of each tree, whose sums are computed for every row

SplitLevels = tuple[NDArray[np.int8], NDArray[np.int8]]


class Forest(FixedDtypeModule):
    """Trees, with the splits of one tree after those of another, from each root on."""

    levels: Tensor  # (f, splits) int8: in this order a row holds mostly zeros, which compress well
    thresholds: Tensor  # (splits) float32
    branches: Tensor  # (splits, 2) int32: later splits, or leaves
    roots: Tensor  # (trees) int32: a split, or a leaf

    def __init__(self, n_features: int, *, n_trees: int, n_splits: int) -> None:
        super().__init__()
        if not 1 <= n_features <= MAX_FEATURES or n_trees < 1 or n_splits < 0:
            raise OptionError(
                f"Forest: it needs 1 to {MAX_FEATURES} features, at least 1 tree and no negative number of splits; "
                f"got {n_features} features, {n_trees} trees, {n_splits} splits"
            )
        self.n_features, self.n_leaves = n_features, n_splits + n_trees
        self.register_buffer("levels", torch.zeros(n_features, n_splits, dtype=torch.int8))
        self.register_buffer("thresholds", torch.zeros(n_splits))
        self.register_buffer("branches", torch.full((n_splits, 2), -1, dtype=torch.int32))
        self.register_buffer("roots", torch.full((n_trees,), -1, dtype=torch.int32))

    @property
    def n_trees(self) -> int:
        return len(self.roots)

    def config(self) -> dict[str, Any]:
        """JSON values that, as keyword arguments after `n_features`, build it again."""
        return {"n_trees": self.n_trees, "n_splits": len(self.thresholds)}

    def check_loaded(self) -> None:
        """Raise OptionError unless every path ends at a leaf, after MAX_DEPTH splits at most, and sums fit 16 bits."""
        if self.levels.numel() and not -MAX_LEVEL <= int(self.levels.min()) <= int(self.levels.max()) <= MAX_LEVEL:
            raise OptionError(f"Forest: levels must be from {-MAX_LEVEL} to {MAX_LEVEL}")
        if self.n_trees > MAX_TREES:
            raise OptionError(f"Forest: at most {MAX_TREES} trees are allowed; got {self.n_trees}")
        splits = torch.arange(len(self.branches))[:, None]
        later = (self.branches < 0) | ((self.branches > splits) & (self.branches < len(self.branches)))
        if not later.all() or self.roots.max() >= len(self.branches):
            raise OptionError("Forest: a branch must lead to a leaf or to a later split")
        if min(int(nodes.min()) for nodes in (self.branches, self.roots) if nodes.numel()) < -self.n_leaves:
            raise OptionError(f"Forest: leaves must be from 0 to {self.n_leaves - 1}")
        if len(self.branches) > MAX_DEPTH and (depth := _depth(self.branches.cpu().numpy())) > MAX_DEPTH:
            raise OptionError(f"Forest: a path may have {MAX_DEPTH} splits; got one of {depth}")

    def split_levels(self) -> SplitLevels:
        """Levels in the order of splits, and levels of the first TOP_SPLITS splits of every tree in that of features.

        Shapes: -> (splits, f), (f * trees * TOP_SPLITS)
        """
        levels, roots = self.levels.cpu().numpy(), self.roots.cpu().numpy()
        top = np.zeros((self.n_features, len(roots), TOP_SPLITS), np.int8)
        for tree, root in enumerate(roots):
            if root >= 0:  # behind the splits of a small tree are those of the next one, which are never used
                tree_levels = levels[:, root : root + TOP_SPLITS]
                top[:, tree, : tree_levels.shape[1]] = tree_levels
        return np.ascontiguousarray(levels.T), top.ravel()

    def leaves(self, X: CsrArray, split_levels: SplitLevels | None = None) -> NDArray[np.int32]:
        """The leaf of each row in each tree.

        split_levels   the result of `split_levels()`, which saves its time

        Shapes: (n, f) -> (n, trees)
        """
        X = checked_csr(X, "Forest: X", self.n_features)
        levels, top_levels = split_levels or self.split_levels()
        leaves = np.empty((X.shape[0], self.n_trees), np.int32)
        thresholds, branches, roots = (t.cpu().numpy() for t in (self.thresholds, self.branches, self.roots))
        unweighted = np.ones(self.n_features, np.float32)

        def find(first: int, last: int) -> None:
            indptr, nodes = X.indptr[first : last + 1], leaves[first:last]
            values = quantise_queries(indptr, X.indices, X.data, unweighted, 0.0)
            _pass_top_splits(indptr, X.indices, values, top_levels, TOP_SPLITS, thresholds, branches, roots, nodes)
            _descend(indptr, X.indices, values, levels, thresholds, branches, nodes)

        by_rows(find, len(leaves))
        return leaves


@compiled()
def _depth(branches):  # type: ignore[no-untyped-def]
    """The number of splits on the longest path; branches lead to later splits."""
    depths = np.ones(len(branches), np.int64)
    for split in range(len(branches) - 1, -1, -1):
        for branch in range(2):
            child = branches[split, branch]
            if child >= 0:
                depths[split] = max(depths[split], depths[child] + 1)
    return depths.max()


@compiled()
def _pass_top_splits(indptr, ids, values, top_levels, n_top, thresholds, branches, roots, nodes):  # type: ignore[no-untyped-def]
    """The node that each row reaches in each tree after the tree's first splits.

    The sums of all these splits are computed at once for a row: most steps of a path are among them.
    """
    width = np.uint64(len(roots) * n_top)
    sums = np.zeros(width, np.int16)
    max_entries = 0
    for r in range(len(nodes)):
        max_entries = max(max_entries, indptr[r + 1] - indptr[r])
    offsets = np.empty(max_entries, np.uint64)
    for r in range(len(nodes)):
        first, n = indptr[r] - indptr[0], indptr[r + 1] - indptr[r]
        for j in range(n):
            offsets[j] = np.uint64(ids[indptr[r] + j]) * width
        sums[:] = 0
        add_columns(sums, np.uint64(0), width, top_levels, offsets, values[first : first + n], n)
        for t in range(len(roots)):
            node = roots[t]
            while 0 <= node < roots[t] + n_top:
                total = sums[t * n_top + node - roots[t]]
                node = branches[node, np.int64(total + thresholds[node] > 0)]
            nodes[r, t] = node


@compiled()
def _descend(indptr, ids, values, levels, thresholds, branches, nodes):  # type: ignore[no-untyped-def]
    """Replace the node of each row in each tree by the leaf below it.

    It goes tree by tree, so that a tree stays in the cache, and moves all rows by one split at a time, so that their
    sums do not wait for each other. Rows are padded with zeros to multiples of four entries, added side by side.
    """
    m, f = len(indptr) - 1, np.uint64(levels.shape[1])
    flat, one = levels.reshape(-1), np.uint64(1)  # unsigned: compiled code need not handle negative indices
    ends = np.zeros(m + 1, np.uint64)
    for r in range(m):
        ends[r + 1] = ends[r] + np.uint64((indptr[r + 1] - indptr[r] + 3) // 4 * 4)
    padded_ids, padded_values = np.zeros(ends[m], np.uint32), np.zeros(ends[m], np.int32)
    for r in range(m):
        for j in range(indptr[r], indptr[r + 1]):
            at = ends[r] + np.uint64(j - indptr[r])
            padded_ids[at], padded_values[at] = ids[j], values[j - indptr[0]]
    node = np.empty(m, np.int32)
    for t in range(nodes.shape[1]):
        node[:] = nodes[:, t]
        moving = True
        while moving:
            moving = False
            for r in range(m):
                if node[r] >= 0:
                    split, j = np.uint64(node[r]) * f, ends[r]
                    a, b, c, d = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
                    while j < ends[r + 1]:
                        a += flat[split + padded_ids[j]] * padded_values[j]
                        b += flat[split + padded_ids[j + one]] * padded_values[j + one]
                        c += flat[split + padded_ids[j + one + one]] * padded_values[j + one + one]
                        d += flat[split + padded_ids[j + one + one + one]] * padded_values[j + one + one + one]
                        j += one + one + one + one
                    node[r] = branches[node[r], np.int64(a + b + c + d + thresholds[node[r]] > 0)]
                    moving = True
        for r in range(m):
            nodes[r, t] = -1 - node[r]
