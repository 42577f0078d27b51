from collections.abc import Iterator

import torch
from torch import Tensor, nn

from holobind import algebra
from holobind.codebooks._checks import _one_vector
from holobind.codebooks.base import Codebook
from holobind.errors import OptionError, ShapeError


class DenseCodebook(Codebook):
    """Vectors that are stored: any you like, the paper's learned ones, or its naive ones that must fail.

    State: `table` (L, d), a parameter if `learn`, and then used only after projection, which keeps the vectors
    unitary after every step. Without `learn` the vectors are taken as they are.
    """

    def __init__(self, vectors: Tensor, *, trainable: bool = False) -> None:
        if vectors.ndim != 2:
            raise ShapeError(f"DenseCodebook: wants vectors of shape (labels, d), got {tuple(vectors.shape)}")
        super().__init__(len(vectors), vectors.shape[1], None)
        self.device = vectors.device
        self.table = nn.Parameter(vectors.detach().clone(), requires_grad=trainable)
        with torch.no_grad():
            self.unitary = trainable or bool(torch.allclose(algebra.unitary(vectors), vectors, atol=1e-4))

    @classmethod
    def naive(cls, n_labels: int, dim: int, seed: int = 0) -> "DenseCodebook":
        """Gaussian vectors without the paper's projection, for the ablation."""
        return cls(algebra.random(n_labels, dim, torch.Generator().manual_seed(seed)))

    def _all(self) -> Tensor:
        return algebra.unitary(self.table) if self.learned else self.table

    def _ask(self, v: Tensor) -> Tensor:
        return v

    def _answer(self, total: Tensor) -> Tensor:
        return total

    def _score(self, asked: Tensor, first: int, last: int) -> Tensor:
        return asked @ self._all()[first:last].to(asked.dtype).T

    def _mix(self, weights: Tensor, first: int, last: int) -> Tensor:
        return weights @ self._all()[first:last].to(weights.dtype)

    def _blocks(self, rows: int, memory: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        size = max(1, min(memory // (8 * rows), self.n_labels))
        for start in range(first, last, size):
            yield slice(0, rows), start, min(start + size, last)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        return nn.functional.embedding_bag(labels, self._all(), offsets, mode="sum", per_sample_weights=weights)

    def _vectors(self, ids: Tensor) -> Tensor:
        return self._all()[ids]

    def bound(self, p: Tensor) -> Codebook:
        if self.learned:
            raise OptionError("bound: the vectors are learned and change; bind their sums instead")
        return DenseCodebook(algebra.bind(self.table, _one_vector(p, self.dim).to(self.table)))

    def grown_to(self, n_labels: int) -> Codebook:
        raise OptionError("grown_to: stored vectors do not say what a new label's would be; append it to the table")

    def learnable(self) -> Codebook:
        return DenseCodebook(self.table, trainable=True)
