"""How good is a ranking of labels: the measures of extreme multi-label classification, as the field defines them.

    Y    (points, labels)  CSR; a label counts as true where it is stored and not zero
    top  (points, k)       the ids of the best k labels, best first; -1 is an empty place, which is wrong

Every value is a percentage. Each function gives the k values @1 to @k, as averages over ALL points: one without labels
counts as 0. With y the true labels of a point and w_l the inverse propensity of label l:

    P@k        mean of (hits in the first k) / k
    R@k        mean of (hits in the first k) / |y|
    nDCG@k     mean of (sum over hits of 1/log2(rank + 1)) / (sum over ranks 1 to min(k, |y|) of 1/log2(rank + 1))
    PSP@k      sum over points and hits of w_l            divided by the same of the best possible ranking
    PSnDCG@k   sum over points of the weighted nDCG@k     divided by the same of the best possible ranking

Where scores tie, the label with the lowest id comes first (`top_k`).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.table import Table
from scipy import sparse

from holobind._types import CsrArray
from holobind.errors import DTypeError, LabelError, OptionError, ShapeError

Ids = NDArray[np.int64]

# A and B of Jain, Prabhu and Varma 2016: one pair for all datasets but these families.
USUAL = (0.55, 1.5)
CONSTANTS = {
    "amazon-670k": (0.6, 2.6),
    "amazon-3m": (0.6, 2.6),
    "wikilshtc-325k": (0.5, 0.4),
    "wikipedia-500k": (0.5, 0.4),
}
HEAD, TORSO = 100, 10  # training points a label needs to be in the head, and in the torso


def constants(dataset: str) -> tuple[float, float]:
    """The A and B of the propensity model by the name of a dataset, however it is spelled."""
    name = "".join(c for c in dataset.lower() if c.isalnum())
    for known, pair in CONSTANTS.items():
        stem = known.replace("-", "")
        family = stem.rstrip("0123456789km")
        if name == stem or (family in ("wikilshtc", "wikipedia") and name.startswith(family)):
            return pair
    return USUAL


class Frequencies(NamedTuple):
    """How often each label occurs in training, and in how many points: all that propensities and bands depend on."""

    counts: NDArray[np.int64]
    points: int


def frequencies(Y_train: CsrArray | Frequencies) -> Frequencies:
    """Those of a training part; they may be given in place of one."""
    if isinstance(Y_train, Frequencies):
        return Y_train
    rows = _csr(Y_train)
    return Frequencies(np.bincount(rows.indices, minlength=rows.shape[1]).astype(np.int64), int(rows.shape[0]))


def propensity(Y_train: CsrArray | Frequencies, A: float = USUAL[0], B: float = USUAL[1]) -> NDArray[np.float64]:
    """The chance that a true label was noticed, estimated from how often it occurs in training.

        p_l = 1 / (1 + C (N_l + B)^-A),    C = (ln N - 1) (B + 1)^A

    Shapes: (points, labels) -> (labels,)
    """
    counts, points = frequencies(Y_train)
    if points < 3:
        raise ShapeError(
            f"propensities need at least 3 training points, because ln N - 1 must be positive; got {points}"
        )
    C = (np.log(points) - 1) * (B + 1) ** A
    return 1 / (1 + C * (counts + B) ** -A)


def top_k(scores: ArrayLike, k: int) -> Ids:
    """The ids of the k largest scores of each row, best first; ties go to the lowest id. NaN comes last.

    Shapes: (points, labels) -> (points, k)
    """
    dense = np.asarray(scores)
    if dense.ndim != 2:
        raise ShapeError(f"scores must be (points, labels), got {dense.shape}")
    if not 1 <= k <= dense.shape[1]:
        raise OptionError(f"k must be from 1 to the number of labels, {dense.shape[1]}; got {k}")
    best = np.empty((len(dense), k), np.int64)
    for first in range(0, len(dense), 1024):  # so that a copy of the scores never has to fit in memory
        low = -dense[first : first + 1024].astype(np.result_type(dense, np.float32))
        least = np.partition(low, k - 1, axis=1)[:, k - 1 : k]  # the k-th best; NaN sorts last
        for row, (values, limit) in enumerate(zip(low, least[:, 0], strict=True)):
            worse = np.isnan(values) if np.isnan(limit) else ~(values <= limit)
            candidates = np.arange(len(values)) if np.isnan(limit) else np.flatnonzero(~worse)
            best[first + row] = candidates[np.argsort(values[candidates], kind="stable")[:k]]
    return best


def precision_at_k(Y: CsrArray, top: ArrayLike) -> NDArray[np.float64]:
    """P@1 to P@k: how many of the first k are true.

    >>> precision_at_k(sparse.csr_array([[0, 1, 1]]), [[2, 0]]).tolist()
    [100.0, 50.0]
    """
    return _Ranking(Y, top).precision()


def recall_at_k(Y: CsrArray, top: ArrayLike) -> NDArray[np.float64]:
    """R@1 to R@k: how many of the true labels are among the first k."""
    return _Ranking(Y, top).recall()


def ndcg_at_k(Y: CsrArray, top: ArrayLike) -> NDArray[np.float64]:
    """nDCG@1 to nDCG@k: hits at low ranks count less; the best possible ranking has 100."""
    return _Ranking(Y, top).ndcg()


def psp_at_k(Y: CsrArray, top: ArrayLike, p: ArrayLike) -> NDArray[np.float64]:
    """PSP@1 to PSP@k: precision where a hit on label l counts 1 / p[l], over that of the best possible ranking."""
    ranking = _Ranking(Y, top)
    return ranking.psp(ranking.gains(_weights(Y, p)))


def psndcg_at_k(Y: CsrArray, top: ArrayLike, p: ArrayLike) -> NDArray[np.float64]:
    """PSnDCG@1 to PSnDCG@k: nDCG where a hit on label l counts 1 / p[l], over that of the best possible ranking."""
    ranking = _Ranking(Y, top)
    return ranking.psndcg(ranking.gains(_weights(Y, p)))


def coverage_at_k(Y: CsrArray, top: ArrayLike) -> NDArray[np.float64]:
    """Coverage@1 to @k: how many of the labels that occur in Y were found at least once."""
    return _Ranking(Y, top).coverage()


@dataclass(frozen=True)
class Evaluation:
    """All measures at 1 to k by name, the measures by frequency of the label, and how many points there were."""

    points: int
    scores: dict[str, list[float]]
    bands: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"points": self.points, **self.scores, **({"bands": self.bands} if self.bands else {})}

    def __getitem__(self, name: str) -> float:
        """One value by its usual name: evaluation["P@1"]."""
        measure, at, k = name.partition("@")
        if measure not in self.scores or not at or not k.isdecimal() or not 1 <= int(k) <= len(self.scores[measure]):
            raise OptionError(
                f"there is no {name!r}; there are {', '.join(self.scores)} @1 to @{len(self.scores['P'])}"
            )
        return self.scores[measure][int(k) - 1]

    def table(self) -> Table:
        k = len(self.scores["P"])
        table = Table("", *(f"@{i + 1}" for i in range(k)), title=f"{self.points} points, percent")
        for name, values in self.scores.items():
            table.add_row(name, *(f"{v:.2f}" for v in values))
        for band, its in self.bands.items():
            table.add_section()
            name = f"{band}, {its['labels']} labels with {its['train points']} training points"
            table.add_row(name, *[""] * k, style="bold")
            for measure in ("P", "R", "coverage"):
                table.add_row(f"  {measure}", *(f"{v:.2f}" for v in its[measure]))
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
    """All measures at 1 to k.

    Y_train   labels of the training part: gives propensities and the bands by frequency. Without it there are neither,
              unless `p` brings propensities
    dataset   its name chooses the constants of the propensity model

    Bands: head labels have 100 training points or more, torso labels 10 to 99, tail labels fewer. A band's P@k is its
    part of P@k (the three add up to it); its R@k averages over the points that have a label of the band.

        print(evaluate(test.Y, top, train.Y, dataset="eurlex-4k")["PSP@1"])
    """
    places = np.asarray(top)
    if places.ndim == 2 and places.shape[1] > k:
        places = places[:, :k]
    ranking = _Ranking(Y, places)
    scores = {
        "P": ranking.precision(),
        "nDCG": ranking.ndcg(),
        "R": ranking.recall(),
        "coverage": ranking.coverage(),
    }
    seen = None if Y_train is None else frequencies(Y_train)
    if p is None and seen is not None:
        p = propensity(seen, *constants(dataset))
    if p is not None:
        gains = ranking.gains(_weights(Y, p))
        scores |= {"PSP": ranking.psp(gains), "PSnDCG": ranking.psndcg(gains)}
    bands: dict[str, dict[str, Any]] = {}
    if seen is not None:
        if len(seen.counts) != Y.shape[1]:
            raise ShapeError(f"Y_train has {len(seen.counts)} labels and Y has {Y.shape[1]}")
        counts = seen.counts
        for name, said, member in (
            ("head", f"{HEAD} or more", counts >= HEAD),
            ("torso", f"{TORSO} to {HEAD - 1}", (counts >= TORSO) & (counts < HEAD)),
            ("tail", f"fewer than {TORSO}", counts < TORSO),
        ):
            bands[name] = {"labels": int(member.sum()), "train points": said, **ranking.band(member)}
    order = [name for name in ("P", "nDCG", "PSP", "PSnDCG", "R", "coverage") if name in scores]
    return Evaluation(Y.shape[0], {name: scores[name].tolist() for name in order}, bands)


def _csr(Y: CsrArray) -> Any:
    """Ones where a label is true, ids ascending."""
    given: Any = Y
    if not sparse.issparse(Y) or given.ndim != 2:
        raise DTypeError(f"labels must be a scipy sparse matrix of 2 dimensions, got {type(Y).__name__}")
    rows = given.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if not rows.data.all():
        rows = rows.copy()
        rows.eliminate_zeros()
    return sparse.csr_array((np.ones(rows.nnz, np.int32), rows.indices, rows.indptr), shape=rows.shape)


def _weights(Y: CsrArray, p: ArrayLike) -> NDArray[np.float64]:
    chances = np.asarray(p, np.float64)
    if chances.shape != (Y.shape[1],):
        raise ShapeError(f"propensities must be one for each of the {Y.shape[1]} labels, got shape {chances.shape}")
    if not ((chances > 0) & (chances <= 1)).all():
        raise OptionError("propensities must be above 0 and at most 1")
    return 1 / chances


class _Ranking:
    """Which of the ranked labels are true; every measure is a reduction of that."""

    def __init__(self, Y: CsrArray, top: ArrayLike) -> None:
        rows = _csr(Y)
        places = np.asarray(top)
        n, labels = rows.shape
        if places.ndim != 2 or places.shape[0] != n or places.shape[1] < 1 or n == 0:
            raise ShapeError(f"top must be (points, k) with the {n} points of Y and k of 1 or more, got {places.shape}")
        if places.dtype.kind not in "iu":
            raise DTypeError(f"top must hold label ids, got {places.dtype}; `top_k` makes them from scores")
        places = places.astype(np.int64, copy=False)
        if places.min() < -1 or places.max() >= labels:
            wrong = int(places.min() if places.min() < -1 else places.max())
            raise LabelError(f"top holds label {wrong}, outside this space of {labels} labels (0 to {labels - 1})")
        ordered = np.sort(places, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        if twice.any():
            row = int(np.flatnonzero(twice.any(1))[0])
            raise LabelError(f"row {row} of top holds a label twice; a label can be found only once")
        self.top, self.n, self.labels = places, n, labels
        self.ids, self.ends = rows.indices, rows.indptr
        self.sizes = np.diff(self.ends).astype(np.int64)
        # One number for each (point, label) makes membership a search in an ascending array.
        self.row_of = np.repeat(np.arange(n, dtype=np.int64), self.sizes)
        true = self.row_of * labels + self.ids
        asked = np.arange(n, dtype=np.int64)[:, None] * labels + places
        if len(true):
            near = np.minimum(np.searchsorted(true, asked), len(true) - 1)
            self.hits = (true[near] == asked) & (places >= 0)
        else:
            self.hits = np.zeros(places.shape, bool)
        k = places.shape[1]
        self.ranks = np.arange(1, k + 1)
        self.discounts = 1 / np.log2(self.ranks + 1)

    def precision(self) -> NDArray[np.float64]:
        return 100 * self.hits.sum(0).cumsum() / (self.n * self.ranks)

    def recall(self) -> NDArray[np.float64]:
        return _mean(self.hits.cumsum(1) / np.maximum(self.sizes, 1)[:, None])

    def ndcg(self) -> NDArray[np.float64]:
        return _mean((self.hits * self.discounts).cumsum(1) / self.normaliser())

    def normaliser(self) -> NDArray[np.float64]:
        """The DCG@1 to DCG@k of the best ranking; (points, k). A point without labels, which has no hits, takes 1."""
        most = np.minimum(self.ranks[None], np.maximum(self.sizes, 1)[:, None])
        total: NDArray[np.float64] = self.discounts.cumsum()[most - 1]
        return total

    def gains(self, w: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The weight of every hit, and those of the best possible ranking; (points, k) both."""
        mine = np.where(self.hits, w[self.top], 0.0)
        best = np.zeros(mine.shape)
        # Sorting (point, place of the label by weight) as one number orders the labels within every point.
        order = np.argsort(-w)
        place = np.empty(self.labels, np.int64)
        place[order] = np.arange(self.labels)
        first = self.row_of * self.labels
        weights = w[order[np.sort(first + place[self.ids]) - first]]
        rank = np.arange(len(weights)) - np.repeat(self.ends[:-1].astype(np.int64), self.sizes)
        kept = rank < mine.shape[1]
        best[self.row_of[kept], rank[kept]] = weights[kept]
        return mine, best

    def psp(self, gains: tuple[NDArray[np.float64], NDArray[np.float64]]) -> NDArray[np.float64]:
        mine, best = gains
        return _ratio(mine.sum(0).cumsum(), best.sum(0).cumsum())

    def psndcg(self, gains: tuple[NDArray[np.float64], NDArray[np.float64]]) -> NDArray[np.float64]:
        mine, best = ((g * self.discounts).cumsum(1) / self.normaliser() for g in gains)
        return _ratio(mine.sum(0), best.sum(0))

    def coverage(self, member: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        occurs = np.zeros(self.labels, bool)
        occurs[self.ids] = True
        first = np.full(self.labels, self.top.shape[1])  # the best rank at which a label was found
        for rank in range(self.top.shape[1] - 1, -1, -1):
            first[self.top[self.hits[:, rank], rank]] = rank
        if member is not None:
            occurs &= member
        found = np.bincount(first[occurs], minlength=len(self.ranks) + 1)[:-1].cumsum()
        return 100 * found / max(int(occurs.sum()), 1)

    def band(self, member: NDArray[np.bool_]) -> dict[str, list[float]]:
        hits = self.hits & member[self.top]
        sizes = np.bincount(self.row_of[member[self.ids]], minlength=self.n)
        some = sizes > 0
        recall = hits[some].cumsum(1) / sizes[some, None] if some.any() else np.zeros((1, len(self.ranks)))
        return {
            "P": (100 * hits.sum(0).cumsum() / (self.n * self.ranks)).tolist(),
            "R": _mean(recall).tolist(),
            "coverage": self.coverage(member).tolist(),
        }


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = 100 * values.mean(0)
    return mean


def _ratio(mine: NDArray[np.float64], best: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percent of the best; where there is nothing to find, nothing was found: 0."""
    return 100 * mine / np.where(best > 0, best, 1)
