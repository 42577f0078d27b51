"""Rankings of held-out rows: among all labels, and among candidates, without a search of all labels for each setting.

Several processes rank some of the rows each, and all get the labels of all rows.
"""

import numpy as np
import torch
from torch import Tensor

from holobind._processes import ALONE, Processes
from holobind._types import FloatArray
from holobind.codebooks import Codebook


def shared_top_k(processes: Processes, codebook: Codebook, v: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The codebook's top k of all rows; each process ranks its share.  Shapes: (n, d) -> (n, k), (n, k)"""
    found = processes.by_rows(len(v), lambda first, last: [each.numpy() for each in codebook.top_k(v[first:last], k)])
    scores, labels = (torch.from_numpy(np.asarray(each)) for each in found)
    return scores, labels


class Candidates:
    """Some labels of each row, among which the best are ranked.

    labels      may occur more than once in a row: the first one counts; -1 for none
    processes   that rank the same candidates

    State: `labels`, ascending; `order`, where each of them was given; `valid`, whether it counts.

    Shapes: labels (n, m)
    """

    def __init__(self, labels: Tensor, processes: Processes = ALONE) -> None:
        self.processes = processes
        self.labels, self.order = labels.sort(dim=1, stable=True)
        repeated = torch.zeros_like(self.labels, dtype=torch.bool)
        repeated[:, 1:] = self.labels[:, 1:] == self.labels[:, :-1]
        self.valid = (self.labels >= 0) & ~repeated

    def scores(self, codebook: Codebook, v: Tensor) -> Tensor:
        """The codebook's scores of the candidates.  Shapes: (n, d) -> (n, m)"""

        def scores_of(first: int, last: int) -> list[FloatArray]:
            return [codebook.scores_of(v[first:last], self.labels[first:last].clamp(min=0)).numpy()]

        (scores,) = self.processes.by_rows(len(v), scores_of)
        return torch.from_numpy(scores).masked_fill(~self.valid, -torch.inf)

    def best(self, scores: Tensor, k: int) -> Tensor:
        """The k candidates with the largest scores; ties go to the lower label.  Shapes: (n, m) -> (n, k)"""
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
        return self.labels.gather(1, order)
