"""Output layers for very many labels. A head answers: what is the loss, and which are the top k labels?

    head(h)                         (rows, in) -> outputs
    head.loss(h, labels, offsets)   mean over rows; label sets are ragged, as in `torch.nn.EmbeddingBag`
    head.scores(h)                  (rows, in) -> (rows, L)
    head.top_k(h, k)                (rows, in) -> scores and labels, (rows, k) each, best first
    head.label_range(rank, world)         a range of labels, for `top_k` of one of several scorers
    head.present(h, threshold)      (rows, in) -> ragged label sets

`LinearHead` and `HolographicHead` differ in nothing else, so an experiment can swap one for the other.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, linear

from holobind._checks import integer, one_of, positive
from holobind.codebooks.base import first_largest, label_range
from holobind.codebooks.ragged import checked_sets, lengths
from holobind.errors import OptionError
from holobind.heads._layer import _layer, _width

LinearLoss = Literal["bce", "softmax"]


class LinearHead(nn.Module):
    """One weight vector for each label: the layer that holographic heads replace.

    Parameters: `weight` (L, in_features), `bias` (L); none with in_features=None, if a network gives the logits.

    loss: "bce", the paper's baseline, the mean binary cross-entropy over rows and labels; "softmax", cross-entropy
    with the present labels sharing the probability 1. A row without labels adds 0 to either.
    """

    def __init__(
        self, in_features: int | None, n_labels: int, loss: LinearLoss = "bce", seed: int = 0, *, bias: bool = True
    ) -> None:
        super().__init__()
        one_of("LinearHead", "loss", loss, get_args(LinearLoss))
        self.loss_name = loss
        self.n_labels = positive("LinearHead", "n_labels", n_labels)
        self.weight, self.bias = _layer(in_features, n_labels, bias, seed)

    def forward(self, h: Tensor) -> Tensor:
        """A logit for each label.  Shapes: (rows, in_features) -> (rows, L)"""
        return h if self.weight is None else linear(h, self.weight, self.bias)

    def loss(self, h: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
        """How wrong the logits are about the labels.  Shapes: (rows, in), (total), (rows) -> ()"""
        x = self(h)
        labels, offsets = checked_sets(labels, offsets, self.n_labels, x.device, len(x))
        if not len(x):
            return x.sum()
        counts = lengths(labels, offsets)
        row = torch.arange(len(x), device=x.device).repeat_interleave(counts)
        if self.loss_name == "softmax":
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            found = x.new_zeros(len(x)).index_add(0, row, x[row, labels]) / counts.clamp(min=1)
            return torch.where(counts > 0, x.logsumexp(1) - found, 0).sum() / len(x)
        wanted = torch.zeros_like(x)
        wanted[row, labels] = 1
        full = None if counts.all() else (counts > 0)[:, None].to(x.dtype)
        return binary_cross_entropy_with_logits(x, wanted, full)

    def scores(self, h: Tensor) -> Tensor:
        """The logits.  Shapes: (rows, in) -> (rows, L)"""
        return self(h)

    def top_k(self, h: Tensor, k: int, *, labels: tuple[int, int] | None = None) -> tuple[Tensor, Tensor]:
        """The k largest logits and their labels, among equals the lowest; of a `share` of the labels, if one is given.

        Shapes: (rows, in) -> (rows, k), (rows, k)
        """
        if not 1 <= integer("top_k", "k", k) <= self.n_labels:
            raise OptionError(f"top_k: k must be from 1 to the number of labels, {self.n_labels}; got {k}")
        first, last = labels or (0, self.n_labels)
        some = slice(first, last)
        with torch.no_grad():
            if self.weight is None:
                x = h[:, some]
            else:
                x = linear(h, self.weight[some], None if self.bias is None else self.bias[some])
            found, where = first_largest(x.float(), min(k, last - first))
        return found, where + first

    def label_range(self, rank: int, world: int) -> tuple[int, int]:
        """The labels, first and last, that the `rank`-th of `world` scorers takes."""
        return label_range(self.n_labels, 1, rank, world)

    def present(self, h: Tensor, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
        """All labels with a probability above the threshold, as ragged sets.  Shapes: (rows, in) -> (total), (rows)"""
        with torch.no_grad():
            x = self(h).float()
            row, labels = ((x.sigmoid() if self.loss_name == "bce" else x.softmax(1)) > threshold).nonzero().T
            counts = row.bincount(minlength=len(x))
        return labels, counts.cumsum(0) - counts

    def extra_repr(self) -> str:
        return f"in_features={_width(self.weight)}, n_labels={self.n_labels}, loss={self.loss_name!r}"
