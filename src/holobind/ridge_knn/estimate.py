"""What held-out rows say about a fit: an estimated score with its interval, and how many near-duplicates there are."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from holobind._types import CsrArray, IntArray, RowIndex

NEAR_DUPLICATE_COSINE = 0.9  # of a row and its nearest neighbour
NORMAL_95 = 1.96  # standard errors to either side of a mean, in which it is with a probability of 95 %


@dataclass(frozen=True)
class Estimate:
    """nDCG@5 on held-out rows in percent, its interval of 95 %, and the numbers of held-out rows and groups.

    Settings are chosen on the same rows, so the estimate is a little too high. The interval does not cover that.
    """

    ndcg: float
    low: float
    high: float
    rows: int
    groups: int | None

    def summary(self) -> dict[str, Any]:
        return {name: round(v, 3) if isinstance(v, float) else v for name, v in asdict(self).items()}


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The outputs of held-out rows by models of the other rows.

    rows      (n) the held-out rows, one fold after the other
    sizes     of the folds
    counts    (folds, L) how many of the kept rows of each fold have each label
    Y         (n, L) the labels of the held-out rows
    outputs   (n, d) v of the rows
    added     what label trees add to scores, and the labels: (n, m) each; None without trees
    """

    rows: RowIndex
    sizes: list[int]
    counts: NDArray[np.int64]
    Y: CsrArray
    outputs: Tensor
    added: tuple[Any, Any] | None

    @classmethod
    def of(
        cls, folds: Sequence[RowIndex], Y: CsrArray, Y_held: CsrArray, outputs: Tensor, added: tuple[Any, Any] | None
    ) -> "HeldOut":
        """Held-out rows of some folds, with the counts of the labels Y of all rows that are not held out.

        Shapes: Y (rows, L), Y_held (n, L)
        """
        sizes = [len(fold) for fold in folds]
        ends = np.cumsum([0, *sizes])
        total = np.bincount(Y.indices, minlength=Y.shape[1])
        held = [
            np.bincount(Y_held.indices[Y_held.indptr[a] : Y_held.indptr[b]], minlength=Y.shape[1])
            for a, b in pairwise(ends)
        ]
        return cls(np.concatenate(folds), sizes, total - np.array(held), Y_held, outputs, added)


def estimate(values: NDArray[np.float64], groups: IntArray | None) -> Estimate:
    """The mean of the values of rows and its interval by the normal approximation.

        variance of the mean = G / (G - 1) sum_g (sum over the rows i of g of x_i - mean)^2 / n^2

    over G groups, because rows of one group are not independent; without groups, each row is one.

    Shapes: (n), (n)
    """
    n, mean = len(values), float(values.mean())
    ids = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    sums = np.bincount(ids, values - mean)
    n_groups = len(sums)
    error = (n_groups / max(n_groups - 1, 1) * float(sums @ sums)) ** 0.5 / n
    low, high = (float(np.clip(mean + side * NORMAL_95 * error, 0.0, 100.0)) for side in (-1, 1))
    return Estimate(mean, low, high, n, None if groups is None else n_groups)


def nearest_cosines(X: CsrArray, rows: CsrArray, nearest: IntArray) -> NDArray[np.float64]:
    """The cosine of each query with the row that a search found; 0 for rows without features.

    Shapes: X (m, f), rows (n, f), nearest (m) -> (m)
    """
    found = rows[nearest]
    products = np.asarray(X.multiply(found).sum(1), np.float64).ravel()
    norms = [np.sqrt(np.asarray(A.multiply(A).sum(1), np.float64).ravel()) for A in (X, found)]
    length = norms[0] * norms[1]
    return np.divide(products, length, out=np.zeros(len(products)), where=length > 0)
