"""How good each label is, which labels are confused, and which rows are hardest, on labelled rows.

    report = label_report(ranking, chosen, Y)

A label is predicted for a row where it is in the row's chosen set. The average precision of a label ranks the rows by
their probability (or score) of it. Only rows that have the label among their candidates are ranked; its other true rows
count as never found.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holobind import metrics
from holobind._types import CsrArray, IntArray
from holobind.data.csr import from_label_ids
from holobind.label_sets import Ranking

Floats = NDArray[np.float64]
MAX_CONFUSED_PAIRS = (
    100_000_000  # of (missed label, wrong label) of all rows; a model with more predicts too many labels
)


@dataclass(frozen=True)
class LabelReport:
    """Values in percent, of each label; 0 where nothing was predicted, or where nothing is true.

    support, predicted, hits         (L) numbers of rows: with the label, predicted to have it, and both
    precision, recall, f1            (L)
    average_precision                (L)
    confusions                       (true label that was missed, wrong label predicted, number of rows), most frequent
                                     first
    hardness                         (rows) the cross-entropy of the candidates and true labels of a row; its number of
                                     errors, where there are no probabilities
    """

    support: IntArray
    predicted: IntArray
    hits: IntArray
    precision: Floats
    recall: Floats
    f1: Floats
    average_precision: Floats
    confusions: list[tuple[int, int, int]]
    hardness: Floats

    def hardest(self, n: int) -> IntArray:
        """The rows of the largest hardness, hardest first."""
        return np.argsort(-self.hardness, kind="stable")[:n]


def label_report(ranking: Ranking, chosen: IntArray, Y: CsrArray, max_confusions: int = 1000) -> LabelReport:
    """Compare chosen label sets with the true ones.

    ranking   the candidates of each row
    chosen    the ids of the chosen labels of each row, best first; -1 is no label

    Shapes: (rows, k), (rows, j), (rows, L)
    """
    n_labels = Y.shape[1]
    true = from_label_ids([Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)], n_labels)
    predicted = from_label_ids([np.sort(row[row >= 0]).tolist() for row in chosen], n_labels)
    both = true.multiply(predicted).tocsr()
    support, n_predicted, n_hits = (_column_counts(matrix) for matrix in (true, predicted, both))
    hits = metrics.hits(Y, ranking.ids)
    return LabelReport(
        support,
        n_predicted,
        n_hits,
        _percent(n_hits, n_predicted),
        _percent(n_hits, support),
        _percent(2 * n_hits, n_predicted + support),
        average_precision(ranking, hits, support),
        _confusions(true - both, predicted - both, max_confusions),
        _hardness(ranking, hits, true, predicted, both),
    )


def average_precision(ranking: Ranking, hits: NDArray[np.bool_], support: IntArray) -> Floats:
    """The average precision of each label over the rows that have it among their candidates, in percent.

        AP = sum over its hits of (precision among the rows up to that hit) / support

    Rows of equal score are one step, as in scikit-learn.

    Shapes: (rows, k), (rows, k), (L) -> (L)
    """
    keys = ranking.scores if ranking.probabilities is None else ranking.probabilities
    label, score, hit = ranking.ids.ravel(), keys.ravel(), hits.ravel()
    order = np.lexsort((-score, label))
    label, score, hit = label[order], score[order], hit[order]
    n = len(label)
    first = np.flatnonzero(np.r_[True, label[1:] != label[:-1]]) if n else np.empty(0, np.int64)
    start = np.repeat(first, np.diff(np.append(first, n)))
    hits_before = np.append(0, np.cumsum(hit))
    is_last = np.r_[(label[1:] != label[:-1]) | (score[1:] != score[:-1]), np.ones(min(n, 1), bool)]
    ends = np.flatnonzero(is_last)
    end = ends[np.searchsorted(ends, np.arange(n))] if n else ends  # of the group of equal scores
    precision = (hits_before[end + 1] - hits_before[start]) / (end + 1 - start)
    total = np.bincount(label, np.where(hit, precision, 0.0), minlength=len(support))
    return 100 * total / np.maximum(support, 1)


def _confusions(missed: CsrArray, wrong: CsrArray, n: int) -> list[tuple[int, int, int]]:
    """How often one label was missed in a row where another one was wrongly predicted."""
    missed, wrong = sparse.csr_array(missed), sparse.csr_array(wrong)
    missed.eliminate_zeros()
    wrong.eliminate_zeros()
    if int((np.diff(missed.indptr).astype(np.int64) * np.diff(wrong.indptr)).sum()) > MAX_CONFUSED_PAIRS:
        return []
    pairs = (missed.T @ wrong).tocoo()
    order = np.lexsort((pairs.col, pairs.row, -pairs.data))[:n]
    found = zip(pairs.row[order].tolist(), pairs.col[order].tolist(), pairs.data[order].tolist(), strict=True)
    return [(int(a), int(b), int(count)) for a, b, count in found]


def _hardness(ranking: Ranking, hits: NDArray[np.bool_], true: CsrArray, predicted: CsrArray, both: CsrArray) -> Floats:
    sizes = np.diff(true.indptr)
    if ranking.probabilities is None:
        return (sizes + np.diff(predicted.indptr) - 2 * np.asarray(both.sum(1)).ravel()).astype(np.float64)
    p = np.clip(ranking.probabilities, 1e-9, 1 - 1e-9)
    candidates = -np.where(hits, np.log(p), np.log1p(-p)).sum(1)
    return candidates - (sizes - hits.sum(1)) * np.log(p[:, -1])  # a true label below all candidates


def _column_counts(matrix: CsrArray) -> IntArray:
    matrix = sparse.csr_array(matrix)
    matrix.eliminate_zeros()
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.int64)


def _percent(part: IntArray, whole: IntArray) -> Floats:
    return 100 * part / np.maximum(whole, 1)
