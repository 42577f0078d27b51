"""Label vectors that are never stored, and every question one asks of them.

    vectors(ids)              (n) -> (n, d)                     the vectors c_i themselves
    encode(labels, offsets)   ragged sets -> (rows, d)          the sum of each set's vectors
    mix(weights)              (*batch, L) -> (*batch, d)        sum_i weights[i] c_i over ALL labels
    scores(v)                 (*batch, d) -> (*batch, L)        <v, c_i> for all labels
    top_k(v, k)               (*batch, d) -> 2 x (*batch, k)    the k largest scores, exactly, and their labels
    share(rank, world)                                          a range of labels, for `top_k` of one of several scorers
    above(v, threshold)       (rows, d) -> ragged sets          every label whose score passes
    log_sum_exp(v)            (*batch, d) -> (*batch)           log sum_i exp <v, c_i>, in bounded memory
    bound(p)                                                    the codebook of p (x) c_i
    grown_to(n)                                                 more labels; the existing ones keep their vectors

A codebook is made of blocks of labels and a subclass says how one block is scored (`_score`) and mixed (`_mix`);
all of the above is then written once. Scoring and mixing are each other's derivative, which gives gradients of
every order without a graph through L x d numbers.

Ragged sets are `(labels, offsets)` as in `torch.nn.EmbeddingBag`: row r holds labels[offsets[r] : offsets[r + 1]],
the last row runs to the end, and offsets has one entry for each row (`indptr[:-1]` of a CSR matrix).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.fft import irfft, rfft

from holobind._checks import integer, positive
from holobind.codebooks.ragged import checked_labels, checked_sets
from holobind.errors import DTypeError, OptionError, ShapeError

MEMORY = 256 << 20
# Scores made in one go. A tile of them, the spectra they come from and the bases they share stay in a 32 MB L3
# cache, and the transforms of a tile (256 at d = 3000) outweigh the cost of planning them: from 64 to 1024 the
# time varied by 15 %, and without tiles, at 670,091 labels and 16 rows, it was four times as long.
TILE = 3 << 18
MANY = 1 << 14  # scores whose ranking is worth a compiled function


class Codebook(nn.Module):
    """What every codebook can do; see the top of this file. `dim` is d, `n_labels` is L.

    It is a module so that it moves with the network it is in, but it has no precision of its own: transforms
    run in float32, or in float64 for float64 input, also where autocast or `.half()` reduce the network's.
    """

    unitary = True
    grain = 1  # labels that are scored together, and so stay together in a share

    def __init__(self, n_labels: int, dim: int, seed: int | None) -> None:
        super().__init__()
        self.n_labels = positive(type(self).__name__, "n_labels", n_labels)
        self.dim = positive(type(self).__name__, "dim", dim)
        self.seed = seed
        self.device = torch.device("cpu")

    # What a subclass provides

    def _ask(self, v: Tensor) -> Tensor:
        """What `_score` wants to know of (rows, d) vectors; linear."""
        return spectrum(v)

    def _answer(self, total: Tensor) -> Tensor:
        """From what `_mix` gives to (rows, d) vectors; linear."""
        return signal(total, self.dim)

    def _score(self, asked: Tensor, first: int, last: int) -> Tensor:
        """Scores of the labels from `first` up to `last`, which `_blocks` chose."""
        raise NotImplementedError

    def _mix(self, weights: Tensor, first: int, last: int) -> Tensor:
        """The weighted sum of those labels' vectors, as `_answer` takes it."""
        raise NotImplementedError

    def _keep(self) -> None:
        """Training is about to ask for all labels, and will again: what is costly to make may be kept."""

    def _blocks(self, rows: int, memory: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        """Tiles of (rows, first label, last label) that cover these labels, in order of labels for each row."""
        raise NotImplementedError

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def _vectors(self, ids: Tensor) -> Tensor:
        raise NotImplementedError

    def bound(self, p: Tensor) -> "Codebook":
        """The codebook whose vectors are p (x) c_i: for unitary p, <p* (x) v, c_i> = <v, p (x) c_i>.

        What the paper unbinds from every output is bound to the labels instead, once.
        """
        raise NotImplementedError

    def grown_to(self, n_labels: int) -> "Codebook":
        """A codebook of more labels in which every existing label keeps its vector."""
        raise NotImplementedError

    def learnable(self) -> "Codebook":
        """A codebook that starts from the same vectors and learns; they are projected to stay unitary."""
        raise NotImplementedError

    # What is the same for all

    @property
    def learned(self) -> bool:
        """Whether the vectors themselves have gradients."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def vectors(self, ids: Tensor) -> Tensor:
        """The vectors of some labels.  Shapes: (n) -> (n, d)"""
        return self._vectors(checked_labels(ids, self.n_labels).to(self.device, torch.long))

    def encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The sum of the vectors of each ragged set, each times its weight; an empty set gives 0.

        Shapes: (total), (rows), (total) -> (rows, d)
        """
        if weights is not None and weights.shape != labels.shape:
            raise ShapeError(f"encode: wants one weight a label, got {tuple(weights.shape)} for {tuple(labels.shape)}")
        by = None if weights is None else weights.to(self.device)
        return self._encode(*checked_sets(labels, offsets, self.n_labels, self.device), by)

    def mix(self, weights: Tensor) -> Tensor:
        """sum_i weights[i] c_i over all labels: the derivative of `scores`.

        Shapes: (*batch, L) -> (*batch, d)
        """
        flat, shape = _rows("mix", weights, self.n_labels, "labels")
        mixed = self._mix_now(flat) if self.learned or not _tracked(flat) else _Mix.apply(flat, self)
        return mixed.reshape(*shape, self.dim)

    def scores(self, v: Tensor) -> Tensor:
        """<v, c_i> for all labels.

        Shapes: (*batch, d) -> (*batch, L)
        """
        flat, shape = _rows("scores", v, self.dim, "elements")
        found = self._scores_now(flat) if self.learned or not _tracked(flat) else _Scores.apply(flat, self)
        return found.reshape(*shape, self.n_labels)

    def log_sum_exp(self, v: Tensor) -> Tensor:
        """log sum_i exp <v, c_i>, and in the same pass its derivative, the softmax-weighted mean of the vectors.

        Each tile of scores is exponentiated and mixed while it is in the cache; sums are rescaled when a tile
        raises the row's maximum. Nothing of size rows x L is ever held, forward or backward.

        Shapes: (*batch, d) -> (*batch)
        """
        flat, shape = _rows("log_sum_exp", v, self.dim, "elements")
        if self.learned:
            return self._scores_now(flat).logsumexp(-1).reshape(shape)
        return _LogSumExp.apply(flat, self, _tracked(flat)).reshape(shape)

    @torch.no_grad()
    def top_k(
        self, v: Tensor, k: int, *, labels: tuple[int, int] | None = None, memory: int = MEMORY
    ) -> tuple[Tensor, Tensor]:
        """The k largest scores of each row, largest first, and their labels; among equals the lowest label first.

        Exact: every label is scored, though never more than `memory` bytes' worth at once. With `labels`, only those
        from the first up to the last are (all of them, if they are fewer than k): a `share`, to be `merged`.

        Shapes: (*batch, d) -> (*batch, k), (*batch, k)
        """
        flat, shape = _rows("top_k", v, self.dim, "elements")
        if not 1 <= integer("top_k", "k", k) <= self.n_labels:
            raise OptionError(f"top_k: k must be from 1 to the number of labels, {self.n_labels}; got {k}")
        first, last = (0, self.n_labels) if labels is None else labels
        if not 0 <= first <= last <= self.n_labels or (first % self.grain and first < last):
            raise OptionError(
                f"top_k: labels must be a range within 0 to {self.n_labels} that starts at a multiple of "
                f"{self.grain}, as `share` gives them; got {labels}"
            )
        k = min(k, last - first)
        if not k:
            return flat.new_empty(*shape, 0), torch.empty(*shape, 0, dtype=torch.long, device=flat.device)
        with full_precision(flat):
            best, ids = self._top_k(flat, k, memory, first, last)
        return best.reshape(*shape, k), ids.reshape(*shape, k)

    def label_range(self, rank: int, world: int) -> tuple[int, int]:
        """The labels, first and last, that the `rank`-th of `world` scorers takes: all labels once, in order."""
        return label_range(self.n_labels, self.grain, rank, world)

    @torch.no_grad()
    def above(self, v: Tensor, threshold: float, *, memory: int = MEMORY) -> tuple[Tensor, Tensor]:
        """All labels with a score above `threshold`, as ragged sets in order of labels.

        Shapes: (rows, d) -> (total), (rows)
        """
        flat, _ = _rows("above", v, self.dim, "elements")
        rows, labels = ([v.new_empty(0, dtype=torch.long)] for _ in range(2))
        with full_precision(flat):
            asked = self._ask(flat)
            for tile, first, last in self._blocks(len(flat), memory, 0, self.n_labels):
                row, label = (self._score(asked[tile], first, last) > threshold).nonzero().T
                rows.append(row + tile.start)
                labels.append(label + first)
        row, order = torch.cat(rows).sort(stable=True)  # for each row the tiles came in order of labels
        counts = row.bincount(minlength=len(flat))
        return torch.cat(labels)[order], counts.cumsum(0) - counts

    def _top_k(self, v: Tensor, k: int, memory: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        asked = self._ask(v)
        kept: dict[int, tuple[Tensor, Tensor]] = {}
        for tile, start, end in self._blocks(len(v), memory, first, last):
            found, where = first_largest(self._score(asked[tile], start, end), min(k, end - start))
            before = [kept[tile.start]] if tile.start in kept else []
            kept[tile.start] = merged([*before, (found, where + start)], k)
        return torch.cat([found for found, _ in kept.values()]), torch.cat([where for _, where in kept.values()])

    def _scores_now(self, v: Tensor) -> Tensor:
        with full_precision(v):
            asked = self._ask(v)
            if self.learned:
                return self._score(asked, 0, self.n_labels)
            found = v.new_empty(len(v), self.n_labels)
            for tile, first, last in self._blocks(len(v), MEMORY, 0, self.n_labels):
                found[tile, first:last] = self._score(asked[tile], first, last)
            return found

    def _mix_now(self, weights: Tensor) -> Tensor:
        with full_precision(weights):
            if self.learned:
                return self._answer(self._mix(weights, 0, self.n_labels))
            total = torch.zeros_like(self._ask(weights.new_zeros(len(weights), self.dim)))
            for tile, first, last in self._blocks(len(weights), MEMORY, 0, self.n_labels):
                total[tile] += self._mix(weights[tile, first:last], first, last)
            return self._answer(total)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.device = fn(torch.empty(0, device=self.device)).device
        self._move()
        return super()._apply(fn, recurse)

    def _move(self) -> None:
        """Follow to `self.device`."""

    def extra_repr(self) -> str:
        return f"n_labels={self.n_labels}, dim={self.dim}, seed={self.seed}"


def first_largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, largest first, among equals the lower index first; torch.topk takes any of them.

    Shapes: (rows, n) -> (rows, k), (rows, k)
    """
    if scores.is_cpu and scores.dtype == torch.float32 and scores.is_contiguous() and scores.numel() >= MANY:
        from holobind import _topk as ranking  # compiles when first used

        ranked = ranking.largest(scores.detach().numpy(), k)
        if ranked is not None:
            return torch.from_numpy(ranked[0]), torch.from_numpy(ranked[1])
    found, where = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    # If the next one equals the last one wanted, which of the equals were found was left to chance.
    torn = (found[:, k - 1] == found[:, k]).nonzero()[:, 0] if found.shape[1] > k else where.new_empty(0)
    where = where[:, :k].sort(1).values
    found, order = scores.gather(1, where).sort(dim=1, descending=True, stable=True)
    where = where.gather(1, order)
    if len(torn):
        some, at = scores[torn].sort(dim=1, descending=True, stable=True)
        found[torn], where[torn] = some[:, :k], at[:, :k]
    return found, where


def merged(parts: Sequence[tuple[Tensor, Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """The k best of (scores, labels) found in ranges of labels, given in order of labels.

    The lower labels stand first and every list has equals in order of labels, so a stable sort has, too.

    Shapes: (rows, any) each -> (rows, k), (rows, k)
    """
    found, order = torch.cat([scores for scores, _ in parts], 1).sort(dim=1, descending=True, stable=True)
    labels = torch.cat([labels for _, labels in parts], 1).gather(1, order)
    return found[:, :k], labels[:, :k]


def label_range(n_labels: int, grain: int, rank: int, world: int) -> tuple[int, int]:
    """Cut labels into `world` ranges that start at multiples of `grain` and are as even as that allows."""
    if not 0 <= rank < world:
        raise OptionError(f"share: rank must be from 0 to below world; got {rank} and {world}")
    grains = -(-n_labels // grain)
    first, last = (min(n_labels, grains * r // world * grain) for r in (rank, rank + 1))
    return first, last


def full_precision(v: Tensor) -> torch.autocast:
    """No autocast in here: exact scores do not come out of bfloat16 products."""
    return torch.autocast(v.device.type, enabled=False)


def spectrum(v: Tensor) -> Tensor:
    """rfft, also of no rows at all, which the library under torch refuses."""
    return rfft(v) if len(v) else rfft(v.new_zeros(1, *v.shape[1:]))[:0]


def signal(total: Tensor, dim: int) -> Tensor:
    """irfft, also of no rows at all."""
    return irfft(total, n=dim) if len(total) else total.real.new_zeros(0, *total.shape[1:-1], dim)


class _Scores(Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, book: Codebook) -> Tensor:
        ctx.book = book
        return book._scores_now(v)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Mix.apply(grad, ctx.book), None


class _Mix(Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, book: Codebook) -> Tensor:
        ctx.book = book
        return book._mix_now(weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Scores.apply(grad, ctx.book), None


class _LogSumExp(Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, book: Codebook, tracked: bool) -> Tensor:
        if tracked:
            book._keep()
        with full_precision(v):
            asked = book._ask(v)
            total = torch.zeros_like(asked)  # sum_i exp(score_i - largest) c_i
            largest = v.new_full((len(v), 1), -torch.inf)
            mass = torch.zeros_like(largest)  # sum_i exp(score_i - largest)
            for tile, first, last in book._blocks(len(v), MEMORY, 0, book.n_labels):
                scores = book._score(asked[tile], first, last)
                now = torch.maximum(largest[tile], scores.amax(1, keepdim=True))
                rescale = (largest[tile] - now).exp_()
                weights = scores.sub_(now).exp_()
                largest[tile] = now
                mass[tile] = mass[tile] * rescale + weights.sum(1, keepdim=True)
                if tracked:
                    total[tile] = total[tile] * rescale + book._mix(weights, first, last)
            if tracked:
                ctx.save_for_backward(book._answer(total) / mass)
            return (largest + mass.log()).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (mean,) = ctx.saved_tensors
        return grad[:, None] * mean, None, None


def _tracked(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _rows(operation: str, x: Tensor, width: int, what: str) -> tuple[Tensor, torch.Size]:
    """(*batch, width) as (rows, width), in float32 or wider, and the shape of the batch."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise DTypeError(f"{operation}: wants a floating-point tensor, got {getattr(x, 'dtype', type(x))}")
    if x.ndim == 0 or x.shape[-1] != width:
        raise ShapeError(f"{operation}: wants {width} {what} along the last axis, got shape {tuple(x.shape)}")
    return x.reshape(-1, width).to(torch.promote_types(x.dtype, torch.float32)), x.shape[:-1]
