"""The top k labels: of rows of scores, of several ranges of labels together, and the ranges themselves."""

from collections.abc import Sequence

import torch
from torch import Tensor

from holobind.codebooks import _limits as limits
from holobind.codebooks._tracing import has_values
from holobind.errors import OptionError


def stable_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row, largest first, and their indices; ties go to the lower index.

    torch.topk breaks ties in no fixed order. Where values cannot be read (`has_values`), a tie for the last place goes
    to whichever torch.topk chooses.

    Shapes: (rows, n) -> (rows, k), (rows, k)
    """
    enough = scores.numel() >= limits.MIN_SCORES_FOR_COMPILED_TOP_K
    if not has_values(scores):
        where = scores.topk(k, dim=1).indices.sort(1).values
        best, order = scores.gather(1, where).sort(dim=1, descending=True, stable=True)
        return best, where.gather(1, order)
    if scores.is_cpu and scores.dtype == torch.float32 and scores.is_contiguous() and enough:
        from holobind import _topk  # compiles when first used

        ranked = _topk.top_k(scores.detach().numpy(), k)
        if ranked is not None:
            return torch.from_numpy(ranked[0]), torch.from_numpy(ranked[1])
    best, where = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    # Where the score after the k-th equals the k-th, torch chose among the ties: such rows are sorted as a whole.
    tied = (best[:, k - 1] == best[:, k]).nonzero()[:, 0] if best.shape[1] > k else where.new_empty(0)
    where = where[:, :k].sort(1).values
    best, order = scores.gather(1, where).sort(dim=1, descending=True, stable=True)
    where = where.gather(1, order)
    if len(tied):
        values, indices = scores[tied].sort(dim=1, descending=True, stable=True)
        best[tied], where[tied] = values[:, :k], indices[:, :k]
    return best, where


def merge_top_k(results: Sequence[tuple[Tensor, Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """The k best of the (scores, labels) found in several ranges of labels, which are given in order of labels.

    Lower labels come first and each list has its ties in order of labels, so a stable sort keeps that order.

    Shapes: (rows, any) each -> (rows, k), (rows, k)
    """
    best, order = torch.cat([scores for scores, _ in results], 1).sort(dim=1, descending=True, stable=True)
    labels = torch.cat([labels for _, labels in results], 1).gather(1, order)
    return best[:, :k], labels[:, :k]


def label_range(n_labels: int, step: int, rank: int, world_size: int) -> tuple[int, int]:
    """The `rank`-th of `world_size` ranges of labels: the first label, and the one after the last.

    The ranges start at multiples of `step`, are as even as that allows, and together hold every label once.
    """
    if not 0 <= rank < world_size:
        raise OptionError(f"label_range: rank must be from 0 to below world_size; got {rank} and {world_size}")
    steps = -(-n_labels // step)
    first, last = (min(n_labels, steps * r // world_size * step) for r in (rank, rank + 1))
    return first, last
