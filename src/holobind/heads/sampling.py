"""What every head does with its scores and logits: probabilities, predictions, samples, search with exclusions."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holobind._checks import integer, shape_text
from holobind.codebooks._limits import MAX_SCORE_BYTES
from holobind.codebooks._tracing import has_values
from holobind.codebooks.ragged import checked_labels
from holobind.codebooks.ranking import stable_topk
from holobind.errors import DTypeError, OptionError, ShapeError

EXCLUDED = -1  # the label of a place in the top k that no label is left for


class LogitMethods:
    """Methods of all heads. A head defines `n_labels`, `scores`, `scores_of`, `logits`, `_log_sum_exp` and `_top_k`."""

    n_labels: int

    if TYPE_CHECKING:

        def scores(self, h: Tensor) -> Tensor: ...
        def scores_of(self, h: Tensor, ids: Tensor) -> Tensor: ...
        def logits(self, h: Tensor) -> Tensor: ...
        def _logits_of(self, h: Tensor, ids: Tensor) -> Tensor: ...
        def _log_sum_exp(self, h: Tensor) -> Tensor: ...
        def _top_k(
            self, h: Tensor, k: int, labels: tuple[int, int] | None, max_bytes: int, excluded: Tensor | None
        ) -> tuple[Tensor, Tensor]: ...

    def top_k(
        self,
        h: Tensor,
        k: int,
        *,
        exclude: Tensor | None = None,
        labels: tuple[int, int] | None = None,
        max_bytes: int = MAX_SCORE_BYTES,
    ) -> tuple[Tensor, Tensor]:
        """The k largest scores, exactly, and their labels, best first; ties go to the lower label.

        exclude     labels that must not be found, such as items seen before: ids for all rows (m) or for each row
                    (*batch, m), filled up with negative numbers, or a bool mask (L) or (*batch, L), True for an
                    excluded label. Where fewer than k labels are left, the last scores are -inf and their labels -1
        labels      rank only this range of labels, as `label_range` gives it
        max_bytes   of memory that scores may take at a time

        Shapes: (*batch, in) -> (*batch, k), (*batch, k)
        """
        if exclude is None:
            return self._top_k(h, k, labels, max_bytes, None)
        if labels is not None:
            raise OptionError("top_k: takes either a range of labels or labels to exclude, not both")
        if not 1 <= integer("top_k", "k", k) <= self.n_labels:
            raise OptionError(f"top_k: k must be from 1 to the number of labels, {self.n_labels}; got {k}")
        with torch.no_grad():
            if exclude.dtype == torch.bool:
                return self._top_k_outside(h, k, exclude, max_bytes)
            return self._top_k_without(h, k, exclude, max_bytes)

    def _top_k_without(self, h: Tensor, k: int, ids: Tensor, max_bytes: int) -> tuple[Tensor, Tensor]:
        """Search for m more labels than wanted, since at most m of them are excluded."""
        batch = h.shape[:-1]
        if ids.dtype not in (torch.int64, torch.int32):
            raise DTypeError(f"top_k: exclude must be label ids (int64) or a bool mask, got {ids.dtype}")
        if ids.ndim == 0 or (ids.ndim > 1 and ids.shape[:-1] != batch):
            raise ShapeError(
                f"top_k: exclude must have shape (m,) or {shape_text(*batch, 'm')}, or be a mask; "
                f"got {tuple(ids.shape)}"
            )
        checked_labels(ids.clamp(min=0), self.n_labels, ndim=None)
        n = min(k + ids.shape[-1], self.n_labels)
        best, found = (part.reshape(-1, n) for part in self._top_k(h, n, None, max_bytes, None))
        ids = ids.to(found.device)
        ordered = (ids if ids.ndim > 1 else ids.expand(*batch, -1)).reshape(len(found), -1).sort(1).values
        if ordered.shape[1]:
            place = torch.searchsorted(ordered, found.to(ordered.dtype)).clamp(max=ordered.shape[1] - 1)
            excluded = ordered.gather(1, place) == found
            order = excluded.to(torch.uint8).sort(dim=1, stable=True).indices[:, :k]
            best, found = best.masked_fill(excluded, -torch.inf).gather(1, order), found.gather(1, order)
        return _without_excluded(best[:, :k].reshape(*batch, k), found[:, :k].reshape(*batch, k))

    def _top_k_outside(self, h: Tensor, k: int, mask: Tensor, max_bytes: int) -> tuple[Tensor, Tensor]:
        batch = h.shape[:-1]
        if mask.shape == (self.n_labels,):
            return _without_excluded(*self._top_k(h, k, None, max_bytes, mask))
        if mask.shape != (*batch, self.n_labels):
            raise ShapeError(
                f"top_k: a mask must have shape ({self.n_labels},) or {(*batch, self.n_labels)}; "
                f"got {tuple(mask.shape)}"
            )
        parts = [
            stable_topk(self.scores(rows).float().masked_fill(part.to(rows.device), -torch.inf), k)
            for rows, part in _portions(h, mask.reshape(-1, self.n_labels), n_labels=self.n_labels, max_bytes=max_bytes)
        ]
        best, found = (torch.cat(part).reshape(*batch, k) for part in zip(*parts, strict=True))
        return _without_excluded(best, found)

    def predict(self, h: Tensor) -> Tensor:
        """The label of each row with the largest score.  Shapes: (*batch, in) -> (*batch)"""
        return self.top_k(h, 1)[1].squeeze(-1)

    def log_prob(self, h: Tensor, labels: Tensor | None = None) -> Tensor:
        """The logarithm of the softmax probability of all labels, or of one label of each row.

        For one label of each row no matrix of rows x L is held.

        Shapes: (*batch, in) -> (*batch, L);    (*batch, in), (*batch) -> (*batch)
        """
        if labels is None:
            return self.logits(h).log_softmax(-1)
        if labels.shape != h.shape[:-1]:
            raise ShapeError(
                f"log_prob: wants one label for each row, of shape {tuple(h.shape[:-1])}; got {tuple(labels.shape)}"
            )
        return self._logits_of(h, labels[..., None]).squeeze(-1) - self._log_sum_exp(h)

    @torch.no_grad()
    def sample(
        self, h: Tensor, temperature: float = 1.0, top_p: float = 1.0, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw a label for each row from its softmax probabilities.

        temperature   divides the logits: below 1 likely labels become likelier; 0 takes the likeliest
        top_p         draw from the smallest set of likeliest labels whose probabilities sum to at least top_p (nucleus)
        generator     torch's global generator by default

        Shapes: (*batch, in) -> (*batch)
        """
        if not 0 <= temperature < float("inf") or not 0 < top_p <= 1:
            raise OptionError(
                "sample: temperature must be at least 0 and finite, top_p above 0 and at most 1; "
                f"got {temperature}, {top_p}"
            )
        if temperature == 0:
            return self.predict(h)
        drawn = []
        for (rows,) in _portions(h, n_labels=self.n_labels, max_bytes=MAX_SCORE_BYTES // 4):
            x = self.logits(rows).float() / temperature
            if top_p < 1:
                ordered, labels = x.sort(1, descending=True)
                probability = ordered.softmax(1)
                before = probability.cumsum(1) - probability  # the probability of all likelier labels
                ordered = ordered.masked_fill(before >= top_p, -torch.inf)
                ordered[:, 0] = ordered[:, 0].clamp(min=torch.finfo(x.dtype).min)  # the likeliest is always allowed
                drawn.append(labels.gather(1, _gumbel_argmax(ordered, generator)[:, None])[:, 0])
            else:
                drawn.append(_gumbel_argmax(x, generator))
        return torch.cat(drawn).reshape(h.shape[:-1])


def _gumbel_argmax(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw from softmax(x): the argmax of x plus Gumbel noise. torch.multinomial takes at most 2^24 labels.

    Shapes: (rows, L) -> (rows)
    """
    noise = torch.empty_like(x).exponential_(generator=generator).clamp_(min=torch.finfo(x.dtype).tiny)
    return (x - noise.log_()).argmax(1)


def _portions(h: Tensor, *others: Tensor, n_labels: int = 0, max_bytes: int = 0) -> list[tuple[Tensor, ...]]:
    """Rows of h, and of other matrices, so many at a time that their scores fit into `max_bytes`."""
    flat = h.reshape(-1, h.shape[-1])
    height = max(1, max_bytes // (4 * n_labels)) if has_values(h) else max(1, len(flat))
    parts = [part.split(height) for part in (flat, *others)]
    return list(zip(*parts, strict=True))


def _without_excluded(best: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    return best, torch.where(best == -torch.inf, EXCLUDED, found)
