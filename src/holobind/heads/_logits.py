"""The logits of a holographic head, and what is computed from them; search among its scores."""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holobind.codebooks import BiasedCodebook, Codebook
from holobind.codebooks._tracing import has_values
from holobind.codebooks.ranking import stable_topk
from holobind.errors import OptionError
from holobind.heads.cross_entropy import (
    HolographicLogits,
    Reduction,
    cross_entropy,
    log_sum_exp,
    loss_without_logits,
)
from holobind.heads.sampling import LogitMethods
from holobind.heads.targets import Targets


class HolographicLogitMethods(LogitMethods):
    """Methods of `HolographicHead` around its logits."""

    if TYPE_CHECKING:
        codebook: Codebook
        prior: Tensor | None
        loss_name: str
        crosstalk: float
        training: bool
        log_temperature: torch.nn.Parameter | None
        _set_loss: Callable[[Tensor, Tensor, Tensor], Tensor]
        _output: Callable[[Tensor], Tensor]
        _query: Callable[[Tensor], tuple[Codebook, Tensor]]
        _sum_of_all_labels: Callable[[], Tensor | None]

    def _target_loss(
        self, h: Tensor, targets: Targets, reduction: Reduction, label_smoothing: float, weight: Tensor | None
    ) -> Tensor:
        if self.log_temperature is None:
            options = reduction, label_smoothing, weight
            return loss_without_logits(self._set_loss, self.loss_name, h, targets, *options)
        crosstalk = self.crosstalk if self.training else 0.0
        logits = HolographicLogits(
            self._scaled_output(h), self.codebook, self.prior, crosstalk, self._sum_of_all_labels
        )
        return cross_entropy(logits, targets, self.n_labels, reduction, label_smoothing, weight)

    def scores_of(self, h: Tensor, ids: Tensor) -> Tensor:
        """The scores of chosen labels alone: the same for all rows, (m), or for each row its own, (*batch, m).

        Shapes: (*batch, in), (m) or (*batch, m) -> (*batch, m)
        """
        codebook, query = self._query(h)
        return codebook.scores_of(query, ids)

    def raised_top_k(
        self, h: Tensor, k: int, values: Tensor, labels: Tensor, *, only: tuple[int, int] | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """`top_k` with values added to the scores of some labels, if the codebook has a fast way to compute it.

        Shapes: (rows, in), 2 x (rows, m) -> (rows, k), (rows, k)
        """
        codebook, query = self._query(h)
        return codebook.raised_top_k(query, k, values, labels, only=only)

    def logits(self, h: Tensor) -> Tensor:
        """t <s, c_i> + a_i for all labels, with the temperature t and the prior a (0 without one).

        Their cross-entropy is the softmax loss; the other losses have no logits.

        Shapes: (*batch, in) -> (*batch, L)
        """
        x = self.codebook.scores(self._scaled_output(h))
        return x if self.prior is None else x + self.prior

    def _scaled_output(self, h: Tensor) -> Tensor:
        """t s.  Shapes: (*batch, in) -> (*batch, d)"""
        if self.log_temperature is None:
            raise OptionError(
                f"logits: the softmax loss has logits and probabilities; this head has {self.loss_name!r}"
            )
        s = self._output(h)
        return s.to(torch.promote_types(s.dtype, torch.float32)) * self.log_temperature.exp()

    def _logits_of(self, h: Tensor, ids: Tensor) -> Tensor:
        x = self.codebook.scores_of(self._scaled_output(h), ids)
        return x if self.prior is None else x + self.prior[ids]

    def _log_sum_exp(self, h: Tensor) -> Tensor:
        return log_sum_exp(self.codebook, self._scaled_output(h), self.prior)

    def _top_k(
        self, h: Tensor, k: int, labels: tuple[int, int] | None, max_bytes: int, excluded: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if self.prior is not None and not has_values(h):
            scores = self.logits(h).detach()
            best, ids = stable_topk(scores.reshape(-1, self.n_labels), k)
            return best.reshape(*h.shape[:-1], k), ids.reshape(*h.shape[:-1], k)
        codebook, query = self._query(h)
        if excluded is not None:
            bias = torch.zeros(self.n_labels, device=codebook.device)
            codebook = BiasedCodebook(codebook, bias.masked_fill_(excluded.to(bias.device), -inf))
        return codebook.top_k(query, k, labels=labels, max_bytes=max_bytes)
