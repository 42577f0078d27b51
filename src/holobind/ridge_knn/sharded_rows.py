"""The kept rows of a validation, of which every process stores a share, and the exact merge of their neighbours."""

import numpy as np
from numpy.typing import NDArray

from holobind._processes import Processes
from holobind._types import CsrArray, IntArray, RowIndex
from holobind.data.csr import column_counts, take_rows


class ShardedRows:
    """The share of this process of some rows; shares follow each other in the order of ranks.

    X, Y           the rows of this process
    label_counts   how many rows of all processes have each label

    Shapes: X (n, f), Y (n, L), rows (k)
    """

    def __init__(self, X: CsrArray, Y: CsrArray, rows: RowIndex, processes: Processes) -> None:
        self.processes = processes
        self.first, self.last = processes.share(len(rows))
        own = rows[self.first : self.last]
        self.X, self.Y = take_rows(X, own), take_rows(Y, own)
        self.n_rows = len(rows)
        self.label_counts = processes.sum(column_counts(self.Y))

    def feature_counts(self) -> tuple[IntArray, int]:
        """How many rows of all processes have each feature, and how many rows there are."""
        return self.processes.sum(column_counts(self.X)), self.n_rows

    def nearest(self, found: tuple[NDArray[np.int16], IntArray]) -> tuple[NDArray[np.int16], IntArray]:
        """The best of all processes' neighbours: similarities, and indices over all rows; ties to the lowest index.

        found   the similarities and indices of the best rows of this process, as `KnnIndex` gives them

        Shapes: 2 x (m, k) -> 2 x (m, k)
        """
        if self.processes.size == 1:
            return found
        similarities, ids = found
        similarities = np.concatenate(self.processes.gather(np.ascontiguousarray(similarities.T))).T
        ids = np.concatenate(self.processes.gather(np.ascontiguousarray(ids.T + self.first))).T
        # Stable: of equal similarities the first, and processes and their rows are in order.
        best = np.argsort(-similarities.astype(np.int32), axis=1, kind="stable")[:, : found[0].shape[1]]
        similarities, ids = np.take_along_axis(similarities, best, 1), np.take_along_axis(ids, best, 1)
        return similarities, np.where(similarities > 0, ids, 0)

    def local(self, ids: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """Indices of this process's rows, 0 for rows of others, and whether they are its own."""
        is_own = (ids >= self.first) & (ids < self.last)
        return np.where(is_own, ids - self.first, 0), is_own
