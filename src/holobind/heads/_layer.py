"""The linear layer of a head, from the network's output to the head's."""

from math import sqrt

import torch
from torch import Tensor, nn

from holobind._checks import positive


def linear_layer(
    in_features: int | None,
    out_features: int,
    bias: bool,
    seed: int | None,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    """Weight and bias of `nn.Linear`: without a seed, the very same that it draws from torch's global generator.

    With in_features=None the head has no layer, and both are None.

    Shapes: -> (out_features, in_features), (out_features)
    """
    if in_features is None:
        return None, None
    positive("head", "in_features", in_features)
    weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
    offset = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
    reset_layer(weight, offset, seed)
    return weight, offset


def reset_layer(weight: Tensor, bias: Tensor | None, seed: int | None) -> None:
    """Draw weight and bias again, uniformly within 1 / sqrt(in_features): as `nn.Linear` does, or from a seed.

    A seed gives the same values on every device: they are drawn on the CPU.
    """
    if weight.is_meta:
        return
    bound = 1 / sqrt(weight.shape[1])
    with torch.no_grad():
        if seed is None:
            for tensor in (weight, bias):
                if tensor is not None:
                    tensor.uniform_(-bound, bound)
            return
        generator = torch.Generator().manual_seed(seed)
        weight.copy_(torch.empty(weight.shape, device="cpu").uniform_(-bound, bound, generator=generator))
        drawn = torch.empty(len(weight), device="cpu").uniform_(-bound, bound, generator=generator)
        if bias is not None:
            bias.copy_(drawn)


def n_inputs(weight: Tensor | None) -> int | None:
    """The layer's `in_features`, or None if there is no layer."""
    return None if weight is None else weight.shape[1]
