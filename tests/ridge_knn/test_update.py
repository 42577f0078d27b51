"""Updates against fits to the same rows, and against the normal equations in float64."""

import numpy as np
import pytest
import torch
from helpers.ridge_knn import parity, rare_words
from scipy.sparse import csr_array, hstack, random_array

from holobind.data.csr import column_counts, normalise_rows
from holobind.errors import OptionError, ShapeError
from holobind.ridge_knn import add_rows, fit_ridge_knn, refit_trees, remove_labels, remove_rows
from holobind.ridge_knn._block_cg import BlockSolver
from holobind.ridge_knn.update import prediction_weights, stored_precision
from holobind.ridge_knn.update_state import UpdateState

pytestmark = pytest.mark.usefixtures("one_thread")

N, N_NEW, N_FEATURES, N_LABELS = 150, 12, 60, 20
SETTINGS = {"l2": 0.5, "knn_weight": 0.5, "update": True, "seed": 3}
DIMS = pytest.mark.parametrize("dim", [None, 32, 8], ids=["one-hot", "one-hot with room", "orbit"])


def data(n=N + N_NEW, f=N_FEATURES, labels=N_LABELS, seed=0):
    """Random sparse rows of norm 1, one of them empty; the last three labels occur in new rows only."""
    draw = np.random.default_rng(seed)
    X = random_array((n, f), density=0.12, rng=draw, dtype=np.float32).toarray()
    Y = (draw.random((n, labels)) < 0.12).astype(np.float32)
    X[5], Y[:N, -3:], Y[-3:, -3:] = 0, 0, np.eye(3)
    return normalise_rows(csr_array(X)), csr_array(Y)


def fit(X, Y, dim=None, **options):
    return fit_ridge_knn(X, Y, dim=dim, **SETTINGS | options).network


def regression_scores(network, X):
    """Scores of x W + b before W is quantised.  Shapes: -> (n, L)"""
    W, bias = prediction_weights(network.learning_on, network.out_features)
    return network.codebook().scores(torch.from_numpy(X @ W.numpy()) + bias).numpy()


def exact_scores(network, X, X_train, T):
    """The same by the normal equations in float64, for targets T (n, L) of labels.  Shapes: -> (n, L)"""
    C = network.codebook().vectors(torch.arange(network.n_labels)).double().numpy()
    A = hstack([stored_precision(X_train), csr_array(np.full((X_train.shape[0], 1), 0.3))]).toarray()
    W = np.linalg.solve(A.T @ A + network.learning_on.l2 * np.eye(A.shape[1]), A.T @ (T @ C))
    return (X @ W[:-1] + 0.3 * W[-1]) @ C.T


def assert_equal_scores(one, other, X, atol=1e-4):
    np.testing.assert_allclose(regression_scores(one, X), regression_scores(other, X), atol=atol)


@DIMS
def test_a_fit_that_can_be_updated_solves_the_normal_equations(dim):
    X, Y = data()
    network = fit(X, Y, dim)
    T = Y.toarray() * network.learning_on.label_weights.numpy()
    np.testing.assert_allclose(regression_scores(network, X), exact_scores(network, X, X, T), atol=1e-4)
    W = prediction_weights(network.learning_on, network.out_features)[0]
    assert (network.weights() - W).norm() < 0.2 * W.norm()  # what prediction uses has four bits


@DIMS
@pytest.mark.parametrize("boost", [0.0, 0.3])
def test_rows_and_labels_that_are_added_give_the_fit_to_all(dim, boost):
    X, Y = data()
    first = fit(X[:N], Y[:N, :-3], dim or N_LABELS - 3, rare_label_boost=boost)
    updated = add_rows(first, X[N:], Y[N:], reweigh=True)
    wanted = fit(X, Y, dim or N_LABELS, rare_label_boost=boost)
    assert_equal_scores(updated, wanted, X)
    assert torch.allclose(updated.learning_on.label_weights, wanted.learning_on.label_weights)
    for one, other in zip(updated.training_rows(), wanted.training_rows(), strict=True):
        assert one.shape == other.shape and abs(one - other).nnz == 0
    assert abs(updated.targets() - wanted.targets()).max() < 1e-6  # so residuals of neighbours are the same, too


def assert_same_buffers(one, other):
    """All buffers but those of trees are the same, to the bit; settings may have been chosen on other rows."""
    assert one.learning_on.config() == other.learning_on.config()
    names = [name for name in one.state_dict() if "tree" not in name]
    assert (
        len(names) == 16
        and [name for name in names if not torch.equal(one.state_dict()[name], other.state_dict()[name])] == []
    )


@DIMS
@pytest.mark.parametrize("max_factored", [2500, 1], ids=["factored", "conjugate gradients"])
def test_without_kept_weights_an_update_is_the_fit_to_the_same_rows_to_the_bit(monkeypatch, dim, max_factored):
    monkeypatch.setattr("holobind.ridge_knn.ridge.MAX_CHOLESKY_UNKNOWNS", max_factored)
    X, Y = data()
    settings = {"rare_label_boost": 0.3, "update": None}
    first = fit(X[:N], Y[:N, :-3], dim or N_LABELS - 3, **settings)
    wanted = fit(X, Y, dim or N_LABELS, **settings)
    assert not first.learning_on.keeps_weights
    assert (wanted.encode(X)[:, :8] - first.encode(X)[:, :8]).abs().max() > 0.05
    updated = add_rows(first, X[N:], Y[N:])
    assert_same_buffers(updated, wanted)
    one_by_one = first
    for row in range(N, N + N_NEW):
        one_by_one = add_rows(one_by_one, X[row : row + 1], Y[row : row + 1])
    assert_same_buffers(one_by_one, wanted)
    some = np.arange(0, N + N_NEW, 7)
    kept = np.setdiff1d(np.arange(N + N_NEW), some)
    assert_same_buffers(remove_rows(updated, some), fit(X[kept], Y[kept], dim or N_LABELS, **settings))
    without = Y.toarray()
    without[:, [0, 7]] = 0
    gone, wanted = remove_labels(updated, np.array([0, 7])), fit(X, csr_array(without), dim or N_LABELS, **settings)
    assert torch.equal(gone.codes, wanted.codes) and torch.equal(gone.bias, wanted.bias)
    assert gone.free_labels() == [0, 7] and abs(gone.targets() - wanted.targets()).nnz == 0


@DIMS
def test_without_kept_weights_rejected_labels_have_the_target_minus_one(dim):
    X, Y = data()
    wrong = np.zeros((N_NEW, N_LABELS), np.float32)
    wrong[np.arange(N_NEW), np.argmin(Y[N:].toarray(), axis=1)] = 1
    found, wanted = (
        add_rows(fit(X[:N], Y[:N], dim, update=update), X[N:], Y[N:], csr_array(wrong), reweigh=True)
        for update in (None, True)
    )
    # The constant feature is 0.3 times the root mean square of norms, one of which is 0: 0.299 in place of 0.3.
    assert (found.weights() - wanted.weights()).norm() < 0.03 * wanted.weights().norm()
    np.testing.assert_allclose(found.targets().toarray(), wanted.targets().toarray(), atol=1e-6)
    assert found.targets().min() < 0 and found.learning_on.config() | {"weights": True} == wanted.learning_on.config()
    assert_same_buffers(remove_rows(found, np.arange(N, N + N_NEW)), fit(X[:N], Y[:N], dim, update=None))


def test_trees_that_are_fitted_again_leave_the_regression_without_kept_weights():
    X, Y = rare_words()
    network = fit_ridge_knn(X, Y, dim=16, label_trees=1, knn_weight=0.5, update=None).network
    network.trees()[0].set_rare_label_boost(column_counts(Y), 0.07)
    again = refit_trees(network)
    assert again.trees()[0].rare_label_boost == 0.07
    assert_same_buffers(again, network)  # the same rows


@DIMS
def test_many_rows_are_solved_by_columns_and_few_by_rows(dim):
    X, Y = data()
    wanted = fit(X, Y, dim, rare_label_boost=0)
    for n in (N // 2, X.shape[0] - 2):  # more rows than columns, and fewer
        assert_equal_scores(add_rows(fit(X[:n], Y[:n], dim, rare_label_boost=0), X[n:], Y[n:]), wanted, X)


@DIMS
def test_rows_that_are_forgotten_leave_the_model_that_never_had_them(dim):
    X, Y = data()
    first = fit(X[:N], Y[:N], dim)
    updated = add_rows(first, X[N:], Y[N:])
    assert np.abs(regression_scores(updated, X) - regression_scores(first, X)).max() > 0.05
    assert_equal_scores(remove_rows(updated, np.arange(N, N + N_NEW)), first, X)
    some = np.arange(0, N, 7)
    kept = np.setdiff1d(np.arange(N), some)
    forgotten = remove_rows(first, some, reweigh=True)
    assert_equal_scores(forgotten, fit(X[kept], Y[kept], dim), X)
    assert abs(forgotten.training_rows()[0] - stored_precision(X[kept])).nnz == 0


@DIMS
def test_labels_that_are_forgotten_leave_the_model_that_never_had_them(dim):
    X, Y = data()
    without = Y.toarray()
    without[:, [0, 7]] = 0
    found, wanted = remove_labels(fit(X, Y, dim), np.array([0, 7])), fit(X, csr_array(without), dim)
    assert_equal_scores(found, wanted, X)
    assert found.free_labels() == [0, 7] and abs(found.training_rows()[1] - wanted.training_rows()[1]).nnz == 0
    with pytest.raises(OptionError, match=f"these are all {N_LABELS - 2} labels"):
        remove_labels(found, np.arange(N_LABELS))


@DIMS
def test_rejected_labels_have_the_target_minus_one(dim):
    X, Y = data()
    first = fit(X[:N], Y[:N], dim)
    wrong = np.zeros((N_NEW, N_LABELS), np.float32)
    wrong[np.arange(N_NEW), np.argmin(Y[N:].toarray(), axis=1)] = 1
    rejected = csr_array(wrong)
    updated = add_rows(first, X[N:], Y[N:], rejected, reweigh=True)
    T = np.concatenate([Y[:N].toarray(), Y[N:].toarray() - wrong]) * updated.learning_on.label_weights.numpy()
    np.testing.assert_allclose(regression_scores(updated, X), exact_scores(updated, X, X, T), atol=1e-4)
    np.testing.assert_allclose(updated.targets().toarray(), T, atol=1e-6)
    assert_equal_scores(remove_rows(updated, np.arange(N, N + N_NEW), reweigh=True), first, X)
    cleared = remove_labels(updated, np.flatnonzero(wrong.any(0)))
    assert len(cleared.learning_on.rejected_rows) == 0 and cleared.targets().min() >= 0


def test_a_rejected_label_falls_for_its_row_and_for_near_duplicates():
    X, Y = data()
    first = fit(X[:N], Y[:N])
    best = regression_scores(first, X[:1])[0].argmax()
    wrong = csr_array(np.eye(N_LABELS, dtype=np.float32)[[best]])
    updated = add_rows(first, X[:1], csr_array((1, N_LABELS), dtype=np.float32), wrong)
    near = X[:1].toarray()
    near[0, np.flatnonzero(near[0])[0]] *= 0.7
    for x in (X[:1], normalise_rows(csr_array(near))):
        before, after = (network.encode(x)[0, best] for network in (first, updated))
        assert after < before - 0.1


def test_lengths_of_label_vectors_change_in_an_orbit_where_counts_differ_by_a_factor():
    X, Y = data()
    first = fit(X[:N], Y[:N], 8, rare_label_boost=0.3)
    one_label = csr_array(np.tile(np.eye(N_LABELS, dtype=np.float32)[-1], (12, 1)))  # which no row had before
    few, many = (add_rows(first, X[:n], one_label[:n]) for n in (3, 12))
    before, after = first.learning_on.label_weights, many.learning_on.label_weights
    assert torch.equal(few.learning_on.label_weights, before) and after[-1] < 0.7 * before[-1]
    T = np.concatenate([Y[:N].toarray(), one_label.toarray()]) * after.numpy()
    X_all = csr_array(np.concatenate([X[:N].toarray(), X[:12].toarray()]))
    np.testing.assert_allclose(regression_scores(many, X), exact_scores(many, X, X_all, T), atol=1e-4)


def test_an_update_keeps_settings_and_trees_until_they_are_fitted_again():
    X, Y = parity(n=3000)
    network = fit_ridge_knn(X, Y, update=True).network
    updated = add_rows(network, X[:50], Y[:50])
    grown = {"rows": 3050, "entries": X.nnz + X[:50].nnz, "labels": Y.nnz + Y[:50].nnz}
    assert updated.config() == network.config() | grown
    assert network.forest is not None and torch.equal(updated.forest.levels, network.forest.levels)
    X, Y = rare_words()
    network = fit_ridge_knn(X, Y, dim=16, label_trees=2, knn_weight=0.5, update=True).network
    updated = add_rows(network, X[:50], Y[:50])
    for one, other in zip(updated.label_scores(X), network.label_scores(X), strict=True):
        np.testing.assert_array_equal(one, other)
    again = refit_trees(updated)
    wanted = fit_ridge_knn(*updated.training_rows(), dim=16, label_trees=2, knn_weight=0.5).network
    assert len(again.label_trees) == 2 and again.tree_weight == network.tree_weight
    assert again.label_trees[1].config() == wanted.label_trees[1].config() != network.label_trees[1].config()


def test_a_network_without_the_state_is_refused():
    X, Y = data()
    network = fit(X, Y, update=False)
    assert network.learning_on is None and "learning_on" not in network.config()
    for work in (lambda: add_rows(network, X, Y), lambda: remove_rows(network, np.array([0]))):
        with pytest.raises(OptionError, match="cannot be updated; train it with --update"):
            work()


def test_by_default_the_state_is_kept_up_to_a_number_of_weights(monkeypatch):
    X, Y = data()
    rows_alone, weights = (fit(X, Y, update=update).learning_on for update in (None, True))
    assert not rows_alone.keeps_weights and not any(tensor.numel() for tensor in rows_alone.state_dict().values())
    assert weights.keeps_weights and weights.levels.shape == (N_FEATURES + 1, N_LABELS)
    assert fit(X, Y, update=None, knn_weight=0).learning_on is None
    stored = fit(X, Y, knn_weight=0)
    assert stored.n_training_rows == X.shape[0]  # rows are kept for updates, and no neighbour is searched
    monkeypatch.setattr("holobind.ridge_knn.fit.MAX_UPDATABLE_WEIGHTS", N_FEATURES * N_LABELS - 1)
    assert fit(X, Y, update=None).learning_on is None


def test_mistakes_are_named():
    X, Y = data()
    network = fit(X, Y)
    with pytest.raises(ShapeError, match="must have the same rows and at least 20 labels"):
        add_rows(network, X[:3], Y[:2])
    with pytest.raises(ShapeError, match="must have the same rows and at least 20 labels"):
        add_rows(network, X[:3], Y[:3, :5])
    with pytest.raises(OptionError, match="both right and rejected"):
        add_rows(network, X[:3], Y[:3], Y[:3])
    with pytest.raises(OptionError, match=f"these are all {N + N_NEW} rows"):
        remove_rows(network, np.arange(N + N_NEW))
    assert add_rows(network, X[:0], Y[:0]) is network


@pytest.mark.parametrize("block", [1, 5, 1000])
def test_the_solver_reaches_its_tolerance_with_any_block(monkeypatch, block):
    monkeypatch.setattr("holobind.ridge_knn._block_cg.MAX_BLOCK_FEATURES", block)
    X = data()[0]
    B = np.random.default_rng(1).normal(size=(N_FEATURES, 70)).astype(np.float32)
    found, residual = BlockSolver(X, 0.5).solve(B, 1e-5)
    A = X.toarray().astype(np.float64)
    wanted = np.linalg.solve(A.T @ A + 0.5 * np.eye(N_FEATURES), B)
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    assert residual <= 1e-5
    assert BlockSolver(X, 0.5).solve(np.zeros((N_FEATURES, 2), np.float32), 1e-5)[1] == 0


@pytest.mark.parametrize("shared", [True, False], ids=["shared directions", "a step for each column"])
def test_block_gradients_solve_dependent_columns(monkeypatch, shared):
    monkeypatch.setattr("holobind.ridge_knn._block_cg.MIN_ENTRIES_PER_FEATURE", 0 if shared else np.inf)
    X, l2 = data()[0], 0.5
    draw = np.random.default_rng(2)
    B = draw.normal(size=(N_FEATURES, 12)).astype(np.float32)
    B[:, 3], B[:, 5], B[:, 7], B[:, 8] = B[:, 2], 0, B[:, 0] - 2 * B[:, 1], 1e6 * B[:, 8]
    found, residual = BlockSolver(X, l2).solve(B, 1e-5)
    A = X.toarray().astype(np.float64)
    wanted = np.linalg.solve(A.T @ A + l2 * np.eye(N_FEATURES), B)
    np.testing.assert_allclose(found / np.abs(wanted).max(0).clip(1), wanted / np.abs(wanted).max(0).clip(1), atol=1e-4)
    assert residual <= 1e-5 and (found[:, 5] == 0).all()


def test_one_hot_weights_are_kept_to_a_tenth_of_the_rounding_of_16_bits():
    draw = np.random.default_rng(0)
    W = (0.01 * draw.normal(size=(7, 40))).astype(np.float32)
    W[np.arange(7), draw.integers(0, 40, 7)] = 1  # a large weight of each feature
    none = np.empty(0, np.int64)
    for n_labels, error in ((40, 1e-6), (50, 2e-5)):  # one-hot, and an orbit of 40 dimensions
        state = UpdateState.of(W, np.ones(n_labels, np.float32), (none, none), none, n_rows=3, l2=1.0)
        assert np.abs(state.weights() - W).max() < error
