"""Output layers for very many labels. A head answers: what is the loss, and which are the top k labels?

    head(h)                         (rows, in) -> outputs
    head.loss(h, labels, offsets)   mean over rows; label sets are ragged, as in `torch.nn.EmbeddingBag`
    head.scores(h)                  (rows, in) -> (rows, L)
    head.top_k(h, k)                (rows, in) -> scores and labels, (rows, k) each, best first
    head.label_range(rank, world)         a range of labels, for `top_k` of one of several scorers
    head.present(h, threshold)      (rows, in) -> ragged label sets

`LinearHead` and `HolographicHead` differ in nothing else, so an experiment can swap one for the other.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from math import inf, log
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from holobind import algebra
from holobind._checks import one_of
from holobind.codebooks import BiasedCodebook, DenseCodebook, OneHotCodebook, OrbitCodebook, RandomCodebook
from holobind.codebooks.base import MEMORY, Codebook
from holobind.codebooks.biased import grown_shift
from holobind.codebooks.ragged import checked_sets
from holobind.errors import OptionError, ShapeError
from holobind.heads import losses
from holobind.heads._layer import _layer, _width

HolographicLoss = Literal["softmax", "query", "query-abs", "regression"]


Learn = Literal["present", "missing", "labels"]


TEMPERATURE = 4.0  # to start a softmax with: outputs are short at first, and at 1 training makes them longer before all


PRIOR = 0.5  # of the logarithms of frequencies: 1 says all of them, which costs P@1 (experiments/LOG.md)


CROSSTALK = 1.0  # of the softmax loss: what chance adds to it; 0.3 and 3 are not better everywhere (experiments/LOG.md)


FEW_LABELS = 1024  # up to which an output is confined to what can be asked for; d is at most eight times as many


class HolographicHead(nn.Module):
    """An output layer of h x d weights for any number of labels.

    Parameters: `weight` (d, in_features), `bias` (d); with loss="softmax" also `log_temperature` (), and the buffer
    `prior` (L), if there is one. With in_features=None there is no layer: what the network gives is the output
    already. Where the query loss has few labels on a fixed orbit (2 L < d <= 8 L, L <= 1024), the first two are
    (2 L, in_features) and (2 L), see below.
    `learn` adds "present" and "missing" (d) each, and "labels", the codebook's: (bases, d) of an orbit, (L, d) of
    a random one. All of them pass through the projection at each use and so stay unitary.

    codebook: "orbit" (fast), "random" (the paper's), "one_hot" (a label is an element of the output; L <= d), "naive" (the
              paper's failed ablation), or one of your own.
    loss:     "softmax" (accurate; O(L log d) a row with an orbit), "query" (the paper's; the same cost for any L),
              "query-abs" (the listing in its appendix), "regression" (its failure). See `losses`.
    prior:    of the softmax loss, what is added to the logarithms of labels' odds from the start (L), such as
              `frequency_prior` of how often they occur. How frequent each of L labels is are L numbers, which d outputs
              cannot say: without a prior they say as much of it as they can, and less of the rest.
    crosstalk: of the softmax loss, how much of the crosstalk to expect is added to it, which keeps outputs short; 0:
              nothing but the cross-entropy. Of training only: a model file does not say it.

    With fixed vectors the query losses ask `s` for codebooks bound with p and m in advance, so that no transform
    is left in them: <p* (x) s, c> = <s, p (x) c>. The softmax loss has no use for p: its scores are <s, c>.

    The query loss knows s by its products with the 2 L vectors p (x) c and m (x) c, and by its length. What of s is
    orthogonal to all of them can only make the cosines smaller and is read by nobody: where 2 L < d, s = z B with an
    orthonormal basis B of their span, and z, 2 L numbers of the same length, is what is learned. B begins with the
    p (x) c of an orbit, which are orthonormal, so that the first L elements of z are the scores.
    """

    p: Tensor
    m: Tensor
    prior: Tensor | None
    _basis: Tensor | None
    _by_present: Tensor
    _by_missing: Tensor

    def __init__(
        self,
        in_features: int | None,
        n_labels: int,
        dim: int,
        codebook: str | Codebook = "orbit",
        loss: HolographicLoss = "softmax",
        seed: int = 0,
        trainable: Sequence[Learn] = (),
        *,
        bias: bool = True,
        prior: Tensor | None = None,
        crosstalk: float = CROSSTALK,
    ) -> None:
        super().__init__()
        one_of("HolographicHead", "loss", loss, get_args(HolographicLoss))
        for part in trainable:
            one_of("HolographicHead", "trainable", part, get_args(Learn))
        if loss == "softmax" and ("present" in trainable or "missing" in trainable):
            raise OptionError("HolographicHead: the softmax loss has no present and missing vectors to learn")
        if prior is not None and (loss != "softmax" or prior.shape != (n_labels,)):
            raise OptionError(
                f"HolographicHead: a prior is of the softmax loss, a number for each of {n_labels} labels; "
                f"got one of shape {tuple(prior.shape)} for {loss!r}"
            )
        if not 0 <= crosstalk < inf:
            raise OptionError(f"HolographicHead: crosstalk must be a number from 0; got {crosstalk}")
        self.loss_name, self.trainable, self.crosstalk = loss, tuple(trainable), crosstalk
        self.codebook = _codebook(codebook, n_labels, dim, seed)
        self.drawn = (codebook, seed) if isinstance(codebook, str) else None  # what it takes to draw it again
        self.log_temperature = nn.Parameter(torch.tensor(log(TEMPERATURE))) if loss == "softmax" else None
        self.register_buffer("prior", prior)
        self._asked: Codebook | None = None  # p (x) c_i and m (x) c_i, if they are fixed
        self._absent: Codebook | None = None
        self._everything: Tensor | None = None
        if loss != "softmax":
            self._draw_keys(seed)
        if "labels" in trainable:
            self.codebook = self.codebook.learnable()
        few = in_features is not None and layer_rows(n_labels, dim, codebook, loss, trainable) < dim
        self._take_directions(few)
        self.weight, self.bias = _layer(in_features, 2 * n_labels if few else dim, bias, seed)

    def _draw_keys(self, seed: int) -> None:
        dim = self.codebook.dim
        if self.codebook.unitary:
            keys = losses.present_and_missing(dim, seed)
        else:  # the ablation without projection: none here either
            keys = tuple(algebra.random(2, dim, torch.Generator().manual_seed(seed)))
        for name, word, key in zip("pm", ("present", "missing"), keys, strict=True):
            if word in self.trainable:
                self.register_parameter(name, nn.Parameter(key))
            else:
                self.register_buffer(name, key, persistent=False)
        if self.codebook.unitary and not self.trainable:
            self._asked, self._absent = (self.codebook.bound(key) for key in keys)

    def _take_directions(self, few: bool) -> None:
        """B, and each p (x) c and m (x) c by B, if the output is to be confined to what can be asked for."""
        basis = absent = present = self._elements = None
        if few and self._asked is not None and self._absent is not None:
            self._elements = OneHotCodebook(self.n_labels, 2 * self.n_labels)  # what reads the scores
            ids = torch.arange(self.n_labels)
            p_c, m_c = (book.vectors(ids.to(book.device)).double() for book in (self._asked, self._absent))
            q, r = torch.linalg.qr(torch.cat([p_c, m_c]).T)
            basis = (q * torch.where(r.diagonal() < 0, -1.0, 1.0)).T.contiguous()
            absent = (m_c @ basis.T).float().flatten()
            present = torch.eye(self.n_labels, len(basis), device=basis.device).flatten()
            basis = basis.float()
        for name, tensor in (("_basis", basis), ("_by_missing", absent), ("_by_present", present)):
            self.register_buffer(name, tensor, persistent=False)

    @property
    def n_labels(self) -> int:
        return self.codebook.n_labels

    def grown_to(self, n_labels: int) -> "HolographicHead":
        """A copy that knows more labels: the weights fit any number, and the labels it knew keep their vectors."""
        grown = deepcopy(self)
        grown.codebook = self.codebook.grown_to(n_labels)
        if self._asked is not None and self._absent is not None:
            grown._asked, grown._absent = self._asked.grown_to(n_labels), self._absent.grown_to(n_labels)
        grown._everything = None
        grown.prior = None if self.prior is None else grown_shift(self.prior, n_labels)
        if self.weight is not None:
            book, dim = self.drawn[0] if self.drawn else self.codebook, self.codebook.dim
            grown._take_directions(layer_rows(n_labels, dim, book, self.loss_name, self.trainable) < dim)
            for name, part in (("weight", self.weight), ("bias", self.bias)):
                if part is not None and (self._basis is not None or grown._basis is not None):
                    whole = part.detach() if self._basis is None else self._basis.T @ part.detach()
                    mine = whole if grown._basis is None else grown._basis.to(whole) @ whole
                    setattr(grown, name, nn.Parameter(mine, part.requires_grad))
            grown.to(self.weight.dtype)
        return grown

    @property
    def temperature(self) -> Tensor | None:
        """What the softmax loss multiplies scores with."""
        return None if self.log_temperature is None else self.log_temperature.exp()

    def forward(self, h: Tensor) -> Tensor:
        """The holographic output s.  Shapes: (rows, in_features) -> (rows, d)"""
        if self.weight is None:
            return h
        s = linear(h, self.weight, self.bias)
        return s if self._basis is None else s @ self._basis

    def loss(self, h: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
        """How wrong the output is about the present labels.  Shapes: (rows, in), (total), (rows) -> ()"""
        asked, absent = self._asked, self._absent
        if self.loss_name == "query" and asked is not None and absent is not None:
            return self._folded(h, labels, offsets, asked, absent)
        s = self(h)
        if self.log_temperature is not None:
            t = self.log_temperature.exp()
            return losses.softmax_loss(s, labels, offsets, self.codebook, t, self.prior, crosstalk=self.crosstalk)
        p, m = self._keys()
        if self.loss_name == "regression":
            return losses.regression_loss(s, labels, offsets, self.codebook, p, m, everything=self._all_labels())
        variant: losses.Variant = "abs" if self.loss_name == "query-abs" else "cosine"
        return losses.query_loss(s, labels, offsets, self.codebook, p, m, variant=variant)

    def scores(self, h: Tensor) -> Tensor:
        """<p* (x) s, c_i>, or <s, c_i> with the softmax loss, or t <s, c_i> + a_i with a prior, for all labels.

        Shapes: (rows, in) -> (rows, L)
        """
        book, v = self._question(h)
        return book.scores(v)

    def top_k(
        self, h: Tensor, k: int, *, labels: tuple[int, int] | None = None, memory: int = MEMORY
    ) -> tuple[Tensor, Tensor]:
        """The k largest scores, exactly, and their labels; of a `share` of the labels, if one is given.

        Shapes: (rows, in) -> (rows, k), (rows, k)
        """
        book, v = self._question(h)
        return book.top_k(v, k, labels=labels, memory=memory)

    def label_range(self, rank: int, world: int) -> tuple[int, int]:
        """The labels, first and last, that the `rank`-th of `world` scorers takes."""
        return self.codebook.label_range(rank, world)

    def present(self, h: Tensor, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
        """All labels with a score above the threshold: the paper's rule, for which a present label scores about 1.

        Ragged sets of labels.  Shapes: (rows, in) -> (total), (rows)
        """
        book, v = self._question(h)
        return book.above(v, threshold)

    def _folded(self, h: Tensor, labels: Tensor, offsets: Tensor, asked: Codebook, absent: Codebook) -> Tensor:
        if isinstance(asked, OrbitCodebook) and isinstance(absent, OrbitCodebook) and _plain(h, labels, offsets):
            weight = self.weight  # looked up once: at the smallest shapes even that shows
            if h.shape[1] == (asked.dim if weight is None else weight.shape[1]):
                rings = self._basis is None
                yes, no = (asked.rings(), absent.rings()) if rings else (self._by_present, self._by_missing)
                question = labels.numpy(), offsets.numpy(), yes.numpy(), no.numpy(), asked.n_labels, rings
                try:
                    return _fused_query()(h, weight, self.bias, question)
                except FloatingPointError:
                    pass  # what follows says what is wrong
        s = self(h)
        labels, offsets = checked_sets(labels, offsets, self.codebook.n_labels, s.device, len(s))
        if not len(s):
            return s.sum()
        sums = asked._encode(labels, offsets), absent._encode(labels, offsets)
        return losses.folded_query_loss(s, *sums, labels.numel())

    def _question(self, h: Tensor) -> tuple[Codebook, Tensor]:
        """A codebook, and what to ask it."""
        if self.log_temperature is not None:
            if self.prior is None:
                return self.codebook, self(h)
            return BiasedCodebook(self.codebook, self.prior), self(h).float() * self.log_temperature.exp()
        if self._elements is not None:
            assert self.weight is not None
            return self._elements, linear(h, self.weight, self.bias)
        if self._asked is not None:
            return self._asked, self(h)
        return self.codebook, algebra.unbind(self(h).float(), self._keys()[0])

    def _keys(self) -> tuple[Tensor, Tensor]:
        p, m = (
            algebra.unitary(key) if word in self.trainable else key
            for word, key in (("present", self.p), ("missing", self.m))
        )
        return p, m

    def _all_labels(self) -> Tensor | None:
        if self.codebook.learned:
            return None
        if self._everything is None or self._everything.device != self.codebook.device:
            self._everything = self.codebook.mix(torch.ones(self.codebook.n_labels, device=self.codebook.device))
        return self._everything

    def extra_repr(self) -> str:
        of_softmax = f", crosstalk={self.crosstalk:g}" if self.loss_name == "softmax" else ""
        return f"in_features={_width(self.weight)}, loss={self.loss_name!r}, trainable={self.trainable}{of_softmax}"


def frequency_prior(counts: Tensor, power: float = PRIOR) -> Tensor:
    """Logarithms of how often labels occur, beside the most frequent one, times a power.  Shapes: (L) -> (L)"""
    often = counts.double() + 0.5
    return (power * (often / often.max()).log()).float()


def layer_rows(n_labels: int, dim: int, codebook: object, loss: str, trainable: Sequence[str]) -> int:
    """How many rows the weights of a holographic head have: 2 L in place of d, where that is less, and B is small."""
    few = n_labels <= FEW_LABELS and 2 * n_labels < dim <= 8 * n_labels
    return 2 * n_labels if few and codebook == "orbit" and loss == "query" and not trainable else dim


def _codebook(wanted: str | Codebook, n_labels: int, dim: int, seed: int) -> Codebook:
    if isinstance(wanted, Codebook):
        if (wanted.n_labels, wanted.dim) != (n_labels, dim):
            raise ShapeError(
                f"HolographicHead: the codebook has {wanted.n_labels} labels of dim {wanted.dim}, "
                f"but the head was asked for {n_labels} of dim {dim}"
            )
        return wanted
    makers: dict[str, Callable[[int, int, int], Codebook]] = {
        "orbit": OrbitCodebook,
        "random": RandomCodebook,
        "one_hot": lambda n_labels, dim, _: OneHotCodebook(n_labels, dim),
        "naive": DenseCodebook.naive,
    }
    one_of("HolographicHead", "codebook", wanted, tuple(makers))
    return makers[wanted](n_labels, dim, seed)


@cache
def _fused_query() -> Callable[..., Tensor]:
    from holobind.heads._fused import FusedQuery  # compiles when first used

    return FusedQuery.apply


def _plain(h: Tensor, labels: Tensor, offsets: Tensor) -> bool:
    """Whether these are what compiled code takes: a matrix of floats and sets of int64, all on the CPU."""
    return (
        h.dtype == torch.float32
        and h.is_cpu
        and h.ndim == 2
        and labels.dtype == offsets.dtype == torch.int64
        and labels.is_cpu
        and offsets.is_cpu
        and offsets.shape == h.shape[:1]
        and not torch.is_autocast_enabled("cpu")
    )
