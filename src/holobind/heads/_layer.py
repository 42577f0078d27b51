"""Output layers for very many labels. A head answers: what is the loss, and which are the top k labels?

    head(h)                         (rows, in) -> outputs
    head.loss(h, labels, offsets)   mean over rows; label sets are ragged, as in `torch.nn.EmbeddingBag`
    head.scores(h)                  (rows, in) -> (rows, L)
    head.top_k(h, k)                (rows, in) -> scores and labels, (rows, k) each, best first
    head.label_range(rank, world)         a range of labels, for `top_k` of one of several scorers
    head.present(h, threshold)      (rows, in) -> ragged label sets

`LinearHead` and `HolographicHead` differ in nothing else, so an experiment can swap one for the other.
"""

from math import sqrt

import torch
from torch import Tensor, nn

from holobind._checks import positive


def _layer(
    in_features: int | None, out_features: int, bias: bool, seed: int
) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    """Weights from the distribution of `nn.Linear`, but drawn from `seed`, not from the global generator."""
    if in_features is None:
        return None, None
    positive("head", "in_features", in_features)
    reach = 1 / sqrt(in_features)
    generator = torch.Generator().manual_seed(seed)
    weight = torch.empty(out_features, in_features).uniform_(-reach, reach, generator=generator)
    offset = torch.empty(out_features).uniform_(-reach, reach, generator=generator)
    return nn.Parameter(weight), nn.Parameter(offset) if bias else None


def _width(weight: Tensor | None) -> int | None:
    return None if weight is None else weight.shape[1]
