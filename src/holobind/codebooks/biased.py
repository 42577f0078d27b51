"""Label vectors with a bias for each label, such as a prior."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from holobind.codebooks._tracing import has_values
from holobind.codebooks.base import Codebook
from holobind.codebooks.orbit import OrbitCodebook
from holobind.errors import ShapeError


class BiasedCodebook(Codebook):
    """Another codebook with a bias added to each label's score: <v, c_i> + a_i.

    State: that of `codebook`, and `bias` (L), the a_i. Vectors, sums and derivatives are those of `codebook`.
    """

    bias: Tensor

    def __init__(self, codebook: Codebook, bias: Tensor) -> None:
        super().__init__(codebook.n_labels, codebook.dim, codebook.seed, stored=False)
        if bias.shape != (codebook.n_labels,):
            raise ShapeError(
                f"BiasedCodebook: wants a bias of shape ({codebook.n_labels},), one for each label; "
                f"got {tuple(bias.shape)}"
            )
        self.codebook, self.range_step = codebook, codebook.range_step
        self.unitary = codebook.unitary
        self.register_buffer("bias", bias)

    @property
    def device(self) -> torch.device:
        return self.codebook.device

    def _verify(self) -> None:
        self.codebook._verify()

    def _score_block(self, query: Tensor, first: int, last: int) -> Tensor:
        scores = self.codebook._score_block(query, first, last)
        bias = self.bias[first:last]
        return scores.add_(bias) if has_values(scores) and not scores.requires_grad else scores + bias

    def _to_query(self, v: Tensor) -> Tensor:
        return self.codebook._to_query(v)

    def _to_vectors(self, total: Tensor) -> Tensor:
        return self.codebook._to_vectors(total)

    def _sum_block(self, weights: Tensor, first: int, last: int) -> Tensor:
        return self.codebook._sum_block(weights, first, last)

    def _prepare_training(self) -> None:
        self.codebook._prepare_training()

    def _blocks(self, rows: int, max_bytes: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        return self.codebook._blocks(rows, max_bytes, first, last)

    def _top_k(self, v: Tensor, k: int, max_bytes: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        if isinstance(self.codebook, OrbitCodebook):
            return self.codebook._top_k(v, k, max_bytes, first, last, self.bias)
        return super()._top_k(v, k, max_bytes, first, last)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        return self.codebook._encode(labels, offsets, weights)

    def _vectors(self, ids: Tensor) -> Tensor:
        return self.codebook._vectors(ids)

    def scores_of(self, v: Tensor, ids: Tensor) -> Tensor:
        scores = self.codebook.scores_of(v, ids)
        return scores + self.bias[ids.to(self.bias.device)]

    def bind(self, p: Tensor) -> Codebook:
        return BiasedCodebook(self.codebook.bind(p), self.bias)

    def expand_to(self, n_labels: int) -> Codebook:
        return BiasedCodebook(self.codebook.expand_to(n_labels), expand_bias(self.bias, n_labels))

    def to_trainable(self) -> Codebook:
        return BiasedCodebook(self.codebook.to_trainable(), self.bias)


def expand_bias(bias: Tensor, n_labels: int) -> Tensor:
    """The biases of more labels: a new label gets the smallest bias, that of the rarest label.  (L) -> (n_labels)"""
    return nn.functional.pad(bias, (0, n_labels - len(bias)), value=float(bias.min()))
