"""Output layers for very many labels, and their losses.

    head(h)                               (*batch, in) -> outputs: vectors of d dimensions, or logits
    head.loss(h, target)                  class indices, label sets or probabilities (`targets`); by default the mean
    head.scores(h)                        (*batch, in) -> (*batch, L)
    head.scores_of(h, ids)                (*batch, in), (*batch, m) -> (*batch, m)
    head.logits(h), head.log_prob(h)      (*batch, in) -> (*batch, L)
    head.predict(h), head.sample(h)       (*batch, in) -> (*batch): the best label, or one that is drawn
    head.top_k(h, k)                      (*batch, in) -> scores and labels, (*batch, k) each, best first
    head.label_range(rank, world_size)    the labels that one of several processes ranks with `top_k`
    head.labels_above(h, threshold)       (rows, in) -> ragged label sets

`LinearHead` and `HolographicHead` have the same methods, so an experiment can exchange one for the other.
"""

from holobind.heads.build import Head, head_from_config
from holobind.heads.cross_entropy import HolographicCrossEntropyLoss
from holobind.heads.export import ExportableHead
from holobind.heads.holographic import HolographicHead
from holobind.heads.linear import LinearHead
from holobind.heads.losses import frequency_prior

__all__ = [
    "ExportableHead",
    "Head",
    "HolographicCrossEntropyLoss",
    "HolographicHead",
    "LinearHead",
    "frequency_prior",
    "head_from_config",
]
