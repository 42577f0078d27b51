"""Label vectors with a bias for each label, such as a prior."""

from torch import Tensor, nn

from holobind.codebooks._tracing import has_values
from holobind.codebooks._wrapped import WrappedCodebook
from holobind.codebooks.base import Codebook
from holobind.codebooks.orbit import OrbitCodebook
from holobind.errors import ShapeError


class BiasedCodebook(WrappedCodebook):
    """Another codebook with a bias added to each label's score: <v, c_i> + a_i.

    State: that of `codebook`, and `bias` (L), the a_i. Vectors, sums and derivatives are those of `codebook`.
    """

    bias: Tensor

    def __init__(self, codebook: Codebook, bias: Tensor) -> None:
        super().__init__(codebook)
        if bias.shape != (codebook.n_labels,):
            raise ShapeError(
                f"BiasedCodebook: wants a bias of shape ({codebook.n_labels},), one for each label; "
                f"got {tuple(bias.shape)}"
            )
        self.register_buffer("bias", bias)

    def _score_block(self, query: Tensor, first: int, last: int) -> Tensor:
        scores = self.codebook._score_block(query, first, last)
        bias = self.bias[first:last]
        return scores.add_(bias) if has_values(scores) and not scores.requires_grad else scores + bias

    def _compiled_log_sum_exp(self, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
        return self.codebook._compiled_log_sum_exp(v, self.bias if bias is None else self.bias + bias)

    def _top_k(self, v: Tensor, k: int, max_bytes: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        if isinstance(self.codebook, OrbitCodebook):
            return self.codebook._top_k(v, k, max_bytes, first, last, bias=self.bias)
        return super()._top_k(v, k, max_bytes, first, last)

    def scores_of(self, v: Tensor, ids: Tensor) -> Tensor:
        return self.codebook.scores_of(v, ids) + self.bias[ids.to(self.bias.device)]

    def bind(self, p: Tensor) -> Codebook:
        return BiasedCodebook(self.codebook.bind(p), self.bias)

    def expand_to(self, n_labels: int) -> Codebook:
        return BiasedCodebook(self.codebook.expand_to(n_labels), expand_bias(self.bias, n_labels))

    def to_trainable(self) -> Codebook:
        return BiasedCodebook(self.codebook.to_trainable(), self.bias)


def expand_bias(bias: Tensor, n_labels: int) -> Tensor:
    """The biases of more labels: a new label gets the smallest bias, that of the rarest label.  (L) -> (n_labels)"""
    return nn.functional.pad(bias, (0, n_labels - len(bias)), value=float(bias.min()))
