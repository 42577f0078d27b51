"""The linear head: one weight vector for each label, the baseline of holographic heads."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, linear

from holobind._checks import integer, one_of, positive, shape_text
from holobind.codebooks import Codebook, OrbitCodebook
from holobind.codebooks._tracing import has_values
from holobind.codebooks.ragged import checked_labels, checked_sets, set_sizes
from holobind.codebooks.ranking import label_range, stable_topk
from holobind.errors import OptionError, ShapeError
from holobind.heads._layer import linear_layer, n_inputs, reset_layer
from holobind.heads.cross_entropy import DenseLogits, Reduction, TargetLoss, cross_entropy
from holobind.heads.sampling import LogitMethods
from holobind.heads.targets import Targets, check_label_counts

LinearLoss = Literal["bce", "softmax"]


class LinearHead(TargetLoss, LogitMethods, nn.Module):
    """One weight vector for each label: the layer that holographic heads replace.

    Parameters: `weight` (L, in_features), `bias` (L). With in_features=None there are none: the network produces the
    logits.

    loss: "bce", the paper's baseline, is the mean binary cross-entropy over rows and labels; "softmax" is the
    cross-entropy over all labels, in which each present label has the target probability 1 / |Y|. A row without
    labels adds 0 to either.
    seed, device, dtype: as of `HolographicHead`. Without a seed the first weights are those of `nn.Linear`.
    """

    def __init__(
        self,
        in_features: int | None,
        n_labels: int,
        loss: LinearLoss = "bce",
        seed: int | None = None,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        one_of("LinearHead", "loss", loss, get_args(LinearLoss))
        self.loss_name = loss
        self.n_labels = positive("LinearHead", "n_labels", n_labels)
        self._layer_seed = seed
        device = None if device is None else torch.device(device)
        self.weight, self.bias = linear_layer(in_features, n_labels, bias, seed, device, dtype)

    def reset_parameters(self) -> None:
        """Give the parameters new first values, as after construction."""
        if self.weight is not None:
            reset_layer(self.weight, self.bias, self._layer_seed)

    @property
    def in_features(self) -> int | None:
        """The size of the input, or None if there is no layer."""
        return n_inputs(self.weight)

    @property
    def out_features(self) -> int:
        """The number of logits."""
        return self.n_labels

    @property
    def output_dim(self) -> int:
        """The size of an output: one logit for each label."""
        return self.n_labels

    def forward(self, h: Tensor) -> Tensor:
        """A logit for each label.  Shapes: (*batch, in_features) -> (*batch, L)"""
        return h if self.weight is None else linear(h, self.weight, self.bias)

    def _set_loss(self, h: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
        x = self(h)
        labels, offsets = checked_sets(labels, offsets, self.n_labels, x.device, len(x))
        if not len(x):
            return x.sum()
        counts = set_sizes(labels, offsets)
        row = torch.arange(len(x), device=x.device).repeat_interleave(counts, output_size=labels.numel())
        if self.loss_name == "softmax":
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            present = x.new_zeros(len(x)).index_add(0, row, x[row, labels]) / counts.clamp(min=1)
            return torch.where(counts > 0, x.logsumexp(1) - present, 0).sum() / len(x)
        target = torch.zeros_like(x)
        target[row, labels] = 1
        full = has_values(counts) and bool(counts.all())
        row_weights = None if full else (counts > 0)[:, None].to(x.dtype)
        return binary_cross_entropy_with_logits(x, target, row_weights)

    def _target_loss(
        self, h: Tensor, targets: Targets, reduction: Reduction, label_smoothing: float, weight: Tensor | None
    ) -> Tensor:
        x = self(h)
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.loss_name == "softmax":
            return cross_entropy(DenseLogits(x), targets, self.n_labels, reduction, label_smoothing, weight)
        if label_smoothing:
            raise OptionError("loss: label_smoothing belongs to the softmax loss; this head has loss 'bce'")
        counts = torch.ones(len(x), device=x.device) if targets.valid is None else targets.valid.to(x.dtype)
        wanted = torch.zeros_like(x)
        if targets.offsets is None:
            wanted[torch.arange(len(x), device=x.device), targets.labels] = 1
        else:
            wanted[targets.row_of_labels(), targets.labels] = (
                1 if targets.probabilities is None else targets.probabilities.to(x)
            )
            counts = (targets.sizes > 0).to(x.dtype)
        rows = binary_cross_entropy_with_logits(x, wanted, weight, reduction="none").mean(1) * counts
        if reduction == "none":
            return rows
        n = len(x) if targets.offsets is not None else counts.sum().clamp(min=1)
        return rows.sum() if reduction == "sum" else rows.sum() / n

    def logits(self, h: Tensor) -> Tensor:
        """The logits.  Shapes: (*batch, in) -> (*batch, L)"""
        return self(h)

    def scores(self, h: Tensor) -> Tensor:
        """The logits.  Shapes: (*batch, in) -> (*batch, L)"""
        return self(h)

    def raised_top_k(
        self, h: Tensor, k: int, values: Tensor, labels: Tensor, *, only: tuple[int, int] | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """As of a holographic head: there is no faster way than that of `AddedScores`."""
        return None

    def scores_of(self, h: Tensor, ids: Tensor) -> Tensor:
        """The logits of chosen labels: the same for all rows, (m), or for each row its own, (*batch, m).

        Shapes: (*batch, in), (m) or (*batch, m) -> (*batch, m)
        """
        if ids.ndim != 1 and ids.shape[:-1] != h.shape[:-1]:
            raise ShapeError(
                f"scores_of: wants ids of shape (m,) or {shape_text(*h.shape[:-1], 'm')}, one row of ids for each row; "
                f"got {tuple(ids.shape)}"
            )
        checked_labels(ids, self.n_labels, ndim=None)
        if self.weight is None:
            return h.gather(-1, ids.expand(*h.shape[:-1], -1))
        if ids.ndim == 1:
            return linear(h, self.weight[ids], None if self.bias is None else self.bias[ids])
        x = torch.einsum("...i,...mi->...m", h, self.weight[ids])
        return x if self.bias is None else x + self.bias[ids]

    def _logits_of(self, h: Tensor, ids: Tensor) -> Tensor:
        return self.scores_of(h, ids)

    def _log_sum_exp(self, h: Tensor) -> Tensor:
        return self(h).logsumexp(-1)

    def _top_k(
        self, h: Tensor, k: int, labels: tuple[int, int] | None, max_bytes: int, excluded: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if not 1 <= integer("top_k", "k", k) <= self.n_labels:
            raise OptionError(f"top_k: k must be from 1 to the number of labels, {self.n_labels}; got {k}")
        first, last = labels or (0, self.n_labels)
        ranked = slice(first, last)
        with torch.no_grad():
            flat = h.reshape(-1, h.shape[-1])
            if self.weight is None:
                x = flat[:, ranked]
            else:
                x = linear(flat, self.weight[ranked], None if self.bias is None else self.bias[ranked])
            x = x.float() if excluded is None else x.float().masked_fill(excluded.to(x.device), -torch.inf)
            best, where = stable_topk(x, min(k, last - first))
        return best.unflatten(0, h.shape[:-1]), (where + first).unflatten(0, h.shape[:-1])

    def label_range(self, rank: int, world_size: int) -> tuple[int, int]:
        """The range of labels, first and last, that the `rank`-th of `world_size` processes ranks."""
        return label_range(self.n_labels, 1, rank, world_size)

    def labels_above(self, h: Tensor, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
        """All labels with a probability above the threshold, as ragged sets.  Shapes: (rows, in) -> (total), (rows)"""
        with torch.no_grad():
            x = self(h).float()
            row, labels = ((x.sigmoid() if self.loss_name == "bce" else x.softmax(1)) > threshold).nonzero().T
            counts = row.bincount(minlength=len(x))
        return labels, counts.cumsum(0) - counts

    # The closed form: ridge regression

    @property
    def boosts_rare_labels(self) -> bool:
        """Whether the closed form gives rare labels a larger weight."""
        return False

    def ridge_codebook(self) -> Codebook:
        """The label vectors that ridge regression predicts: an orthonormal basis of L dimensions."""
        return OrbitCodebook(self.n_labels, self.n_labels)

    def from_ridge(self, weights: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Turn a ridge solution for `ridge_codebook` into the linear map whose output this head takes.

        The label vectors are orthonormal, so the score of label i is the regression's prediction y_i of 0 or 1. The
        "bce" loss wants logits: sigmoid(4 y - 2) is close to y around 1/2, where it decides.

        Shapes: (features, L), (L) -> (features, L), (L)
        """
        codebook = self.ridge_codebook()
        weights, bias = codebook.scores(weights), codebook.scores(bias)
        if self.loss_name == "bce":
            weights, bias = 4 * weights, 4 * bias - 2
        return weights, bias

    # What training sets from the data

    @property
    def orders_labels(self) -> bool:
        """Whether frequent labels should get the lowest ids; the order of weight vectors changes nothing."""
        return False

    def set_temperature(self, temperature: float) -> bool:
        """Return False: this head has no temperature. The scale of its weights has the same effect."""
        return False

    @property
    def has_prior(self) -> bool:
        """Whether a prior (logit adjustment) is added to the logits; this head learns a bias instead."""
        return False

    def set_prior(self, counts: Tensor, n_rows: int) -> None:
        """Initialise the bias at the label frequencies: at the log-odds for "bce", at log shares for "softmax".

        From a bias of 0, binary cross-entropy over L labels first learns that nearly all are absent, which takes
        hundreds of steps in which the network's own layers learn that as well.

        Shapes: (L)
        """
        check_label_counts(counts, self.n_labels)
        if self.bias is not None:
            n = counts.double() + 0.5
            logits = n.log() - (n_rows + 1 - n).log() if self.loss_name == "bce" else (n / n.sum()).log()
            with torch.no_grad():
                self.bias.copy_(logits)

    # Description for a model file and for `holobind inspect`

    def config(self) -> dict[str, Any]:
        """The head's options as JSON values; `head_from_config` builds the head again from them and its tensors."""
        return {"class": "linear", "loss": self.loss_name}

    def describe(self) -> str:
        """The head in one line, such as "linear head of 50 labels"."""
        return f"linear head of {self.n_labels:,} labels"

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.n_labels}, bias={self.bias is not None}, "
            f"loss={self.loss_name!r}"
        )
