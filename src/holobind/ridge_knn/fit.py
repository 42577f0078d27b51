"""Learning for `networks.RidgeKnn`: ridge regression, then how much of its errors on near rows to add, on rows held out.

W is ridge regression onto the sums of label vectors (`solve`), which chooses l2; idf_power, similarity_power and knn_weight are
chosen by nDCG@5, too, and whether trees are grown (`grow`) where features are few beside the rows; beside trees
similarity_power and knn_weight are fixed. How much longer the vectors of rare labels are, `rare_label_boost`, is not chosen: nDCG@5 hardly
tells, and what tells, measures for rare labels, would be paid in others. Rows are to have length 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from holobind._types import CsrArray, ProgressCallback
from holobind.codebooks import Codebook, OrbitCodebook
from holobind.data.csr import binary_labels, canonical_csr
from holobind.errors import OptionError
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn._grow import fit_forest
from holobind.ridge_knn.encoder import Encoder, lengths
from holobind.ridge_knn.forest import FEATURES
from holobind.ridge_knn.network import RidgeKnn, codebook
from holobind.ridge_knn.ridge import RidgeSolution, solve_ridge

TOLERANCE = 0.3  # of the solution: a rougher one is as good, or better, and takes less time (experiments/LOG.md)
HELD = 2000  # rows to choose similarity_power and knn_weight on
FEW = 1000  # points below which all of them are held out in turn
MOST = 2048  # dim of a codebook of more labels than that
RARE_LABEL_BOOST = 0.1  # the most that costs no P@1 on the mean of four datasets (experiments/LOG.md)
NARROW = 128  # dim of the codebook that l2 is chosen with where labels are more than the dim
IDF_POWER, MARGIN = (0.0, 0.5), 0.25  # the first, unless the second is better by that many points
SIMILARITY_POWER = (1.0, 2.0, 4.0, 8.0)
KNN_WEIGHT = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
BESIDE = 6.0, 0.75  # similarity_power and knn_weight beside trees: ten of them cannot tell what is best beside all
SHARE, TRIAL = 0.5, 10  # of the trees, if they make it better; and how many are grown to see that
MANY = 8  # times as many rows as features are wanted for trees

Tried = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class RidgeKnnFit:
    """The network; how the final system was solved; nDCG@5 for all that was tried, in percent.

    validation   (idf_power, similarity_power, knn_weight, share, nDCG@5) of each; l2s are in `solution`
    """

    network: RidgeKnn
    solution: RidgeSolution
    validation: list[Tried]


def fit_ridge_knn(
    X: CsrArray,
    Y: CsrArray,
    *,
    dim: int | None = None,
    l2: float | None = None,
    knn_weight: float | None = None,
    rare_label_boost: float = RARE_LABEL_BOOST,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> RidgeKnnFit:
    """Solve for the encoder, and choose what is not given.

    A larger `rare_label_boost` moves the ranking from the head of the labels to their rare_label_boost. A `knn_weight` of 0 recalls nothing, and
    then no training row is kept.

    The result depends on the seed, through the codebook and the rows held out, and on threads as in `solve`.
    Shapes: X (n, f), Y (n, L)
    """
    if knn_weight is not None and not (np.isfinite(knn_weight) and knn_weight >= 0):
        raise OptionError(f"knn_weight must be a number and not negative, or None to have it chosen; got {knn_weight}")
    if not (np.isfinite(rare_label_boost) and rare_label_boost >= 0):
        raise OptionError(f"rare_label_boost must be a number and not negative; got {rare_label_boost}")
    n_labels = Y.shape[1]
    book = codebook(n_labels, dim or min(n_labels, MOST), seed)
    rows, sets = canonical_csr(sparse.csr_array(X).astype(np.float32, copy=False)), binary_labels(Y)
    ridge = partial(solve_ridge, tolerance=TOLERANCE, seed=seed, on_progress=on_progress)
    idf_power, similarity_power, share, forest = 0.0, 2.0, 0.0, None
    tried: list[Tried] = []
    searched: list[tuple[float, float]] = []
    start: RidgeSolution | None = None
    if rows.shape[0] > 5:
        trials: list[_Trial] = []
        for held, kept in _folds(rows.shape[0], seed):
            X_kept, Y_kept = rows[kept], sets[kept]
            long = lengths(np.bincount(Y_kept.indices, minlength=n_labels), rare_label_boost)
            if l2 is None and n_labels > book.dim > NARROW:  # l2 does not depend on the crosstalk; knn_weight does
                narrow = OrbitCodebook(n_labels, NARROW, seed)
                part = ridge(X_kept, Y_kept, narrow, label_weights=long)
                l2, searched = part.l2, part.validation
            start = ridge(X_kept, Y_kept, book, l2, label_weights=long)
            l2, searched = start.l2, searched or start.validation
            if knn_weight != 0 and _few_features(*rows.shape):
                forest = fit_forest(X_kept, Y_kept, trees=TRIAL, seed=seed)
            packed = RidgeKnn.of(
                start.weights,
                start.bias,
                X_kept,
                Y_kept,
                knn_weight=1.0,
                rare_label_boost=rare_label_boost,
                forest=forest,
                share=SHARE if forest else 0.0,
                seed=seed,
            )
            trials.append(_trial(rows[held], sets[held], packed))
        idf_power, similarity_power, knn_weight, share, tried = _choose(book, trials, knn_weight)
    long = lengths(np.bincount(sets.indices, minlength=n_labels), rare_label_boost)
    found = ridge(rows, sets, book, l2, start=start, label_weights=long)
    knn_weight = 1.0 if knn_weight is None else knn_weight
    if share:
        forest = fit_forest(rows, sets, seed=seed, on_progress=on_progress)
    network = RidgeKnn.of(
        found.weights,
        found.bias,
        rows,
        sets,
        similarity_power=similarity_power,
        knn_weight=knn_weight,
        idf_power=idf_power,
        rare_label_boost=rare_label_boost,
        forest=forest,
        share=share,
        seed=seed,
    )
    return RidgeKnnFit(network, replace(found, validation=searched), tried)


def update_ridge_knn(network: RidgeKnn, X: CsrArray, Y: CsrArray, l2: float | None, points: int) -> RidgeKnn:
    """The network after some more points: the mean of its closed form, of `points`, and theirs, and all rows recalled.

    Shapes: X (n, f), Y (n, L)
    """
    sets = binary_labels(Y)
    book = network.codebook()
    known = network.training_rows()
    rows, all_sets = (sparse.csr_array(sparse.vstack(pair)) for pair in zip(known, (X, sets), strict=True))
    long = lengths(np.bincount(all_sets.indices, minlength=book.n_labels), network.rare_label_boost)
    found = solve_ridge(X, sets, book, l2, tolerance=TOLERANCE, label_weights=long, seed=network.seed)
    share = X.shape[0] / (points + X.shape[0])
    W, bias = network.weights().lerp_(found.weights, share), network.bias.lerp(found.bias, share)
    names = ("similarity_power", "knn_weight", "idf_power", "rare_label_boost", "forest", "share", "seed")
    chosen = {name: getattr(network, name) for name in names}
    return RidgeKnn.of(W, bias, rows, all_sets, **chosen)


class _Trial(NamedTuple):
    """Rows held out: their label sets, what the linear encoder gives, and the mean errors of the nearest.

    means    by idf_power and similarity_power
    trees    what they give, if there are any, and
    beside   the mean errors beside them, by idf_power, which only rows of enough features have and give
    """

    Y: CsrArray
    linear: Tensor
    means: dict[tuple[float, float], Tensor]
    trees: Tensor | None
    beside: dict[float, Tensor]


def _few_features(n: int, f: int) -> bool:
    return n >= FEW and n >= MANY * f and f <= FEATURES


def _folds(n: int, seed: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows held out and kept: once, or of few points so often that each is held out once."""
    order = np.random.default_rng(seed).permutation(n)
    size = min(HELD, n // 5)
    for first in range(0, n if n < FEW else 1, size):
        yield np.sort(order[first : first + size]), np.sort(np.delete(order, np.s_[first : first + size]))


def _trial(X: CsrArray, Y: CsrArray, packed: RidgeKnn) -> _Trial:
    encoder = Encoder(packed, near=False)
    n = X.shape[0]
    linear = torch.from_numpy(encoder.total([encoder.linear(X)], n, 1.0))
    trees = None if encoder.forest is None else torch.from_numpy(encoder.total([encoder.consulted(X)], n))
    means, beside = {}, {}
    for idf_power in IDF_POWER:
        if nearest := encoder.search(idf_power, beside_trees=False):
            near = nearest(X)
            for similarity_power in SIMILARITY_POWER:
                means[idf_power, similarity_power] = torch.from_numpy(
                    encoder.total([encoder.recalled(*near, similarity_power, 1.0)], n)
                )
        if trees is not None and (nearest := encoder.search(idf_power, beside_trees=True)):
            part = encoder.recalled(*nearest(X), BESIDE[0], 1.0)
            beside[idf_power] = torch.from_numpy(encoder.total([part], n))
    return _Trial(Y, linear, means, trees, beside)


def _choose(
    book: Codebook, trials: list[_Trial], knn_weight: float | None
) -> tuple[float, float, float, float, list[Tried]]:
    """Rarity and similarity_power at a middling knn_weight, then knn_weight, or trees: these, and all that was tried."""
    Y = sparse.vstack([trial.Y for trial in trials], format="csr")
    tried: dict[tuple[float, float, float, float], float] = {}

    def score(idf_power: float, similarity_power: float, knn_weight: float, share: float = 0.0) -> float:
        at = idf_power, similarity_power, knn_weight, share
        if at not in tried:
            parts = []
            for trial in trials:
                if share and trial.trees is not None:
                    recalled = knn_weight * trial.beside.get(idf_power, torch.zeros(()))
                    parts.append((trial.linear + recalled) * (1 - share) + trial.trees)
                else:
                    parts.append(trial.linear + knn_weight * trial.means[idf_power, similarity_power])
            v = torch.cat(parts)
            top = book.top_k(v, min(5, book.n_labels))[1].numpy()
            tried[at] = float(ndcg_at_k(Y, top)[-1])
        return tried[at]

    middle = 0.75 if knn_weight is None else knn_weight
    pairs = product(IDF_POWER, SIMILARITY_POWER)
    idf_power, similarity_power = max(pairs, key=lambda at: score(at[0], at[1], middle) - MARGIN * (at[0] > 0))
    ways = [(similarity_power, each, 0.0) for each in (KNN_WEIGHT if knn_weight is None else (knn_weight,))]
    if trials[0].trees is not None:
        ways.append((BESIDE[0], BESIDE[1] if knn_weight is None else knn_weight, SHARE))
    similarity_power, knn_weight, share = max(ways, key=lambda way: score(idf_power, *way))
    return idf_power, similarity_power, knn_weight, share, [(*at, found) for at, found in tried.items()]
