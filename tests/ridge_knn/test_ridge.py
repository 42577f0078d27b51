"""Ridge regression compared with the normal equations in float64, on small problems."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, hstack

import holobind as hb
from holobind._threads import num_threads
from holobind.data.holdout import holdout
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn import _conjugate_gradients, _ridge_solvers, default_dim, solve_ridge
from holobind.ridge_knn import ridge as ridge_module

TIGHT = {"tolerance": 1e-6, "max_iterations": 500}
METHODS = [
    {"system": system, "direct": direct, **({} if direct else TIGHT)}
    for system in ("primal", "dual")
    for direct in (True, False)
]
each_method = pytest.mark.parametrize(
    "method", METHODS, ids=lambda m: f"{m['system']}-{'factored' if m['direct'] else 'conjugate gradients'}"
)
seeds = st.integers(0, 2**16)


def problem(n=40, f=25, labels=12, seed=0, density=0.3):
    """Rows with features and labels: one without features, one without labels, two equal ones, and an empty column."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, f)) * (draw.random((n, f)) < density)
    Y = draw.random((n, labels)) < 0.2
    X[3], Y[4], X[:, 5] = 0, 0, 0
    X[1], Y[1] = X[0], Y[0]
    return csr_array(X.astype(np.float32)), csr_array(Y.astype(np.float32))


def by_normal_equations(X, Y, C, l2, weights=None, label_weights=None):
    X, Y, C = X.toarray().astype(np.float64), Y.toarray().astype(np.float64), C.numpy().astype(np.float64)
    v = np.diag(np.ones(len(X)) if weights is None else weights)
    T = Y @ np.diag(np.ones(Y.shape[1]) if label_weights is None else label_weights) @ C
    return np.linalg.solve(X.T @ v @ X + l2 * np.eye(X.shape[1]), X.T @ v @ T)


def ridge(*arguments, bias=0, **options):
    return solve_ridge(*arguments, bias=bias, **options)


def outputs(X, W, bias=0):
    return torch.from_numpy(X.toarray()) @ W + bias


def label_vectors(codebook):
    return codebook.vectors(torch.arange(codebook.n_labels)).detach()


def assert_close_to(found, wanted, limit=2e-4):
    assert np.linalg.norm(np.asarray(found) - wanted) <= limit * np.linalg.norm(wanted)


@each_method
@pytest.mark.parametrize(
    "codebook", [hb.OrbitCodebook(12, 5), hb.OrbitCodebook(12, 16), hb.RandomCodebook(12, 7)], ids=repr
)
@settings(max_examples=10)
@given(seed=seeds)
def test_solution_satisfies_the_normal_equations(method, codebook, seed):
    X, Y = problem(seed=seed)
    found = ridge(X, Y, codebook, 0.5, **method)
    assert found.weights.dtype == torch.float32
    assert_close_to(found.weights, by_normal_equations(X, Y, label_vectors(codebook), 0.5))
    assert found.converged


@each_method
@pytest.mark.parametrize("dim", [5, 16])
@settings(max_examples=10)
@given(seed=seeds)
def test_weights_repeat_rows_and_scale_labels(method, dim, seed):
    X, Y = problem(seed=seed)
    draw = np.random.default_rng(seed)
    weights, label_weights = draw.integers(0, 3, 40), draw.uniform(0.5, 2, 12)
    weights[0] = 2
    codebook = hb.OrbitCodebook(12, dim)
    found = ridge(X, Y, codebook, 0.5, weights=weights, label_weights=label_weights, **method)
    assert_close_to(found.weights, by_normal_equations(X, Y, label_vectors(codebook), 0.5, weights, label_weights))
    again = np.repeat(np.arange(40), weights)  # a weight of 2 is a row twice, 0 is no row
    copied = ridge(X[again], Y[again], codebook, 0.5, label_weights=label_weights, **method)
    assert_close_to(found.weights, copied.weights.numpy())


@each_method
@pytest.mark.parametrize(
    "codebook", [hb.OrbitCodebook(12, 5), hb.OrbitCodebook(12, 16), hb.RandomCodebook(12, 7)], ids=repr
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_target_of_a_rejected_label_is_minus_its_vector(method, codebook, weighted):
    X, Y = problem()
    draw = np.random.default_rng(1)
    rejected = csr_array(((draw.random(Y.shape) < 0.2) & (Y.toarray() == 0)).astype(np.float32))
    label_weights = draw.uniform(0.5, 2, 12) if weighted else None
    found = ridge(X, Y, codebook, 0.5, rejected=rejected, label_weights=label_weights, **method)
    wanted = by_normal_equations(X, Y - rejected, label_vectors(codebook), 0.5, label_weights=label_weights)
    assert_close_to(found.weights, wanted)


@pytest.mark.parametrize("system", ["primal", "dual"])
def test_columns_that_are_solved_are_left_out_without_another_result(monkeypatch, system):
    X, Y = problem(n=300, f=80, labels=40)
    targets = Y.toarray()
    targets[:, ::2] = (X.toarray()[:, :20] > 0.5) * (np.arange(300) % 3 == 0)[:, None]  # some take longer than others
    Y = csr_array(targets.astype(np.float32))
    widths, solutions = [], []
    step = _conjugate_gradients.step_gradients

    def record(Q, *args):
        widths.append(Q.shape[1])
        step(Q, *args)

    monkeypatch.setattr(_conjugate_gradients, "step_gradients", record)
    for fraction in (0.75, 0.0):
        monkeypatch.setattr(_conjugate_gradients, "MAX_ACTIVE_FRACTION", fraction)
        monkeypatch.setattr(_ridge_solvers, "costs", lambda *_: {})  # no Gram matrix
        solutions.append(ridge(X, Y, hb.OrbitCodebook(40, 64), 0.01, system=system, direct=False, tolerance=1e-3))
        assert (len(set(widths)) > 1) == bool(fraction)
        widths.clear()
    one, other = solutions
    assert torch.equal(one.weights, other.weights) and one.residual == other.residual
    assert one.iterations == other.iterations


def test_a_search_alone_chooses_as_a_solution_does():
    X, Y = problem(n=300, f=80)
    for direct in (True, False):
        options = {"tolerance": None, "direct": direct}
        found = ridge(X, Y, hb.OrbitCodebook(12, 5), search_only=True, **options)
        solved = ridge(X, Y, hb.OrbitCodebook(12, 5), **options)
        assert found.steps == solved.steps and found.validation == solved.validation and len(found.validation) > 2
        assert found.weights.shape == (80, 0) and solved.weights.shape == (80, 5)


@settings(max_examples=10)
@given(seed=seeds)
def test_with_orthonormal_label_vectors_it_is_one_versus_rest_ridge(seed):
    X, Y = problem(seed=seed)
    codebook = hb.OrbitCodebook(12, 15)
    scores = codebook.scores(outputs(X, ridge(X, Y, codebook, 0.3).weights))
    one_versus_rest = X.toarray() @ by_normal_equations(X, Y, torch.eye(12), 0.3)
    assert_close_to(scores, one_versus_rest)


@pytest.mark.parametrize("system", ["primal", "dual"])
@pytest.mark.parametrize("tolerance", [0.05, 1e-6])
def test_blocks_of_columns_and_threads_change_nothing(system, tolerance):
    X, Y = problem(n=60, f=50, labels=300, seed=1)
    codebook = hb.OrbitCodebook(300, 150)
    options = {"system": system, "direct": False, "tolerance": tolerance}
    whole = ridge(X, Y, codebook, 0.1, **options)
    narrow = ridge(X, Y, codebook, 0.1, memory=20_000, **options)
    with num_threads(1):
        alone = ridge(X, Y, codebook, 0.1, **options)
    assert whole.iterations == narrow.iterations == alone.iterations
    assert_close_to(narrow.weights, whole.weights.numpy(), 1e-5)
    assert_close_to(alone.weights, whole.weights.numpy(), 1e-5)


@each_method
def test_a_larger_penalty_gives_smaller_weights_and_larger_errors(method):
    X, Y = problem(seed=2)
    codebook = hb.OrbitCodebook(12, 8)
    T = Y.toarray() @ label_vectors(codebook).numpy()
    found = [ridge(X, Y, codebook, l2, **method).weights for l2 in (0.01, 0.1, 1, 10, 100)]
    sizes = [float(W.norm()) for W in found]
    errors = [float((outputs(X, W) - torch.from_numpy(T)).norm()) for W in found]
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)


@pytest.mark.parametrize("system", ["primal", "dual"])
@pytest.mark.parametrize("dim", [7, 16])
@pytest.mark.parametrize("weighted", [False, True])
def test_factored_validation_is_leave_one_out(system, dim, weighted):
    X, Y = problem(n=30, seed=3)
    X = csr_array(X[[0, 1, 2, 7, *range(4, 30)]])  # without the row that has no features: its scores are all equal
    weights = np.random.default_rng(0).uniform(0.2, 3, 30) if weighted else None
    codebook = hb.OrbitCodebook(12, dim)
    found = ridge(X, Y, codebook, weights=weights, system=system, direct=True)
    for l2, score in found.validation:
        gains = []
        for i in range(30):
            kept = np.arange(30) != i
            some = None if weights is None else weights[kept]
            W = by_normal_equations(X[kept], Y[kept], label_vectors(codebook), l2, some)
            top = codebook.top_k(torch.from_numpy(X[[i]].toarray() @ W), 5)[1][0].numpy()
            true = Y[[i]].toarray()[0]
            gain = 1 / np.log2(np.arange(5) + 2)
            gains.append((true[top] * gain).sum() / gain[: int(true.sum())].sum() if true.any() else 0)
        assert score == pytest.approx(100 * np.mean(gains))


@pytest.mark.parametrize("system", ["primal", "dual"])
@pytest.mark.parametrize("weighted", [False, True])
def test_factored_validation_with_groups_leaves_whole_groups_out(system, weighted):
    X, Y = problem(n=30, seed=3)
    X = csr_array(X[[0, 1, 2, 7, *range(4, 30)]])
    groups = np.random.default_rng(1).integers(0, 8, 30)
    weights = np.random.default_rng(0).uniform(0.2, 3, 30) if weighted else None
    codebook = hb.OrbitCodebook(12, 7)
    found = ridge(X, Y, codebook, weights=weights, system=system, direct=True, groups=groups)
    for l2, score in found.validation:
        top = np.empty((30, 5), int)
        for group in set(groups):
            kept, held = groups != group, groups == group
            W = by_normal_equations(
                X[kept], Y[kept], label_vectors(codebook), l2, None if weights is None else weights[kept]
            )
            top[held] = codebook.top_k(torch.from_numpy(X[held].toarray() @ W), 5)[1].numpy()
        assert score == pytest.approx(ndcg_at_k(Y, top)[-1])


def test_conjugate_gradients_hold_whole_groups_out():
    X, Y = problem(n=60, seed=5)
    groups = np.arange(60) // 4
    codebook = hb.OrbitCodebook(12, 7)
    found = ridge(X, Y, codebook, groups=groups, direct=False, tolerance=1e-6, system="primal", seed=3)
    kept, held = holdout(60, 12, 3, groups)
    assert len(held) == 12
    for l2, score in found.validation:
        W = by_normal_equations(X[kept], Y[kept], label_vectors(codebook), l2)
        top = codebook.top_k(torch.from_numpy(X[held].toarray() @ W), 5)[1].numpy()
        assert score == pytest.approx(ndcg_at_k(Y[held], top)[-1])


@pytest.mark.parametrize("direct", [True, False])
def test_the_chosen_penalty_is_within_half_a_step_of_the_best_one_tried(direct):
    X, Y = problem(n=200, f=60, seed=4)
    found = ridge(X, Y, hb.OrbitCodebook(12, 12), direct=direct)
    l2s, scores = zip(*found.validation, strict=True)
    assert list(l2s) == sorted(l2s)
    best = max(l2 for l2, score in found.validation if score == max(scores))
    assert abs(np.log(found.l2 / best)) <= np.log(ridge_module.L2_STEP) / 2 + 1e-9
    assert l2s[0] < best < l2s[-1] or len(l2s) > ridge_module.MAX_L2_STEPS


@pytest.mark.parametrize("peak", [-2.3, 0.0, 0.4, 3.7])
def test_search_finds_the_maximum_of_a_parabola(peak):
    l2, _ = ridge_module._search_l2(lambda l2: -((np.log10(l2) - peak / 2) ** 2), 1.0)
    assert l2 == pytest.approx(10 ** (peak / 2))


@pytest.mark.parametrize("slope", [-1, 0, 1])
def test_search_ends_without_a_maximum(slope):
    l2, tried = ridge_module._search_l2(lambda l2: slope * np.log(l2), 1.0)
    assert len(tried) <= 2 * ridge_module.MAX_L2_STEPS + 1
    assert l2 in [l2 for l2, _ in tried]


def test_the_penalty_is_searched_in_the_scale_of_the_rows():
    X, Y = problem(n=100, seed=5)
    codebook = hb.OrbitCodebook(12, 12)
    small, large = (ridge(csr_array(X * s), Y, codebook) for s in (0.125, 8))
    assert large.l2 == pytest.approx(small.l2 * 64**2, rel=1e-5)
    assert_close_to(small.weights, large.weights.numpy() * 64, 1e-3)


@pytest.mark.parametrize("direct", [True, False])
def test_the_same_call_gives_the_same_weights(direct):
    X, Y = problem(n=100, f=60, labels=90, seed=6)
    first, second = (ridge(X, Y, hb.OrbitCodebook(90, 64), direct=direct) for _ in range(2))
    assert torch.equal(first.weights, second.weights)
    assert first.validation == second.validation


@pytest.mark.parametrize("bias", [0, 0.3])
@settings(max_examples=10)
@given(seed=seeds)
def test_a_start_close_to_the_solution_saves_iterations(bias, seed):
    X, Y = problem(n=200, labels=90, seed=seed)  # more labels than dimensions: else each has its own column
    codebook, options = hb.OrbitCodebook(90, 16), {"system": "primal", "direct": False, "bias": bias}
    start = ridge(X, Y, codebook, 0.51, **options, **TIGHT)
    weights = start.weights.clone()
    wanted, found = (ridge(X, Y, codebook, 0.5, **options, **TIGHT, start=each) for each in (None, start))
    assert found.converged and found.iterations < wanted.iterations
    assert_close_to(found.weights, wanted.weights.numpy(), 1e-5)
    assert torch.equal(start.weights, weights)
    assert ridge(X, Y, codebook, 0.5, **options).iterations > 0
    assert (
        ridge(X, Y, codebook, 0.5, **options, start=found).iterations == 0
    )  # it is the solution already, with the bias


def correlated(n=600, f=60, labels=40, seed=0):
    """Dense features of which a few common directions have nearly all energy; labels depend on the others."""
    draw = np.random.default_rng(seed)
    noise = draw.normal(size=(n, f))
    X = noise + 5 * draw.normal(size=(n, 3)) @ draw.normal(size=(3, f))
    logits = noise @ draw.normal(size=(f, labels))
    Y = logits >= np.sort(logits, axis=1)[:, [-2]]
    return csr_array(X.astype(np.float32)), csr_array(Y.astype(np.float32))


def ndcg_of(solution, codebook, X, Y):
    top = codebook.top_k(outputs(X, solution.weights, solution.bias), 5)[1].numpy()
    return hb.metrics.ndcg_at_k(Y, top)[-1]


@pytest.mark.parametrize("l2", [None, 1.0])
def test_a_chosen_tolerance_is_small_where_stopping_early_costs_accuracy(l2):
    X, Y = correlated()
    codebook, kept = hb.OrbitCodebook(40, 16), np.arange(500)
    early, chosen, exact = (
        ridge(X[kept], Y[kept], codebook, l2, direct=False, tolerance=tolerance, max_iterations=300)
        for tolerance in (ridge_module.FIRST_TOLERANCE, None, 1e-4)
    )
    scores = [ndcg_of(solution, codebook, X[500:], Y[500:]) for solution in (early, chosen, exact)]
    assert scores[0] < scores[2] - 5  # stopping early costs accuracy
    assert scores[1] > scores[2] - 2.5
    assert chosen.tolerance < ridge_module.FIRST_TOLERANCE and chosen.converged
    assert early.tolerance == ridge_module.FIRST_TOLERANCE


@pytest.mark.parametrize("l2", [None, 1.0])
def test_a_chosen_tolerance_stays_large_where_smaller_ones_gain_nothing(l2):
    X, Y = problem(n=300, f=60, seed=3)
    found = ridge(X, Y, hb.OrbitCodebook(12, 8), l2, direct=False, tolerance=None)
    assert found.tolerance == ridge_module.FIRST_TOLERANCE and found.converged
    assert found.summary()["tolerance"] == found.tolerance


def test_a_factored_solution_has_no_tolerance_of_its_own():
    """So that a later one by conjugate gradients, of more rows, chooses its own."""
    X, Y = problem()
    found = ridge(X, Y, hb.OrbitCodebook(12, 8), direct=True, tolerance=None)
    assert found.tolerance is None and found.converged
    assert ridge(X, Y, hb.OrbitCodebook(12, 8), direct=True, tolerance=0.1).tolerance == 0.1


def test_tolerances_are_tried_in_steps_while_they_gain():
    class Solver:
        has_tolerance, tried = True, ()

        def __init__(self, scores):
            self.scores = scores

        def validate(self, l2, tolerance):
            self.tried = (*self.tried, round(tolerance, 4))
            return self.scores[round(tolerance, 4)]

    def choose(*scores, **options):
        solver = Solver(dict(zip((0.3, 0.0949, 0.03, 0.01), scores, strict=True)))
        return ridge_module._choose(solver, 1.0, options.get("tolerance"), 1.0, can_validate=True)[0][-1][0]

    assert choose(50, 50.2, 90, 90) == 0.3
    assert choose(50, 51, 51.2, 90) == pytest.approx(0.0949, abs=1e-4)
    assert choose(50, 51, 52, 53) == 0.01
    assert choose(50, 51, 52, 53, tolerance=0.2) == 0.2


def test_too_few_iterations_are_reported():
    X, Y = problem(n=100, f=60, seed=7)
    codebook = hb.OrbitCodebook(12, 8)
    found = ridge(X, Y, codebook, 1e-3, direct=False, tolerance=1e-6, max_iterations=2)
    assert not found.converged
    assert "NOT CONVERGED" in str(found)
    A, T = X.toarray(), Y.toarray() @ label_vectors(codebook).numpy()
    left = A.T @ (A @ found.weights.numpy() - T) + 1e-3 * found.weights.numpy()
    assert found.residual == pytest.approx(np.linalg.norm(left) / np.linalg.norm(A.T @ T), rel=1e-3)


@each_method
def test_no_features_at_all_gives_zero_weights(method):
    X, Y = csr_array((6, 4), dtype=np.float32), csr_array(np.eye(6, 3, dtype=np.float32))
    for l2 in (1.0, None):
        assert ridge(X, Y, hb.OrbitCodebook(3, 4), l2, **method).weights.abs().max() == 0


def test_one_row_is_enough():
    X, Y = csr_array(np.ones((1, 2), np.float32)), csr_array(np.ones((1, 2), np.float32))
    assert ridge(X, Y, hb.OrbitCodebook(2, 2)).weights.isfinite().all()


@each_method
@pytest.mark.parametrize("dim", [5, 16])
def test_bias_is_a_constant_feature(method, dim):
    X, Y = problem(seed=9)
    codebook = hb.OrbitCodebook(12, dim)
    constant = 0.5 * np.sqrt(X.multiply(X).sum() / 40)
    wider = csr_array(hstack([X, csr_array(np.full((40, 1), constant))]))
    W = by_normal_equations(wider, Y, label_vectors(codebook), 0.5)
    found = ridge(X, Y, codebook, 0.5, bias=0.5, **method)
    assert found.weights.shape == (25, dim)
    assert_close_to(outputs(X, found.weights, found.bias), wider.toarray() @ W)


@given(st.integers(1, 3000))
def test_default_dim_is_at_least_the_number_of_labels_up_to_its_maximum(n_labels):
    dim = default_dim(n_labels)
    assert dim >= min(n_labels, 1024)
    assert dim <= max(1024, n_labels)
    for prime in (7, 11, 13, 17, 19, 23, 29, 31):
        assert dim % prime


def test_progress_ends_at_one():
    stages = []
    X, Y = problem(n=100, seed=8)
    ridge(X, Y, hb.OrbitCodebook(12, 8), direct=False, on_progress=lambda stage, done: stages.append((stage, done)))
    assert ("solve", 1.0) in stages
    assert any(stage.startswith("l2") for stage, _ in stages)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"X": np.ones((40, 3))}, hb.DTypeError, "X: wants a scipy sparse matrix, got ndarray"),
        ({"Y": [[1]]}, hb.DTypeError, "Y: wants a scipy sparse matrix, got list"),
        ({"X": csr_array((7, 3))}, hb.ShapeError, "same number of rows, at least 1; got 7 and 40 rows"),
        ({"Y": csr_array((40, 3))}, hb.ShapeError, "Y has 3 labels, but the codebook has 12"),
        ({"X": csr_array(np.full((40, 2), np.nan))}, hb.DataError, "X: it holds a NaN or a number too large"),
        ({"l2": 0}, hb.OptionError, "l2 must be a positive number, or None to choose it; got 0"),
        ({"l2": float("nan")}, hb.OptionError, "l2 must be a positive number"),
        ({"bias": -1}, hb.OptionError, "bias must be a finite number, 0 or larger .0 for none.; got -1"),
        (
            {"tolerance": 2},
            hb.OptionError,
            "tolerance is a relative residual between 0 and 1, or None to choose it; got 2",
        ),
        ({"max_iterations": 0}, hb.OptionError, "max_iterations must be at least 1, got 0"),
        ({"system": "both"}, hb.OptionError, "system must be one of 'primal', 'dual', None; got 'both'"),
        ({"weights": np.ones(3)}, hb.ShapeError, r"weights must have shape \(40,\), got \(3,\)"),
        ({"weights": np.zeros(40)}, hb.OptionError, "all weights are 0"),
        ({"label_weights": -np.ones(12)}, hb.OptionError, "label_weights must be finite and not negative"),
    ],
)
def test_wrong_arguments_get_one_clear_line(change, error, text):
    X, Y = problem()
    with pytest.raises(error, match=text) as caught:
        ridge(**{"X": X, "Y": Y, "codebook": hb.OrbitCodebook(12, 8), **change})
    assert "\n" not in str(caught.value)


def test_summary_has_what_a_model_file_records():
    found = ridge(*problem(), hb.OrbitCodebook(12, 8))
    summary = found.summary()
    assert (summary["l2"], summary["system"], summary["converged"]) == (found.l2, "primal, factored", True)
    assert summary["validation"] == [[round(l2, 6), round(score, 3)] for l2, score in found.validation]
