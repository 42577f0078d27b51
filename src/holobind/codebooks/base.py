"""The contract of codebooks: label vectors c_0 ... c_(L-1) of d dimensions that need not be stored.

    vectors(ids)                   (*any) -> (*any, d)               the vectors c_i themselves
    scores_of(v, ids)              (*batch, d) -> (*batch, m)        <v, c_i> for chosen labels
    encode(labels, offsets)        ragged sets -> (rows, d)          the sum of each set's vectors
    weighted_sum(weights)          (*batch, L) -> (*batch, d)        sum_i weights[i] c_i over ALL labels
    scores(v)                      (*batch, d) -> (*batch, L)        <v, c_i> for all labels
    top_k(v, k)                    (*batch, d) -> 2 x (*batch, k)    the k largest scores, exactly, and their labels
    label_range(rank, world_size)                                    the labels that one of several processes ranks
    labels_above(v, threshold)     (rows, d) -> ragged sets          every label with a score above the threshold
    log_sum_exp(v)                 (*batch, d) -> (*batch)           log sum_i exp <v, c_i>, in bounded memory
    bind(p)                                                          the codebook of p (x) c_i
    expand_to(n_labels)                                              more labels; the old ones keep their vectors
    to_trainable()                                                   a codebook whose vectors have gradients

A codebook is computed in blocks of labels. A subclass defines how the scores and the weighted sum of one block are
computed (`_score_block`, `_sum_block`); all of the above is then written once. Scores and weighted sums are each
other's derivative, which gives gradients of every order without a graph through L x d values.

Ragged sets are `(labels, offsets)` as in `torch.nn.EmbeddingBag`: row r holds labels[offsets[r] : offsets[r + 1]],
the last row extends to the end, and offsets has one entry for each row (`indptr[:-1]` of a CSR matrix).
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from holobind._checks import integer, positive, shape_text
from holobind.algebra import irfft_rows, rfft_rows
from holobind.codebooks import _limits as limits
from holobind.codebooks._fingerprint import Fingerprinted
from holobind.codebooks._tracing import has_values
from holobind.codebooks.ragged import checked_labels, checked_sets
from holobind.codebooks.ranking import label_range, merge_top_k, stable_topk
from holobind.errors import DTypeError, OptionError, ShapeError


class Codebook(Fingerprinted):
    """Base class of all codebooks; the module's docstring lists the methods. `dim` is d, `n_labels` is L.

    A codebook is a module so that it moves with the network it belongs to, but it has no precision of its own:
    transforms run in float32, or in float64 for float64 input, also where autocast or `.half()` reduce the network's.

    Its state has a fingerprint (`_fingerprint`): kind, sizes and seed. Built on the meta device, it has no storage
    until `to_empty` or a loader gives it some; what the seed draws is drawn on the CPU and moved to the fingerprint's
    device.

    kind         its name in the fingerprint
    unitary      whether all vectors are unitary
    range_step   the labels that are scored together: ranges of labels start at its multiples
    """

    kind: ClassVar[str] = "of your own"
    unitary = True
    range_step = 1

    def __init__(self, n_labels: int, dim: int, seed: int | None, *, stored: bool = True) -> None:
        super().__init__()
        self.n_labels = positive(type(self).__name__, "n_labels", n_labels)
        self.dim = positive(type(self).__name__, "dim", dim)
        self.seed = seed
        self._set_fingerprint(self.kind, n_labels, dim, seed, stored=stored)

    @property
    def device(self) -> torch.device:
        """The device of the vectors."""
        return self.fingerprint.device

    def reset_parameters(self) -> None:
        """Make the state anew from the seed, after `to_empty`."""
        self._reset_fingerprint()

    # What a subclass defines

    def _to_query(self, v: Tensor) -> Tensor:
        """Transform (rows, d) vectors to what `_score_block` takes, by default their spectra; linear."""
        return rfft_rows(v)

    def _to_vectors(self, total: Tensor) -> Tensor:
        """Transform sums of `_sum_block` to (rows, d) vectors, by default from spectra; linear."""
        return irfft_rows(total, self.dim)

    def _score_block(self, query: Tensor, first: int, last: int) -> Tensor:
        """The scores of the labels from `first` up to `last`, as `_blocks` chose them."""
        raise NotImplementedError

    def _sum_block(self, weights: Tensor, first: int, last: int) -> Tensor:
        """The weighted sum of these labels' vectors, in the form that `_to_vectors` takes."""
        raise NotImplementedError

    def _prepare_training(self) -> None:
        """Called before each training step that scores all labels: a codebook may cache what is costly to compute."""

    def _compiled_log_sum_exp(self, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """log sum_i exp(<v, c_i> + bias_i) and its derivative by v, where a codebook has a faster way than blocks.

        Shapes: (rows, d), (L) -> (rows), (rows, d)
        """
        return None

    def _blocks(self, rows: int, max_bytes: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        """Blocks (rows, first label, last label) that cover these labels, for each row in order of labels."""
        raise NotImplementedError

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """`encode` without checks."""
        raise NotImplementedError

    def _vectors(self, ids: Tensor) -> Tensor:
        """`vectors` without checks."""
        raise NotImplementedError

    def bind(self, p: Tensor) -> "Codebook":
        """The codebook whose vectors are p (x) c_i: for unitary p, <p* (x) v, c_i> = <v, p (x) c_i>.

        The paper unbinds p from every output. It is bound to the labels here instead, once.
        """
        raise NotImplementedError

    def expand_to(self, n_labels: int) -> "Codebook":
        """A codebook of more labels in which every existing label keeps its vector."""
        raise NotImplementedError

    def to_trainable(self) -> "Codebook":
        """A codebook that starts from the same vectors and learns; a projection keeps them unitary."""
        raise NotImplementedError

    # What is the same for all codebooks

    @property
    def trainable(self) -> bool:
        """Whether the vectors themselves have gradients."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def vectors(self, ids: Tensor) -> Tensor:
        """The vectors of some labels.  Shapes: (*any) -> (*any, d)"""
        self._verify()
        flat = checked_labels(ids, self.n_labels, ndim=None).reshape(-1)
        return self._vectors(flat.to(self.device, torch.long)).reshape(*ids.shape, self.dim)

    def scores_of(self, v: Tensor, ids: Tensor) -> Tensor:
        """<v, c_i> for chosen labels: the same for all rows, (m), or for each row its own, (*batch, m).

        Shapes: (*batch, d), (m) or (*batch, m) -> (*batch, m)
        """
        flat, shape = _flat_rows("scores_of", v, self.dim, "elements")
        if ids.ndim != 1 and ids.shape[:-1] != shape:
            raise ShapeError(
                f"scores_of: wants ids of shape (m,) or {shape_text(*shape, 'm')}, one row of ids for each row; "
                f"got {tuple(ids.shape)}"
            )
        vectors = self.vectors(ids).to(flat.dtype)
        with _no_autocast(flat):
            if ids.ndim == 1:
                return (flat @ vectors.T).reshape(*shape, len(ids))
            return torch.einsum("rd,rmd->rm", flat, vectors.flatten(0, -3)).reshape(ids.shape)

    def encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The sum of the vectors of each ragged set, each times its weight; an empty set gives 0.

        Shapes: (total), (rows), (total) -> (rows, d)
        """
        if weights is not None and weights.shape != labels.shape:
            raise ShapeError(
                f"encode: wants one weight for each label, got {tuple(weights.shape)} for {tuple(labels.shape)}"
            )
        self._verify()
        moved = None if weights is None else weights.to(self.device)
        return self._encode(*checked_sets(labels, offsets, self.n_labels, self.device), moved)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """sum_i weights[i] c_i over all labels: the derivative of `scores`.

        Shapes: (*batch, L) -> (*batch, d)
        """
        self._verify()
        flat, shape = _flat_rows("weighted_sum", weights, self.n_labels, "labels")
        plain = self.trainable or not _tracked(flat) or not has_values(flat)
        total = self._weighted_sum(flat) if plain else _WeightedSum.apply(flat, self)
        return total.reshape(*shape, self.dim)

    def scores(self, v: Tensor) -> Tensor:
        """<v, c_i> for all labels.

        Shapes: (*batch, d) -> (*batch, L)
        """
        self._verify()
        flat, shape = _flat_rows("scores", v, self.dim, "elements")
        plain = self.trainable or not _tracked(flat) or not has_values(flat)
        scores = self._scores(flat) if plain else _Scores.apply(flat, self)
        return scores.reshape(*shape, self.n_labels)

    def log_sum_exp(self, v: Tensor) -> Tensor:
        """log sum_i exp <v, c_i>, and in the same pass its derivative, the softmax-weighted mean of the vectors.

        The scores of each block are exponentiated and summed while they are in the cache; sums are rescaled when a
        block raises the row's maximum. Nothing of size rows x L is ever held, forward or backward. Traced by
        torch.compile or torch.func, and with trainable vectors, it is torch's logsumexp of all scores.

        Shapes: (*batch, d) -> (*batch)
        """
        self._verify()
        flat, shape = _flat_rows("log_sum_exp", v, self.dim, "elements")
        if self.trainable or not has_values(flat):
            return self._scores(flat).logsumexp(-1).reshape(shape)
        return _LogSumExp.apply(flat, self, _tracked(flat)).reshape(shape)

    @torch.no_grad()
    def top_k(
        self, v: Tensor, k: int, *, labels: tuple[int, int] | None = None, max_bytes: int = limits.MAX_SCORE_BYTES
    ) -> tuple[Tensor, Tensor]:
        """The k largest scores of each row, largest first, and their labels; ties go to the lower label.

        The result is exact: every label is scored, in blocks of at most `max_bytes`.

        labels   rank only a range of labels, as `label_range` gives it; if it has fewer than k labels, all of them.
                 `ranking.merge_top_k` merges the results of several ranges

        Shapes: (*batch, d) -> (*batch, k), (*batch, k)
        """
        self._verify()
        flat, shape = _flat_rows("top_k", v, self.dim, "elements")
        if not 1 <= integer("top_k", "k", k) <= self.n_labels:
            raise OptionError(f"top_k: k must be from 1 to the number of labels, {self.n_labels}; got {k}")
        first, last = (0, self.n_labels) if labels is None else labels
        if not 0 <= first <= last <= self.n_labels or (first % self.range_step and first < last):
            raise OptionError(
                f"top_k: labels must be a range within 0 to {self.n_labels} that starts at a multiple of "
                f"{self.range_step}, as `label_range` gives it; got {labels}"
            )
        k = min(k, last - first)
        if not k:
            return flat.new_empty(*shape, 0), torch.empty(*shape, 0, dtype=torch.long, device=flat.device)
        if not has_values(flat):
            best, ids = stable_topk(self._scores(flat)[:, first:last], k)
            return best.reshape(*shape, k), (ids + first).reshape(*shape, k)
        with _no_autocast(flat):
            best, ids = self._top_k(flat, k, max_bytes, first, last)
        return best.reshape(*shape, k), ids.reshape(*shape, k)

    def raised_top_k(
        self, v: Tensor, k: int, values: Tensor, labels: Tensor, *, only: tuple[int, int] | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """`top_k` with values added to the scores of some labels, or None where there is no faster way to compute it.

        labels   ascending in each row, those with a value of their own once; -1 for none
        only     rank only a range of labels, as in `top_k`

        Shapes: (rows, d), 2 x (rows, m) -> (rows, k), (rows, k)
        """
        return None

    def label_range(self, rank: int, world_size: int) -> tuple[int, int]:
        """The range of labels, first and last, that the `rank`-th of `world_size` processes ranks.

        The ranges are in order and together hold every label once.
        """
        return label_range(self.n_labels, self.range_step, rank, world_size)

    @torch.no_grad()
    def labels_above(
        self, v: Tensor, threshold: float, *, max_bytes: int = limits.MAX_SCORE_BYTES
    ) -> tuple[Tensor, Tensor]:
        """All labels with a score above `threshold`, as ragged sets in order of labels.

        Shapes: (rows, d) -> (total), (rows)
        """
        flat, _ = _flat_rows("labels_above", v, self.dim, "elements")
        rows, labels = ([v.new_empty(0, dtype=torch.long)] for _ in range(2))
        with _no_autocast(flat):
            query = self._to_query(flat)
            for block, first, last in self._blocks(len(flat), max_bytes, 0, self.n_labels):
                row, label = (self._score_block(query[block], first, last) > threshold).nonzero().T
                rows.append(row + block.start)
                labels.append(label + first)
        row, order = torch.cat(rows).sort(stable=True)  # the blocks of each row came in order of labels
        counts = row.bincount(minlength=len(flat))
        return torch.cat(labels)[order], counts.cumsum(0) - counts

    def _top_k(self, v: Tensor, k: int, max_bytes: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        query = self._to_query(v)
        best: dict[int, tuple[Tensor, Tensor]] = {}  # of the labels so far, by the first row of a block
        for block, start, end in self._blocks(len(v), max_bytes, first, last):
            scores, ids = stable_topk(self._score_block(query[block], start, end), min(k, end - start))
            earlier = [best[block.start]] if block.start in best else []
            best[block.start] = merge_top_k([*earlier, (scores, ids + start)], k)
        return torch.cat([scores for scores, _ in best.values()]), torch.cat([ids for _, ids in best.values()])

    def _scores(self, v: Tensor) -> Tensor:
        with _no_autocast(v):
            query = self._to_query(v)
            if self.trainable or not has_values(v):
                return self._score_block(query, 0, self.n_labels)
            scores = v.new_empty(len(v), self.n_labels)
            for block, first, last in self._blocks(len(v), limits.MAX_SCORE_BYTES, 0, self.n_labels):
                scores[block, first:last] = self._score_block(query[block], first, last)
            return scores

    def _weighted_sum(self, weights: Tensor) -> Tensor:
        with _no_autocast(weights):
            if self.trainable or not has_values(weights):
                return self._to_vectors(self._sum_block(weights, 0, self.n_labels))
            total = torch.zeros_like(self._to_query(weights.new_zeros(len(weights), self.dim)))
            for block, first, last in self._blocks(len(weights), limits.MAX_SCORE_BYTES, 0, self.n_labels):
                total[block] += self._sum_block(weights[block, first:last], first, last)
            return self._to_vectors(total)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._forget_copies()
        return self

    def _forget_copies(self) -> None:
        """Free copies on another device than `self.device`."""

    def extra_repr(self) -> str:
        return f"n_labels={self.n_labels}, dim={self.dim}, seed={self.seed}"


class _Scores(Function):
    """`Codebook.scores` of fixed vectors, with `weighted_sum` as its derivative."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, codebook: Codebook) -> Tensor:
        ctx.codebook = codebook
        return codebook._scores(v)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _WeightedSum.apply(grad, ctx.codebook), None


class _WeightedSum(Function):
    """`Codebook.weighted_sum` of fixed vectors, with `scores` as its derivative."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, codebook: Codebook) -> Tensor:
        ctx.codebook = codebook
        return codebook._weighted_sum(weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Scores.apply(grad, ctx.codebook), None


class _LogSumExp(Function):
    """`Codebook.log_sum_exp` of fixed vectors; the forward pass computes the derivative, too."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, codebook: Codebook, tracked: bool) -> Tensor:
        if tracked:
            codebook._prepare_training()
        with _no_autocast(v):
            compiled = codebook._compiled_log_sum_exp(v, None)
            if compiled is not None:
                ctx.save_for_backward(compiled[1])
                return compiled[0]
            query = codebook._to_query(v)
            total = torch.zeros_like(query)  # sum_i exp(score_i - largest) c_i
            largest = v.new_full((len(v), 1), -torch.inf)
            mass = torch.zeros_like(largest)  # sum_i exp(score_i - largest)
            for block, first, last in codebook._blocks(len(v), limits.MAX_SCORE_BYTES, 0, codebook.n_labels):
                scores = codebook._score_block(query[block], first, last)
                now = torch.maximum(largest[block], scores.amax(1, keepdim=True))
                rescale = (largest[block] - now).exp_()
                weights = scores.sub_(now).exp_()
                largest[block] = now
                mass[block] = mass[block] * rescale + weights.sum(1, keepdim=True)
                if tracked:
                    total[block] = total[block] * rescale + codebook._sum_block(weights, first, last)
            if tracked:
                ctx.save_for_backward(codebook._to_vectors(total) / mass)
            return (largest + mass.log()).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (mean,) = ctx.saved_tensors
        return grad[:, None] * mean, None, None


def _no_autocast(v: Tensor) -> torch.autocast:
    """A context without autocast: bfloat16 products do not give exact scores."""
    return torch.autocast("cpu" if v.is_meta else v.device.type, enabled=False)


def _tracked(*tensors: Tensor) -> bool:
    """Whether autograd records what is computed from these tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _flat_rows(operation: str, x: Tensor, width: int, unit: str) -> tuple[Tensor, torch.Size]:
    """(*batch, width) as (rows, width), in float32 or wider, and the shape of the batch."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise DTypeError(f"{operation}: wants a floating-point tensor, got {getattr(x, 'dtype', type(x))}")
    if x.ndim == 0 or x.shape[-1] != width:
        raise ShapeError(f"{operation}: wants {width} {unit} along the last axis, got shape {tuple(x.shape)}")
    return x.reshape(-1, width).to(torch.promote_types(x.dtype, torch.float32)), x.shape[:-1]
