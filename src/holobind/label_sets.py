"""How many labels a row gets: the set that is best by an objective, from calibrated probabilities.

    micro-f1        labels of at least the probability that gives the largest micro-F1 on held-out rows
    sample-f1       the set with the largest expected F1 of the row; at least one label
    precision=0.8   the largest set with an expected precision of at least 0.8; it may be empty
    recall=0.8      the smallest set with an expected recall of at least 0.8

Labels of a row are taken as independent. Probabilities fall with the rank, so that every such set is the first labels
of the ranking, and only their number is chosen.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holobind import metrics
from holobind._types import CsrArray, FloatArray, IntArray
from holobind.calibration import N_CONTEXT, Calibration, calibration_error, reliability
from holobind.errors import OptionError, ShapeError

ObjectiveName = Literal["micro-f1", "sample-f1", "precision", "recall"]
TARGETED = ("precision", "recall")  # objectives with a value to reach
ROWS_PER_CHUNK = 1024  # whose distributions are computed together
ROUNDING = 1e-9  # by which a sum of probabilities may miss its target

CALIBRATED_RANKS = 5  # best labels whose calibration error is reported

Floats = NDArray[np.float64]


class Ranking(NamedTuple):
    """The best labels of each row, best first: scores, ids, and probabilities (None without calibration).

    Shapes: (rows, k) each
    """

    scores: FloatArray
    ids: IntArray
    probabilities: Floats | None


@dataclass(frozen=True)
class Objective:
    """What a set of labels is chosen by.

    target   the precision or recall to reach, of the objectives of these names
    """

    name: ObjectiveName = "micro-f1"
    target: float | None = None

    @classmethod
    def parse(cls, text: "str | Objective") -> "Objective":
        """An objective from a text such as sample-f1 or precision=0.8."""
        if isinstance(text, Objective):
            return text
        name, equals, value = str(text).partition("=")
        wanted = "micro-f1, sample-f1, precision=0.8 or recall=0.8 (or another fraction)"
        if name not in get_args(ObjectiveName) or (name in TARGETED) != bool(equals):
            raise OptionError(f"an objective is {wanted}; got {str(text)[:40]!r}")
        try:
            target = float(value) if equals else None
        except ValueError:
            target = -1.0
        if target is not None and not 0 < target <= 1:
            raise OptionError(f"the {name} to reach is above 0 and at most 1; got {value[:40]!r}")
        return cls(cast(ObjectiveName, name), target)


def choose_sets(
    ranking: Ranking, objective: Objective, calibration: Calibration, min_probability: float = 0.0
) -> Ranking:
    """The labels that each row gets of its candidates, best first; others have id -1.

    Shapes: (rows, k) -> (rows, size of the largest set, at least 1)
    """
    scores, ids, p = ranking
    assert p is not None
    sizes = set_sizes(p, objective, threshold=calibration.threshold, missed=calibration.missed)
    sizes = np.minimum(sizes, (p >= min_probability).sum(1))
    width = max(int(sizes.max(initial=0)), 1)
    chosen = np.arange(width) < sizes[:, None]
    return Ranking(scores[:, :width], np.where(chosen, ids[:, :width], -1), p[:, :width])


def evaluate_sets(ranking: Ranking, Y: CsrArray, calibration: Calibration) -> dict[str, Any]:
    """What `metrics.Evaluation` has of probabilities: `sets` and `reliability`.

    sets   F1 of the sets of both F1 objectives, labels per row of the first, calibration error of the five best labels

    Shapes: (rows, k), (rows, L)
    """
    objectives = Objective("micro-f1"), Objective("sample-f1")
    micro, sample = (choose_sets(ranking, objective, calibration).ids for objective in objectives)
    assert ranking.probabilities is not None
    best = ranking.probabilities[:, :CALIBRATED_RANKS], metrics.hits(Y, ranking.ids[:, :CALIBRATED_RANKS])
    sets = {
        "micro-F1": metrics.f1(Y, micro)["micro"],
        "sample-F1": metrics.f1(Y, sample)["sample"],
        "labels per row": float((micro >= 0).sum(1).mean()),
        "calibration error": calibration_error(*best),
    }
    return {"sets": sets, "reliability": reliability(*best)}


def all_probabilities(calibration: Calibration, scores: FloatArray) -> FloatArray:
    """The probabilities of all labels from their scores, in place.  Shapes: (rows, L) -> (rows, L)"""
    n_labels = scores.shape[1]
    width = min(N_CONTEXT, n_labels)
    for first in range(0, len(scores), ROWS_PER_CHUNK):
        rows = scores[first : first + ROWS_PER_CHUNK]
        best = -np.sort(-np.partition(rows, n_labels - width, axis=1)[:, n_labels - width :], axis=1)
        rows[:] = calibration(rows, best)
    return scores


def set_sizes(
    probabilities: ArrayLike, objective: Objective, *, threshold: float = 0.5, missed: float = 0.0
) -> IntArray:
    """The number of labels that each row gets: its first labels.

    probabilities   of the candidates of each row, in falling order
    threshold       of the objective micro-f1
    missed          expected number of true labels of a row that are not among its candidates

    Shapes: (rows, k) -> (rows)
    """
    p = np.asarray(probabilities, np.float64)
    if p.ndim != 2:
        raise ShapeError(f"probabilities must be (rows, k), got {p.shape}")
    if objective.name == "micro-f1":
        return (p >= threshold).sum(1)
    if objective.name == "sample-f1":
        chunks = [expected_f1(p[first : first + ROWS_PER_CHUNK]) for first in range(0, len(p), ROWS_PER_CHUNK)]
        return np.concatenate([np.empty(0, np.int64), *(1 + np.argmax(chunk[:, 1:], axis=1) for chunk in chunks)])
    assert objective.target is not None
    sums = p.cumsum(1)
    if objective.name == "precision":
        return (sums >= objective.target * np.arange(1, p.shape[1] + 1) - ROUNDING).sum(1)
    wanted = objective.target * (p.sum(1, keepdims=True) + missed)
    return np.minimum((sums < wanted - ROUNDING).sum(1) + 1, p.shape[1])


def expected_f1(p: Floats) -> Floats:
    """The expected F1 of the first 0 to k labels of a row whose labels are true independently with probabilities p.

        E[2 A / (j + A + B)],    A of the first j labels are true, and B of the others

    An empty set has F1 1 if no label is true, and else 0.

    Shapes: (rows, k) -> (rows, k + 1)
    """
    n, k = p.shape
    found = np.empty((n, k + 1))
    others = np.empty((k + 1, n, k + 1))  # others[j]: the distribution of the number of true labels from j on
    others[k] = _point_mass(n, k)
    for j in range(k - 1, -1, -1):
        others[j] = _add_label(others[j + 1], p[:, j])
    found[:, 0] = others[0][:, 0]
    first, counts = _point_mass(n, k), np.arange(k + 1)
    for j in range(1, k + 1):
        first = _add_label(first, p[:, j - 1])
        values = 2 * counts[: j + 1, None] / (j + counts[: j + 1, None] + counts[None, : k - j + 1])
        found[:, j] = ((first[:, : j + 1] @ values) * others[j][:, : k - j + 1]).sum(1)
    return found


def _point_mass(n: int, k: int) -> Floats:
    """The distribution of a number that is surely 0.  Shapes: -> (n, k + 1)"""
    mass = np.zeros((n, k + 1))
    mass[:, 0] = 1
    return mass


def _add_label(distribution: Floats, p: Floats) -> Floats:
    """The distribution of the number of true labels with one label more.  Shapes: (n, k + 1), (n) -> (n, k + 1)"""
    added = distribution * (1 - p)[:, None]
    added[:, 1:] += distribution[:, :-1] * p[:, None]
    return added
