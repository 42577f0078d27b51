"""A fitted network with more rows or fewer, more labels or fewer, as if it were fitted to them from the start.

The regression keeps its penalty and its features. Its solution solves

    A W = X'T,      A = X'X + l2

A network that keeps no weights solves this again (`solve_ridge`), as a fit to the same rows does in its last step: both
have the same W to the bit.

A network that keeps W solves for what changes, which takes less time. The constant feature, the last column of X, then
has a fixed value. Rows that are added or removed, and targets that change, are changes

    A' W' = A' W + P'E      hence      W' = W + A'^-1 P'E

with a row of P and of E for each change: for an added row x with target t, these are x and t - x W; for a removed one,
x and x W - t; for a label whose vector c becomes longer by u, the sum of its rows and u c. Up to d changes are solved
for the rows of P, more for the d columns of P'E, by conjugate gradients (`_block_cg`).

Where label vectors are one-hot, W is kept for target vectors of length 1: lengths (`rare_label_weights`) are multiplied
with its columns, and follow the counts of labels exactly. In an orbit they are part of the regression. There, the
length of a label is set again only when the rows that have it are more than REWEIGH_FACTOR times as many, or as few, as
when it was set.

Residuals of neighbours and values of leaves follow the stored rows. Splits of trees and label trees stay as they are,
until `refit_trees`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array, hstack, vstack

from holobind._types import CsrArray, FloatArray, IntArray, ProgressCallback
from holobind.codebooks import Codebook
from holobind.data.csr import (
    binary_labels,
    canonical_csr,
    checked_csr,
    column_counts,
    from_arrays,
    scale_columns,
    widen,
)
from holobind.errors import OptionError, ShapeError
from holobind.ridge_knn._block_cg import BlockSolver
from holobind.ridge_knn._linalg import product
from holobind.ridge_knn.encoder import rare_label_weights
from holobind.ridge_knn.fit_forest import fit_forest
from holobind.ridge_knn.fit_label_tree import fit_label_tree
from holobind.ridge_knn.forest import Forest
from holobind.ridge_knn.label_tree import LabelTree
from holobind.ridge_knn.network import RidgeKnn, default_codebook
from holobind.ridge_knn.ridge import solve_ridge
from holobind.ridge_knn.update_state import CONSTANT_FEATURE, UpdateState

LAST_TOLERANCE = 0.01  # relative residual of each column, where no weights are kept; less gains no nDCG@5
ONE_HOT_TOLERANCE = 1e-6  # the same, of weights that are kept
ORBIT_TOLERANCE = 1e-5  # the same in an orbit: errors of all columns add up in the scores of frequent labels
CHANGE_FACTOR = 100  # of these tolerances, for changes, which are much smaller than the solution
ORBIT_REFINEMENTS = 2  # solutions for the residual in turn, because the residual of the first is rounded
REWEIGH_FACTOR = 4
MAX_TARGET_BYTES = 1 << 26  # of the targets of some rows
NO_IDS: IntArray = np.empty(0, np.int64)


def stored_precision(X: CsrArray) -> CsrArray:
    """Rows as a network stores them, in 16 bits: a regression that can be updated is solved for these."""
    return from_arrays(X.data.astype(np.float16).astype(np.float32), X.indices, X.indptr, X.shape)


def keep_learning(
    start: FloatArray, X: CsrArray, Y: CsrArray, codebook: Codebook, label_weights: FloatArray, l2: float
) -> UpdateState:
    """Solve the regression of a fit to a small tolerance, for rows in `stored_precision`, and keep the solution.

    start   about the solution, for the codebook's dimensions; the last row is that of the constant feature

    Shapes: start (f + 1, d), X (n, f), Y (n, L), label_weights (L)
    """
    W = start[:, : codebook.n_labels] / label_weights if codebook.n_labels <= codebook.dim else start
    X = _with_constant(stored_precision(X))
    right = _right_side(X, Y, codebook, label_weights)
    solver, norms, X_t = BlockSolver(X, l2), np.linalg.norm(right, axis=0), csr_array(X.T)
    for _ in range(1 if codebook.n_labels <= codebook.dim else ORBIT_REFINEMENTS):
        residual = np.asarray(right - product(X_t, product(X, W)) - l2 * W, np.float32)
        W = W + solver.solve(residual, _tolerance(codebook), norms)[0]
    return UpdateState.of(W, label_weights, (NO_IDS, NO_IDS), NO_IDS, n_rows=X.shape[0], l2=l2)


def prediction_weights(state: UpdateState, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """W and b of a network's output.  Shapes: -> (f, d), (d)"""
    W = torch.from_numpy(state.weights())
    if state.n_labels <= dim:
        W = torch.nn.functional.pad(W * state.label_weights.cpu(), (0, dim - state.n_labels))
    return W[:-1], W[-1] * CONSTANT_FEATURE


def add_rows(
    network: RidgeKnn, X: CsrArray, Y: CsrArray, rejected: CsrArray | None = None, *, reweigh: bool = False
) -> RidgeKnn:
    """The network after more rows of norm 1. Y may have more columns than the network has labels: new labels.

    rejected   labels that are not right for a row: their target is -1, where that of any absent label is 0
    reweigh    set the lengths of all label vectors by the new counts, also in an orbit, where that takes longer

    Shapes: X (m, f), Y and rejected (m, L')
    """
    now = _Fitted.of(network)
    X = stored_precision(canonical_csr(checked_csr(X, "X", network.n_features).astype(np.float32, copy=False)))
    Y = binary_labels(checked_csr(Y, "Y"))
    none_rejected: CsrArray = from_arrays(np.empty(0, np.float32), NO_IDS, np.zeros(Y.shape[0] + 1, np.int64), Y.shape)
    wrong = none_rejected if rejected is None else binary_labels(checked_csr(rejected, "rejected"))
    n, n_labels = len(now), Y.shape[1]
    if not (X.shape[0] == Y.shape[0] == wrong.shape[0] and n_labels == wrong.shape[1] >= network.n_labels):
        raise ShapeError(
            f"update: X, Y and rejected must have the same rows and at least {network.n_labels} labels; got shapes "
            f"{X.shape}, {Y.shape} and {wrong.shape}"
        )
    if Y.multiply(wrong).nnz:
        raise OptionError("update: a label is both right and rejected for the same row; leave out one of them")
    now = now.grown_to(n_labels)
    if not X.shape[0]:
        return network if n_labels == network.n_labels else now.reweighed(network.rare_label_boost).network(network)
    wrong_rows, wrong_labels = (np.asarray(ids, np.int64) for ids in wrong.nonzero())
    after = _Fitted(
        csr_array(vstack([now.X, X])),
        csr_array(vstack([now.Y, Y])),
        (np.append(now.rejected[0], n + wrong_rows), np.append(now.rejected[1], wrong_labels)),
        np.setdiff1d(now.free, Y.indices),
        now.label_weights,
        now.codebook,
        now.W,
    )
    after = after.reweighed(network.rare_label_boost, 1 if reweigh else REWEIGH_FACTOR)
    if now.W is None:
        return after.network(network)
    P = _with_constant(X)
    E = _targets(csr_array(Y - wrong), after.codebook, after.label_weights) - product(P, now.W)
    return after.solved(network, [(P, E), _length_changes(now, after.label_weights)])


def remove_rows(network: RidgeKnn, rows: IntArray, *, reweigh: bool = False) -> RidgeKnn:
    """The network without some of its training rows; `reweigh` as in `add_rows`."""
    now = _Fitted.of(network)
    gone = np.zeros(len(now), bool)
    gone[rows] = True
    if gone.all():
        raise OptionError(f"forget: these are all {len(now)} rows of the model; keep at least one")
    at_gone = gone[now.rejected[0]]
    number = np.cumsum(~gone) - 1  # of the rows that stay
    after = _Fitted(
        now.X[~gone],
        now.Y[~gone],
        (number[now.rejected[0][~at_gone]], now.rejected[1][~at_gone]),
        now.free,
        now.label_weights,
        now.codebook,
        now.W,
    ).reweighed(network.rare_label_boost, 1 if reweigh else REWEIGH_FACTOR)
    if now.W is None:
        return after.network(network)
    P = _with_constant(now.X[gone])
    E = product(P, now.W) - _targets(now.signed()[gone], now.codebook, now.label_weights)
    kept = _Fitted(after.X, after.Y, after.rejected, now.free, now.label_weights, now.codebook, now.W)
    return after.solved(network, [(P, E), _length_changes(kept, after.label_weights)])


def remove_labels(network: RidgeKnn, labels: IntArray) -> RidgeKnn:
    """The network as if no row had ever had some labels. Their ids stay, and are free for new labels."""
    now = _Fitted.of(network)
    gone = np.zeros(network.n_labels, bool)
    gone[labels] = True
    free = np.union1d(now.free, labels)
    if len(free) >= network.n_labels:
        n_labels = network.n_labels - len(now.free)
        raise OptionError(f"forget: these are all {n_labels} labels of the model; keep at least one")
    stays = ~gone[now.rejected[1]]
    after = _Fitted(
        now.X,
        canonical_csr(scale_columns(now.Y, (~gone).astype(np.float32))),
        (now.rejected[0][stays], now.rejected[1][stays]),
        free,
        now.label_weights,
        now.codebook,
        None if now.W is None else now.W.copy(),
    ).reweighed(network.rare_label_boost)
    if after.W is None:
        return after.network(network)
    if network.one_hot:
        after.W[:, gone] = 0
        return after.network(network)
    changes = _length_changes(now, np.where(gone, 0, after.label_weights).astype(np.float32))
    return after.solved(network, [changes])


def refit_trees(network: RidgeKnn, on_progress: ProgressCallback | None = None) -> RidgeKnn:
    """The network with trees and label trees that are fitted to its present rows; as many as before."""
    X, Y = network.training_rows()
    forest = None
    if network.forest is not None:
        forest = fit_forest(X, Y, n_trees=network.forest.n_trees, seed=network.seed, on_progress=on_progress)
    if network.label_trees and not Y.nnz:
        raise OptionError("refit_trees: no row has a label any more; there is nothing to fit label trees to")
    n_trees = len(network.label_trees)
    trees = [fit_label_tree(X, Y, seed=network.seed + i, on_progress=on_progress) for i in range(n_trees)]
    for tree, before in zip(trees, network.trees(), strict=True):
        tree.set_rare_label_boost(column_counts(Y), before.rare_label_boost)
    return _Fitted.of(network).network(network, forest, trees)


@dataclass(frozen=True)
class _Fitted:
    """The rows, label sets, corrections and solution of a network; W is None where it keeps none.

    Shapes: X (n, f), Y (n, L), W (f + 1, columns)
    """

    X: CsrArray
    Y: CsrArray
    rejected: tuple[IntArray, IntArray]
    free: IntArray
    label_weights: FloatArray
    codebook: Codebook
    W: FloatArray | None

    @classmethod
    def of(cls, network: RidgeKnn) -> "_Fitted":
        state, (X, Y) = learning_state(network), network.training_rows()
        rejected = state.rejected_rows.cpu().numpy(), state.rejected_labels.cpu().numpy()
        free, codebook = state.free_labels.cpu().numpy(), network.codebook()
        if not state.keeps_weights:
            weights = rare_label_weights(column_counts(Y), network.rare_label_boost)
            return cls(X, Y, rejected, free, weights, codebook, None)
        return cls(X, Y, rejected, free, state.label_weights.cpu().numpy(), codebook, state.weights())

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def one_hot(self) -> bool:
        return self.codebook.n_labels <= self.codebook.dim

    def wrong(self) -> CsrArray:
        """Rejected labels of rows.  Shapes: -> (n, L)"""
        return csr_array((np.ones(len(self.rejected[0]), np.float32), self.rejected), self.Y.shape)

    def signed(self) -> CsrArray:
        """Label sets, with -1 for rejected labels.  Shapes: -> (n, L)"""
        return csr_array(self.Y - self.wrong())

    def grown_to(self, n_labels: int) -> "_Fitted":
        """With more labels, which no row has. One-hot label vectors get more dimensions where they need them."""
        n_new = n_labels - self.Y.shape[1]
        dim, seed = self.codebook.dim, self.codebook.seed or 0
        weights = np.append(self.label_weights, np.full(n_new, np.nan, np.float32))  # until `reweighed`
        W, codebook = self.W, self.codebook
        if self.one_hot:
            W = None if W is None else np.pad(W, ((0, 0), (0, n_new)))
            codebook = default_codebook(n_labels, max(dim, n_labels), seed)
        elif n_new:
            codebook = default_codebook(n_labels, dim, seed)
        return _Fitted(self.X, widen(self.Y, n_labels), self.rejected, self.free, weights, codebook, W)

    def reweighed(self, boost: float, factor: float = REWEIGH_FACTOR) -> "_Fitted":
        """With lengths of label vectors by counts of labels; in an orbit with W, where counts differ by a factor."""
        wanted = rare_label_weights(column_counts(self.Y), boost)
        weights = wanted
        if not self.one_hot and self.W is not None:
            far = np.abs(np.log(self.label_weights / wanted)) > boost * np.log(factor) + 1e-6
            weights = np.where(far | np.isnan(self.label_weights), wanted, self.label_weights)
        return _Fitted(self.X, self.Y, self.rejected, self.free, weights, self.codebook, self.W)

    def solved(self, before: RidgeKnn, changes: Sequence[tuple[CsrArray, FloatArray]]) -> RidgeKnn:
        """The network after changes (P, E), where all but W has changed already."""
        assert self.W is not None
        P, E = csr_array(vstack([P for P, _ in changes])), np.concatenate([E for _, E in changes])
        solver = BlockSolver(_with_constant(self.X), learning_state(before).l2)
        tolerance = CHANGE_FACTOR * _tolerance(self.codebook)
        if len(E) <= E.shape[1]:
            Z, _ = solver.solve(P.toarray().T, tolerance)
            W = torch.addmm(torch.from_numpy(self.W), torch.from_numpy(Z), torch.from_numpy(E)).numpy()
        else:
            W = self.W + solver.solve(product(csr_array(P.T), E), tolerance)[0]
        return _Fitted(self.X, self.Y, self.rejected, self.free, self.label_weights, self.codebook, W).network(before)

    def network(
        self, before: RidgeKnn, forest: Forest | None = None, trees: Sequence[LabelTree] | None = None
    ) -> RidgeKnn:
        """The network of W, which is solved for first where none is kept."""
        l2, corrections = learning_state(before).l2, (self.rejected, self.free)
        if self.W is None:
            state = UpdateState.of_rows(*corrections, n_rows=len(self), n_labels=self.Y.shape[1], l2=l2)
            solution = solve_ridge(
                self.X,
                self.Y,
                self.codebook,
                l2,
                label_weights=self.label_weights,
                rejected=self.wrong() if len(self.rejected[0]) else None,
                tolerance=LAST_TOLERANCE,
            )
            W, bias = solution.weights, solution.bias
        else:
            state = UpdateState.of(self.W, self.label_weights, *corrections, n_rows=len(self), l2=l2)
            W, bias = prediction_weights(state, self.codebook.dim)
        network = RidgeKnn.from_weights(
            W,
            bias,
            self.X,
            self.Y,
            knn_weight=before.knn_weight,
            similarity_power=before.similarity_power,
            idf_power=before.idf_power,
            rare_label_boost=before.rare_label_boost,
            forest=before.forest if forest is None else forest,
            forest_weight=before.forest_weight,
            label_trees=before.trees() if trees is None else trees,
            tree_weight=before.tree_weight,
            learning_on=state,
            seed=before.seed,
        )
        network.max_table_bytes = before.max_table_bytes
        return network


def learning_state(network: RidgeKnn) -> UpdateState:
    """What the network keeps for updates; an OptionError if it keeps nothing."""
    if network.learning_on is None:
        raise OptionError(
            "this model keeps nothing to learn on with, so it cannot be updated; train it with --update (update=True)"
        )
    return network.learning_on


def _length_changes(fitted: _Fitted, label_weights: FloatArray) -> tuple[CsrArray, FloatArray]:
    """The changes (P, E) by other lengths of label vectors; none where they are one-hot, and no part of W."""
    assert fitted.W is not None
    old, d = fitted.label_weights, fitted.W.shape[1]
    changed = NO_IDS if fitted.one_hot else np.flatnonzero((label_weights != old) & ~np.isnan(old))
    if not len(changed):
        return _with_constant(fitted.X[:0]), np.empty((0, d), np.float32)
    P = csr_array(csr_array(fitted.signed()[:, changed].T) @ _with_constant(fitted.X))
    vectors = fitted.codebook.vectors(torch.from_numpy(changed)).numpy()
    return P, vectors * (label_weights - old)[changed, None]


def _tolerance(codebook: Codebook) -> float:
    return ONE_HOT_TOLERANCE if codebook.n_labels <= codebook.dim else ORBIT_TOLERANCE


def _with_constant(X: CsrArray) -> CsrArray:
    constant = csr_array(np.full((X.shape[0], 1), CONSTANT_FEATURE, np.float32))
    return csr_array(hstack([X, constant], format="csr", dtype=np.float32))


def _right_side(X: CsrArray, Y: CsrArray, codebook: Codebook, label_weights: FloatArray) -> FloatArray:
    """X'T, with some rows of T at a time.  Shapes: (n, f + 1), (n, L) -> (f + 1, columns)"""
    n, columns = X.shape[0], min(codebook.n_labels, codebook.dim)
    total = np.zeros((X.shape[1], columns), np.float32)
    height = max(1, MAX_TARGET_BYTES // (4 * columns))
    for top in range(0, n, height):
        rows = slice(top, top + height)
        total += product(csr_array(X[rows].T), _targets(Y[rows], codebook, label_weights))
    return total


def _targets(Y: CsrArray, codebook: Codebook, label_weights: FloatArray) -> FloatArray:
    """Targets of rows; where label vectors are one-hot, they have length 1.  Shapes: (n, L) -> (n, columns)"""
    if codebook.n_labels <= codebook.dim:
        return np.asarray(Y.toarray(), np.float32)
    Y = scale_columns(Y, label_weights)
    labels, offsets = (torch.from_numpy(array.astype(np.int64)) for array in (Y.indices, Y.indptr[:-1]))
    return codebook.encode(labels, offsets, torch.from_numpy(np.asarray(Y.data, np.float32))).detach().numpy()
