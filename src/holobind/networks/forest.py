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

from holobind.errors import OptionError
from holobind.networks.near import QUESTION, rounded
from holobind.sparse import Sparse
from holobind.threads import by_rows

TOP = 3  # the largest level
FEATURES = 1024
assert TOP * FEATURES**0.5 * QUESTION < 1 << 15  # by Cauchy and Schwarz
SOME = 128  # rows that are sorted together


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
        splits = torch.arange(len(self.branches))[:, None]
        later = (self.branches < 0) | ((self.branches > splits) & (self.branches < len(self.branches)))
        if not later.all() or self.roots.max() >= len(self.branches):
            raise OptionError("Forest: a split has a child that is not a later one")
        if min(int(part.min()) for part in (self.branches, self.roots) if part.numel()) < -self.n_leaves:
            raise OptionError(f"Forest: leaves must be from 0 to {self.n_leaves - 1}")

    def by_split(self) -> NDArray[np.int8]:
        """The levels of each split together.  Shapes: -> (splits, f)"""
        return np.ascontiguousarray(self.levels.numpy().T)

    def leaves(self, X: Sparse, levels: NDArray[np.int8] | None = None) -> NDArray[np.int64]:
        """The leaf of each row in each tree; `levels` are those `by_split`, if they are at hand.

        Shapes: (n, f) -> (n, trees)
        """
        levels = self.by_split() if levels is None else levels
        found = np.empty((X.shape[0], len(self.roots)), np.int64)
        thresholds, branches, roots = (part.numpy() for part in (self.thresholds, self.branches, self.roots))

        ones = np.ones(self.n_features, np.float32)

        def work(first: int, last: int) -> None:
            ends = X.indptr[first : last + 1]
            asked = rounded(ends, X.indices, X.data, ones)
            _descend(ends, X.indices, asked, levels, thresholds, branches, roots, found[first:last])

        by_rows(work, len(found))
        return found


@numba.njit(nogil=True, cache=True)
def _descend(ptr, index, asked, levels, thresholds, branches, roots, found):  # type: ignore[no-untyped-def]
    """Tree by tree for some rows, which are dense here: both stay in the cache, and vector units are of use."""
    f = np.uint64(levels.shape[1])  # unsigned: compiled code need not look for negative indices
    flat, dense = levels.reshape(-1), np.zeros(SOME * levels.shape[1], np.int16)
    for first in range(0, len(found), SOME):
        last = min(first + SOME, len(found))
        for r in range(first, last):
            for j in range(ptr[r], ptr[r + 1]):
                dense[np.uint64(r - first) * f + np.uint64(index[j])] = asked[j - ptr[0]]
        for t in range(len(roots)):
            found[first:last, t] = roots[t]
            going = True
            while going:  # all rows one split further: their sums do not wait for each other
                going = False
                for r in range(first, last):
                    at = found[r, t]
                    if at >= 0:
                        split, row, total = np.uint64(at) * f, np.uint64(r - first) * f, np.int16(0)
                        for i in range(f):
                            total = np.int16(total + flat[split + i] * dense[row + i])
                        found[r, t] = branches[at, np.int64(total + thresholds[at] > 0)]
                        going = True
        found[first:last] = -1 - found[first:last]
        for r in range(first, last):
            for j in range(ptr[r], ptr[r + 1]):
                dense[np.uint64(r - first) * f + np.uint64(index[j])] = 0
