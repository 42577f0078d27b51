from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor
from torch.fft import irfft, rfft

from holobind import algebra
from holobind._checks import integer
from holobind.codebooks._checks import _more, _one_vector
from holobind.codebooks._philox import phases, signals
from holobind.codebooks.base import MEMORY, TILE, Codebook, signal, spectrum
from holobind.codebooks.ragged import portions, sum_sets
from holobind.codebooks.stored import DenseCodebook


class RandomCodebook(Codebook):
    """The paper's independent unitary vectors, regenerated from (seed, label) whenever they are wanted.

    State: none; seed and sizes are all there is. Only a softmax that is being trained, which asks for every label in
    each step, keeps their phases, where these fit into MEMORY; `eval()` lets go of them.

    A unitary vector is a random phase at each frequency, and +1 or -1 at the two without a mirror. The paper
    projects Gaussian vectors, whose phases are independent and uniform: drawing them directly is the same law
    and needs no transform. Sums and dot products are taken in the frequency domain (Parseval: with w[k] = 1 at the
    frequencies without a mirror and 2 at the others, <v, c> = sum_k w[k] Re(conj(V[k]) C[k]) / d), so that no
    label needs one either.
    """

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, key: Tensor | None = None) -> None:
        super().__init__(n_labels, dim, integer("RandomCodebook", "seed", seed))
        self._key = key  # the spectrum of what the labels are bound with
        self._kept: Tensor | None = None

    def _ask(self, v: Tensor) -> Tensor:
        asked = spectrum(v) if self._key is None else spectrum(v) * self._key.conj()
        asked *= 2 / self.dim
        asked[:, 0] /= 2
        if self.dim % 2 == 0:
            asked[:, -1] /= 2
        return torch.view_as_real(asked).flatten(1)

    def _answer(self, total: Tensor) -> Tensor:
        mixed = torch.view_as_complex(total.unflatten(1, (-1, 2)))
        return signal(mixed if self._key is None else mixed * self._key, self.dim)

    def _score(self, asked: Tensor, first: int, last: int) -> Tensor:
        return asked @ self._range(first, last).to(asked.dtype).T

    def _mix(self, weights: Tensor, first: int, last: int) -> Tensor:
        return weights @ self._range(first, last).to(weights.dtype)

    def _range(self, first: int, last: int) -> Tensor:
        """The phases of labels from `first` up to `last`.  Shapes: -> (last - first, 2 (d // 2 + 1))"""
        if self._kept is not None:
            return self._kept[first:last]
        return self._phases(torch.arange(first, last, device=self.device)).flatten(1)

    def _keep(self) -> None:
        if self.training and self._kept is None and 4 * self.n_labels * (self.dim + 2) <= MEMORY:
            tiles = self._blocks(1, MEMORY, 0, self.n_labels)  # drawing takes several times the memory
            self._kept = torch.cat([self._range(first, last) for _, first, last in tiles])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}  # copies draw their own

    def train(self, mode: bool = True) -> Self:
        if not mode:
            self._kept = None
        return super().train(mode)

    def _blocks(self, rows: int, memory: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        # All rows at once: what costs is to draw a label's phases.
        size = max(1, min(TILE // self.dim, memory // (4 * (rows + 8 * self.dim))))
        for start in range(first, last, size):
            yield slice(0, rows), start, min(start + size, last)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        most = max(1, TILE // self.dim)
        parts = portions(labels, offsets, weights, most)
        sums = [sum_sets(self._phases(part).flatten(1), at, by) for part, at, by in parts]
        return self._answer(torch.cat(sums))

    def _vectors(self, ids: Tensor) -> Tensor:
        drawn = signals(torch.view_as_complex(self._phases(ids)), self.dim)
        return drawn if self._key is None else algebra.bind(drawn, irfft(self._key, n=self.dim))

    def _phases(self, ids: Tensor) -> Tensor:
        assert self.seed is not None
        return phases(self.seed, ids, self.dim)

    def bound(self, p: Tensor) -> Codebook:
        key = rfft(_one_vector(p, self.dim).to(self.device))
        return self._like(self.n_labels, key if self._key is None else self._key * key)

    def grown_to(self, n_labels: int) -> Codebook:
        return self._like(_more(self.n_labels, n_labels), self._key)

    def learnable(self) -> Codebook:
        return DenseCodebook(self.vectors(torch.arange(self.n_labels)), trainable=True)

    def _like(self, n_labels: int, key: Tensor | None) -> "RandomCodebook":
        assert self.seed is not None
        return RandomCodebook(n_labels, self.dim, self.seed, key=key).to(self.device)

    def _move(self) -> None:
        self._kept = None
        self._key = None if self._key is None else self._key.to(self.device)
