"""Fit of a `RidgeKnn` network: ridge regression, then the settings of the kNN term and of the trees on held-out rows.

The steps, on rows of norm 1:

1. choose the penalty l2 of the ridge regression on kept rows (`solve_ridge`);
2. choose idf_power, similarity_power and knn_weight by nDCG@5 on held-out rows;
3. where rows are many and features few, try a small forest, and take a full one if nDCG@5 is better with it;
4. where labels are many, try a label tree, and take trees if nDCG@5 is better with it (`tree_choice`);
5. solve the ridge regression on all rows, and build the network.

`rare_label_boost` is not chosen: nDCG@5 hardly depends on it, and metrics for rare labels gain at the cost of others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import vstack
from torch import Tensor

from holobind._processes import ALONE, Processes
from holobind._types import CsrArray, IntArray, ProgressCallback, RowIndex
from holobind.calibration import Calibration, calibrate
from holobind.codebooks import Codebook, OrbitCodebook
from holobind.data.csr import binary_labels, canonical_csr, checked_csr, column_counts, take_rows
from holobind.data.holdout import MAX_HELD_OUT_ROWS, folds, holdout
from holobind.errors import OptionError
from holobind.metrics import ndcg_at_k, ndcg_of_rows
from holobind.ridge_knn.candidates import Candidates
from holobind.ridge_knn.encoder import Encoder, rare_label_weights
from holobind.ridge_knn.estimate import NEAR_DUPLICATE_COSINE, Estimate, HeldOut, estimate, nearest_cosines
from holobind.ridge_knn.fit_forest import fit_forest
from holobind.ridge_knn.fit_label_tree import fit_label_tree
from holobind.ridge_knn.forest import MAX_FEATURES, Forest
from holobind.ridge_knn.label_tree import LabelTree, search_trees
from holobind.ridge_knn.network import MAX_LABEL_TREES, WEIGHT_BLOCK_ROWS, RidgeKnn, default_codebook
from holobind.ridge_knn.ridge import DEFAULT_MEMORY, RidgeSolution, solve_ridge
from holobind.ridge_knn.sharded_rows import ShardedRows
from holobind.ridge_knn.tree_choice import (
    DEFAULT_TREE_WEIGHT,
    N_LABEL_TREES,
    TreeChoice,
    choose_trees,
    suits_trees,
    top_k_with_trees,
)
from holobind.ridge_knn.update import keep_learning, prediction_weights
from holobind.ridge_knn.update_state import CONSTANT_FEATURE

RARE_LABEL_BOOST = 0.1  # the largest that costs no P@1 in the mean of four datasets (experiments/LOG.md)
MAX_ONE_HOT_LABELS = 2048  # by default, label vectors of up to so many labels are one-hot
MANY_LABELS_DIM = 1024  # of the codebook of more labels, by default
MAX_UPDATABLE_WEIGHTS = 1 << 24  # up to so many, a network keeps by default what updates need: 32 MB in 16 bits
L2_SEARCH_DIM = 128  # of the codebook for the choice of l2, where labels are more than the dim

MIN_ROWS_TO_VALIDATE = 6
MAX_ROWS_FOR_FOLDS = 999  # up to here every row is held out in one of the folds; above, there is one hold-out
IDF_POWERS = (0.0, 0.5)
MIN_IDF_GAIN = 0.25  # points of nDCG@5 by which an idf power above 0 must be better
SIMILARITY_POWERS = (1.0, 2.0, 4.0, 8.0)
KNN_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
# With the kNN term, a smaller tolerance must be better by so many points of nDCG@5, and by so many standard errors.
MIN_TOLERANCE_GAIN_WITH_KNN, GAIN_ERRORS = 0.5, 2.0
N_CANDIDATES = 32  # labels of a row, by each of three typical settings, among which others rank where labels are many
KNN_NOISE = 0.1  # points of nDCG@5, less than the standard error, by which a knn_weight must be worse to be out
MIDDLE_KNN_WEIGHT = 0.75  # with which idf_power and similarity_power are chosen

MIN_ROWS_FOR_FOREST = 1000
MIN_ROWS_PER_FEATURE = 8  # for a forest
N_TRIAL_TREES = 10
FOREST_WEIGHT = 0.5
# With a forest these two are fixed: the best ones with ten trees are not the best ones with all trees.
FOREST_SIMILARITY_POWER, FOREST_KNN_WEIGHT = 6.0, 0.75


@dataclass(frozen=True)
class KnnChoice:
    """Settings of the kNN term and the forest, and their nDCG@5 on held-out rows in percent (None: not validated)."""

    idf_power: float
    similarity_power: float
    knn_weight: float
    forest_weight: float
    ndcg: float | None = None


@dataclass(frozen=True)
class RidgeKnnFit:
    """The result of `fit_ridge_knn`.

    network      the fitted network
    solution     the ridge regression on all rows; its `validation` is that of the choice of l2
    validation   every setting of the kNN term and the forest that was tried
    trees        the choice of label trees; None if they were not tried
    calibration  of the scores of held-out rows to probabilities; None if no rows were held out, or too few
    estimate     the score on held-out rows with its interval; None if no rows were held out
    near_duplicates   the fraction of held-out rows with a kept row of a cosine above 0.9; None if it was not measured
    held_out     the outputs of held-out rows, for what is fitted to scores later; None if no rows were held out
    """

    network: RidgeKnn
    solution: RidgeSolution
    validation: list[KnnChoice]
    calibration: Calibration | None = None
    trees: TreeChoice | None = None
    estimate: Estimate | None = None
    near_duplicates: float | None = None
    held_out: HeldOut | None = None

    def summary(self) -> dict[str, Any]:
        """How it was fitted, as JSON values for a model's metadata.

        An entry of the kNN validation is [idf_power, similarity_power, knn_weight, forest_weight, nDCG@5].
        """
        knn = {
            "knn_weight": self.network.knn_weight,
            "similarity_power": self.network.similarity_power,
            "idf_power": self.network.idf_power,
            "forest_weight": self.network.forest_weight,
            "rows": self.network.n_training_rows,
            "validation": [[*astuple(tried)[:-1], round(tried.ndcg or 0.0, 3)] for tried in self.validation],
        }
        trees = {} if self.trees is None else {"label_trees": asdict(self.trees)}
        held_out = {} if self.estimate is None else {"held_out": self.estimate.summary()}
        if self.near_duplicates is not None:
            held_out["held_out"]["near_duplicates"] = round(self.near_duplicates, 4)
        return {"ridge": self.solution.summary(), "knn": knn, **trees, **held_out}


def default_knn_dim(n_labels: int) -> int:
    """The dim of the codebook that `fit_ridge_knn` takes by default."""
    return n_labels if n_labels <= MAX_ONE_HOT_LABELS else MANY_LABELS_DIM


def fit_ridge_knn(
    X: CsrArray,
    Y: CsrArray,
    *,
    dim: int | None = None,
    l2: float | None = None,
    knn_weight: float | None = None,
    rare_label_boost: float = RARE_LABEL_BOOST,
    label_trees: int | None = None,
    update: bool | None = False,
    seed: int = 0,
    groups: IntArray | None = None,
    memory: int = DEFAULT_MEMORY,
    processes: Processes = ALONE,
    on_progress: ProgressCallback | None = None,
) -> RidgeKnnFit:
    """Fit a network to rows of norm 1 and their labels; choose what is None.

    dim                of the codebook
    l2                 penalty of the ridge regression
    knn_weight         weight of the neighbours' mean residual; with 0 no training row is stored and there is no forest
    rare_label_boost   a larger one ranks rare labels higher, at the cost of frequent ones
    label_trees        number of label trees; None: 2 where labels are more than the dim and held-out rows gain, else 0,
                       and 0 with knn_weight 0
    update             keep what `update` needs, and solve the regression to a small tolerance; None: where it has at
                       most 2^24 weights, and rows are stored for kNN
    seed               of the codebook, the held-out rows and the trees
    groups             ids from 0 on (`data.holdout.group_ids`): whole groups are held out, not single rows
    memory             bytes, about, in addition to rows, weights and trees
    processes          that call it together with the same arguments: they share the products of the ridge regression,
                       the rows of the kNN index and the nodes of label trees, and all get the same network

    The number of threads changes the result only as in `solve_ridge`.

    Shapes: X (n, f), Y (n, L), groups (n)
    """
    if knn_weight is not None and not (np.isfinite(knn_weight) and knn_weight >= 0):
        raise OptionError(f"knn_weight must be a finite number, 0 or larger, or None to choose it; got {knn_weight}")
    if not (np.isfinite(rare_label_boost) and rare_label_boost >= 0):
        raise OptionError(f"rare_label_boost must be a finite number, 0 or larger; got {rare_label_boost}")
    if label_trees is not None and not 0 <= label_trees <= MAX_LABEL_TREES:
        raise OptionError(f"label_trees must be from 0 to {MAX_LABEL_TREES}, or None to choose it; got {label_trees}")
    X, Y = canonical_csr(checked_csr(X, "X").astype(np.float32, copy=False)), binary_labels(checked_csr(Y, "Y"))
    n_labels = Y.shape[1]
    codebook = default_codebook(n_labels, dim or default_knn_dim(n_labels), seed)
    if update is None:
        small = X.shape[1] * codebook.dim <= MAX_UPDATABLE_WEIGHTS and processes.size == 1
        update = knn_weight != 0 and small
    elif update and processes.size > 1:
        raise OptionError("several processes cannot keep what an update needs; train in one process, or without update")
    ridge = _Ridge(codebook, rare_label_boost, seed, on_progress, memory, processes)
    fitted = _Validated(KnnChoice(0.0, 2.0, 1.0 if knn_weight is None else knn_weight, 0.0))
    calibration: Calibration | None = None
    estimated: Estimate | None = None
    trees: list[LabelTree] = []
    tree_choice: TreeChoice | None = None
    held_out: HeldOut | None = None
    if X.shape[0] >= MIN_ROWS_TO_VALIDATE:
        splits = _folds(X.shape[0], seed, groups)
        try_forest = knn_weight != 0 and _suits_forest(*X.shape)
        by_default = knn_weight != 0 and suits_trees(X.shape[0], codebook)
        try_trees = (by_default if label_trees is None else label_trees > 0) and all(
            np.diff(Y.indptr)[kept].any() for kept, _ in splits
        )
        fitted = _validate(ridge, X, Y, splits, l2, knn_weight, try_forest, groups)
        v, Y_held = _joined(fitted.outputs, fitted.choice)
        found, added = [], None
        for kept, held in splits if try_trees else ():
            trees = [ridge.label_tree(take_rows(X, kept), take_rows(Y, kept), seed)]
            found.append(search_trees(trees, take_rows(X, held)))
        if found:
            scores, labels = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
            tree_choice, added = choose_trees(codebook, v, Y_held, (scores, labels), may_be_none=label_trees is None)
        calibration = calibrate(lambda k: top_k_with_trees(codebook, v, k, added), Y_held)
        ndcg = ndcg_of_rows(Y_held, top_k_with_trees(codebook, v, min(5, n_labels), added)[1].numpy())
        estimated = estimate(ndcg, None if groups is None else groups[np.concatenate([held for _, held in splits])])
        held_out = HeldOut.of([held for _, held in splits], Y, Y_held, v, added)
        # The tree of a single hold-out is kept, so that the choice costs no tree: the others have the held-out rows.
        trees = trees if len(splits) == 1 else []
        del v
    choice, start, step = fitted.choice, fitted.solution, fitted.step(l2)
    near_duplicates = fitted.near_duplicates
    fitted = replace(fitted, outputs=[], solution=None)  # which may be large
    solution = ridge.solve(X, Y, *step, start=start, overwrite_start=True)
    del start
    forest = fit_forest(X, Y, seed=seed, on_progress=on_progress) if choice.forest_weight else None
    tree_weight = DEFAULT_TREE_WEIGHT if label_trees and Y.nnz else 0.0
    if tree_choice is not None:
        tree_weight = tree_choice.weight
    n_trees = (label_trees or N_LABEL_TREES) if tree_weight else 0
    trees += [ridge.label_tree(X, Y, seed + i) for i in range(len(trees), n_trees)]
    network = ridge.network(solution, X, Y, choice, forest, trees, tree_weight, update)
    solution = replace(solution, validation=fitted.l2_validation)
    return RidgeKnnFit(
        network,
        solution,
        fitted.knn_validation,
        calibration,
        tree_choice,
        estimated,
        near_duplicates,
        held_out,
    )


@dataclass(frozen=True)
class _Ridge:
    """Ridge regressions with the same settings on different rows, and networks of them."""

    codebook: Codebook
    rare_label_boost: float
    seed: int
    on_progress: ProgressCallback | None
    memory: int = DEFAULT_MEMORY
    processes: Processes = ALONE

    def solve(
        self,
        X: CsrArray,
        Y: CsrArray,
        l2: float | None,
        tolerance: float | None = None,
        *,
        rows: RowIndex | None = None,
        codebook: Codebook | None = None,
        start: RidgeSolution | None = None,
        overwrite_start: bool = False,
        groups: IntArray | None = None,
    ) -> RidgeSolution:
        """Solve with some of the rows, which are not copied, or with all."""
        weights = None
        if rows is not None:
            weights = np.zeros(X.shape[0], np.float32)
            weights[rows] = 1
        return solve_ridge(
            X,
            Y,
            codebook or self.codebook,
            l2,
            weights=weights,
            label_weights=rare_label_weights(column_counts(Y, rows), self.rare_label_boost),
            tolerance=tolerance,
            memory=self.memory,
            seed=self.seed,
            groups=groups,
            start=start,
            overwrite_start=overwrite_start,
            processes=self.processes,
            on_progress=self.on_progress,
        )

    def label_tree(self, X: CsrArray, Y: CsrArray, seed: int) -> LabelTree:
        return fit_label_tree(X, Y, seed=seed, processes=self.processes, on_progress=self.on_progress)

    def search(
        self, X: CsrArray, Y: CsrArray, rows: RowIndex, l2: float | None, groups: IntArray | None
    ) -> RidgeSolution:
        """Choose l2, if it is None, and the tolerance with a codebook of a smaller dim, if that saves time.

        The best l2 does not depend on crosstalk.
        """
        n_labels = Y.shape[1]
        narrow = n_labels > self.codebook.dim > L2_SEARCH_DIM
        codebook = OrbitCodebook(n_labels, L2_SEARCH_DIM, self.seed) if narrow else self.codebook
        return self.solve(X, Y, l2, rows=rows, codebook=codebook, groups=groups)

    def network(
        self,
        solution: RidgeSolution,
        X: CsrArray,
        Y: CsrArray,
        choice: KnnChoice,
        forest: Forest | None,
        label_trees: Sequence[LabelTree] = (),
        tree_weight: float = 0.0,
        update: bool = False,
    ) -> RidgeKnn:
        blocks = solution.weight_blocks(self.codebook, self.processes, WEIGHT_BLOCK_ROWS)
        W: Tensor | Iterable[Tensor] = blocks
        bias, state = solution.full_bias(self.codebook, self.processes), None
        if update:
            start = np.concatenate([*(block.numpy() for block in blocks), bias.numpy()[None] / CONSTANT_FEATURE])
            label_weights = rare_label_weights(column_counts(Y), self.rare_label_boost)
            state = keep_learning(start, X, Y, self.codebook, label_weights, solution.l2)
            W, bias = prediction_weights(state, self.codebook.dim)
        network = RidgeKnn.from_weights(
            W,
            bias,
            X,
            Y,
            knn_weight=choice.knn_weight,
            similarity_power=choice.similarity_power,
            idf_power=choice.idf_power,
            rare_label_boost=self.rare_label_boost,
            forest=forest,
            forest_weight=choice.forest_weight,
            label_trees=label_trees,
            tree_weight=tree_weight,
            learning_on=state,
            seed=self.seed,
        )
        network.max_table_bytes = self.memory
        return network


@dataclass(frozen=True)
class _Validated:
    """What was chosen on held-out rows, and the ridge regression on kept rows that goes with it."""

    choice: KnnChoice
    knn_validation: list[KnnChoice] = field(default_factory=list)
    outputs: "list[_HeldOutOutputs]" = field(default_factory=list)
    solution: RidgeSolution | None = None
    l2_validation: list[tuple[float, float]] = field(default_factory=list)

    @property
    def near_duplicates(self) -> float | None:
        """The fraction of held-out rows with a near-duplicate among kept rows; None without a search."""
        nearest = [fold.nearest for fold in self.outputs if fold.nearest is not None]
        return float((np.concatenate(nearest) > NEAR_DUPLICATE_COSINE).mean()) if nearest else None

    def step(self, l2: float | None) -> tuple[float | None, float | None]:
        """The chosen penalty and tolerance, or what is given where nothing was validated."""
        return (l2, None) if self.solution is None else (self.solution.l2, self.solution.tolerance)


@dataclass(frozen=True)
class _HeldOutOutputs:
    """The terms of a network's output for held-out rows, of which the output of any `KnnChoice` is a sum.

    Y                  the labels of the rows
    linear             x W + b
    residuals          mean residuals of the neighbours, by idf_power and similarity_power
    forest             the mean leaf value of the trees, if there are any
    forest_residuals   mean residuals with a forest, by idf_power: without rows that have few features
    nearest            cosines of the rows with their nearest kept rows, if these were searched
    """

    Y: CsrArray
    linear: Tensor
    residuals: dict[tuple[float, float], Tensor]
    forest: Tensor | None
    forest_residuals: dict[float, Tensor]
    nearest: NDArray[np.float64] | None = None

    def output(self, choice: KnnChoice) -> Tensor:
        """Shapes: -> (n, d)"""
        if choice.forest_weight and self.forest is not None:
            knn = choice.knn_weight * self.forest_residuals.get(choice.idf_power, torch.zeros(()))
            return (self.linear + knn) * (1 - choice.forest_weight) + self.forest
        powers = choice.idf_power, choice.similarity_power
        return self.linear + choice.knn_weight * self.residuals[powers] if choice.knn_weight else self.linear


def _validate(
    ridge: _Ridge,
    X: CsrArray,
    Y: CsrArray,
    splits: list[tuple[RowIndex, RowIndex]],
    l2: float | None,
    knn_weight: float | None,
    try_forest: bool,
    groups: IntArray | None,
) -> _Validated:
    """Choose the penalty, the tolerance and the settings of the kNN term and the forest on held-out rows.

    A smaller tolerance than the first must pay with the kNN term, which makes up for much of what a loose one misses,
    and by more than chance.
    """
    searched = ridge.search(X, Y, splits[0][0], l2, groups)
    forests = [
        fit_forest(X[kept], Y[kept], n_trees=N_TRIAL_TREES, seed=ridge.seed) if try_forest else None
        for kept, _ in splits
    ]
    trial = KnnChoice(0.0, 2.0, 1.0, FOREST_WEIGHT if try_forest else 0.0)
    best: _Validated | None = None
    for tolerance, step_l2 in dict.fromkeys((searched.steps[0], searched.steps[-1])):
        outputs = []
        start = None if best is None else best.solution
        for (kept, held), forest in zip(splits, forests, strict=True):
            start = ridge.solve(X, Y, step_l2, tolerance, rows=kept, start=start, overwrite_start=True)
            # A forest has few features, and its leaves need all rows.
            rows = ShardedRows(X, Y, kept, ALONE if try_forest else ridge.processes)
            network = ridge.network(start, rows.X, rows.Y, trial, forest)
            outputs.append(_held_out_outputs(network, rows, take_rows(X, held), take_rows(Y, held), knn_weight != 0))
        choice, tried = _choose_knn(ridge.codebook, outputs, knn_weight)
        found = _Validated(choice, tried, outputs, start, searched.validation)
        if best is None or _gains(ridge.codebook, best, found):
            best = found
    assert best is not None
    return best


def _gains(codebook: Codebook, before: _Validated, after: _Validated) -> bool:
    """Whether nDCG@5 of held-out rows gains enough, and more than chance would explain."""
    k = min(5, codebook.n_labels)
    outputs = [_joined(validated.outputs, validated.choice) for validated in (before, after)]
    scores = [ndcg_of_rows(Y, codebook.top_k(v, k)[1].numpy()) for v, Y in outputs]
    gains = scores[1] - scores[0]
    error = gains.std() / len(gains) ** 0.5
    return float(gains.mean()) > max(MIN_TOLERANCE_GAIN_WITH_KNN, GAIN_ERRORS * float(error))


def _suits_forest(n_rows: int, n_features: int) -> bool:
    few_features = n_rows >= MIN_ROWS_PER_FEATURE * n_features and n_features <= MAX_FEATURES
    return few_features and n_rows >= MIN_ROWS_FOR_FOREST


def _folds(n: int, seed: int, groups: IntArray | None = None) -> list[tuple[RowIndex, RowIndex]]:
    """(kept, held) rows: the folds of cross-validation with few rows, else one hold-out."""
    n_held = min(MAX_HELD_OUT_ROWS, n // 5)
    return list(folds(n, n_held, seed, groups)) if n <= MAX_ROWS_FOR_FOLDS else [holdout(n, n_held, seed, groups)]


def _held_out_outputs(
    network: RidgeKnn, rows: ShardedRows, X: CsrArray, Y: CsrArray, with_knn: bool
) -> _HeldOutOutputs:
    """Outputs of held-out rows; `network` stores this process's share of the kept rows."""
    encoder = Encoder(network, with_knn=False, label_counts=rows.label_counts)
    n = X.shape[0]
    linear = torch.from_numpy(encoder.sum_terms([encoder.linear_term(X)], n, 1.0))
    forest = None if encoder.forest is None else torch.from_numpy(encoder.sum_terms([encoder.forest_term(X)], n))
    residuals, forest_residuals, nearest = {}, {}, None
    for idf_power in IDF_POWERS if with_knn else ():
        if search := encoder.build_knn_search(idf_power, with_forest=False, feature_counts=rows.feature_counts()):
            neighbours = rows.nearest(search(X))
            if nearest is None:  # without idf weights
                found, is_own = rows.local(neighbours[1][:, 0])
                nearest = rows.processes.sum(np.where(is_own, nearest_cosines(X, encoder.X, found), 0.0))
            for similarity_power in SIMILARITY_POWERS:
                term = encoder.knn_term(neighbours, similarity_power, 1.0, rows.local)
                residual = rows.processes.sum(encoder.sum_terms([term], n))
                residuals[idf_power, similarity_power] = torch.from_numpy(residual)
        if forest is not None and (search := encoder.build_knn_search(idf_power, with_forest=True)):
            term = encoder.knn_term(search(X), FOREST_SIMILARITY_POWER, 1.0)
            forest_residuals[idf_power] = torch.from_numpy(encoder.sum_terms([term], n))
    return _HeldOutOutputs(Y, linear, residuals, forest, forest_residuals, nearest)


def _joined(outputs: list[_HeldOutOutputs], choice: KnnChoice) -> tuple[Tensor, CsrArray]:
    """The outputs of held-out rows with a choice, and their labels.  Shapes: -> (n, d), (n, L)"""
    return torch.cat([fold.output(choice) for fold in outputs]), vstack([fold.Y for fold in outputs], format="csr")


def _choose_knn(
    codebook: Codebook, outputs: list[_HeldOutOutputs], knn_weight: float | None
) -> tuple[KnnChoice, list[KnnChoice]]:
    """Choose idf_power and similarity_power at a middle knn_weight, then knn_weight or the forest: the best, all tried.

    knn_weight   the given one, or None to choose it
    """
    Y = vstack([fold.Y for fold in outputs], format="csr")
    tried: dict[KnnChoice, float] = {}
    k = min(5, codebook.n_labels)

    def output(choice: KnnChoice) -> Tensor:
        return torch.cat([fold.output(choice) for fold in outputs])

    label_candidates: Candidates | None = None
    if codebook.n_labels > max(codebook.dim, N_CANDIDATES) and outputs[0].forest is None:
        typical = [KnnChoice(idf_power, 2.0, MIDDLE_KNN_WEIGHT, 0.0) for idf_power in IDF_POWERS]
        typical = [KnnChoice(0.0, 2.0, 0.0, 0.0), *(typical if outputs[0].residuals else ())]
        label_candidates = Candidates(torch.cat([codebook.top_k(output(each), N_CANDIDATES)[1] for each in typical], 1))

    def ndcg(choice: KnnChoice) -> float:
        if choice not in tried:
            v = output(choice)
            if label_candidates is None:
                ranked = codebook.top_k(v, k)[1]
            else:
                ranked = label_candidates.best(label_candidates.scores(codebook, v), k)
            tried[choice] = float(ndcg_at_k(Y, ranked.numpy())[-1])
        return tried[choice]

    middle = MIDDLE_KNN_WEIGHT if knn_weight is None else knn_weight
    powers = [KnnChoice(idf, power, middle, 0.0) for idf, power in product(IDF_POWERS, SIMILARITY_POWERS)]
    best = max(powers, key=lambda choice: ndcg(choice) - MIN_IDF_GAIN * (choice.idf_power > 0))
    candidates = [replace(best, knn_weight=each) for each in (KNN_WEIGHTS if knn_weight is None else (knn_weight,))]
    if outputs[0].forest is not None:
        forest_knn_weight = FOREST_KNN_WEIGHT if knn_weight is None else knn_weight
        candidates.append(KnnChoice(best.idf_power, FOREST_SIMILARITY_POWER, forest_knn_weight, FOREST_WEIGHT))
    best = max(candidates, key=ndcg)
    if not best.forest_weight:  # of weights that cannot be told apart, the usual one
        close = [each for each in candidates if not each.forest_weight and ndcg(each) >= ndcg(best) - KNN_NOISE]
        best = min(close, key=lambda choice: abs(choice.knn_weight - MIDDLE_KNN_WEIGHT))
    return replace(best, ndcg=tried[best]), [replace(choice, ndcg=score) for choice, score in tried.items()]
