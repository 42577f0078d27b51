"""Output layers for very many labels, and their losses.

    head(h)                               (rows, in) -> outputs
    head.loss(h, labels, offsets)         mean over rows; label sets are ragged, as in `torch.nn.EmbeddingBag`
    head.scores(h)                        (rows, in) -> (rows, L)
    head.top_k(h, k)                      (rows, in) -> scores and labels, (rows, k) each, best first
    head.label_range(rank, world_size)    the labels that one of several processes ranks with `top_k`
    head.labels_above(h, threshold)            (rows, in) -> ragged label sets

`LinearHead` and `HolographicHead` have the same methods, so an experiment can exchange one for the other.
"""

from holobind.heads.build import Head, head_from_config
from holobind.heads.holographic import HolographicHead
from holobind.heads.linear import LinearHead
from holobind.heads.losses import frequency_prior

__all__ = ["Head", "HolographicHead", "LinearHead", "frequency_prior", "head_from_config"]
