"""Fit of a `RidgeKnn` network: ridge regression, then the settings of the kNN term and of the trees on held-out rows.

The steps, on rows of norm 1:

1. choose the penalty l2 of the ridge regression on kept rows (`solve_ridge`);
2. choose idf_power, similarity_power and knn_weight by nDCG@5 on held-out rows;
3. where rows are many and features few, try a small forest, and take a full one if nDCG@5 is better with it;
4. where labels are many, try a label tree, and take trees if nDCG@5 is better with it (`tree_choice`);
5. solve the ridge regression on all rows, and build the network.

`rare_label_boost` is not chosen: nDCG@5 hardly depends on it, and metrics for rare labels gain at the cost of others.
"""

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from holobind._processes import ALONE, Processes
from holobind._types import CsrArray, IntArray, ProgressCallback, RowIndex
from holobind.calibration import Calibration, calibrate
from holobind.codebooks import Codebook
from holobind.data.csr import binary_labels, canonical_csr, checked_csr, column_counts, free_memory, take_rows
from holobind.data.holdout import MAX_HELD_OUT_ROWS, folds, holdout
from holobind.errors import OptionError
from holobind.metrics import ndcg_of_rows
from holobind.ridge_knn.candidates import shared_top_k
from holobind.ridge_knn.estimate import NEAR_DUPLICATE_COSINE, Estimate, HeldOut, estimate
from holobind.ridge_knn.fit_checkpoint import NO_CHECKPOINT, FitCheckpoint
from holobind.ridge_knn.fit_forest import fit_forest
from holobind.ridge_knn.fit_steps import RidgeSteps
from holobind.ridge_knn.forest import MAX_FEATURES
from holobind.ridge_knn.knn_choice import (
    HeldOutOutputs,
    KnnChoice,
    choose_knn,
    joined_outputs,
)
from holobind.ridge_knn.label_tree import LabelTree, shared_search
from holobind.ridge_knn.network import MAX_LABEL_TREES, RidgeKnn, default_codebook
from holobind.ridge_knn.ridge import DEFAULT_MEMORY, RidgeSolution
from holobind.ridge_knn.tree_choice import (
    DEFAULT_TREE_WEIGHT,
    N_LABEL_TREES,
    Added,
    TreeChoice,
    boosted_searches,
    choose_trees,
    suits_trees,
    top_k_with_trees,
)
from holobind.ridge_knn.update import LAST_TOLERANCE, stored_precision

RARE_LABEL_BOOST = 0.1  # the largest that costs no P@1 in the mean of four datasets (experiments/LOG.md)
MAX_ONE_HOT_LABELS = 2048  # by default, label vectors of up to so many labels are one-hot
MANY_LABELS_DIM = 1024  # of the codebook of more labels, by default
MAX_UPDATABLE_WEIGHTS = 1 << 24  # up to so many, a network can be updated by default: it is solved again in seconds

MIN_ROWS_TO_VALIDATE = 6
MAX_ROWS_FOR_FOLDS = 999  # up to here every row is held out in one of the folds; above, there is one hold-out
# With the kNN term, a smaller tolerance must be better by so many points of nDCG@5, and by so many standard errors.
MIN_TOLERANCE_GAIN_WITH_KNN, GAIN_ERRORS = 0.5, 2.0

MIN_ROWS_FOR_FOREST = 1000
MIN_ROWS_PER_FEATURE = 8  # for a forest
N_TRIAL_TREES = 10


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
    checkpoint: FitCheckpoint = NO_CHECKPOINT,
    on_progress: ProgressCallback | None = None,
) -> RidgeKnnFit:
    """Fit a network to rows of norm 1 and their labels; choose what is None.

    dim                of the codebook
    l2                 penalty of the ridge regression
    knn_weight         weight of the neighbours' mean residual; with 0 no training row is stored and there is no forest
    rare_label_boost   a larger one ranks rare labels higher, at the cost of frequent ones
    label_trees        number of label trees; None: 4 where held-out rows gain, else 0, and 0 with knn_weight 0
    update             keep exact weights, so that `update` takes less time; None: keep what it needs to solve the
                       regression again from the stored rows, where it has at most 2^24 weights and rows are stored for
                       kNN; False: the network cannot be updated
    seed               of the codebook, the held-out rows and the trees
    groups             ids from 0 on (`data.holdout.group_ids`): whole groups are held out, not single rows
    memory             bytes, about, in addition to rows, weights and trees
    processes          that call it together with the same arguments: they share the products of the ridge regression,
                       the rows of the kNN index and the nodes of label trees, and all get the same network
    checkpoint         where results are stored as they are found, and taken from if the fit was interrupted

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
    is_small = X.shape[1] * codebook.dim <= MAX_UPDATABLE_WEIGHTS
    keep_weights = bool(update)
    can_update = keep_weights or (update is None and is_small and knn_weight != 0)
    if keep_weights and processes.size > 1:
        raise OptionError("several processes cannot keep what an update needs; train in one process, or without update")
    ridge = RidgeSteps(codebook, rare_label_boost, seed, on_progress, memory, processes, checkpoint)
    fitted = Validated(KnnChoice(0.0, 2.0, 1.0 if knn_weight is None else knn_weight, 0.0))
    calibration: Calibration | None = None
    estimated: Estimate | None = None
    trees: list[LabelTree] = []
    tree_choice: TreeChoice | None = None
    held_out: HeldOut | None = None
    near_duplicates: float | None = None
    if X.shape[0] >= MIN_ROWS_TO_VALIDATE:
        splits = _folds(X.shape[0], seed, groups)
        try_forest = knn_weight != 0 and _suits_forest(*X.shape)
        by_default = knn_weight != 0 and suits_trees(X.shape[0])
        try_trees = (by_default if label_trees is None else label_trees > 0) and all(
            np.diff(Y.indptr)[kept].any() for kept, _ in splits
        )
        fitted = validate(ridge, X, Y, splits, l2, knn_weight, try_forest, groups)
        v, Y_held = joined_outputs(fitted.outputs, fitted.choice)
        near_duplicates = fitted.near_duplicates
        fitted = replace(fitted, outputs=[])  # which may be large
        found, added = [], None
        for fold, (kept, held) in enumerate(splits if try_trees else ()):
            rows = take_rows(X, kept), take_rows(Y, kept)
            free_memory(X)
            tree = ridge.label_tree(*rows, seed, f"kept_{fold}")
            search = partial(shared_search, processes, [tree], take_rows(X, held))
            found.append(boosted_searches(tree, rows[1], rare_label_boost, search))
            del rows, search
            tree.release()
            trees = [tree]
        if found:
            by_boost = {boost: _joined([each[boost] for each in found]) for boost in found[0]}
            tree_choice, added = choose_trees(
                codebook, v, Y_held, by_boost, may_be_none=label_trees is None, processes=processes
            )
            del by_boost
        calibration = calibrate(lambda k: top_k_with_trees(codebook, v, k, added, processes), Y_held)
        ndcg = ndcg_of_rows(Y_held, top_k_with_trees(codebook, v, min(5, n_labels), added, processes)[1].numpy())
        estimated = estimate(ndcg, None if groups is None else groups[np.concatenate([held for _, held in splits])])
        held_out = HeldOut.of([held for _, held in splits], Y, Y_held, v, added)
        # The tree of a single hold-out is kept, so that the choice costs no tree: the others have the held-out rows.
        trees = trees if len(splits) == 1 else []
        del v, added, found
    choice, start, step = fitted.choice, fitted.solution, fitted.step(l2)
    fitted = replace(fitted, solution=None)
    free_memory(X)
    if is_small:
        step = step[0], min(step[1] or LAST_TOLERANCE, LAST_TOLERANCE)
    if can_update and not keep_weights:  # the regression depends on the stored rows alone, as after an update
        solution = ridge.solve(stored_precision(X), Y, *step, stage="all")
    else:
        solution = ridge.solve(X, Y, *step, start=start, overwrite_start=True, stage="all")
    del start
    free_memory(X)
    forest = fit_forest(X, Y, seed=seed, on_progress=on_progress) if choice.forest_weight else None
    tree_weight = DEFAULT_TREE_WEIGHT if label_trees and Y.nnz else 0.0
    if tree_choice is not None:
        tree_weight = tree_choice.weight
    n_trees = (label_trees or N_LABEL_TREES) if tree_weight else 0
    trees += [ridge.label_tree(X, Y, seed + i, f"all_{i}") for i in range(len(trees), n_trees)]
    for tree in trees:
        tree.set_rare_label_boost(column_counts(Y), 0.0 if tree_choice is None else tree_choice.rare_label_boost)
    free_memory(X)
    network = ridge.network(solution, X, Y, choice, forest, trees, tree_weight, can_update, keep_weights)
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
class Validated:
    """What was chosen on held-out rows, and the ridge regression on kept rows that goes with it."""

    choice: KnnChoice
    knn_validation: list[KnnChoice] = field(default_factory=list)
    outputs: list[HeldOutOutputs] = field(default_factory=list)
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


def validate(
    ridge: RidgeSteps,
    X: CsrArray,
    Y: CsrArray,
    splits: list[tuple[RowIndex, RowIndex]],
    l2: float | None,
    knn_weight: float | None,
    try_forest: bool,
    groups: IntArray | None,
) -> Validated:
    """Choose the penalty, the tolerance and the settings of the kNN term and the forest on held-out rows.

    A smaller tolerance than the first must pay with the kNN term, which makes up for much of what a loose one misses,
    and by more than chance.
    """
    searched = ridge.search(X, Y, splits[0][0], l2, groups)
    forests = [
        fit_forest(X[kept], Y[kept], n_trees=N_TRIAL_TREES, seed=ridge.seed) if try_forest else None
        for kept, _ in splits
    ]
    best: Validated | None = None
    for turn, (tolerance, step_l2) in enumerate(dict.fromkeys((searched.steps[0], searched.steps[-1]))):
        outputs = []
        start = None if best is None else best.solution
        for fold, (split, forest) in enumerate(zip(splits, forests, strict=True)):
            stage = f"kept-{turn}-{fold}"
            start = ridge.solve(X, Y, step_l2, tolerance, rows=split[0], start=start, overwrite_start=True, stage=stage)
            outputs.append(ridge.held_out_outputs(start, X, Y, split, forest, knn_weight != 0, stage))
        choice, tried = choose_knn(ridge.codebook, outputs, knn_weight, ridge.processes)
        found = Validated(choice, tried, outputs, start, searched.validation)
        if best is None or _gains(ridge.codebook, best, found, ridge.processes):
            best = found
    assert best is not None
    return best


def _gains(codebook: Codebook, before: Validated, after: Validated, processes: Processes = ALONE) -> bool:
    """Whether nDCG@5 of held-out rows gains enough, and more than chance would explain."""
    k = min(5, codebook.n_labels)
    outputs = [joined_outputs(validated.outputs, validated.choice) for validated in (before, after)]
    scores = [ndcg_of_rows(Y, shared_top_k(processes, codebook, v, k)[1].numpy()) for v, Y in outputs]
    gains = scores[1] - scores[0]
    error = gains.std() / len(gains) ** 0.5
    return float(gains.mean()) > max(MIN_TOLERANCE_GAIN_WITH_KNN, GAIN_ERRORS * float(error))


def _joined(found: Sequence[Added]) -> Added:
    """What searches found for the held-out rows of each fold, as one."""
    scores, labels = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return scores, labels


def _suits_forest(n_rows: int, n_features: int) -> bool:
    few_features = n_rows >= MIN_ROWS_PER_FEATURE * n_features and n_features <= MAX_FEATURES
    return few_features and n_rows >= MIN_ROWS_FOR_FOREST


def _folds(n: int, seed: int, groups: IntArray | None = None) -> list[tuple[RowIndex, RowIndex]]:
    """(kept, held) rows: the folds of cross-validation with few rows, else one hold-out."""
    n_held = min(MAX_HELD_OUT_ROWS, n // 5)
    return list(folds(n, n_held, seed, groups)) if n <= MAX_ROWS_FOR_FOLDS else [holdout(n, n_held, seed, groups)]
