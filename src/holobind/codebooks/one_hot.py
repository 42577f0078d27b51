"""One-hot label vectors: the scores are elements of the output."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.fft import rfft

from holobind.codebooks._checks import checked_expansion, checked_key
from holobind.codebooks.base import Codebook
from holobind.codebooks.dense import DenseCodebook
from holobind.codebooks.orbit import OrbitCodebook
from holobind.codebooks.ragged import checked_labels, set_sizes
from holobind.codebooks.ranking import stable_topk
from holobind.errors import OptionError


class OneHotCodebook(Codebook):
    """Label i is the i-th one-hot vector: the orbit of the identity of binding, for at most d labels.

    State: none. An orbit of one base is an orthonormal basis, and any two of these differ by a rotation. A network
    that produces the output itself loses nothing with this one: scores are elements of the output, without a transform.
    """

    kind: ClassVar[str] = "one_hot"

    def __init__(self, n_labels: int, dim: int) -> None:
        super().__init__(n_labels, dim, None)
        if self.n_labels > self.dim:
            raise OptionError(
                f"OneHotCodebook: dim {dim} has one-hot vectors for {dim} labels; got {n_labels}, "
                "take the orbit codebook"
            )

    def _to_query(self, v: Tensor) -> Tensor:
        return v

    def _to_vectors(self, total: Tensor) -> Tensor:
        return total

    def _score_block(self, query: Tensor, first: int, last: int) -> Tensor:
        return query[:, first:last].clone(memory_format=torch.contiguous_format)  # the caller may write into it

    def _sum_block(self, weights: Tensor, first: int, last: int) -> Tensor:
        return nn.functional.pad(weights, (first, self.dim - last))

    def _blocks(self, rows: int, max_bytes: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        height = max(1, max_bytes // (8 * self.dim))
        for top in range(0, rows, height):
            yield slice(top, min(top + height, rows)), first, last

    def _top_k(self, v: Tensor, k: int, max_bytes: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        best, ids = stable_topk(v[:, first:last].contiguous(), k)
        return best, ids + first

    def raised_top_k(
        self, v: Tensor, k: int, values: Tensor, labels: Tensor, *, only: tuple[int, int] | None = None
    ) -> tuple[Tensor, Tensor] | None:
        first, last = only or (0, self.n_labels)
        fits = v.ndim == 2 and v.shape[1] == self.dim and 1 <= k <= self.n_labels and 0 <= first < last <= self.n_labels
        if not (fits and labels.ndim == 2 and labels.shape == values.shape and len(labels) == len(v)):
            return None  # `top_k` raises errors
        known = labels >= 0
        scores = v.float().scatter_add(1, labels.clamp(min=0), torch.where(known, values.float(), 0))
        best, ids = stable_topk(scores[:, first:last].contiguous(), min(k, last - first))
        return best, ids + first

    def scores_of(self, v: Tensor, ids: Tensor) -> Tensor:
        """As of every codebook: elements of v."""
        own_ids = ids.ndim == v.ndim and ids.shape[:-1] == v.shape[:-1]
        if not (v.ndim and v.shape[-1] == self.dim and v.is_floating_point() and (ids.ndim == 1 or own_ids)):
            return super().scores_of(v, ids)  # which raises errors
        ids = checked_labels(ids, self.n_labels, ndim=None).long()
        return v[..., ids] if ids.ndim == 1 else v.gather(-1, ids)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        row = torch.arange(len(offsets), device=self.device).repeat_interleave(set_sizes(labels, offsets))
        values = torch.ones(len(labels), device=self.device) if weights is None else weights
        return values.new_zeros(len(offsets), self.dim).index_put_((row, labels), values, accumulate=True)

    def _vectors(self, ids: Tensor) -> Tensor:
        return nn.functional.one_hot(ids, self.dim).float()

    def bind(self, p: Tensor) -> Codebook:
        # An orbit whose base is p: its key is p, bound with the inverse of the base that the orbit draws.
        key = rfft(checked_key(p, self.dim).cpu()) * OrbitCodebook(1, self.dim)._drawn_conj_spectra[0]
        return OrbitCodebook(self.n_labels, self.dim, key=key).to(self.device)

    def expand_to(self, n_labels: int) -> Codebook:
        return OneHotCodebook(checked_expansion(self.n_labels, n_labels), self.dim).to(self.device)

    def to_trainable(self) -> Codebook:
        return DenseCodebook.drawn(partial(torch.eye, self.n_labels, self.dim, device="cpu"), trainable=True)
