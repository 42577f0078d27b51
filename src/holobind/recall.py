"""Learning for `networks.Recall`: ridge regression, then how much of its errors on near rows to add, on rows held out.

W is ridge regression onto the sums of label vectors (`solve`), which chooses lam; rarity, sharpness and strength are
chosen by nDCG@5, too, and whether trees are grown (`grow`) where features are few beside the rows; beside trees
sharpness and strength are fixed. How much longer the vectors of rare labels are, `tail`, is not chosen: nDCG@5 hardly
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

from holobind import solve
from holobind.codebook import Codebook, OrbitCodebook
from holobind.errors import OptionError
from holobind.grow import grow
from holobind.metrics import ndcg_at_k
from holobind.networks.forest import FEATURES
from holobind.networks.near import canonical
from holobind.networks.recall import Encoder, Recall, codebook, lengths
from holobind.solve import Progress
from holobind.sparse import Sparse

TOLERANCE = 0.3  # of the solution: a rougher one is as good, or better, and takes less time (experiments/LOG.md)
HELD = 2000  # rows to choose sharpness and strength on
FEW = 1000  # points below which all of them are held out in turn
MOST = 2048  # dim of a codebook of more labels than that
TAIL = 0.1  # the most that costs no P@1 on the mean of four datasets (experiments/LOG.md)
NARROW = 128  # dim of the codebook that lam is chosen with where labels are more than the dim
RARITY, MARGIN = (0.0, 0.5), 0.25  # the first, unless the second is better by that many points
SHARPNESS = (1.0, 2.0, 4.0, 8.0)
STRENGTH = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
BESIDE = 6.0, 0.75  # sharpness and strength beside trees: ten of them cannot tell what is best beside all
SHARE, TRIAL = 0.5, 10  # of the trees, if they make it better; and how many are grown to see that
MANY = 8  # times as many rows as features are wanted for trees

Tried = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Found:
    """The network; how the final system was solved; nDCG@5 for all that was tried, in percent.

    validation   (rarity, sharpness, strength, share, nDCG@5) of each; lams are in `solution`
    """

    network: Recall
    solution: solve.Solution
    validation: list[Tried]


def fit(
    X: Sparse,
    Y: Sparse,
    *,
    dim: int | None = None,
    lam: float | None = None,
    strength: float | None = None,
    tail: float = TAIL,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Found:
    """Solve for the encoder, and choose what is not given.

    A larger `tail` moves the ranking from the head of the labels to their tail. A `strength` of 0 recalls nothing, and
    then no training row is kept.

    The result depends on the seed, through the codebook and the rows held out, and on threads as in `solve`.
    Shapes: X (n, f), Y (n, L)
    """
    if strength is not None and not (np.isfinite(strength) and strength >= 0):
        raise OptionError(f"recall must be a number and not negative, or None to have it chosen; got {strength}")
    if not (np.isfinite(tail) and tail >= 0):
        raise OptionError(f"tail must be a number and not negative; got {tail}")
    n_labels = Y.shape[1]
    book = codebook(n_labels, dim or min(n_labels, MOST), seed)
    rows, sets = canonical(sparse.csr_matrix(X, dtype=np.float32)), label_sets(Y)
    ridge = partial(solve.ridge, tolerance=TOLERANCE, seed=seed, on_progress=on_progress)
    rarity, sharpness, share, forest = 0.0, 2.0, 0.0, None
    tried: list[Tried] = []
    searched: list[tuple[float, float]] = []
    start: solve.Solution | None = None
    if rows.shape[0] > 5:
        trials: list[_Trial] = []
        for held, kept in _folds(rows.shape[0], seed):
            X_kept, Y_kept = rows[kept], sets[kept]
            long = lengths(np.bincount(Y_kept.indices, minlength=n_labels), tail)
            if lam is None and n_labels > book.dim > NARROW:  # lam does not depend on the crosstalk; strength does
                narrow = OrbitCodebook(n_labels, NARROW, seed)
                part = ridge(X_kept, Y_kept, narrow, label_weights=long)
                lam, searched = part.lam, part.validation
            start = ridge(X_kept, Y_kept, book, lam, label_weights=long)
            lam, searched = start.lam, searched or start.validation
            if strength != 0 and _few_features(*rows.shape):
                forest = grow(X_kept, Y_kept, trees=TRIAL, seed=seed)
            packed = Recall.of(
                start.weights,
                start.bias,
                X_kept,
                Y_kept,
                strength=1.0,
                tail=tail,
                forest=forest,
                share=SHARE if forest else 0.0,
                seed=seed,
            )
            trials.append(_trial(rows[held], sets[held], packed))
        rarity, sharpness, strength, share, tried = _choose(book, trials, strength)
    long = lengths(np.bincount(sets.indices, minlength=n_labels), tail)
    found = ridge(rows, sets, book, lam, start=start, label_weights=long)
    strength = 1.0 if strength is None else strength
    if share:
        forest = grow(rows, sets, seed=seed, on_progress=on_progress)
    network = Recall.of(
        found.weights,
        found.bias,
        rows,
        sets,
        sharpness=sharpness,
        strength=strength,
        rarity=rarity,
        tail=tail,
        forest=forest,
        share=share,
        seed=seed,
    )
    return Found(network, replace(found, validation=searched), tried)


def more(network: Recall, X: Sparse, Y: Sparse, lam: float | None, points: int) -> Recall:
    """The network after some more points: the mean of its closed form, of `points`, and theirs, and all rows recalled.

    Shapes: X (n, f), Y (n, L)
    """
    sets = label_sets(Y)
    book = network.codebook()
    known = network.remembered()
    rows, all_sets = (sparse.csr_matrix(sparse.vstack(pair)) for pair in zip(known, (X, sets), strict=True))
    long = lengths(np.bincount(all_sets.indices, minlength=book.n_labels), network.tail)
    found = solve.ridge(X, sets, book, lam, tolerance=TOLERANCE, label_weights=long, seed=network.seed)
    share = X.shape[0] / (points + X.shape[0])
    W, bias = network.weights().lerp_(found.weights, share), network.bias.lerp(found.bias, share)
    names = ("sharpness", "strength", "rarity", "tail", "forest", "share", "seed")
    chosen = {name: getattr(network, name) for name in names}
    return Recall.of(W, bias, rows, all_sets, **chosen)


def label_sets(Y: Sparse) -> Sparse:
    """Ones where a label is present."""
    return sparse.csr_matrix(Y != 0, dtype=np.float32)


class _Trial(NamedTuple):
    """Rows held out: their label sets, what the linear encoder gives, and the mean errors of the nearest.

    means    by rarity and sharpness
    trees    what they give, if there are any, and
    beside   the mean errors beside them, by rarity, which only rows of enough features have and give
    """

    Y: Sparse
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


def _trial(X: Sparse, Y: Sparse, packed: Recall) -> _Trial:
    encoder = Encoder(packed, near=False)
    n = X.shape[0]
    linear = torch.from_numpy(encoder.total([encoder.linear(X)], n, 1.0))
    trees = None if encoder.forest is None else torch.from_numpy(encoder.total([encoder.consulted(X)], n))
    means, beside = {}, {}
    for rarity in RARITY:
        if nearest := encoder.search(rarity, beside_trees=False):
            near = nearest(X)
            for sharpness in SHARPNESS:
                means[rarity, sharpness] = torch.from_numpy(encoder.total([encoder.recalled(*near, sharpness, 1.0)], n))
        if trees is not None and (nearest := encoder.search(rarity, beside_trees=True)):
            part = encoder.recalled(*nearest(X), BESIDE[0], 1.0)
            beside[rarity] = torch.from_numpy(encoder.total([part], n))
    return _Trial(Y, linear, means, trees, beside)


def _choose(
    book: Codebook, trials: list[_Trial], strength: float | None
) -> tuple[float, float, float, float, list[Tried]]:
    """Rarity and sharpness at a middling strength, then strength, or trees: these, and all that was tried."""
    Y = sparse.vstack([trial.Y for trial in trials], format="csr")
    tried: dict[tuple[float, float, float, float], float] = {}

    def score(rarity: float, sharpness: float, strength: float, share: float = 0.0) -> float:
        at = rarity, sharpness, strength, share
        if at not in tried:
            parts = []
            for trial in trials:
                if share and trial.trees is not None:
                    recalled = strength * trial.beside.get(rarity, torch.zeros(()))
                    parts.append((trial.linear + recalled) * (1 - share) + trial.trees)
                else:
                    parts.append(trial.linear + strength * trial.means[rarity, sharpness])
            v = torch.cat(parts)
            top = book.top_k(v, min(5, book.n_labels))[1].numpy()
            tried[at] = float(ndcg_at_k(Y, top)[-1])
        return tried[at]

    middle = 0.75 if strength is None else strength
    pairs = product(RARITY, SHARPNESS)
    rarity, sharpness = max(pairs, key=lambda at: score(at[0], at[1], middle) - MARGIN * (at[0] > 0))
    ways = [(sharpness, each, 0.0) for each in (STRENGTH if strength is None else (strength,))]
    if trials[0].trees is not None:
        ways.append((BESIDE[0], BESIDE[1] if strength is None else strength, SHARE))
    sharpness, strength, share = max(ways, key=lambda way: score(rarity, *way))
    return rarity, sharpness, strength, share, [(*at, found) for at, found in tried.items()]
