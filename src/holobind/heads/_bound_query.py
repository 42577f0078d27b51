"""The query loss with p and m bound to the labels: by the compiled function if that takes the inputs."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holobind.codebooks import Codebook, OrbitCodebook
from holobind.codebooks._tracing import has_values
from holobind.codebooks.ragged import checked_sets
from holobind.heads import losses

if TYPE_CHECKING:
    from holobind.heads.holographic import HolographicHead


def bound_query_loss(
    head: "HolographicHead", h: Tensor, labels: Tensor, offsets: Tensor, present: Codebook, missing: Codebook
) -> Tensor:
    """The query loss of ragged sets; `present` and `missing` are the codebooks of p (x) c and m (x) c.

    Shapes: (rows, in), (total), (rows) -> ()
    """
    plain = head.label_weights is None
    if (
        plain
        and isinstance(present, OrbitCodebook)
        and isinstance(missing, OrbitCodebook)
        and _fusible(h, labels, offsets)
    ):
        weight = head.weight  # looked up once: even that takes time at the smallest shapes
        if h.shape[1] == (present.dim if weight is None else weight.shape[1]):
            doubled = head._basis is None
            if doubled:
                p_c, m_c = present.doubled_bases(), missing.doubled_bases()
            else:
                p_c, m_c = head._present_in_basis, head._missing_in_basis
            targets = labels.numpy(), offsets.numpy(), p_c.numpy(), m_c.numpy(), present.n_labels, doubled
            loss = _fused_query_loss()(h, weight, head.bias, targets)
            if loss is not None:
                return loss
    s = head._output(h)
    labels, offsets = checked_sets(labels, offsets, present.n_labels, s.device, len(s))
    if not len(s):
        return s.sum()
    weights = None if head.label_weights is None else head.label_weights.to(s)[labels]
    sums = present._encode(labels, offsets, weights), missing._encode(labels, offsets, weights)
    return losses.bound_query_loss(s, *sums, labels.numel() if weights is None else weights.sum())


@cache
def _fused_query_loss() -> Callable[..., Tensor | None]:
    from holobind.heads._fused_query_loss import fused_query_loss  # compiles when first used

    return fused_query_loss


def _fusible(h: Tensor, labels: Tensor, offsets: Tensor) -> bool:
    """Whether the compiled function takes these: a float32 matrix and sets of int64, all on the CPU, no autocast."""
    return (
        has_values(h, labels, offsets)
        and h.dtype == torch.float32
        and h.is_cpu
        and h.ndim == 2
        and labels.dtype == offsets.dtype == torch.int64
        and labels.is_cpu
        and offsets.is_cpu
        and offsets.shape == h.shape[:1]
        and not torch.is_autocast_enabled("cpu")
    )
