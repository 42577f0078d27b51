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

    head     a holographic one, or a codebook: `labels_above` compares scores, not probabilities; or one of these whose
             scores are raised already
    values   0 or larger
    labels   different ones in a row; -1 for none

    Shapes: values, labels (rows, m)
    """

    def __init__(self, head: "Head | Codebook | AddedScores", values: Tensor, labels: Tensor) -> None:
        self.head = head
        self.n_labels: int = head.n_labels
        self.labels, order = labels.sort(dim=1)  # ascending, for searches
        self.values = torch.where(self.labels >= 0, values.gather(1, order), 0)

    def label_range(self, rank: int, world_size: int) -> tuple[int, int]:
        """As the head's."""
        return self.head.label_range(rank, world_size)

    def part(self, rows: slice) -> "AddedScores":
        """The same for some rows."""
        head = self.head.part(rows) if isinstance(self.head, AddedScores) else self.head
        return AddedScores(head, self.values[rows], self.labels[rows])

    def scores(self, h: Tensor) -> Tensor:
        """Shapes: (rows, in) -> (rows, L)"""
        scores = self.head.scores(h).float()
        return scores.scatter_add(1, self.labels.clamp(min=0), self.values)

    def scores_of(self, h: Tensor, labels: Tensor) -> Tensor:
        """The scores of some labels of each row.  Shapes: (rows, in), (rows, m) -> (rows, m)"""
        at, known = self._positions(labels)
        return self.head.scores_of(h, labels).float() + torch.where(known, self.values.gather(1, at), 0)

    def top_k(self, h: Tensor, k: int, *, labels: tuple[int, int] | None = None) -> tuple[Tensor, Tensor]:
        """The k largest scores, exactly, and their labels, best first; ties go to the lower label.

        labels   rank only this range of labels

        Shapes: (rows, in) -> (rows, k), (rows, k)
        """
        together = self.head.raised_top_k(h, k, self.values, self.labels, only=labels)
        if together is not None:
            return together
        best, found = self.head.top_k(h, k, labels=labels)
        n_best = best.shape[1]
        first, last = labels or (0, self.n_labels)
        at, known = self._positions(found)
        best = best.float() + torch.where(known, self.values.gather(1, at), 0)
        counted = torch.zeros_like(self.labels).scatter_add(1, at, known.long()) > 0  # in the head's top k
        others = (self.labels >= first) & (self.labels < last) & ~counted
        raised = self._raised_scores(h).masked_fill(~others, -torch.inf)
        best, found = torch.cat([best, raised], 1), torch.cat([found, self.labels], 1)
        found, by_label = found.sort(dim=1)
        best, order = best.gather(1, by_label).sort(dim=1, descending=True, stable=True)
        return best[:, :n_best], found.gather(1, order[:, :n_best])

    def raised_top_k(
        self, h: Tensor, k: int, values: Tensor, labels: Tensor, *, only: tuple[int, int] | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """As of a codebook: there is no faster way to raise scores twice."""
        return None

    def labels_above(self, h: Tensor, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
        """All labels with a score above the threshold, as ragged sets.  Shapes: (rows, in) -> (total), (rows)"""
        found, offsets = self.head.labels_above(h, threshold)
        rows = torch.arange(len(h), device=h.device)
        row = rows.repeat_interleave(set_sizes(found, offsets))
        # Raised labels are decided here alone: the head may round their scores in another way.
        others = ~torch.isin(self._keys(row, found), self._keys(rows[:, None], self.labels))
        raised = (self.labels >= 0) & (self._raised_scores(h) > threshold)
        row = torch.cat([row[others], raised.nonzero()[:, 0]])
        found = torch.cat([found[others], self.labels[raised]])
        counts = row.bincount(minlength=len(h))
        return found[self._keys(row, found).argsort()], counts.cumsum(0) - counts

    def _raised_scores(self, h: Tensor) -> Tensor:
        """The scores of the labels that are raised; of label 0 for none.  Shapes: (rows, in) -> (rows, m)"""
        return self.head.scores_of(h, self.labels.clamp(min=0)).float() + self.values

    def _positions(self, found: Tensor) -> tuple[Tensor, Tensor]:
        """Where labels are among the raised ones of their row, and whether they are.

        Shapes: (rows, k) -> (rows, k), (rows, k)
        """
        at = torch.searchsorted(self.labels, found).clamp_(max=self.labels.shape[1] - 1)
        return at, self.labels.gather(1, at) == found

    def _keys(self, row: Tensor, labels: Tensor) -> Tensor:
        """A number for each label of each row, in the order of rows and labels; -1 for none."""
        return torch.where(labels >= 0, row * self.n_labels + labels, -1)


Scorer = Head | AddedScores
