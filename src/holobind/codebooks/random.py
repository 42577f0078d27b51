"""The paper's label vectors: independent, unitary, drawn again from the seed whenever they are needed."""

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.fft import irfft, rfft

from holobind import algebra
from holobind._checks import integer
from holobind.algebra import irfft_rows, rfft_rows
from holobind.codebooks import _limits as limits
from holobind.codebooks._checks import checked_expansion, checked_key
from holobind.codebooks._philox import phases, reproducible_irfft
from holobind.codebooks._tracing import has_values
from holobind.codebooks.base import Codebook
from holobind.codebooks.dense import DenseCodebook
from holobind.codebooks.ragged import set_chunks, sum_sets


class RandomCodebook(Codebook):
    """The paper's independent unitary vectors, drawn from (seed, label) whenever they are needed.

    State: none; the seed and the sizes define it. Training draws the same labels again and again. So the phases of all
    labels are cached, if they take at most MAX_SCORE_BYTES, as soon as a loss needs every label (softmax) or as many
    vectors were drawn as there are labels; `eval()` frees the cache.

    A unitary vector has a random phase at each frequency, and +1 or -1 at the two without a mirror. The paper
    projects Gaussian vectors, whose phases are independent and uniform. To draw the phases directly gives the same
    distribution and needs no transform. Sums and dot products are computed in the frequency domain (Parseval: with
    w[k] = 1 at the frequencies without a mirror and 2 at the others, <v, c> = sum_k w[k] Re(conj(V[k]) C[k]) / d), so
    that no label needs a transform either.
    """

    kind: ClassVar[str] = "random"

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, key: Tensor | None = None) -> None:
        super().__init__(n_labels, dim, integer("RandomCodebook", "seed", seed), stored=key is None)
        self._key = None if key is None else key.cpu()  # the spectrum of the vector that is bound to every label
        self._cached_phases: Tensor | None = None
        self._n_drawn = 0  # vectors drawn in training since the cache was empty

    def _to_query(self, v: Tensor) -> Tensor:
        query = rfft_rows(v) if self._key is None else rfft_rows(v) * self._key.to(v.device).conj()
        if not has_values(v):
            weights = torch.full((self.dim // 2 + 1,), 2 / self.dim, device=v.device)
            weights[0] = 1 / self.dim
            if self.dim % 2 == 0:
                weights[-1] = 1 / self.dim
            return torch.view_as_real(query * weights).flatten(1)
        query *= 2 / self.dim
        query[:, 0] /= 2
        if self.dim % 2 == 0:
            query[:, -1] /= 2
        return torch.view_as_real(query).flatten(1)

    def _to_vectors(self, total: Tensor) -> Tensor:
        spectra = torch.view_as_complex(total.unflatten(1, (-1, 2)))
        return irfft_rows(spectra if self._key is None else spectra * self._key.to(spectra.device), self.dim)

    def _score_block(self, query: Tensor, first: int, last: int) -> Tensor:
        return query @ self._block_phases(first, last).to(query.dtype).T

    def _sum_block(self, weights: Tensor, first: int, last: int) -> Tensor:
        return weights @ self._block_phases(first, last).to(weights.dtype)

    def _block_phases(self, first: int, last: int) -> Tensor:
        """The phases of labels from `first` up to `last`.  Shapes: -> (last - first, 2 (d // 2 + 1))"""
        if self._cached_phases is not None:
            return self._cached_phases[first:last]
        assert self.seed is not None
        return phases(self.seed, torch.arange(first, last, device=self.device), self.dim).flatten(1)

    def _prepare_training(self) -> None:
        fits = 4 * self.n_labels * (self.dim + 2) <= limits.MAX_SCORE_BYTES
        if self.training and self._cached_phases is None and fits:
            # In blocks, because drawing phases takes several times their memory.
            blocks = self._blocks(1, limits.MAX_SCORE_BYTES, 0, self.n_labels)
            self._cached_phases = torch.cat([self._block_phases(first, last) for _, first, last in blocks])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cached_phases": None, "_n_drawn": 0}  # a copy fills its own cache

    def train(self, mode: bool = True) -> Self:
        if not mode:
            self._forget_copies()
        return super().train(mode)

    def _blocks(self, rows: int, max_bytes: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        # All rows are in one block, because the cost is in drawing the phases of a label.
        size = max(1, min(limits.MAX_BLOCK_SCORES // self.dim, max_bytes // (4 * (rows + 8 * self.dim))))
        for start in range(first, last, size):
            yield slice(0, rows), start, min(start + size, last)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        chunks = set_chunks(labels, offsets, weights, max(1, limits.MAX_BLOCK_SCORES // self.dim))
        sums = [sum_sets(self._phases(ids).flatten(1), starts, factors) for ids, starts, factors in chunks]
        return self._to_vectors(torch.cat(sums))

    def _vectors(self, ids: Tensor) -> Tensor:
        spectra = torch.view_as_complex(self._phases(ids))
        drawn = reproducible_irfft(spectra, self.dim) if has_values(ids) else irfft(spectra, n=self.dim)
        return drawn if self._key is None else algebra.bind(drawn, irfft(self._key, n=self.dim).to(drawn.device))

    def _phases(self, ids: Tensor) -> Tensor:
        """The phases of labels.  Shapes: (n) -> (n, d // 2 + 1, 2)"""
        assert self.seed is not None
        if self._cached_phases is None and self.training and has_values(ids):
            self._n_drawn += len(ids)
            if self._n_drawn > self.n_labels:
                self._prepare_training()
        if self._cached_phases is not None:
            return self._cached_phases.index_select(0, ids).unflatten(1, (-1, 2))
        return phases(self.seed, ids, self.dim)

    def bind(self, p: Tensor) -> Codebook:
        key = rfft(checked_key(p, self.dim).cpu())
        return self._like(self.n_labels, key if self._key is None else self._key * key)

    def expand_to(self, n_labels: int) -> Codebook:
        return self._like(checked_expansion(self.n_labels, n_labels), self._key)

    def to_trainable(self) -> Codebook:
        assert self.seed is not None
        draw = partial(_draw_all, self.n_labels, self.dim, self.seed, self._key)
        return DenseCodebook.drawn(draw, trainable=True).to(self.device)

    def _like(self, n_labels: int, key: Tensor | None) -> "RandomCodebook":
        assert self.seed is not None
        return RandomCodebook(n_labels, self.dim, self.seed, key=key).to(self.device)

    def _forget_copies(self) -> None:
        self._cached_phases, self._n_drawn = None, 0


def _draw_all(n_labels: int, dim: int, seed: int, key: Tensor | None) -> Tensor:
    with torch.device("cpu"):
        return RandomCodebook(n_labels, dim, seed, key=key).vectors(torch.arange(n_labels))
