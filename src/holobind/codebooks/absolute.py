"""Label vectors that are scored by the absolute value of the dot product."""

from torch import Tensor

from holobind.codebooks._wrapped import WrappedCodebook
from holobind.codebooks.base import Codebook
from holobind.codebooks.orbit import OrbitCodebook


class AbsoluteCodebook(WrappedCodebook):
    """Another codebook whose scores are |<v, c_i>|: the loss "query-abs" rewards outputs of either sign.

    State: that of `codebook`. Vectors and sums are those of `codebook`. Absolute scores are not linear in v, so
    `weighted_sum` is not their derivative; `scores` and `log_sum_exp` have the right one.
    """

    def scores(self, v: Tensor) -> Tensor:
        return self.codebook.scores(v).abs()

    def scores_of(self, v: Tensor, ids: Tensor) -> Tensor:
        return self.codebook.scores_of(v, ids).abs()

    def log_sum_exp(self, v: Tensor) -> Tensor:
        return self.scores(v).logsumexp(-1)

    def _score_block(self, query: Tensor, first: int, last: int) -> Tensor:
        return self.codebook._score_block(query, first, last).abs()

    def _top_k(self, v: Tensor, k: int, max_bytes: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        if isinstance(self.codebook, OrbitCodebook):
            return self.codebook._top_k(v, k, max_bytes, first, last, absolute=True)
        return super()._top_k(v, k, max_bytes, first, last)

    def bind(self, p: Tensor) -> Codebook:
        return AbsoluteCodebook(self.codebook.bind(p))

    def expand_to(self, n_labels: int) -> Codebook:
        return AbsoluteCodebook(self.codebook.expand_to(n_labels))

    def to_trainable(self) -> Codebook:
        return AbsoluteCodebook(self.codebook.to_trainable())
