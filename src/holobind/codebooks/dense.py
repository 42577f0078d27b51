"""Label vectors that are stored as a matrix."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from holobind import algebra
from holobind.codebooks._checks import checked_key
from holobind.codebooks._tracing import has_values
from holobind.codebooks.base import Codebook
from holobind.codebooks.ragged import sum_sets
from holobind.errors import OptionError, ShapeError


class DenseCodebook(Codebook):
    """Stored vectors: your own, the paper's learned ones, or those of its ablation without projection.

    State: `table` (L, d). With `trainable` it is a parameter with gradients, and every use projects it, so that the
    vectors stay unitary after every step; with `project=False` they may become anything, as in the paper's ablation.
    Fixed vectors are used as they are.
    """

    kind: ClassVar[str] = "dense"
    _draw: Callable[[], Tensor] | None = None  # draws the table again, if a seed defines it

    def __init__(self, vectors: Tensor, *, trainable: bool = False, project: bool = True) -> None:
        if vectors.ndim != 2:
            raise ShapeError(f"DenseCodebook: wants vectors of shape (labels, d), got {tuple(vectors.shape)}")
        super().__init__(len(vectors), vectors.shape[1], None)
        self.table = nn.Parameter(vectors.detach().clone(), requires_grad=trainable)
        self._projects = trainable and project  # also while its gradient is switched off
        with torch.no_grad():
            unchanged = has_values(vectors) and bool(torch.allclose(algebra.unitary(vectors), vectors, atol=1e-4))
        self.unitary = self._projects or (unchanged and not trainable)

    @classmethod
    def naive(cls, n_labels: int, dim: int, seed: int = 0) -> "DenseCodebook":
        """Gaussian vectors without the paper's projection, for its ablation."""
        return cls.drawn(partial(_drawn_normal, n_labels, dim, seed))

    @classmethod
    def drawn(cls, draw: Callable[[], Tensor], *, trainable: bool = False) -> "DenseCodebook":
        """A table that `draw` makes, now and in `reset_parameters`."""
        codebook = cls(draw(), trainable=trainable)
        codebook._draw = draw
        return codebook

    @property
    def device(self) -> torch.device:
        return self.table.device

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self._draw is None:
            raise OptionError("reset_parameters: no seed defines these vectors, they are yours; load them")
        with torch.no_grad():
            self.table.copy_(self._draw())

    def _range(self, first: int, last: int) -> Tensor:
        """The vectors of a range of labels; only these are projected."""
        return algebra.unitary(self.table[first:last]) if self._projects else self.table[first:last]

    def _to_query(self, v: Tensor) -> Tensor:
        return v

    def _to_vectors(self, total: Tensor) -> Tensor:
        return total

    def _score_block(self, query: Tensor, first: int, last: int) -> Tensor:
        return query @ self._range(first, last).to(query.dtype).T

    def _sum_block(self, weights: Tensor, first: int, last: int) -> Tensor:
        return weights @ self._range(first, last).to(weights.dtype)

    def _blocks(self, rows: int, max_bytes: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        size = max(1, min(max_bytes // (8 * max(1, rows)), self.n_labels))
        for start in range(first, last, size):
            yield slice(0, rows), start, min(start + size, last)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        if self._projects:  # the vectors of these sets, not all of them
            return sum_sets(self._vectors(labels), offsets, weights)
        return nn.functional.embedding_bag(labels, self.table, offsets, mode="sum", per_sample_weights=weights)

    def _vectors(self, ids: Tensor) -> Tensor:
        return algebra.unitary(self.table[ids]) if self._projects else self.table[ids]

    def bind(self, p: Tensor) -> Codebook:
        if self.trainable:
            raise OptionError("bind: these vectors are trainable and change; bind their sums instead")
        return DenseCodebook(algebra.bind(self.table, checked_key(p, self.dim).to(self.table)))

    def expand_to(self, n_labels: int) -> Codebook:
        raise OptionError(
            f"expand_to: a stored table has no vectors for {n_labels} labels; append the new vectors to the table"
        )

    def to_trainable(self) -> Codebook:
        # Naive vectors stay without projection.
        copy = DenseCodebook(self.table, trainable=True, project=self.unitary)
        copy._draw = self._draw
        return copy


def _drawn_normal(n_labels: int, dim: int, seed: int) -> Tensor:
    return algebra.random(n_labels, dim, torch.Generator().manual_seed(seed), device="cpu")
