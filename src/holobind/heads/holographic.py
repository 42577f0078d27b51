"""The holographic head: an output layer of d dimensions for any number of labels."""

from collections.abc import Sequence
from copy import deepcopy
from math import inf, log
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from holobind import algebra
from holobind._checks import integer, one_of
from holobind.codebooks import AbsoluteCodebook, BiasedCodebook, Codebook, OneHotCodebook, OrbitCodebook
from holobind.codebooks._tracing import drawn_on
from holobind.codebooks.biased import expand_bias
from holobind.codebooks.registry import default_dim, make_codebook
from holobind.errors import OptionError, ShapeError
from holobind.heads import losses
from holobind.heads._bound_query import bound_query_loss
from holobind.heads._layer import linear_layer, n_inputs
from holobind.heads._logits import HolographicLogitMethods
from holobind.heads._query_subspace import layer_rows, query_basis
from holobind.heads._state import INITIAL_TEMPERATURE, HeadState
from holobind.heads.cross_entropy import TargetLoss
from holobind.heads.hard_negatives import hard_negative_loss
from holobind.heads.targets import check_label_counts

HolographicLoss = Literal["softmax", "squares", "query", "query-abs", "regression"]
Output = Literal["vector", "logits"]
TrainableVectors = Literal["present", "missing", "labels"]

LOSSES_WITHOUT_KEYS = ("softmax", "squares")  # scores are <s, c_i>; the other losses query with p and m

# Weight of the expected crosstalk in the softmax loss; 0.3 and 3 are not better everywhere (experiments/LOG.md).
DEFAULT_CROSSTALK = 1.0


class HolographicHead(HolographicLogitMethods, TargetLoss, HeadState):
    """An output layer of h x d weights for any number of labels.

    Parameters: `weight` (d, in_features), `bias` (d); with loss="softmax" also `log_temperature` (), and the buffer
    `prior` (L), if there is one. With in_features=None there is no layer: the network produces the output itself.
    With the query loss and few labels on a fixed orbit (2 L < d <= 8 L, L <= 1024), `weight` and `bias` are
    (2 L, in_features) and (2 L): see `_query_subspace`.
    `trainable` adds "present" and "missing", (d) each, and "labels", the codebook's: (bases, d) of an orbit, (L, d) of
    a random one. Every use projects these vectors, so that they stay unitary; with the naive codebook, none does.

    codebook: "orbit" (fast), "random" (the paper's), "one_hot" (label i is element i of the output; L <= d), "naive"
              (without the projection, for ablations), or a `Codebook` of your own.
    loss:     "softmax" (O(L log d) a row with an orbit), "squares" (least squares onto the sum of the present labels'
              vectors; the same cost for any L), "query" (the paper's; the same cost for any L),
              "query-abs" (the listing in its appendix; labels are ranked by |score|), "regression" (its ablation
              of the loss). See `losses`.
    prior:    logit adjustment for the softmax loss: a constant (L) that is added to the logits from the start, such as
              `frequency_prior` of the label counts. L logits computed from d outputs have rank d; without a prior,
              label frequencies use part of that rank.
    crosstalk: the weight of the expected crosstalk in the softmax loss, which keeps outputs short; 0 gives the plain
              cross-entropy. It is added while the head trains, not after `eval()`; a model file does not store it.
    hard_negatives: of the query loss: how many labels that a row lacks are pushed away, those with the largest scores
              (`hard_negatives`); 0 for the paper's loss. Used while the head trains; a model file does not store it.
    dim:      d; by default the first fast size of at least L, at most 1024.
    seed:     of the codebook (by default 0) and, if given, of the first weights, which otherwise follow
              `torch.manual_seed` as those of `nn.Linear` do.
    output:   what `head(h)` returns: "vector", the output s of d dimensions, or "logits", for code that expects them.
    device, dtype: of the parameters, as of `nn.Linear`. On the meta device nothing is allocated; `reset_parameters`
              or a loaded state gives the parameters values, and what a seed defines is never lost.

    With fixed vectors the query losses score s by codebooks that p and m are bound to in advance, so that no transform
    is left: <p* (x) s, c> = <s, p (x) c>. The softmax loss needs no p: its scores are <s, c>.
    """

    p: Tensor
    m: Tensor
    prior: Tensor | None
    codebook_name: str | None
    _basis: Tensor | None
    _present_in_basis: Tensor
    _missing_in_basis: Tensor

    def __init__(
        self,
        in_features: int | None,
        n_labels: int,
        dim: int | None = None,
        codebook: str | Codebook = "orbit",
        loss: HolographicLoss = "softmax",
        seed: int | None = None,
        trainable: Sequence[TrainableVectors] = (),
        *,
        bias: bool = True,
        prior: Tensor | None = None,
        crosstalk: float = DEFAULT_CROSSTALK,
        hard_negatives: int = 0,
        output: Output = "vector",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        one_of("HolographicHead", "loss", loss, get_args(HolographicLoss))
        one_of("HolographicHead", "output", output, get_args(Output))
        if output == "logits" and loss != "softmax":
            raise OptionError(f"HolographicHead: the softmax loss has logits; the loss {loss!r} has none")
        if dim is None:
            dim = codebook.dim if isinstance(codebook, Codebook) else default_dim(n_labels)
        for name in trainable:
            one_of("HolographicHead", "trainable", name, get_args(TrainableVectors))
        if loss in LOSSES_WITHOUT_KEYS and ("present" in trainable or "missing" in trainable):
            raise OptionError(f"HolographicHead: the {loss} loss has no present and missing vectors to train")
        if prior is not None and (loss != "softmax" or prior.shape != (n_labels,)):
            raise OptionError(
                f"HolographicHead: a prior belongs to the softmax loss and has one element for each of {n_labels} "
                f"labels; got shape {tuple(prior.shape)} for loss {loss!r}"
            )
        if not 0 <= crosstalk < inf:
            raise OptionError(f"HolographicHead: crosstalk must be a finite number of at least 0; got {crosstalk}")
        if integer("HolographicHead", "hard_negatives", hard_negatives) < 0 or (hard_negatives and loss != "query"):
            raise OptionError(
                "HolographicHead: hard_negatives are at least 0 and belong to the query loss; "
                f"got {hard_negatives} for loss {loss!r}"
            )
        self.hard_negatives = hard_negatives
        self.loss_name, self.trainable, self.crosstalk, self.output = loss, tuple(trainable), crosstalk, output
        self.seed, self._layer_seed = 0 if seed is None else seed, seed
        device = torch.get_default_device() if device is None else torch.device(device)
        rows = dim if in_features is None else layer_rows(n_labels, dim, codebook, loss, trainable)
        self._present_codebook: Codebook | None = None  # p (x) c_i and m (x) c_i, if they are fixed
        self._missing_codebook: Codebook | None = None
        self._all_labels_sum: Tensor | None = None
        with torch.device("cpu"):  # what a seed defines has values on any device, also on meta
            if isinstance(codebook, Codebook):
                self.codebook_name, self.codebook = None, _checked_codebook(codebook, n_labels, dim)
            else:
                self.codebook_name = codebook
                self.codebook = make_codebook("HolographicHead", codebook, n_labels, dim, self.seed)
            if loss not in LOSSES_WITHOUT_KEYS:
                self._set_fingerprint("keys", 0, dim, self.seed)
                self._draw_keys()
            if "labels" in trainable:
                self.codebook = self.codebook.to_trainable()
            self._set_basis(rows < dim)
        self.label_weights: Tensor | None = None
        self.log_temperature = None
        if loss == "softmax":
            self.log_temperature = nn.Parameter(torch.tensor(log(INITIAL_TEMPERATURE), dtype=dtype, device="cpu"))
        self._keep_prior(prior)
        self.to(device)
        self.weight, self.bias = linear_layer(in_features, rows, bias, seed, device, dtype)

    def _draw_keys(self) -> None:
        """Draw p and m, and bind them to the labels if nothing of it is trainable."""
        keys = self._drawn_keys()
        for attribute, name, key in zip("pm", ("present", "missing"), keys, strict=True):
            if name in self.trainable:
                self.register_parameter(attribute, nn.Parameter(key))
            else:
                setattr(self, attribute, key)
        if self.codebook.unitary and not self.trainable:
            self._present_codebook, self._missing_codebook = (self.codebook.bind(key) for key in keys)

    def _drawn_keys(self) -> tuple[Tensor, Tensor]:
        """p and m as the seed draws them.  Shapes: -> (d), (d)"""
        if self.codebook.unitary:
            return losses.present_and_missing(self.codebook.dim, self.seed)
        # The ablation without projection has none here either.
        p, m = algebra.random(2, self.codebook.dim, torch.Generator().manual_seed(self.seed), device="cpu")
        return p, m

    def _set_basis(self, used: bool) -> None:
        """Compute the basis in which the layer's outputs are coordinates (`_query_subspace`), if one is used."""
        basis = present = missing = self._coordinates = None
        if used and self._present_codebook is not None and self._missing_codebook is not None:
            self._coordinates = OneHotCodebook(self.n_labels, 2 * self.n_labels).without_state()  # scores: z[:L]
            basis, present, missing = query_basis(self._present_codebook, self._missing_codebook)
        for name, tensor in (("_basis", basis), ("_missing_in_basis", missing), ("_present_in_basis", present)):
            setattr(self, name, tensor)

    @property
    def n_labels(self) -> int:  # type: ignore[override] # a plain attribute of other heads
        return self.codebook.n_labels

    @property
    def output_dim(self) -> int:
        """The size of an output s: d."""
        return self.codebook.dim

    @property
    def in_features(self) -> int | None:
        """The size of the input, or None if there is no layer."""
        return n_inputs(self.weight)

    @property
    def out_features(self) -> int:
        """The size of what `head(h)` returns: L logits, or d."""
        return self.n_labels if self.output == "logits" else self.codebook.dim

    def expand_to(self, n_labels: int) -> "HolographicHead":
        """A copy for more labels: its weights fit any number of labels, and the old labels keep their vectors."""
        copy = deepcopy(self)
        copy.codebook = self.codebook.expand_to(n_labels)
        if self._present_codebook is not None and self._missing_codebook is not None:
            copy._present_codebook = self._present_codebook.expand_to(n_labels)
            copy._missing_codebook = self._missing_codebook.expand_to(n_labels)
        copy._all_labels_sum = None
        copy._keep_prior(None if self.prior is None else expand_bias(self.prior, n_labels))
        if self.weight is not None:
            dim = self.codebook.dim
            copy._set_basis(layer_rows(n_labels, dim, self.codebook_name, self.loss_name, self.trainable) < dim)
            for name, parameter in (("weight", self.weight), ("bias", self.bias)):
                if parameter is not None and (self._basis is not None or copy._basis is not None):
                    output = (
                        parameter.detach() if self._basis is None else self._basis.T.to(parameter) @ parameter.detach()
                    )
                    converted = output if copy._basis is None else copy._basis.to(output) @ output
                    setattr(copy, name, nn.Parameter(converted, parameter.requires_grad))
            copy.to(self.weight.dtype)
        return copy

    @property
    def temperature(self) -> Tensor | None:
        """The factor t of the scores in the softmax loss; None for the other losses."""
        return None if self.log_temperature is None else self.log_temperature.exp()

    def forward(self, h: Tensor) -> Tensor:
        """The holographic output s, of d dimensions; these are not logits. With output="logits", `logits(h)`.

        Shapes: (*batch, in_features) -> (*batch, d) or (*batch, L)
        """
        return self.logits(h) if self.output == "logits" else self._output(h)

    def _output(self, h: Tensor) -> Tensor:
        """s.  Shapes: (*batch, in_features) -> (*batch, d)"""
        self._verify()
        if self.weight is None:
            return h
        s = linear(h, self.weight, self.bias)
        return s if self._basis is None else s @ drawn_on(self, "_basis", s.device).to(s.dtype)

    def _set_loss(self, h: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
        present, missing = self._present_codebook, self._missing_codebook
        if self.loss_name == "query" and present is not None and missing is not None:
            self._verify()
            loss = bound_query_loss(self, h, labels, offsets, present, missing)
            if not (self.hard_negatives and self.training):
                return loss
            return loss + hard_negative_loss(self._output(h), labels, offsets, present, self.hard_negatives)
        s = self._output(h)
        if self.log_temperature is not None:
            t, crosstalk = self.log_temperature.exp(), self.crosstalk if self.training else 0.0
            return losses.softmax_loss(s, labels, offsets, self.codebook, t, self.prior, crosstalk=crosstalk)
        if self.loss_name == "squares":
            return losses.squares_loss(s, labels, offsets, self.codebook, self.label_weights)
        p, m = self._keys()
        if self.loss_name == "regression":
            total = self._sum_of_all_labels()
            return losses.regression_loss(s, labels, offsets, self.codebook, p, m, all_labels_sum=total)
        variant: losses.Variant = "abs" if self.loss_name == "query-abs" else "cosine"
        return losses.query_loss(s, labels, offsets, self.codebook, p, m, variant=variant)

    def scores(self, h: Tensor) -> Tensor:
        """<p* (x) s, c_i>, or <s, c_i> with the softmax loss, or the logits t <s, c_i> + a_i with a prior.

        With loss="query-abs", which is the same for s and -s, they are |<p* (x) s, c_i>|.

        Shapes: (*batch, in) -> (*batch, L)
        """
        if self.prior is not None:
            return self.logits(h)
        codebook, query = self._query(h)
        return codebook.scores(query)

    def label_range(self, rank: int, world_size: int) -> tuple[int, int]:
        """The range of labels, first and last, that the `rank`-th of `world_size` processes ranks."""
        return self.codebook.label_range(rank, world_size)

    def labels_above(self, h: Tensor, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
        """All labels with a score above the threshold: the paper's rule for exact symbols, whose scores are about 1.

        Learned outputs score lower, on a scale that depends on the loss: choose the threshold on held-out rows.

        Ragged sets of labels.  Shapes: (rows, in) -> (total), (rows)
        """
        codebook, query = self._query(h)
        return codebook.labels_above(query, threshold)

    def _query(self, h: Tensor) -> tuple[Codebook, Tensor]:
        """A codebook and the query vectors whose scores in it are the head's.  Shapes: (rows, in) -> (rows, any)"""
        codebook, query = self._signed_query(h)
        return (AbsoluteCodebook(codebook) if self.loss_name == "query-abs" else codebook), query

    def _signed_query(self, h: Tensor) -> tuple[Codebook, Tensor]:
        """`_query` before an absolute value is taken."""
        if self.log_temperature is not None:
            if self.prior is None:
                return self.codebook, self._output(h)
            return BiasedCodebook(self.codebook, self.prior), self._output(h).float() * self.log_temperature.exp()
        if self.loss_name == "squares":
            return self.codebook, self._output(h)
        if self._coordinates is not None:
            assert self.weight is not None
            self._verify()
            return self._coordinates, linear(h, self.weight, self.bias)
        if self._present_codebook is not None:
            return self._present_codebook, self._output(h)
        return self.codebook, algebra.unbind(self._output(h).float(), self._keys()[0])

    def _keys(self) -> tuple[Tensor, Tensor]:
        """p and m, projected if they are trainable and the codebook is unitary."""

        def key(attribute: str, name: str) -> Tensor:
            if name not in self.trainable:
                return drawn_on(self, attribute, self.codebook.device)
            learned: Tensor = getattr(self, attribute)
            return algebra.unitary(learned) if self.codebook.unitary else learned

        return key("p", "present"), key("m", "missing")

    def _sum_of_all_labels(self) -> Tensor | None:
        """The sum of all label vectors, computed once; None if they are trainable and change."""
        if self.codebook.trainable:
            return None
        if self._all_labels_sum is None or self._all_labels_sum.device != self.codebook.device:
            ones = torch.ones(self.codebook.n_labels, device=self.codebook.device)
            self._all_labels_sum = self.codebook.weighted_sum(ones)
        return self._all_labels_sum

    # The closed form: ridge regression onto sums of label vectors

    @property
    def boosts_rare_labels(self) -> bool:
        """Whether the closed form gives rare labels a larger weight."""
        return True

    def ridge_codebook(self) -> Codebook:
        """The label vectors that ridge regression predicts."""
        return self.codebook

    def from_ridge(self, weights: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Turn a ridge solution for `ridge_codebook` into the linear map whose output this head takes.

        With the query and regression losses p is unbound from the output before it is scored, so p is bound to the
        solution.

        Shapes: (features, d), (d) -> (features, d), (d)
        """
        if self.loss_name in LOSSES_WITHOUT_KEYS:
            return weights, bias
        with torch.no_grad():
            p = self._keys()[0]
            return algebra.bind(weights, p), algebra.bind(bias, p)

    # What training sets from the data

    @property
    def orders_labels(self) -> bool:
        """Whether frequent labels should get the lowest ids, so that they share a base of the orbit."""
        return isinstance(self.codebook, OrbitCodebook) and self.codebook.n_bases > 1

    def set_temperature(self, temperature: float) -> bool:
        """Set the temperature of the softmax loss; return False for the other losses, which have none."""
        if self.log_temperature is None:
            return False
        with torch.no_grad():
            self.log_temperature.fill_(log(temperature))
        return True

    def set_label_weights(self, weights: Tensor | None) -> None:
        """Set the weights w of labels in the squares and query losses, for training alone: no state has them.

        Weights that fall with the frequency of a label raise the scores of rare ones.

        Shapes: (L)
        """
        if weights is not None and weights.shape != (self.n_labels,):
            raise ShapeError(
                f"set_label_weights: wants one weight for each of {self.n_labels} labels, got {tuple(weights.shape)}"
            )
        self.label_weights = weights

    @property
    def has_prior(self) -> bool:
        """Whether a prior (logit adjustment) is added to the logits."""
        return self.prior is not None

    def set_prior(self, counts: Tensor, n_rows: int | None = None) -> None:
        """Set the prior (logit adjustment) of the softmax loss from label counts; the other losses have none.

        n_rows   the number of rows that were counted; linear heads need it, this one does not

        Shapes: (L)
        """
        check_label_counts(counts, self.n_labels)
        if self.log_temperature is not None:
            self._keep_prior(losses.frequency_prior(counts).to(self.log_temperature))

    # Description for a model file and for `holobind inspect`

    def config(self) -> dict[str, Any]:
        """The head's options as JSON values; `head_from_config` builds the head again from them and its tensors."""
        if self.codebook_name is None:
            raise OptionError("a head with a codebook of your own cannot be saved; name one: 'orbit' or 'random'")
        return {
            "class": "holographic",
            "dim": self.output_dim,
            "codebook": self.codebook_name,
            "seed": self.seed,
            "loss": self.loss_name,
            "trainable": list(self.trainable),
        }

    def describe(self) -> str:
        """The head in one line, such as "holographic head of 50 labels in 64 dimensions (orbit codebook)"."""
        codebook = self.codebook_name or "custom"
        return f"holographic head of {self.n_labels:,} labels in {self.output_dim:,} dimensions ({codebook} codebook)"

    def extra_repr(self) -> str:
        crosstalk = f", crosstalk={self.crosstalk:g}, prior={self.has_prior}" if self.loss_name == "softmax" else ""
        learned = f", trainable={self.trainable}" if self.trainable else ""
        return (
            f"in_features={self.in_features}, n_labels={self.n_labels}, dim={self.output_dim}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, "
            f"loss={self.loss_name!r}{crosstalk}{learned}"
        )


def _checked_codebook(codebook: Codebook, n_labels: int, dim: int) -> Codebook:
    if (codebook.n_labels, codebook.dim) != (n_labels, dim):
        raise ShapeError(
            f"HolographicHead: the codebook has {codebook.n_labels} labels of dim {codebook.dim}, but the head wants "
            f"{n_labels} labels of dim {dim}"
        )
    return codebook
