"""A linear layer on sparse rows, whose gradient is sparse."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from holobind.codebooks.ragged import set_sizes
from holobind.data.batches import SparseBatch


class SparseLinear(nn.EmbeddingBag):
    """x W for sparse rows x. The gradient of W is sparse: it has only the rows of features in the batch.

    Parameters: `weight` (n_features, out_features).

        y[r] = sum_j values[j] W[ids[j]]         over the entries j of row r
        dW[i] = sum_j values[j] dy[row of j]     over the entries j of feature i: the same kind of sum, transposed

    It is a subclass of EmbeddingBag because DistributedDataParallel recognises sparse gradients by that type.
    """

    def __init__(self, n_features: int, out_features: int, *, scale: float = 0.0, seed: int = 0) -> None:
        weight = torch.zeros(n_features, out_features, device="meta" if on_meta() else None)
        if scale and not weight.is_meta:
            weight.uniform_(-scale, scale, generator=torch.Generator().manual_seed(seed))
        super().__init__(n_features, out_features, mode="sum", sparse=True, _weight=weight)

    def forward(self, rows: SparseBatch) -> Tensor:  # type: ignore[override]
        """Shapes: sparse (rows, n_features) -> (rows, out_features)"""
        return _Product.apply(self.weight, *rows)


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, offsets: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(ids, offsets, values)
        ctx.size = weight.shape
        return embedding_bag(ids, weight, offsets, mode="sum", per_sample_weights=values.to(weight.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        ids, offsets, values = ctx.saved_tensors
        row = torch.arange(len(offsets), device=ids.device).repeat_interleave(set_sizes(ids, offsets))
        return feature_gradient(ids, row, values, grad, ctx.size), None, None, None


def feature_gradient(ids: Tensor, rows: Tensor, values: Tensor, grad: Tensor, size: torch.Size) -> Tensor:
    """dW, sparse and sorted, from the entries of a batch (feature, row, value) and the gradients of its rows.

    Shapes: 3 x (total), (rows, out_features) -> sparse (n_features, out_features)
    """
    by_feature, order = ids.sort(stable=True)
    features, counts = by_feature.unique_consecutive(return_counts=True)
    starts = counts.cumsum(0) - counts
    found = embedding_bag(
        rows[order], grad.contiguous(), starts, mode="sum", per_sample_weights=values[order].to(grad.dtype)
    )
    return torch.sparse_coo_tensor(features[None], found, size, is_coalesced=True, check_invariants=False)


def on_meta() -> bool:
    """Whether modules are built on the meta device, for their shapes alone."""
    return torch.empty(0).is_meta
