"""Trees that sort rows into leaves by linear splits of few bits; `holobind.grow` grows them.

    at a split    to the second branch if sum_f level_f [250 x_f] + threshold > 0, else to the first
    level         a whole number from -3 to 3
    [250 x_f]     of a row of length 1, rounded towards 0, as in `near`

Branches are numbers of splits, or of leaves: leaf l is -1 - l. Sums are of whole numbers, so that a row ends in the
same leaves everywhere, and fit 16 bits for up to FEATURES features.
"""

from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from holobind._threads import by_rows
from holobind._types import CsrArray
from holobind.errors import OptionError
from holobind.ridge_knn.knn_index import QUESTION, add_columns, rounded

TOP = 3  # the largest level
FEATURES = 1024
assert TOP * FEATURES**0.5 * QUESTION < 1 << 15  # by Cauchy and Schwarz
TREES = 256  # whose leaves, in eight bits, add up to 16 bits
HIGH = 64  # splits of a tree whose sums are made for every row


class Forest(nn.Module):
    """Where rows end in each of some trees."""

    levels: Tensor  # (f, splits) int8: a feature's are mostly 0 in a row, which deflates
    thresholds: Tensor  # (splits) float32
    branches: Tensor  # (splits, 2) int32, later splits or leaves
    roots: Tensor  # (trees) int32

    def __init__(self, n_features: int, *, trees: int, splits: int) -> None:
        super().__init__()
        if not 1 <= n_features <= FEATURES or trees < 1 or splits < 0:
            raise OptionError(
                f"Forest: wants trees and 1 to {FEATURES} features; got {n_features}, {trees} trees, {splits} splits"
            )
        self.n_features, self.n_leaves = n_features, splits + trees
        self.register_buffer("levels", torch.zeros(n_features, splits, dtype=torch.int8))
        self.register_buffer("thresholds", torch.zeros(splits))
        self.register_buffer("branches", torch.full((splits, 2), -1, dtype=torch.int32))
        self.register_buffer("roots", torch.full((trees,), -1, dtype=torch.int32))

    def config(self) -> dict[str, Any]:
        return {"trees": len(self.roots), "splits": len(self.thresholds)}

    def check(self) -> None:
        """Raise OptionError unless every way down ends at a leaf, and sums stay small."""
        if self.levels.numel() and not -TOP <= int(self.levels.min()) <= int(self.levels.max()) <= TOP:
            raise OptionError(f"Forest: levels must be from {-TOP} to {TOP}")
        if len(self.roots) > TREES:
            raise OptionError(f"Forest: at most {TREES} trees; got {len(self.roots)}")
        splits = torch.arange(len(self.branches))[:, None]
        later = (self.branches < 0) | ((self.branches > splits) & (self.branches < len(self.branches)))
        if not later.all() or self.roots.max() >= len(self.branches):
            raise OptionError("Forest: a split has a child that is not a later one")
        if min(int(part.min()) for part in (self.branches, self.roots) if part.numel()) < -self.n_leaves:
            raise OptionError(f"Forest: leaves must be from 0 to {self.n_leaves - 1}")

    def laid_out(self) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        """The levels of each split together, and those of each feature at the first HIGH splits of every tree.

        Shapes: -> (splits, f), (f * trees * HIGH)
        """
        levels, roots = self.levels.numpy(), self.roots.numpy()
        high = np.zeros((self.n_features, len(roots), HIGH), np.int8)
        for tree, root in enumerate(roots):
            if root >= 0:  # what follows a small tree's splits belongs to the next one, and is never looked at
                some = levels[:, root : root + HIGH]
                high[:, tree, : some.shape[1]] = some
        return np.ascontiguousarray(levels.T), high.ravel()

    def leaves(
        self, X: CsrArray, laid_out: tuple[NDArray[np.int8], NDArray[np.int8]] | None = None
    ) -> NDArray[np.int32]:
        """The leaf of each row in each tree; levels as they are `laid_out`, if they are at hand.

        Shapes: (n, f) -> (n, trees)
        """
        levels, high = laid_out or self.laid_out()
        found = np.empty((X.shape[0], len(self.roots)), np.int32)
        thresholds, branches, roots = (part.numpy() for part in (self.thresholds, self.branches, self.roots))
        ones = np.ones(self.n_features, np.float32)

        def work(first: int, last: int) -> None:
            ends = X.indptr[first : last + 1]
            asked = rounded(ends, X.indices, X.data, ones, 0.0)
            _start(ends, X.indices, asked, high, HIGH, thresholds, branches, roots, found[first:last])
            _descend(ends, X.indices, asked, levels, thresholds, branches, found[first:last])

        by_rows(work, len(found))
        return found


@numba.njit(nogil=True, cache=True)
def _start(ptr, index, asked, high, size, thresholds, branches, roots, found):  # type: ignore[no-untyped-def]
    """Row by row through the first splits of all trees, whose sums are made at once: few splits are most of a way."""
    width = np.uint64(len(roots) * size)
    sums = np.zeros(width, np.int16)
    longest = 0
    for r in range(len(found)):
        longest = max(longest, ptr[r + 1] - ptr[r])
    at = np.empty(longest, np.uint64)
    for r in range(len(found)):
        first, n = ptr[r] - ptr[0], ptr[r + 1] - ptr[r]
        for j in range(n):
            at[j] = np.uint64(index[ptr[r] + j]) * width
        sums[:] = 0
        add_columns(sums, np.uint64(0), width, high, at, asked[first : first + n], n)
        for t in range(len(roots)):
            now = roots[t]
            while 0 <= now < roots[t] + size:
                total = sums[t * size + now - roots[t]]
                now = branches[now, np.int64(total + thresholds[now] > 0)]
            found[r, t] = now


@numba.njit(nogil=True, cache=True)
def _descend(ptr, index, asked, levels, thresholds, branches, found):  # type: ignore[no-untyped-def]
    """On from there, tree by tree for all rows, so that a tree is in the cache, and all of them one split further at a
    time, so that their sums do not wait for each other. Rows are filled up with zeros to fours, added side by side.
    """
    m, f = len(ptr) - 1, np.uint64(levels.shape[1])
    flat, one = levels.reshape(-1), np.uint64(1)  # unsigned: compiled code need not look for negative indices
    ends = np.zeros(m + 1, np.uint64)
    for r in range(m):
        ends[r + 1] = ends[r] + np.uint64((ptr[r + 1] - ptr[r] + 3) // 4 * 4)
    ids, values = np.zeros(ends[m], np.uint32), np.zeros(ends[m], np.int32)
    for r in range(m):
        for j in range(ptr[r], ptr[r + 1]):
            at = ends[r] + np.uint64(j - ptr[r])
            ids[at], values[at] = index[j], asked[j - ptr[0]]
    now = np.empty(m, np.int32)
    for t in range(found.shape[1]):
        now[:] = found[:, t]
        going = True
        while going:
            going = False
            for r in range(m):
                if now[r] >= 0:
                    split, j = np.uint64(now[r]) * f, ends[r]
                    a, b, c, d = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
                    while j < ends[r + 1]:
                        a += flat[split + ids[j]] * values[j]
                        b += flat[split + ids[j + one]] * values[j + one]
                        c += flat[split + ids[j + one + one]] * values[j + one + one]
                        d += flat[split + ids[j + one + one + one]] * values[j + one + one + one]
                        j += one + one + one + one
                    now[r] = branches[now[r], np.int64(a + b + c + d + thresholds[now[r]] > 0)]
                    going = True
        for r in range(m):
            found[r, t] = -1 - now[r]
