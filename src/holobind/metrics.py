"""Metrics of extreme multi-label classification for rankings of labels.

    Y    (rows, labels)  CSR; a label is true where it is stored and not zero
    top  (rows, k)       the ids of the k best labels, best first; -1 marks an empty place, which counts as wrong

Every value is a percentage. Each function returns the k values @1 to @k, which are means over ALL rows: a row
without labels counts as 0. With y the true labels of a row and w_l the inverse propensity of label l:

    P@k        mean of (hits in the first k) / k
    R@k        mean of (hits in the first k) / |y|
    nDCG@k     mean of (sum over hits of 1/log2(rank + 1)) / (sum over ranks 1 to min(k, |y|) of 1/log2(rank + 1))
    PSP@k      sum over rows and hits of w_l            divided by the same of the best possible ranking
    PSnDCG@k   sum over rows of the weighted nDCG@k     divided by the same of the best possible ranking

If scores tie, the label with the lowest id comes first (`top_k`).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.table import Table

from holobind._types import CsrArray, IntArray
from holobind.data.csr import canonical_csr, checked_csr, from_arrays
from holobind.data.statistics import TORSO_MIN_ROWS
from holobind.errors import DTypeError, LabelError, OptionError, ShapeError

Values = NDArray[np.float64]

# A and B of the propensity model of Jain, Prabhu and Varma 2016: the default, and the datasets with other values.
PROPENSITY_AB = (0.55, 1.5)
PROPENSITY_AB_BY_DATASET = {
    "amazon-670k": (0.6, 2.6),
    "amazon-3m": (0.6, 2.6),
    "wikilshtc-325k": (0.5, 0.4),
    "wikipedia-500k": (0.5, 0.4),
}
HEAD_MIN_ROWS = 100  # training rows of a head label; torso labels have at least TORSO_MIN_ROWS, tail labels fewer
POINTS_PER_CHUNK = 1024  # of `top_k`, so that it never copies all scores


def propensity_constants(dataset: str) -> tuple[float, float]:
    """A and B of the propensity model for a dataset; case and punctuation of its name do not matter."""
    name = "".join(c for c in dataset.lower() if c.isalnum())
    for known, pair in PROPENSITY_AB_BY_DATASET.items():
        stem = known.replace("-", "")
        family = stem.rstrip("0123456789km")
        if name == stem or (family in ("wikilshtc", "wikipedia") and name.startswith(family)):
            return pair
    return PROPENSITY_AB


class Frequencies(NamedTuple):
    """Label frequencies of the training split. Propensities and bands depend on nothing else.

    counts   (labels) number of training rows of each label
    n_rows   number of training rows
    """

    counts: IntArray
    n_rows: int


def frequencies(Y_train: CsrArray | Frequencies) -> Frequencies:
    """The label frequencies of the training labels; frequencies are returned as they are."""
    if isinstance(Y_train, Frequencies):
        return Y_train
    Y = _binary_csr(Y_train)
    return Frequencies(np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int64), int(Y.shape[0]))


def propensity(Y_train: CsrArray | Frequencies, A: float = PROPENSITY_AB[0], B: float = PROPENSITY_AB[1]) -> Values:
    """The propensity of each label: the probability that it is recorded where it is true, estimated from its frequency.

        p_l = 1 / (1 + C (N_l + B)^-A),    C = (ln N - 1) (B + 1)^A,    N_l of N training rows have label l

    Shapes: (rows, labels) -> (labels,)
    """
    counts, n_rows = frequencies(Y_train)
    if n_rows < 3:
        raise ShapeError(f"propensities need at least 3 training rows, because ln N - 1 must be positive; got {n_rows}")
    C = (np.log(n_rows) - 1) * (B + 1) ** A
    return 1 / (1 + C * (counts + B) ** -A)


def top_k(scores: ArrayLike, k: int) -> IntArray:
    """The ids of the k largest scores of each row, best first. Ties go to the lowest id, and NaN comes last.

    Shapes: (rows, labels) -> (rows, k)
    """
    dense = np.asarray(scores)
    if dense.ndim != 2:
        raise ShapeError(f"scores must be (rows, labels), got {dense.shape}")
    if not 1 <= k <= dense.shape[1]:
        raise OptionError(f"k must be from 1 to the number of labels, {dense.shape[1]}; got {k}")
    best = np.empty((len(dense), k), np.int64)
    for first in range(0, len(dense), POINTS_PER_CHUNK):
        negated = -dense[first : first + POINTS_PER_CHUNK].astype(np.result_type(dense, np.float32))
        kth_best = np.partition(negated, k - 1, axis=1)[:, k - 1]  # NaN sorts last
        for row, (values, limit) in enumerate(zip(negated, kth_best, strict=True)):
            candidates = np.arange(len(values)) if np.isnan(limit) else np.flatnonzero(values <= limit)
            best[first + row] = candidates[np.argsort(values[candidates], kind="stable")[:k]]
    return best


def precision_at_k(Y: CsrArray, top: ArrayLike) -> Values:
    """P@1 to P@k: the fraction of the first k labels that are true.

    >>> from scipy.sparse import csr_array
    >>> precision_at_k(csr_array([[0, 1, 1]]), [[2, 0]]).tolist()
    [100.0, 50.0]
    """
    return _Ranking(Y, top).precision()


def recall_at_k(Y: CsrArray, top: ArrayLike) -> Values:
    """R@1 to R@k: the fraction of the true labels that are among the first k."""
    return _Ranking(Y, top).recall()


def ndcg_at_k(Y: CsrArray, top: ArrayLike) -> Values:
    """nDCG@1 to nDCG@k: hits further down the ranking count less; the best possible ranking has 100."""
    return _Ranking(Y, top).ndcg()


def ndcg_of_rows(Y: CsrArray, top: ArrayLike) -> Values:
    """nDCG@k of each row in percent; `ndcg_at_k` has their mean.  Shapes: (rows, labels), (rows, k) -> (rows)"""
    return 100 * _Ranking(Y, top).ndcg_of_rows()[:, -1]


def psp_at_k(Y: CsrArray, top: ArrayLike, p: ArrayLike) -> Values:
    """PSP@1 to PSP@k: precision with weight 1 / p[l] for label l, relative to the best possible ranking."""
    ranking = _Ranking(Y, top)
    return ranking.psp(ranking.gains(_weights(Y, p)))


def psndcg_at_k(Y: CsrArray, top: ArrayLike, p: ArrayLike) -> Values:
    """PSnDCG@1 to PSnDCG@k: nDCG with weight 1 / p[l] for label l, relative to the best possible ranking."""
    ranking = _Ranking(Y, top)
    return ranking.psndcg(ranking.gains(_weights(Y, p)))


def hits(Y: CsrArray, top: ArrayLike) -> NDArray[np.bool_]:
    """Whether each ranked label is true.  Shapes: (rows, labels), (rows, k) -> (rows, k)"""
    return _Ranking(Y, top).hits


def f1(Y: CsrArray, top: ArrayLike) -> dict[str, float]:
    """F1 of predicted sets of labels: the ids of `top` that are not -1.

    micro    2 hits / (predicted + true labels), over all rows
    sample   the mean over rows of the same, row by row; a row without true and predicted labels has 100

    >>> from scipy.sparse import csr_array
    >>> f1(csr_array([[0, 1, 1], [0, 0, 1]]), [[2, 0], [2, -1]])
    {'micro': 66.66666666666667, 'sample': 75.0}
    """
    ranking = _Ranking(Y, top)
    n_hits, total = ranking.hits.sum(1), (ranking.top >= 0).sum(1) + ranking.sizes
    by_row = np.where(total > 0, 2 * n_hits / np.maximum(total, 1), 1.0)
    return {"micro": 200 * float(n_hits.sum()) / max(int(total.sum()), 1), "sample": 100 * float(by_row.mean())}


def coverage_at_k(Y: CsrArray, top: ArrayLike) -> Values:
    """Coverage@1 to coverage@k: the fraction of the labels in Y that are a hit in the first k of at least one row."""
    return _Ranking(Y, top).coverage()


@dataclass(frozen=True)
class Evaluation:
    """The values of all metrics.

    n_rows   number of rows
    scores   the values @1 to @k of each metric, by its name
    bands    metrics of head, torso and tail labels
    sets     of a model with calibrated probabilities: F1 of the label sets it chooses, their mean size, and the
             calibration error of the best labels; by name
    reliability   of such a model: (mean probability, fraction of hits, number of labels) in each bin of probability
    """

    n_rows: int
    scores: dict[str, list[float]]
    bands: dict[str, dict[str, Any]] = field(default_factory=dict)
    sets: dict[str, float] = field(default_factory=dict)
    reliability: list[tuple[float, float, int]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        optional = {"bands": self.bands, "sets": self.sets}
        return {"rows": self.n_rows, **self.scores, **{name: value for name, value in optional.items() if value}}

    def __getitem__(self, name: str) -> float:
        """One value by the usual name of the metric: evaluation["P@1"]."""
        metric, at, k = name.partition("@")
        if metric not in self.scores or not at or not k.isdecimal() or not 1 <= int(k) <= len(self.scores[metric]):
            raise OptionError(
                f"there is no {name!r}; there are {', '.join(self.scores)} @1 to @{len(self.scores['P'])}"
            )
        return self.scores[metric][int(k) - 1]

    def table(self) -> Table:
        k = len(self.scores["P"])
        table = Table("", *(f"@{i + 1}" for i in range(k)), title=f"{self.n_rows} rows, percent")
        for name, values in self.scores.items():
            table.add_row(name, *(f"{v:.2f}" for v in values))
        if self.sets:
            table.add_section()
            for name, value in self.sets.items():
                table.add_row(name, f"{value:.2f}", *[""] * (k - 1))
        for band_name, band in self.bands.items():
            table.add_section()
            title = f"{band_name}, {band['labels']} labels with {band['training rows']} training rows"
            table.add_row(title, *[""] * k, style="bold")
            for metric in ("P", "R", "coverage"):
                table.add_row(f"  {metric}", *(f"{v:.2f}" for v in band[metric]))
        return table

    def __rich__(self) -> Table:
        return self.table()


def evaluate(
    Y: CsrArray,
    top: ArrayLike,
    Y_train: CsrArray | Frequencies | None = None,
    *,
    k: int = 5,
    dataset: str = "",
    p: ArrayLike | None = None,
) -> Evaluation:
    """Compute all metrics at 1 to k.

    Y_train   labels of the training split, or their frequencies: needed for the bands, and also for PSP and PSnDCG
              unless `p` is given
    dataset   name of the dataset, which selects the constants of the propensity model
    p         (labels) propensities

    Bands: head labels have 100 training rows or more, torso labels 10 to 99, tail labels fewer. The P@k of a band
    counts only the hits of its labels, so that the three sum to P@k. The R@k of a band is a mean over the rows that
    have a label of the band.

        print(evaluate(test.Y, top, train.Y, dataset="eurlex-4k")["PSP@1"])
    """
    ranked = np.asarray(top)
    if ranked.ndim == 2 and ranked.shape[1] > k:
        ranked = ranked[:, :k]
    ranking = _Ranking(Y, ranked)
    scores = {
        "P": ranking.precision(),
        "nDCG": ranking.ndcg(),
        "R": ranking.recall(),
        "coverage": ranking.coverage(),
    }
    trained = None if Y_train is None else frequencies(Y_train)
    if p is None and trained is not None:
        p = propensity(trained, *propensity_constants(dataset))
    if p is not None:
        gains = ranking.gains(_weights(Y, p))
        scores |= {"PSP": ranking.psp(gains), "PSnDCG": ranking.psndcg(gains)}
    bands: dict[str, dict[str, Any]] = {}
    if trained is not None:
        counts = trained.counts
        if len(counts) != Y.shape[1]:
            raise ShapeError(f"Y_train has {len(counts)} labels and Y has {Y.shape[1]}")
        head, tail = counts >= HEAD_MIN_ROWS, counts < TORSO_MIN_ROWS
        for name, training_rows, member in (
            ("head", f"{HEAD_MIN_ROWS} or more", head),
            ("torso", f"{TORSO_MIN_ROWS} to {HEAD_MIN_ROWS - 1}", ~head & ~tail),
            ("tail", f"fewer than {TORSO_MIN_ROWS}", tail),
        ):
            bands[name] = {"labels": int(member.sum()), "training rows": training_rows, **ranking.band(member)}
    order = [name for name in ("P", "nDCG", "PSP", "PSnDCG", "R", "coverage") if name in scores]
    return Evaluation(Y.shape[0], {name: scores[name].tolist() for name in order}, bands)


def _binary_csr(Y: CsrArray) -> CsrArray:
    """Ones where a label is true, in canonical form."""
    Y = canonical_csr(checked_csr(Y, "labels"))
    return from_arrays(np.ones(Y.nnz, np.int32), Y.indices, Y.indptr, Y.shape)


def _weights(Y: CsrArray, p: ArrayLike) -> Values:
    propensities = np.asarray(p, np.float64)
    if propensities.shape != (Y.shape[1],):
        raise ShapeError(
            f"propensities must be one for each of the {Y.shape[1]} labels, got shape {propensities.shape}"
        )
    if not ((propensities > 0) & (propensities <= 1)).all():
        raise OptionError("propensities must be above 0 and at most 1")
    return 1 / propensities


class _Ranking:
    """Which of the ranked labels are hits; every metric is a reduction of that."""

    def __init__(self, Y: CsrArray, top: ArrayLike) -> None:
        Y = _binary_csr(Y)
        ranked = np.asarray(top)
        n, n_labels = Y.shape
        if ranked.ndim != 2 or ranked.shape[0] != n or ranked.shape[1] < 1 or n == 0:
            raise ShapeError(f"top must be (rows, k) with the {n} rows of Y and k of 1 or more, got {ranked.shape}")
        if ranked.dtype.kind not in "iu":
            raise DTypeError(f"top must hold label ids, got {ranked.dtype}; `top_k` makes them from scores")
        ranked = ranked.astype(np.int64, copy=False)
        if ranked.min() < -1 or ranked.max() >= n_labels:
            wrong = int(ranked.min() if ranked.min() < -1 else ranked.max())
            raise LabelError(
                f"top has label {wrong}, which is outside this space of {n_labels} labels (0 to {n_labels - 1})"
            )
        ascending = np.sort(ranked, axis=1)
        repeated = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
        if repeated.any():
            row = int(np.flatnonzero(repeated.any(1))[0])
            raise LabelError(f"row {row} of top has a label twice; each label can be ranked only once")
        self.top, self.n, self.n_labels = ranked, n, n_labels
        self.ids, self.indptr = Y.indices, Y.indptr
        self.sizes = np.diff(self.indptr).astype(np.int64)
        # With one key for each (row, label), membership is a search in an ascending array.
        self.row_of = np.repeat(np.arange(n, dtype=np.int64), self.sizes)
        true_keys = self.row_of * n_labels + self.ids
        ranked_keys = np.arange(n, dtype=np.int64)[:, None] * n_labels + ranked
        if len(true_keys):
            place = np.minimum(np.searchsorted(true_keys, ranked_keys), len(true_keys) - 1)
            self.hits = (true_keys[place] == ranked_keys) & (ranked >= 0)
        else:
            self.hits = np.zeros(ranked.shape, bool)
        self.ranks = np.arange(1, ranked.shape[1] + 1)
        self.discounts = 1 / np.log2(self.ranks + 1)

    def precision(self) -> Values:
        return 100 * self.hits.sum(0).cumsum() / (self.n * self.ranks)

    def recall(self) -> Values:
        return _mean(self.hits.cumsum(1) / np.maximum(self.sizes, 1)[:, None])

    def ndcg(self) -> Values:
        return _mean(self.ndcg_of_rows())

    def ndcg_of_rows(self) -> Values:
        values: Values = (self.hits * self.discounts).cumsum(1) / self.normaliser()
        return values

    def normaliser(self) -> Values:
        """DCG@1 to DCG@k of the best ranking, and 1 for a row without labels.  Shapes: -> (rows, k)"""
        n_hits = np.minimum(self.ranks[None], np.maximum(self.sizes, 1)[:, None])
        dcg: Values = self.discounts.cumsum()[n_hits - 1]
        return dcg

    def gains(self, w: Values) -> tuple[Values, Values]:
        """The weights of the hits, and of the best possible ranking.  Shapes: (labels) -> (rows, k), (rows, k)"""
        gained = np.where(self.hits, w[self.top], 0.0)
        best = np.zeros(gained.shape)
        # Sorting by one key, (row, rank of the label by weight), sorts the labels within every row.
        order = np.argsort(-w)
        weight_rank = np.empty(self.n_labels, np.int64)
        weight_rank[order] = np.arange(self.n_labels)
        first_key = self.row_of * self.n_labels
        weights = w[order[np.sort(first_key + weight_rank[self.ids]) - first_key]]
        rank = np.arange(len(weights)) - np.repeat(self.indptr[:-1].astype(np.int64), self.sizes)
        kept = rank < gained.shape[1]
        best[self.row_of[kept], rank[kept]] = weights[kept]
        return gained, best

    def psp(self, gains: tuple[Values, Values]) -> Values:
        gained, best = gains
        return _percentage(gained.sum(0).cumsum(), best.sum(0).cumsum())

    def psndcg(self, gains: tuple[Values, Values]) -> Values:
        gained, best = ((g * self.discounts).cumsum(1) / self.normaliser() for g in gains)
        return _percentage(gained.sum(0), best.sum(0))

    def coverage(self, member: NDArray[np.bool_] | None = None) -> Values:
        occurs = np.zeros(self.n_labels, bool)
        occurs[self.ids] = True
        best_rank = np.full(self.n_labels, self.top.shape[1])  # the best rank at which a label is a hit
        for rank in range(self.top.shape[1] - 1, -1, -1):
            best_rank[self.top[self.hits[:, rank], rank]] = rank
        if member is not None:
            occurs &= member
        n_found = np.bincount(best_rank[occurs], minlength=len(self.ranks) + 1)[:-1].cumsum()
        return 100 * n_found / max(int(occurs.sum()), 1)

    def band(self, member: NDArray[np.bool_]) -> dict[str, list[float]]:
        """P, R and coverage of the labels that `member` selects."""
        hits = self.hits & member[self.top]
        sizes = np.bincount(self.row_of[member[self.ids]], minlength=self.n)
        has_label = sizes > 0
        if has_label.any():
            recall = hits[has_label].cumsum(1) / sizes[has_label, None]
        else:
            recall = np.zeros((1, len(self.ranks)))
        return {
            "P": (100 * hits.sum(0).cumsum() / (self.n * self.ranks)).tolist(),
            "R": _mean(recall).tolist(),
            "coverage": self.coverage(member).tolist(),
        }


def _mean(values: Values) -> Values:
    mean: Values = 100 * values.mean(0)
    return mean


def _percentage(gained: Values, best: Values) -> Values:
    """Percent of the best; 0 where there are no true labels."""
    return 100 * gained / np.where(best > 0, best, 1)
