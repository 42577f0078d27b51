"""The linear layer of a head, from the network's output to the head's."""

from math import sqrt

import torch
from torch import Tensor, nn

from holobind._checks import positive


def linear_layer(
    in_features: int | None, out_features: int, bias: bool, seed: int
) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    """Weight and bias with the distribution of `nn.Linear`, drawn from `seed` and not from the global generator.

    With in_features=None the head has no layer, and both are None.

    Shapes: -> (out_features, in_features), (out_features)
    """
    if in_features is None:
        return None, None
    positive("head", "in_features", in_features)
    bound = 1 / sqrt(in_features)
    generator = torch.Generator().manual_seed(seed)
    weight = torch.empty(out_features, in_features).uniform_(-bound, bound, generator=generator)
    offset = torch.empty(out_features).uniform_(-bound, bound, generator=generator)
    return nn.Parameter(weight), nn.Parameter(offset) if bias else None


def n_inputs(weight: Tensor | None) -> int | None:
    """The layer's `in_features`, or None if there is no layer."""
    return None if weight is None else weight.shape[1]
