"""Cross-entropy over all labels with the options of `torch.nn.CrossEntropyLoss`, for holographic and for plain logits.

    loss_r = sum_i a_ri (log sum_j exp x_rj - x_ri)              a: target masses, x: logits

A row's masses are 1 for its class, 1 / |Y| for each label of a set Y, or given probabilities. Label smoothing mixes
them with 1 / L for each label; class weights multiply them. Few numbers of a row are needed, none of which takes
rows x L values of a holographic head: log sum exp, and the sums of logits over its class or set, and over all labels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from holobind._checks import one_of
from holobind.codebooks import BiasedCodebook, Codebook
from holobind.codebooks._tracing import has_values
from holobind.codebooks.ragged import sum_sets
from holobind.errors import OptionError
from holobind.heads.targets import DEFAULT_IGNORE_INDEX, Targets, read_targets

Reduction = Literal["mean", "sum", "none"]


class Logits(Protocol):
    """The logits x (rows, L) of a batch, as far as the cross-entropy needs them."""

    def log_sum_exp(self) -> Tensor:
        """log sum_i exp x_i, plus what the loss adds to it.  Shapes: -> (rows)"""

    def of_classes(self, labels: Tensor) -> Tensor:
        """One logit of each row.  Shapes: (rows) -> (rows)"""

    def sum_of_sets(self, targets: Targets, masses: Tensor) -> Tensor:
        """sum of masses times logits over each row's set.  Shapes: (total) -> (rows)"""

    def sum_of_all(self, masses: Tensor) -> Tensor:
        """sum of masses times logits over all labels.  Shapes: (L) -> (rows)"""


@dataclass(frozen=True, eq=False)
class DenseLogits:
    """Logits that are there.  Shapes: x (rows, L)"""

    x: Tensor

    def log_sum_exp(self) -> Tensor:
        return self.x.logsumexp(1)

    def of_classes(self, labels: Tensor) -> Tensor:
        return self.x.gather(1, labels[:, None])[:, 0]

    def sum_of_sets(self, targets: Targets, masses: Tensor) -> Tensor:
        row = targets.row_of_labels()
        return self.x.new_zeros(len(self.x)).index_add(0, row, self.x[row, targets.labels] * masses)

    def sum_of_all(self, masses: Tensor) -> Tensor:
        return self.x @ masses


@dataclass(frozen=True, eq=False)
class HolographicLogits:
    """The logits <x, c_i> + prior_i, and the expected crosstalk of the loss.  Shapes: x (rows, d), prior (L)

    all_labels_sum   the sum of all label vectors (d), computed when it is needed
    """

    x: Tensor
    codebook: Codebook
    prior: Tensor | None
    crosstalk: float
    all_labels_sum: Callable[[], Tensor | None] = lambda: None

    def log_sum_exp(self) -> Tensor:
        total = log_sum_exp(self.codebook, self.x, self.prior)
        if self.crosstalk:
            total = total + self.crosstalk / (2 * self.codebook.dim) * self.x.square().sum(1)
        return total

    def of_classes(self, labels: Tensor) -> Tensor:
        logits = (self.x * self.codebook._vectors(labels)).sum(1)
        return logits if self.prior is None else logits + self.prior[labels]

    def sum_of_sets(self, targets: Targets, masses: Tensor) -> Tensor:
        assert targets.offsets is not None
        total = (self.x * self.codebook._encode(targets.labels, targets.offsets, masses)).sum(1)
        if self.prior is None:
            return total
        return total + sum_sets(self.prior[targets.labels, None], targets.offsets, masses)[:, 0]

    def sum_of_all(self, masses: Tensor) -> Tensor:
        uniform = self.all_labels_sum() if has_values(masses) and bool((masses == 1).all()) else None
        vector = self.codebook.weighted_sum(masses) if uniform is None else uniform
        total = self.x @ vector.to(self.x.dtype)
        return total if self.prior is None else total + masses @ self.prior


def log_sum_exp(codebook: Codebook, x: Tensor, prior: Tensor | None) -> Tensor:
    """log sum_i exp(<x, c_i> + prior_i).  Shapes: (*batch, d), (L) -> (*batch)"""
    if prior is None:
        return codebook.log_sum_exp(x)
    if has_values(x):
        return BiasedCodebook(codebook, prior).log_sum_exp(x)
    return (codebook.scores(x) + prior).logsumexp(-1)


def cross_entropy(
    logits: Logits,
    targets: Targets,
    n_labels: int,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    weight: Tensor | None = None,
) -> Tensor:
    """The cross-entropy of `torch.nn.functional.cross_entropy`, and for label sets that of equal probabilities.

    The mean over class indices is weighted by the weights of the classes, and ignored rows do not count. The mean over
    sets is over all rows; a row without labels adds 0. A batch in which no row counts has the loss 0.

    Shapes: -> (), or (rows) with reduction="none"
    """
    log_sum = logits.log_sum_exp()
    if targets.offsets is None:
        counts = torch.ones_like(log_sum) if weight is None else weight.to(log_sum)[targets.labels]
        mass, total = counts, counts * logits.of_classes(targets.labels)
        row_counts = targets.valid
    else:
        sizes = targets.sizes
        masses = targets.probabilities
        if masses is None:
            masses = (1 / sizes.clamp(min=1)).repeat_interleave(sizes, output_size=len(targets.labels))
        masses = masses.to(log_sum) if weight is None else masses.to(log_sum) * weight.to(log_sum)[targets.labels]
        mass, total = sum_sets(masses[:, None], targets.offsets)[:, 0], logits.sum_of_sets(targets, masses)
        counts, row_counts = torch.ones_like(log_sum), sizes > 0
    if label_smoothing:
        every = log_sum.new_ones(n_labels) if weight is None else weight.to(log_sum)
        share = label_smoothing / n_labels
        mass = (1 - label_smoothing) * mass + share * every.sum()
        total = (1 - label_smoothing) * total + share * logits.sum_of_all(every)
    loss = mass * log_sum - total
    if row_counts is not None:
        loss = torch.where(row_counts, loss, 0)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if targets.valid is not None:
        counts = torch.where(targets.valid, counts, 0)
    n = counts.sum()
    return loss.sum() / torch.where(n == 0, 1, n)


def check_loss_options(reduction: str, label_smoothing: float, weight: Tensor | None, n_labels: int) -> None:
    """Refuse options of the loss that are not valid."""
    one_of("loss", "reduction", reduction, get_args(Reduction))
    if not 0 <= label_smoothing <= 1:
        raise OptionError(f"loss: label_smoothing must be from 0 to 1; got {label_smoothing}")
    if weight is not None and (weight.shape != (n_labels,) or not weight.is_floating_point()):
        raise OptionError(
            f"loss: weight must be floating point of shape ({n_labels},), one for each label; "
            f"got {weight.dtype} of shape {tuple(weight.shape)}"
        )


class TargetLoss:
    """`loss` of a head, for all forms of targets. A head defines `_set_loss` and `_target_loss`."""

    n_labels: int

    def loss(
        self,
        h: Tensor,
        target: Any,
        offsets: Tensor | None = None,
        *,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        weight: Tensor | None = None,
        ignore_index: int = DEFAULT_IGNORE_INDEX,
    ) -> Tensor:
        """The loss of a batch; by default the mean over its rows.

        target            class indices (*batch), padded label ids (*batch, m), multi-hot or probabilities (*batch, L),
                          dense or sparse, or (labels, offsets) of ragged sets: `targets` has the details
        reduction         "mean", "sum", or "none": one loss for each row
        label_smoothing   of the softmax loss: the probability that is spread evenly over all labels
        weight            of the softmax loss: a weight for each label (L)
        ignore_index      the class index of rows that do not count

        With class indices and the softmax loss it is `torch.nn.functional.cross_entropy(head.logits(h), target)`; while
        the head trains, the expected crosstalk is added (`crosstalk`).

        Shapes: (*batch, in) -> (), or (*batch) with reduction="none"
        """
        plain = reduction == "mean" and not label_smoothing and weight is None
        if offsets is not None and plain and h.ndim == 2:
            return self._set_loss(h, target, offsets)
        check_loss_options(reduction, label_smoothing, weight, self.n_labels)
        batch = h.shape[:-1]
        targets = read_targets(target, offsets, batch, self.n_labels, h.device, ignore_index)
        flat = h.reshape(-1, h.shape[-1])
        if targets.offsets is not None and plain and targets.probabilities is None:
            return self._set_loss(flat, targets.labels, targets.offsets)
        loss = self._target_loss(flat, targets, reduction, label_smoothing, weight)
        return loss.reshape(batch) if reduction == "none" else loss

    def _set_loss(self, h: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
        """The mean loss of ragged sets.  Shapes: (rows, in), (total), (rows) -> ()"""
        raise NotImplementedError

    def _target_loss(
        self, h: Tensor, targets: Targets, reduction: Reduction, label_smoothing: float, weight: Tensor | None
    ) -> Tensor:
        """The loss of any targets.  Shapes: (rows, in) -> () or (rows)"""
        raise NotImplementedError


def loss_without_logits(
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    name: str,
    h: Tensor,
    targets: Targets,
    reduction: Reduction,
    label_smoothing: float,
    weight: Tensor | None,
) -> Tensor:
    """A loss that is defined for label sets alone, for class indices and with another reduction.

    Shapes: (rows, in) -> () or (rows)
    """
    if label_smoothing or weight is not None or targets.probabilities is not None:
        raise OptionError(
            f"loss: label_smoothing, weight and probabilities belong to the softmax loss; this head has loss {name!r}"
        )
    labels, offsets, valid = targets.labels, targets.offsets, targets.valid
    if offsets is None:
        if valid is not None:
            labels = labels[valid]
            starts = valid.long()
            offsets = starts.cumsum(0) - starts
        else:
            offsets = torch.arange(len(labels), device=labels.device)
    if reduction == "none":
        # Row by row: these losses have no form that keeps the rows apart.
        rows = Targets(labels, offsets)
        ends = (offsets + rows.sizes).tolist()
        zero = offsets.new_zeros(1)
        each = [
            loss(h[r : r + 1], labels[start:end], zero)
            for r, (start, end) in enumerate(zip(offsets.tolist(), ends, strict=True))
        ]
        return torch.stack(each) if each else h.sum(1)
    total = loss(h, labels, offsets) * len(h)
    if reduction == "sum":
        return total
    return total / (len(h) if valid is None else valid.sum().clamp(min=1))


class HolographicCrossEntropyLoss(nn.Module):
    """The softmax loss of a holographic head, in place of `nn.CrossEntropyLoss`, for outputs of d dimensions.

        loss = HolographicCrossEntropyLoss(OrbitCodebook(n_labels, d))
        loss(network(x), target)                                # network(x): (*batch, d)

    It is a `HolographicHead` without a layer, `self.head`, which ranks and samples: `loss.head.top_k(network(x), 5)`.

    codebook          the label vectors
    prior, crosstalk  as of the head
    the others        as of `torch.nn.CrossEntropyLoss`; targets are those of `HolographicHead.loss`
    """

    weight: Tensor | None

    def __init__(
        self,
        codebook: Codebook,
        weight: Tensor | None = None,
        ignore_index: int = DEFAULT_IGNORE_INDEX,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        *,
        prior: Tensor | None = None,
        crosstalk: float = 1.0,
    ) -> None:
        from holobind.heads.holographic import HolographicHead

        super().__init__()
        check_loss_options(reduction, label_smoothing, weight, codebook.n_labels)
        self.head = HolographicHead(None, codebook.n_labels, codebook.dim, codebook, prior=prior, crosstalk=crosstalk)
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing

    def forward(self, s: Tensor, target: Any, offsets: Tensor | None = None) -> Tensor:
        """The loss of outputs.  Shapes: (*batch, d) -> (), or (*batch) with reduction="none\""""
        return self.head.loss(
            s,
            target,
            offsets,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            weight=self.weight,
            ignore_index=self.ignore_index,
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}, label_smoothing={self.label_smoothing}, ignore_index={self.ignore_index}"
