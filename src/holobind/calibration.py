"""Calibrated probabilities: how often a label with such a score is right, learned from rows that were held out.

    p(label | row) = sigmoid(b + f(s) + g(t) + h(m))

where s is the label's score, t the best score of the row and m the mean of the row's five best scores. f, g and h are
linear splines with a few knots, at quantiles of the held-out scores. f is increasing, so that the order of a row's
labels stays as it is. The scale of the scores does not matter: they may be regression outputs, cosines or logits.

The parameters are at most 12 numbers and the knots. They maximise the likelihood of the held-out hits.

    calibration = fit_calibration(scores, hits)       from the best labels of held-out rows, and whether they are right
    calibration(scores)                               probabilities of the best labels of other rows
    calibration_error(probabilities, hits)            expected calibration error, in percent
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit

from holobind import metrics
from holobind._threads import num_threads
from holobind._types import CsrArray
from holobind.errors import OptionError, ShapeError

MIN_CANDIDATES, MAX_CANDIDATES = 30, 100  # best labels of a row that may be in its set
CANDIDATES_PER_LABEL = 3  # candidates for each label that a row has on average
N_CONTEXT = 5  # best scores of a row that its context is made of
SCORE_QUANTILES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.95)  # of the scores of hits: the knots of f
CONTEXT_QUANTILES = (0.05, 0.35, 0.65, 0.95)  # the knots of g and h
MIN_HITS, MIN_HITS_FOR_SPLINES = 5, 100  # with fewer hits: no calibration; f linear and neither g nor h
PENALTY = 0.1  # of the squared steps, in units of one held-out candidate
MIN_STEP = 1e-3  # of f, so that labels with different scores have different probabilities
N_BINS = 15
MAX_KNOTS = 32  # of a spline in a file
MAX_SLOPE_STEP = 1e6  # largest change of the log odds between two knots in a file

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Spline:
    """A linear spline that is 0 at its first knot.

    knots    ascending
    steps    the change of the value from each knot to the next
    clamped  constant outside the knots; otherwise the first and the last slope continue

    Shapes: knots (k), steps (k - 1)
    """

    knots: tuple[float, ...]
    steps: tuple[float, ...]
    clamped: bool

    def __call__(self, x: ArrayLike) -> Floats:
        """The value `ramps(x) @ steps`, without an array of ramps.  Shapes: (*any) -> (*any)"""
        x, knots, values = np.asarray(x, np.float64), np.asarray(self.knots), np.append(0.0, np.cumsum(self.steps))
        inside = np.interp(x, knots, values)
        if self.clamped:
            return inside
        first, last = np.diff(values)[[0, -1]] / np.diff(knots)[[0, -1]]
        return inside + first * np.minimum(x - knots[0], 0) + last * np.maximum(x - knots[-1], 0)

    def ramps(self, x: ArrayLike) -> Floats:
        """The spline's derivative by each step.  Shapes: (*any) -> (*any, k - 1)"""
        knots = np.asarray(self.knots)
        ramps = (np.asarray(x, np.float64)[..., None] - knots[:-1]) / np.diff(knots)
        low, high = np.zeros(len(knots) - 1), np.ones(len(knots) - 1)
        if not self.clamped:
            low[0], high[-1] = -np.inf, np.inf
        return np.clip(ramps, low, high)

    @classmethod
    def at(cls, values: ArrayLike, quantiles: Sequence[float], clamped: bool) -> "Spline | None":
        """A spline that is 0 everywhere, with knots at quantiles; None if the values are all equal."""
        knots = np.unique(np.quantile(np.asarray(values, np.float64), quantiles).astype(np.float32)).tolist()
        return cls(tuple(knots), (0.0,) * (len(knots) - 1), clamped) if len(knots) > 1 else None

    def as_json(self) -> dict[str, Any]:
        return {"knots": list(self.knots), "steps": list(self.steps)}

    @classmethod
    def from_json(cls, value: Any, clamped: bool) -> "Spline":
        knots, steps = value["knots"], value["steps"]
        if not (isinstance(knots, list) and isinstance(steps, list) and 2 <= len(knots) <= MAX_KNOTS):
            raise OptionError("calibration: a spline has 2 to 32 knots")
        if len(steps) != len(knots) - 1 or not all(_is_finite(x) for x in (*knots, *steps)):
            raise OptionError("calibration: a spline has finite knots and one step fewer than knots")
        spread = np.diff(np.asarray(knots, np.float32))
        if not (spread > 0).all() or max(map(abs, steps)) > MAX_SLOPE_STEP:
            raise OptionError("calibration: knots ascend, and no step is larger than 1,000,000")
        if not clamped and min(steps) <= 0:
            raise OptionError("calibration: the probability must rise with the score")
        return cls(tuple(map(float, knots)), tuple(map(float, steps)), clamped)


@dataclass(frozen=True)
class Calibration:
    """Probabilities of labels from their scores and the best scores of their row.

    intercept     b
    score         f, of a label's score
    contexts      g and h, of the best score and of the mean of the best five; none, if there were too few held-out rows
    n_rows        rows that it was fitted to
    threshold     labels of at least this probability are those with the largest micro-F1, by the held-out rows
    missed        mean number of true labels of a held-out row that are not among its candidates
    """

    intercept: float
    score: Spline
    contexts: tuple[Spline, ...]
    n_rows: int
    threshold: float = 0.5
    missed: float = 0.0

    def __call__(self, scores: ArrayLike, best: ArrayLike | None = None) -> Floats:
        """The probabilities of labels.

        best   the best scores of each row, best first, five or as many as there are labels: the first columns of
               `scores` if it is None. They are always those of all labels, also where some labels are excluded

        Shapes: (rows, k), (rows, 5) -> (rows, k)
        """
        scores = np.asarray(scores, np.float64)
        context = _context(scores if best is None else np.asarray(best, np.float64))
        log_odds = self.intercept + self.score(scores)
        for spline, values in zip(self.contexts, context, strict=False):
            log_odds = log_odds + spline(values)[:, None]
        return expit(log_odds)

    def as_json(self) -> dict[str, Any]:
        return {
            "intercept": self.intercept,
            "score": self.score.as_json(),
            "contexts": [spline.as_json() for spline in self.contexts],
            "rows": self.n_rows,
            "threshold": self.threshold,
            "missed": self.missed,
        }

    @classmethod
    def from_json(cls, value: Any) -> "Calibration":
        """Raise an OptionError, LookupError or TypeError unless the value is one that `as_json` gives."""
        contexts, rows = value["contexts"], value["rows"]
        numbers = [value[name] for name in ("intercept", "threshold", "missed")]
        if not all(map(_is_finite, numbers)) or type(rows) is not int or rows < 0:
            raise OptionError("calibration: intercept, threshold, missed and rows must be finite numbers")
        if not isinstance(contexts, list) or len(contexts) > 2:
            raise OptionError("calibration: there are at most two splines of the context")
        intercept, threshold, missed = map(float, numbers)
        if not (abs(intercept) <= MAX_SLOPE_STEP and 0 <= threshold <= 1 and missed >= 0):
            raise OptionError("calibration: the threshold is from 0 to 1, and the number of missed labels not negative")
        score = Spline.from_json(value["score"], clamped=False)
        context = tuple(Spline.from_json(each, clamped=True) for each in contexts)
        return cls(intercept, score, context, rows, threshold, missed)


def n_candidates(labels_per_row: float, n_labels: int) -> int:
    """How many of a row's best labels are considered: fitted to, and chosen from."""
    wanted = int(np.ceil(CANDIDATES_PER_LABEL * labels_per_row))
    return min(max(wanted, MIN_CANDIDATES), MAX_CANDIDATES, n_labels)


def calibrate(top_k: Callable[[int], Sequence[Any]], Y: CsrArray) -> Calibration | None:
    """The calibration of a ranking of held-out rows.

    top_k   a function from k to the scores of the k best labels of each row, best first, and their ids
    Y       the labels of the rows

    Shapes: k -> 2 x (rows, k); Y (rows, L)
    """
    if 0 in Y.shape:
        return None
    n_true = np.diff(Y.indptr)
    scores, ids = (np.asarray(each) for each in top_k(n_candidates(float(n_true.mean()), Y.shape[1])))
    return fit_calibration(scores, metrics.hits(Y, ids), n_true)


def fit_calibration(scores: ArrayLike, hits: ArrayLike, n_true: ArrayLike | None = None) -> Calibration | None:
    """Fit a calibration to the best labels of held-out rows; None if there are too few hits, or no misses.

    scores   of the best labels of each row, best first
    hits     whether each of these labels is right
    n_true   number of true labels of each row, also of those that are not among its best; None: there are no others

    Shapes: (rows, k), (rows, k), (rows)
    """
    scores, hits = np.asarray(scores, np.float64), np.asarray(hits, bool)
    if scores.ndim != 2 or scores.shape != hits.shape:
        raise ShapeError(f"scores and hits must both be (rows, k), got {scores.shape} and {hits.shape}")
    n_hits = int(hits.sum())
    few = n_hits < MIN_HITS_FOR_SPLINES
    if n_hits < MIN_HITS or n_hits == hits.size:
        return None
    spline = Spline.at(scores[hits], (0.1, 0.9) if few else SCORE_QUANTILES, clamped=False)
    if spline is None:
        return None
    context = _context(scores)
    splines = [] if few else [Spline.at(values, CONTEXT_QUANTILES, clamped=True) for values in context]
    if any(each is None for each in splines):
        splines = []
    contexts = tuple(each for each in splines if each is not None)
    ramps = [spline.ramps(scores.ravel())]
    ramps += [np.repeat(s.ramps(x), scores.shape[1], 0) for s, x in zip(contexts, context, strict=False)]
    sizes = [r.shape[1] for r in ramps]
    weights = _logistic_regression(np.hstack(ramps), hits.ravel(), n_monotone=sizes[0])
    parts = np.split(weights[1:], np.cumsum(sizes)[:-1])
    fitted = [
        Spline(each.knots, tuple(_rounded(part)), each.clamped)
        for each, part in zip((spline, *contexts), parts, strict=True)
    ]
    found = Calibration(_rounded(weights[:1])[0], fitted[0], tuple(fitted[1:]), len(scores))
    total = hits.sum(1) if n_true is None else np.asarray(n_true)
    p = found(scores)
    missed = max(0.0, float(total.mean() - p.sum(1).mean()))
    return replace(found, threshold=_best_threshold(p, hits, total), missed=_rounded([missed])[0])


def calibration_error(probabilities: ArrayLike, hits: ArrayLike, n_bins: int = N_BINS) -> float:
    """Expected calibration error in percent: |mean probability - fraction of hits| of each bin, averaged over labels.

    Bins have equal widths from 0 to 1.

    Shapes: (*any), (*any) -> ()
    """
    differences = (abs(p - h) * n for p, h, n in reliability(probabilities, hits, n_bins))
    return 100 * sum(differences) / max(np.size(hits), 1)


def reliability(probabilities: ArrayLike, hits: ArrayLike, n_bins: int = N_BINS) -> list[tuple[float, float, int]]:
    """(mean probability, fraction of hits, number of labels) of each bin that is not empty.

    Shapes: (*any), (*any)
    """
    p, h = np.asarray(probabilities, np.float64).ravel(), np.asarray(hits, bool).ravel()
    if p.shape != h.shape:
        raise ShapeError(f"there must be as many hits as probabilities; got {h.size} and {p.size}")
    bins = np.clip((p * n_bins).astype(np.int64), 0, n_bins - 1)
    n = np.bincount(bins, minlength=n_bins)
    means, fractions = (np.bincount(bins, x, minlength=n_bins) / np.maximum(n, 1) for x in (p, h))
    return [(float(means[i]), float(fractions[i]), int(n[i])) for i in np.flatnonzero(n)]


def _context(best: Floats) -> tuple[Floats, Floats]:
    """The best score of each row, and the mean of its best five.  Shapes: (rows, k) -> 2 x (rows)"""
    return best[:, 0], best[:, :N_CONTEXT].mean(1)


def _best_threshold(p: Floats, hits: Bools, n_true: NDArray[Any]) -> float:
    """The probability from which on labels are taken so that their micro-F1 is largest.

    The best threshold of calibrated probabilities is half the F1 that it reaches. So the mean of the two, the best
    threshold on these rows and half its F1, depends less on chance than either.
    """
    order = np.argsort(-p, axis=None, kind="stable")
    f1 = 2 * np.cumsum(hits.ravel()[order]) / (np.arange(1, p.size + 1) + max(int(n_true.sum()), 1))
    best = int(np.argmax(f1))
    found = (p.ravel()[order[best]] + f1[best] / 2) / 2
    return float(_rounded([found])[0])


def _logistic_regression(X: Floats, hits: Bools, n_monotone: int) -> Floats:
    """Intercept and weights with the largest likelihood; the first `n_monotone` weights are not negative.

    Shapes: (n, m), (n) -> (1 + m)
    """
    X = np.column_stack([np.ones(len(X)), X])
    n, m = X.shape
    sign, by_torch = np.where(hits, 1.0, -1.0), torch.from_numpy(X)  # numpy's products are not told to use one thread

    def loss(w: Floats) -> tuple[float, Floats]:
        margin = sign * torch.mv(by_torch, torch.from_numpy(w)).numpy()
        gradient = -torch.mv(by_torch.T, torch.from_numpy(sign * expit(-margin))).numpy()
        penalised = np.append(0, w[1:])
        value = np.logaddexp(0, -margin).sum() + 0.5 * PENALTY * float(penalised @ penalised)
        return value / n, (gradient + PENALTY * penalised) / n

    bounds = [(None, None), *[(MIN_STEP, None)] * n_monotone, *[(None, None)] * (m - 1 - n_monotone)]
    start = np.zeros(m)
    start[0] = np.log((hits.mean() + 1e-9) / (1 - hits.mean() + 1e-9))
    with num_threads(1):
        found = minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500, "ftol": 1e-12}
        )
    return np.asarray(found.x, np.float64)


def _rounded(values: ArrayLike) -> list[float]:
    """To six significant digits: what follows depends on the number of threads."""
    return [float(f"{value:.6g}") for value in np.asarray(values, np.float64)]


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
