"""A head, or a codebook, whose scores of some labels of each row are raised, as by label trees."""

import torch
from torch import Tensor

from holobind.codebooks import Codebook
from holobind.codebooks.ragged import set_sizes
from holobind.heads.build import Head


class AddedScores:
    """The scores of a head plus `values` for some labels of each row; the head's methods that prediction uses.

    A label that is raised may be anywhere in the head's order, and all others keep theirs. So the top k is among the
    head's top k and the raised labels, and the search stays exact.

    values   0 or larger
    labels   different ones in a row; -1 for none

    Shapes: values, labels (rows, m)
    """

    def __init__(self, head: Head | Codebook, values: Tensor, labels: Tensor) -> None:
        self.head, self.n_labels = head, head.n_labels
        self.values = torch.where(labels >= 0, values, 0)
        self.labels = labels

    def label_range(self, rank: int, world_size: int) -> tuple[int, int]:
        """As the head's."""
        return self.head.label_range(rank, world_size)

    def part(self, rows: slice) -> "AddedScores":
        """The same for some rows."""
        return AddedScores(self.head, self.values[rows], self.labels[rows])

    def scores(self, h: Tensor) -> Tensor:
        """Shapes: (rows, in) -> (rows, L)"""
        scores = self.head.scores(h).float()
        return scores.scatter_add(1, self.labels.clamp(min=0), self.values)

    def top_k(self, h: Tensor, k: int, *, labels: tuple[int, int] | None = None) -> tuple[Tensor, Tensor]:
        """The k largest scores, exactly, and their labels, best first; ties go to the lower label.

        labels   rank only this range of labels

        Shapes: (rows, in) -> (rows, k), (rows, k)
        """
        best, found = self.head.top_k(h, k, labels=labels)
        raised = self.labels >= 0
        if labels is not None:
            raised &= (self.labels >= labels[0]) & (self.labels < labels[1])
        wanted = raised & ~(self.labels[:, :, None] == found[:, None]).any(2)  # the others are in the head's top k
        best = best.float() + self._added_to(found)
        ids = self.labels.clamp(min=0)
        others = (self.head.scores_of(h, ids).float() + self.values).masked_fill(~wanted, -torch.inf)
        best, found = torch.cat([best, others], 1), torch.cat([found, ids], 1)
        by_label = found.argsort(dim=1, stable=True)
        best, found = best.gather(1, by_label), found.gather(1, by_label)
        best, order = best.sort(dim=1, descending=True, stable=True)
        k = min(k, best.shape[1] - self.labels.shape[1])
        return best[:, :k], found.gather(1, order[:, :k])

    def labels_above(self, h: Tensor, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
        """All labels with a score above the threshold, as ragged sets.  Shapes: (rows, in) -> (total), (rows)"""
        found, offsets = self.head.labels_above(h, threshold)
        row = torch.repeat_interleave(torch.arange(len(h), device=h.device), set_sizes(found, offsets))
        ids = self.labels.clamp(min=0)
        before = self.head.scores_of(h, ids).float()
        new_row, at = ((self.labels >= 0) & (before <= threshold) & (before + self.values > threshold)).nonzero().T
        row, found = torch.cat([row, new_row]), torch.cat([found, ids[new_row, at]])
        order = (row * self.n_labels + found).argsort()
        counts = row.bincount(minlength=len(h))
        return found[order], counts.cumsum(0) - counts

    def _added_to(self, found: Tensor) -> Tensor:
        """What is added to the scores of some labels.  Shapes: (rows, k) -> (rows, k)"""
        equal = self.labels[:, :, None] == found[:, None]
        return (equal * self.values[:, :, None]).sum(1)


Scorer = Head | AddedScores
