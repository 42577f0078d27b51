"""A codebook around another one, with the same vectors and other scores."""

from collections.abc import Iterator

import torch
from torch import Tensor

from holobind.codebooks.base import Codebook


class WrappedCodebook(Codebook):
    """The vectors, sums and blocks of `codebook`; a subclass changes the scores."""

    def __init__(self, codebook: Codebook) -> None:
        super().__init__(codebook.n_labels, codebook.dim, codebook.seed, stored=False)
        self.codebook, self.range_step = codebook, codebook.range_step
        self.unitary = codebook.unitary

    @property
    def device(self) -> torch.device:
        return self.codebook.device

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.codebook.reset_parameters()

    def _verify(self) -> None:
        self.codebook._verify()

    def scores_of(self, v: Tensor, ids: Tensor) -> Tensor:
        return self.codebook.scores_of(v, ids)

    def _to_query(self, v: Tensor) -> Tensor:
        return self.codebook._to_query(v)

    def _to_vectors(self, total: Tensor) -> Tensor:
        return self.codebook._to_vectors(total)

    def _score_block(self, query: Tensor, first: int, last: int) -> Tensor:
        return self.codebook._score_block(query, first, last)

    def _sum_block(self, weights: Tensor, first: int, last: int) -> Tensor:
        return self.codebook._sum_block(weights, first, last)

    def _prepare_training(self) -> None:
        self.codebook._prepare_training()

    def _blocks(self, rows: int, max_bytes: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        return self.codebook._blocks(rows, max_bytes, first, last)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        return self.codebook._encode(labels, offsets, weights)

    def _vectors(self, ids: Tensor) -> Tensor:
        return self.codebook._vectors(ids)
