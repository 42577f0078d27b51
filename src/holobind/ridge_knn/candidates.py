"""Ranking of candidate labels: settings are compared on held-out rows without a search of all labels for each."""

import torch
from torch import Tensor

from holobind.codebooks import Codebook


class Candidates:
    """Some labels of each row, among which the best are ranked.

    labels   may occur more than once in a row: the first one counts; -1 for none

    State: `labels`, ascending; `order`, where each of them was given; `valid`, whether it counts.

    Shapes: labels (n, m)
    """

    def __init__(self, labels: Tensor) -> None:
        self.labels, self.order = labels.sort(dim=1, stable=True)
        repeated = torch.zeros_like(self.labels, dtype=torch.bool)
        repeated[:, 1:] = self.labels[:, 1:] == self.labels[:, :-1]
        self.valid = (self.labels >= 0) & ~repeated

    def scores(self, codebook: Codebook, v: Tensor) -> Tensor:
        """The codebook's scores of the candidates.  Shapes: (n, d) -> (n, m)"""
        return codebook.scores_of(v, self.labels.clamp(min=0)).masked_fill(~self.valid, -torch.inf)

    def best(self, scores: Tensor, k: int) -> Tensor:
        """The k candidates with the largest scores; ties go to the lower label.  Shapes: (n, m) -> (n, k)"""
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
        return self.labels.gather(1, order)
