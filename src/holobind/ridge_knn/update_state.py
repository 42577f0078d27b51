"""What a network keeps so that it can go on learning: penalty, corrections, and exact weights for fast updates.

Without weights, an update solves the regression again from the training rows and label sets, which the kNN step stores.
With them, it solves for what changes. Most weights are in 16 bits:

    W[j, c] = scales[j] levels[j, c],      |levels| <= 32767

Where label vectors are one-hot, a feature has a few large weights, and the N_EXACT largest stay in float32. The scale
of the others is then a tenth: rounding changes scores of cooking-stackexchange by 3e-6 at most in place of 3e-5, which
would add up over updates. Weights take 2 (f + 1) d bytes, and 64 more a feature where label vectors are one-hot.
"""

from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from holobind._types import CsrArray, FloatArray, IntArray
from holobind.errors import OptionError
from holobind.ridge_knn._module import FixedDtypeModule

CONSTANT_FEATURE = 0.3  # value of the constant feature of rows of norm 1, whose weights are the bias
MAX_LEVEL = 32767
N_EXACT = 8  # largest weights of a feature, in float32


class UpdateState(FixedDtypeModule):
    """The state of `RidgeKnn.learning_on`: buffers, and the penalty.

    n_rows, n_unknowns, columns, n_labels   of the network: stored rows, features + 1, columns of the regression, labels
    l2                                      penalty of the regression
    rejected, free                          numbers of rejected labels of rows, and of ids without a label
    weights                                 whether W and label weights are kept; without it, all buffers of them are
                                            empty
    """

    levels: Tensor  # (features + 1, columns) int16: W; the last row belongs to the constant feature
    scales: Tensor  # (features + 1) float32
    largest: Tensor  # (features + 1, exact) float32: the largest weights of each feature; exact is N_EXACT, fewer, or 0
    largest_columns: Tensor  # (features + 1, exact) int32: their columns
    label_weights: Tensor  # (L) float32: lengths of the labels' target vectors
    rejected_rows: Tensor  # (rejected) int32: row and label of each correction, ascending
    rejected_labels: Tensor  # (rejected) int32
    free_labels: Tensor  # (free) int32: ids of forgotten labels, ascending

    def __init__(
        self,
        n_rows: int,
        n_unknowns: int,
        columns: int,
        n_labels: int,
        *,
        l2: float,
        rejected: int = 0,
        free: int = 0,
        weights: bool = True,
    ) -> None:
        super().__init__()
        if isinstance(l2, bool) or not isinstance(l2, int | float) or not (np.isfinite(l2) and l2 > 0):
            raise OptionError(f"UpdateState: l2 must be a positive number; got {str(l2)[:40]}")
        if min(rejected, free) < 0 or free >= n_labels:
            raise OptionError(f"UpdateState: {rejected} rejected and {free} free labels cannot be of {n_labels} labels")
        if not isinstance(weights, bool):
            raise OptionError(f"UpdateState: weights must be true or false; got {str(weights)[:40]}")
        self.n_rows, self.n_labels, self.l2, self.keeps_weights = n_rows, n_labels, float(l2), weights
        self.n_exact = min(N_EXACT, columns) if weights and columns == n_labels else 0
        n_unknowns, columns, n_weighted = (n_unknowns, columns, n_labels) if weights else (0, 0, 0)
        for name, buffer in {
            "levels": torch.zeros(n_unknowns, columns, dtype=torch.int16),
            "scales": torch.zeros(n_unknowns),
            "largest": torch.zeros(n_unknowns, self.n_exact),
            "largest_columns": torch.zeros(n_unknowns, self.n_exact, dtype=torch.int32),
            "label_weights": torch.ones(n_weighted),
            "rejected_rows": torch.zeros(rejected, dtype=torch.int32),
            "rejected_labels": torch.zeros(rejected, dtype=torch.int32),
            "free_labels": torch.zeros(free, dtype=torch.int32),
        }.items():
            self.register_buffer(name, buffer)

    @classmethod
    def of(
        cls,
        W: FloatArray,
        label_weights: FloatArray,
        rejected: tuple[IntArray, IntArray],
        free_labels: IntArray,
        *,
        n_rows: int,
        l2: float,
    ) -> Self:
        """Round W and keep it.  Shapes: W (f + 1, columns), label_weights (L)"""
        n_unknowns, columns = W.shape
        state = cls(
            n_rows, n_unknowns, columns, len(label_weights), l2=l2, rejected=len(rejected[0]), free=len(free_labels)
        )
        weights = torch.from_numpy(W)
        lengths = weights.abs()
        at = lengths.topk(state.n_exact, dim=1).indices
        state.largest, state.largest_columns = weights.gather(1, at), at.to(torch.int32)
        others = lengths.scatter_(1, at, 0).amax(1) if columns else weights.new_zeros(n_unknowns)
        state.scales = (others / MAX_LEVEL).clamp_min(torch.finfo(torch.float32).tiny)
        state.levels = torch.div(weights, state.scales[:, None]).round_().clamp_(-MAX_LEVEL, MAX_LEVEL).to(torch.int16)
        state.label_weights = torch.from_numpy(label_weights.astype(np.float32))
        state._correct(rejected, free_labels)
        return state

    @classmethod
    def of_rows(
        cls, rejected: tuple[IntArray, IntArray], free_labels: IntArray, *, n_rows: int, n_labels: int, l2: float
    ) -> Self:
        """Keep no weights."""
        sizes = {"rejected": len(rejected[0]), "free": len(free_labels)}
        state = cls(n_rows, 0, 0, n_labels, l2=l2, weights=False, **sizes)
        state._correct(rejected, free_labels)
        return state

    def _correct(self, rejected: tuple[IntArray, IntArray], free_labels: IntArray) -> None:
        self.rejected_rows, self.rejected_labels, self.free_labels = (
            torch.from_numpy(np.asarray(array, np.int32)) for array in (*rejected, free_labels)
        )

    def weights(self) -> FloatArray:
        """W, the last row that of the constant feature.  Shapes: -> (f + 1, columns)"""
        W = torch.mul(self.levels.cpu(), self.scales.cpu()[:, None])
        return W.scatter_(1, self.largest_columns.cpu().long(), self.largest.cpu()).numpy()

    def rejections(self) -> CsrArray:
        """-1 for each label that was rejected for a row.  Shapes: -> (n, L)"""
        at = self.rejected_rows.cpu().numpy(), self.rejected_labels.cpu().numpy()
        return csr_array((np.full(len(at[0]), -1, np.float32), at), (self.n_rows, self.n_labels))

    def config(self) -> dict[str, Any]:
        """JSON values that, as keyword arguments after the sizes of the network, build it again."""
        return {
            "l2": self.l2,
            "rejected": len(self.rejected_rows),
            "free": len(self.free_labels),
            "weights": self.keeps_weights,
        }

    def check_loaded(self) -> None:
        """Raise OptionError unless ids are within their ranges and each comes once: a file may hold anything."""
        for name, ids, size in (
            ("rejected_rows", self.rejected_rows, self.n_rows),
            ("rejected_labels", self.rejected_labels, self.n_labels),
            ("free_labels", self.free_labels, self.n_labels),
            ("largest_columns", self.largest_columns, self.levels.shape[1]),
        ):
            if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                raise OptionError(f"UpdateState: {name} must be from 0 to {size - 1}")
        pairs = self.rejected_rows.long() * self.n_labels + self.rejected_labels.long()
        if any(len(ids) > 1 and not bool((ids[1:] > ids[:-1]).all()) for ids in (pairs, self.free_labels)):
            raise OptionError("UpdateState: rejected and free labels must ascend, each once")
        if len(self.label_weights) and (float(self.label_weights.min()) <= 0 or float(self.scales.min()) < 0):
            raise OptionError("UpdateState: label_weights must be positive, and scales not negative")
